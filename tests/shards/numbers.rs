//! `insert_with`: rows are numbered within their shard key.

use index_table::{Error, IndexKey, IndexTable, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IndexKey)]
struct Number(u16);

#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "invoices", shard_by = [region, tenant])]
struct Invoice {
    #[primary_key]
    region: String,
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: Number,
    total: i64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "letters", shard_by = hash(tenant))]
struct Letter {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: i8,
}

fn stores() -> Result<Vec<(Option<tempfile::TempDir>, Store)>> {
    let options = || {
        let map =
            ShardMap::ranges().to("a", ..("m".to_owned(), 0u32)).to("b", ("m".to_owned(), 0u32)..);
        Store::options()
            .shard("a", "a")
            .shard("b", "b")
            .map("invoices", map)
            .map("letters", ShardMap::hashed(["a", "b"]))
    };
    let (one, many) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("many"));
    let stores = [Store::open(one.path())?, options().open(many.path())?];
    let memory = [Store::in_memory(), options().in_memory()?];
    let dirs = [Some(one), Some(many), None, None];
    Ok(dirs.into_iter().zip(stores.into_iter().chain(memory)).collect())
}

#[test]
fn rows_are_numbered_within_their_shard_key() -> Result<()> {
    for (_dir, store) in stores()? {
        let invoices = InvoiceRepository::open(&store)?;
        let insert = |region: &str, tenant| {
            store.transaction(|txn| {
                invoices.insert_with(txn, region, tenant, |number| Invoice {
                    region: region.to_owned(),
                    tenant,
                    number,
                    total: 5,
                })
            })
        };
        for expected in 1..4 {
            assert_eq!(insert("east", 7)?, Number(expected));
            assert_eq!(insert("west", 7)?, Number(expected));
        }
        assert_eq!(insert("east", 8)?, Number(1));
        // A number is assigned only once, even if its row is deleted.
        store.transaction(|txn| invoices.delete(txn, "east", 7, &Number(3)))?;
        assert_eq!(insert("east", 7)?, Number(4));
        let explicit = Invoice { region: "west".into(), tenant: 7, number: Number(40), total: 1 };
        store.transaction(|txn| invoices.insert(txn, &explicit))?;
        assert_eq!(insert("west", 7)?, Number(41));
        assert_eq!(insert("west", 6)?, Number(1));

        let rolled_back: Result<()> = store.transaction(|txn| {
            invoices.insert_with(txn, "west", 6, |number| Invoice {
                region: "west".into(),
                tenant: 6,
                number,
                total: 5,
            })?;
            Err(Error::WriteInProgress)
        });
        assert!(rolled_back.is_err());
        assert_eq!(insert("west", 6)?, Number(2));
        let other = store.transaction(|txn| {
            invoices.insert_with(txn, "west", 6, |number| Invoice {
                region: "east".into(),
                tenant: 6,
                number,
                total: 5,
            })
        });
        assert!(matches!(other, Err(Error::OtherKey { .. })), "{other:?}");
        let long = "x".repeat(401);
        assert!(matches!(insert(&long, 1), Err(Error::KeyTooLong { .. })));
    }
    Ok(())
}

#[test]
fn numbers_end_within_each_shard_key() -> Result<()> {
    for (_dir, store) in stores()? {
        let letters = LetterRepository::open(&store)?;
        let mut txn = store.write()?;
        letters.insert(&mut txn, &Letter { tenant: 1, number: 126 })?;
        letters.insert(&mut txn, &Letter { tenant: 2, number: -3 })?;
        let letter = |tenant| move |number| Letter { tenant, number };
        assert_eq!(letters.insert_with(&mut txn, 1, letter(1))?, 127);
        let full = letters.insert_with(&mut txn, 1, letter(1));
        assert!(matches!(full, Err(Error::SequenceExhausted { .. })), "{full:?}");
        assert_eq!(letters.insert_with(&mut txn, 2, letter(2))?, 1);
        assert_eq!(letters.insert_with(&mut txn, 3, letter(3))?, 1);
        txn.commit()?;
    }
    Ok(())
}

#[test]
fn a_transaction_of_one_shard_numbers_its_rows() -> Result<()> {
    let map = ShardMap::hashed(["a", "b"]);
    let options = Store::options().shard("a", "a").shard("b", "b").map("letters", map);
    let store = options.in_memory()?;
    let letters = LetterRepository::open(&store)?;
    for tenant in 0..20 {
        let shard = letters.shard_of(&store, tenant)?;
        let insert = |txn: &mut index_table::WriteTxn<'_>| {
            letters.insert_with(txn, tenant, |number| Letter { tenant, number })
        };
        assert_eq!(store.transaction_on(&shard, insert)?, 1);
        assert_eq!(store.transaction_on(&shard, insert)?, 2);
    }
    Ok(())
}
