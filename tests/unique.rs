//! Unique indexes reject a row whose key is in use, and leave the transaction unchanged.

use index_table::{Error, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "indexes may have an option in common")]
#[index(email, unique, strategy = "full")]
#[index(town)]
#[index(each(phones), unique)]
#[index(badge, unique, sparse)]
struct Member {
    #[primary_key]
    id: u32,
    email: String,
    town: String,
    phones: Vec<u32>,
    badge: Option<u16>,
}

fn member(id: u32) -> Member {
    let email = format!("{id}@example.com");
    let phones = vec![10 * id, 10 * id + 1, 10 * id + 2];
    Member { id, email, town: "Redmond".into(), phones, badge: Some(id as u16) }
}

/// Returns a store on disk and a store in memory.
fn stores() -> Result<[(Option<tempfile::TempDir>, Store); 2]> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path())?;
    Ok([(Some(dir), store), (None, Store::in_memory())])
}

/// Returns rows that one index or two indexes reject, with the name of the index in the error and the holder
/// of the key.
fn rejected_rows() -> Vec<(Member, &'static str, &'static str)> {
    let new = member(9);
    let badge = Member { badge: Some(2), ..new.clone() };
    let phones = Member { phones: vec![5, 7, 21], ..new.clone() };
    let email = Member { email: "1@example.com".into(), ..phones.clone() };
    vec![(badge, "badge", "2"), (phones, "phones", "2"), (email, "email", "1")]
}

type Write = fn(&MemberRepository, &mut index_table::WriteTxn<'_>, &Member) -> Result<()>;

#[test]
fn a_rejected_row_does_not_change_its_transaction() -> Result<()> {
    let writes: [Write; 2] = [MemberRepository::insert, MemberRepository::put];
    for (_dir, store) in stores()? {
        let members = MemberRepository::open(&store)?;
        store.transaction(|txn| (1..4).try_for_each(|id| members.insert(txn, &member(id))))?;
        let written = |name: &str| {
            let usage = members.usage();
            usage.indexes.iter().find(|index| index.name == name).map(|index| index.written)
        };
        let before = ["email", "phones", "badge"].map(written);

        let mut txn = store.write()?;
        for (row, index, holder) in rejected_rows() {
            for write in writes {
                match write(&members, &mut txn, &row) {
                    Err(Error::UniqueViolation { index: violated, holder: found, .. }) => {
                        assert_eq!((violated, found.as_str()), (index, holder));
                    }
                    other => panic!("{index}: {other:?}"),
                }
                assert!(members.verify(&txn).run()?.is_clean());
            }
        }
        // The primary key is in use, and the unique keys are free.
        let other = Member { id: 2, ..member(9) };
        let inserted = members.insert(&mut txn, &other);
        assert!(matches!(inserted, Err(Error::DuplicateKey { .. })), "{inserted:?}");
        // Both the primary key and a unique key are taken. The error names the primary key.
        let same = members.insert(&mut txn, &member(2));
        assert!(matches!(same, Err(Error::DuplicateKey { .. })), "{same:?}");
        assert!(members.verify(&txn).run()?.is_clean());
        assert_eq!(members.all(&txn).rows().collect::<Result<Vec<_>>>()?, [1, 2, 3].map(member));
        txn.commit()?;
        assert_eq!(["email", "phones", "badge"].map(written), before);

        // The keys of the rejected rows are free.
        store.transaction(|txn| members.insert(txn, &member(9)))?;
        store.transaction(|txn| members.put(txn, &member(10)))?;
        assert_eq!(written("phones"), Some(15));
        let txn = store.read()?;
        assert_eq!(members.get_by_phones(&txn, 91)?, Some(member(9)));
        assert_eq!(members.get_by_badge(&txn, 10)?, Some(member(10)));
        assert!(members.verify(&txn).run()?.is_clean());
    }
    Ok(())
}

#[test]
fn a_row_may_keep_its_keys_and_take_freed_ones() -> Result<()> {
    for (_dir, store) in stores()? {
        let members = MemberRepository::open(&store)?;
        store.transaction(|txn| {
            members.insert(txn, &member(1))?;
            members.put(txn, &Member { town: "Bergen".into(), ..member(1) })?;
            members.delete(txn, 1)?;
            members.insert(txn, &Member { id: 2, ..member(1) })?;
            members.put(txn, &Member { id: 2, ..member(3) })?;
            members.put(txn, &member(1))
        })?;
        let txn = store.read()?;
        let expected = [member(1), Member { id: 2, ..member(3) }];
        assert_eq!(members.all(&txn).rows().collect::<Result<Vec<_>>>()?, expected);
        assert!(members.verify(&txn).run()?.is_clean());
    }
    Ok(())
}
