//! Writes that return a value or can fail, writes by unique keys, deletion of a scan's rows, and nested
//! transactions.

use std::collections::BTreeMap;

use index_table::{ChangeKind, Error, Event, IndexTable, Result, Store, WriteTxn};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[indexes(
    (email, unique),
    (badge, unique, sparse, strategy = "full"),
    (hash(url), unique),
    (each(phones), unique),
    (town, id),
    (each(tags))
)]
struct Member {
    #[primary_key]
    id: u32,
    email: String,
    url: String,
    town: String,
    badge: Option<u16>,
    phones: Vec<u32>,
    tags: Vec<u8>,
}

fn member(id: u32) -> Member {
    Member {
        id,
        email: format!("{id}@example.com"),
        url: format!("https://example.com/{id}"),
        town: ["Oslo", "Rome"][id as usize % 2].into(),
        badge: (id.is_multiple_of(3)).then_some(id as u16),
        phones: vec![10 * id, 10 * id + 1],
        tags: vec![(id % 5) as u8, 7],
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(guest)]
struct Seat {
    #[primary_key]
    row: String,
    #[primary_key]
    number: u32,
    guest: String,
}

/// Returns a store on disk and a store in memory.
fn stores() -> Result<[(Option<tempfile::TempDir>, Store); 2]> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path())?;
    Ok([(Some(dir), store), (None, Store::in_memory())])
}

/// Runs `test` with a table of members 1 to `last`, and then compares the indexes with the rows.
fn with_members(
    last: u32,
    test: impl Fn(&MemberRepository, &mut WriteTxn<'_>) -> Result<()>,
) -> Result<()> {
    for (_dir, store) in stores()? {
        let members = MemberRepository::open(&store)?;
        members.bulk_load(&store, (1..=last).map(member)).run()?;
        let mut txn = store.write()?;
        test(&members, &mut txn)?;
        assert!(members.verify(&txn).run()?.is_clean());
        txn.commit()?;
        assert!(members.verify(&store.read()?).run()?.is_clean());
    }
    Ok(())
}

fn ids(members: &MemberRepository, txn: &WriteTxn<'_>) -> Result<Vec<u32>> {
    members.all(txn).keys().collect()
}

#[derive(Debug)]
enum AppError {
    Closed,
    Store(Error),
}

impl From<Error> for AppError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

#[test]
fn try_update_returns_the_closures_value_or_changes_nothing() -> Result<()> {
    with_members(3, |members, txn| {
        let moved = members.try_update(txn, 1, |row| {
            row.town = "Bergen".into();
            Ok::<_, AppError>(row.phones.len())
        });
        assert!(matches!(moved, Ok(Some(2))), "{moved:?}");
        assert_eq!(members.get(txn, 1)?, Some(Member { town: "Bergen".into(), ..member(1) }));
        assert_eq!(members.find_by_town(txn, "Bergen").count()?, 1);

        let closed: Result<Option<()>, _> = members.try_update(txn, 2, |row| {
            row.town = "Bergen".into();
            Err(AppError::Closed)
        });
        assert!(matches!(closed, Err(AppError::Closed)), "{closed:?}");
        assert_eq!(members.get(txn, 2)?, Some(member(2)));

        let taken = members.try_update(txn, 2, |row| {
            row.email = member(3).email;
            Ok::<_, AppError>(())
        });
        let violation = matches!(taken, Err(AppError::Store(Error::UniqueViolation { .. })));
        assert!(violation, "{taken:?}");
        assert_eq!(members.get(txn, 2)?, Some(member(2)));

        let none = members.try_update(txn, 9, |_| Err::<(), _>(AppError::Closed));
        assert!(matches!(none, Ok(None)), "{none:?}");
        Ok(())
    })
}

#[test]
fn replace_and_remove_return_the_previous_row() -> Result<()> {
    with_members(2, |members, txn| {
        let other = Member { town: "Bergen".into(), ..member(1) };
        assert_eq!(members.replace(txn, &other)?, Some(member(1)));
        assert_eq!(members.replace(txn, &other)?, Some(other.clone()));
        assert_eq!(members.replace(txn, &member(3))?, None);
        let taken = members.replace(txn, &Member { email: member(2).email, ..member(1) });
        assert!(matches!(taken, Err(Error::UniqueViolation { .. })), "{taken:?}");
        assert_eq!(members.remove(txn, 1)?, Some(other));
        assert_eq!(members.remove(txn, 1)?, None);
        assert_eq!(ids(members, txn)?, [2, 3]);
        assert_eq!(members.find_by_town(txn, "Bergen").count()?, 0);
        Ok(())
    })
}

#[test]
fn put_by_a_unique_key_replaces_the_row_with_that_key() -> Result<()> {
    with_members(4, |members, txn| {
        // The same primary key, a different primary key, and a new row.
        let moved = Member { town: "Bergen".into(), ..member(1) };
        members.put_by_email(txn, &moved)?;
        assert_eq!(members.get(txn, 1)?, Some(moved));
        let renamed = Member { email: member(2).email, ..member(8) };
        members.put_by_email(txn, &renamed)?;
        assert_eq!((members.get(txn, 2)?, members.get(txn, 8)?), (None, Some(renamed)));
        members.put_by_email(txn, &member(9))?;
        assert_eq!(ids(members, txn)?, [1, 3, 4, 8, 9]);

        // The primary key belongs to a third row, whether a row has the email or not.
        for email in [member(3).email, "new@example.com".to_owned()] {
            let third = members.put_by_email(txn, &Member { email, ..member(4) });
            assert!(matches!(third, Err(Error::DuplicateKey { .. })), "{third:?}");
        }
        // Another unique key belongs to a third row.
        let taken = members.put_by_email(txn, &Member { url: member(3).url, ..member(4) });
        assert!(matches!(taken, Err(Error::UniqueViolation { index: "url", .. })), "{taken:?}");
        assert_eq!(ids(members, txn)?, [1, 3, 4, 8, 9]);

        // By a hash, and by a key that the row doesn't have.
        let by_url = Member { url: member(3).url, email: "3".into(), badge: None, ..member(20) };
        members.put_by_url(txn, &by_url)?;
        members.put_by_badge(txn, &Member { badge: None, ..member(21) })?;
        members.put_by_badge(txn, &Member { badge: Some(9), ..member(30) })?;
        assert_eq!(ids(members, txn)?, [1, 4, 8, 20, 21, 30]);
        Ok(())
    })
}

#[test]
fn delete_by_a_unique_key_deletes_the_row_with_that_key() -> Result<()> {
    with_members(6, |members, txn| {
        assert!(members.delete_by_email(txn, "1@example.com")?);
        assert!(!members.delete_by_email(txn, "1@example.com")?);
        assert!(members.delete_by_badge(txn, 3)?);
        assert!(!members.delete_by_badge(txn, 4)?);
        assert!(members.delete_by_url(txn, "https://example.com/2")?);
        assert!(!members.delete_by_url(txn, "https://example.com")?);
        assert!(members.delete_by_phones(txn, 41)?);
        assert_eq!(ids(members, txn)?, [5, 6]);
        Ok(())
    })
}

#[test]
fn deleting_a_scan_deletes_the_rows_of_its_result() -> Result<()> {
    with_members(3000, |members, txn| {
        // There are more rows than a batch of the deletion.
        assert_eq!(members.find_by_town(txn, "Oslo").query().delete(txn)?, 1500);
        assert_eq!(members.find_by_town(txn, "Oslo").query().delete(txn)?, 0);
        assert_eq!(members.all(txn).count()?, 1500);
        assert_eq!(members.all(txn).rev().limit(2).query().delete(txn)?, 2);
        assert_eq!(members.find_by_id_range(txn, ..=5).query().delete(txn)?, 3);
        let page = members.all(txn).page(2)?;
        assert_eq!(page.items.iter().map(|row| row.id).collect::<Vec<_>>(), [7, 9]);
        let cursor = page.next.expect("no next page");
        assert_eq!(members.all(txn).after(&cursor).limit(1).query().delete(txn)?, 1);
        assert_eq!(members.get(txn, 11)?, None);
        assert_eq!(members.find_by_url(txn, "https://example.com/13").query().delete(txn)?, 1);
        assert_eq!(members.find_by_tags(txn, 3).query().delete(txn)?, 298);
        // Every row has two entries.
        let left = members.all(txn).count()?;
        assert_eq!(members.by_tags(txn).query().delete(txn)?, left);
        assert_eq!(members.all(txn).count()?, 0);
        Ok(())
    })
}

#[test]
fn a_query_is_refused_by_another_store_and_without_its_repository() -> Result<()> {
    let [(_dir, store), (_, other)] = stores()?;
    let (members, others) = (MemberRepository::open(&store)?, MemberRepository::open(&other)?);
    for (members, store) in [(&members, &store), (&others, &other)] {
        store.transaction(|txn| members.insert(txn, &member(1)))?;
    }
    let query = members.all(&store.read()?).query();
    let result = query.delete(&mut other.write()?);
    assert!(matches!(result, Err(Error::WrongStore { .. })), "{result:?}");
    assert_eq!(others.all(&other.read()?).count()?, 1);

    let query = members.all(&store.read()?).query();
    drop(members);
    let result = query.delete(&mut store.write()?);
    assert!(matches!(result, Err(Error::WrongStore { .. })), "{result:?}");
    Ok(())
}

#[test]
fn a_row_that_cannot_be_deleted_leaves_the_transaction_as_it_was() -> Result<()> {
    with_members(5, |members, txn| {
        let page = members.find_by_town(txn, "Rome").page(1)?;
        let cursor = page.next.expect("no next page");
        let foreign = members.find_by_town(txn, "Oslo").after(&cursor).query().delete(txn);
        assert!(matches!(foreign, Err(Error::InvalidCursor { .. })), "{foreign:?}");
        assert_eq!(ids(members, txn)?, [1, 2, 3, 4, 5]);
        Ok(())
    })
}

#[test]
fn keys_of_scans_are_keys_of_rows() -> Result<()> {
    for (_dir, store) in stores()? {
        let seats = SeatRepository::open(&store)?;
        let seat = |row: &str, number| Seat { row: row.into(), number, guest: "Ann".into() };
        let mut txn = store.write()?;
        for row in [seat("A", 1), seat("A", 2), seat("B", 1)] {
            seats.insert(&mut txn, &row)?;
        }
        let keys: Vec<(String, u32)> =
            seats.find_by_guest(&txn, "Ann").keys().collect::<Result<_>>()?;
        let rows: Vec<_> = seats.get_many(&txn, &keys).collect::<Result<_>>()?;
        assert_eq!(rows, [seat("A", 1), seat("A", 2), seat("B", 1)].map(Some));
        for key in &keys {
            let (row, number) = key;
            assert_eq!(seats.get_key(&txn, key)?, Some(seat(row, *number)));
            assert!(seats.update_key(&mut txn, key, |seat| seat.guest = "Bob".into())?);
        }
        assert_eq!(seats.find_by_guest(&txn, "Bob").count()?, 3);
        for key in keys {
            assert!(seats.delete_key(&mut txn, &key)?);
            assert!(!seats.update_key(&mut txn, &key, |_| {})?);
            assert!(!seats.delete_key(&mut txn, key)?);
        }
        assert_eq!(seats.all(&txn).count()?, 0);
        assert_eq!(seats.get_key(&txn, ("A".to_owned(), 1))?, None);
    }
    Ok(())
}

#[test]
fn a_failed_nested_transaction_is_rolled_back() -> Result<()> {
    with_members(2, |members, txn| {
        members.insert(txn, &member(3))?;
        let failed: Result<(), AppError> = txn.nested(|txn| {
            members.insert(txn, &member(4))?;
            members.delete(txn, 1)?;
            let inner = txn.nested(|txn| members.insert(txn, &member(5)));
            assert!(inner.is_ok());
            assert_eq!(ids(members, txn)?, [2, 3, 4, 5]);
            Err(AppError::Closed)
        });
        assert!(matches!(failed, Err(AppError::Closed)));
        assert_eq!(ids(members, txn)?, [1, 2, 3]);

        let kept = txn.nested(|txn| {
            members.insert(txn, &member(6))?;
            let result = txn.nested(|txn| {
                members.insert(txn, &member(7))?;
                members.insert(txn, &member(6))
            });
            assert!(matches!(result, Err(Error::DuplicateKey { .. })));
            Ok::<_, Error>("kept")
        });
        assert_eq!(kept?, "kept");
        assert_eq!(ids(members, txn)?, [1, 2, 3, 6]);
        Ok(())
    })
}

#[test]
fn rolled_back_nested_transactions_have_no_events_and_counters() -> Result<()> {
    for (_dir, store) in stores()? {
        let members = MemberRepository::open(&store)?;
        let watcher = members.watch(&store).start()?;
        store.transaction(|txn| {
            members.insert(txn, &member(1))?;
            let _: Result<()> = txn.nested(|txn| {
                members.insert(txn, &member(2))?;
                members.insert(txn, &member(1))
            });
            txn.nested(|txn| {
                members.get(txn, 1)?;
                members.insert(txn, &member(3))
            })?;
            assert_eq!(txn.stats().facts, 1);
            Ok(())
        })?;
        let mut seen = Vec::new();
        while let Ok(Event::Change(change)) = watcher.try_recv() {
            assert_eq!(change.kind(), ChangeKind::Inserted);
            seen.push(change.after().expect("a new row").key()?);
        }
        assert_eq!(seen, [1, 3]);
        assert_eq!(members.usage().inserts, 2);
    }
    Ok(())
}

#[derive(Debug, Clone)]
enum Operation {
    TryUpdate(u32, u8),
    Replace(u32, u8),
    Remove(u32),
    PutBy(u32, u32),
    DeleteBy(u32),
    DeleteTown(u8, usize),
    Nested(Vec<Self>, bool),
}

fn operation() -> impl Strategy<Value = Operation> {
    let id = || 0_u32..12;
    let leaf = prop_oneof![
        (id(), any::<u8>()).prop_map(|(id, town)| Operation::TryUpdate(id, town % 4)),
        (id(), any::<u8>()).prop_map(|(id, town)| Operation::Replace(id, town % 4)),
        id().prop_map(Operation::Remove),
        (id(), id()).prop_map(|(id, email)| Operation::PutBy(id, email)),
        id().prop_map(Operation::DeleteBy),
        (any::<u8>(), 0_usize..4).prop_map(|(town, limit)| Operation::DeleteTown(town % 4, limit)),
    ];
    leaf.prop_recursive(3, 12, 6, |inner| {
        (prop::collection::vec(inner, 0..6), any::<bool>())
            .prop_map(|(operations, keep)| Operation::Nested(operations, keep))
    })
}

type Model = BTreeMap<u32, Member>;

fn town(number: u8) -> String {
    format!("town {number}")
}

/// Makes the same change to the table and to the model, and compares their results.
fn apply(
    members: &MemberRepository,
    txn: &mut WriteTxn<'_>,
    model: &mut Model,
    operation: &Operation,
) -> Result<()> {
    match operation {
        Operation::TryUpdate(id, number) => {
            let changed = members.try_update(txn, *id, |row| {
                row.town = town(*number);
                if *number == 3 { Err(AppError::Closed) } else { Ok(row.id) }
            });
            match (model.get_mut(id), number) {
                (None, _) => assert!(matches!(changed, Ok(None))),
                (Some(_), 3) => assert!(matches!(changed, Err(AppError::Closed))),
                (Some(row), _) => {
                    row.town = town(*number);
                    assert!(matches!(changed, Ok(Some(of)) if of == *id));
                }
            }
        }
        Operation::Replace(id, number) => {
            let row = Member { town: town(*number), ..member(*id) };
            let taken = model.values().any(|other| other.id != *id && collide(other, &row));
            match members.replace(txn, &row) {
                Ok(old) => {
                    assert!(!taken);
                    assert_eq!(old, model.insert(*id, row));
                }
                Err(Error::UniqueViolation { .. }) => assert!(taken),
                Err(other) => return Err(other),
            }
        }
        Operation::Remove(id) => assert_eq!(members.remove(txn, *id)?, model.remove(id)),
        Operation::PutBy(id, email) => {
            let row = Member { email: member(*email).email, ..member(*id) };
            let old = model.values().find(|other| other.email == row.email).map(|old| old.id);
            let third = model.contains_key(id) && old != Some(*id);
            let taken = model
                .values()
                .any(|other| Some(other.id) != old && other.id != *id && collide(other, &row));
            match members.put_by_email(txn, &row) {
                Ok(()) => {
                    assert!(!third && !taken);
                    old.map(|old| model.remove(&old));
                    model.insert(*id, row);
                }
                Err(Error::DuplicateKey { .. }) => assert!(third),
                Err(Error::UniqueViolation { .. }) => assert!(taken),
                Err(other) => return Err(other),
            }
        }
        Operation::DeleteBy(id) => {
            let email = member(*id).email;
            let before = model.len();
            model.retain(|_, row| row.email != email);
            assert_eq!(members.delete_by_email(txn, &email)?, model.len() < before);
        }
        Operation::DeleteTown(number, limit) => {
            let town = town(*number);
            let of_town = model.values().filter(|row| row.town == town).map(|row| row.id);
            let deleted: Vec<u32> = of_town.take(*limit).collect();
            let scan = members.find_by_town(txn, &town).limit(*limit);
            assert_eq!(scan.query().delete(txn)?, deleted.len() as u64);
            model.retain(|id, _| !deleted.contains(id));
        }
        Operation::Nested(operations, keep) => {
            let mut inner = model.clone();
            let ended = txn.nested(|txn| {
                operations.iter().try_for_each(|each| apply(members, txn, &mut inner, each))?;
                if *keep { Ok(()) } else { Err(AppError::Closed) }
            });
            match ended {
                Ok(()) => *model = inner,
                Err(AppError::Closed) => assert!(!keep),
                Err(AppError::Store(error)) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Whether two rows have a unique key in common.
fn collide(one: &Member, other: &Member) -> bool {
    one.email == other.email
        || one.url == other.url
        || one.badge.is_some() && one.badge == other.badge
        || one.phones.iter().any(|phone| other.phones.contains(phone))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn operations_equal_those_of_a_map(operations in prop::collection::vec(operation(), 1..40)) {
        for (_dir, store) in stores().expect("stores") {
            let members = MemberRepository::open(&store).expect("a table");
            let mut model = Model::new();
            store
                .transaction(|txn| {
                    model.clear();
                    operations.iter().try_for_each(|each| apply(&members, txn, &mut model, each))
                })
                .expect("operations");
            let txn = store.read().expect("a snapshot");
            let rows: Vec<Member> = members.all(&txn).rows().collect::<Result<_>>().expect("rows");
            prop_assert_eq!(rows, model.into_values().collect::<Vec<_>>());
            prop_assert!(members.verify(&txn).run().expect("a report").is_clean());
        }
    }
}
