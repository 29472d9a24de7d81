//! Transactions of which each operation is a transaction of its own.

use std::thread;

use index_table::{Durability, Error, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(town)]
#[index(email, unique)]
struct Person {
    #[primary_key]
    id: u32,
    town: String,
    email: String,
}

fn person(id: u32, town: &str) -> Person {
    Person { id, town: town.to_owned(), email: format!("{id}@example.com") }
}

fn stores() -> Result<[(Option<tempfile::TempDir>, Store); 2]> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::options().durability(Durability::Journal).open(dir.path())?;
    Ok([(Some(dir), store), (None, Store::in_memory())])
}

/// Returns the primary keys that others see.
fn seen(store: &Store, people: &PersonRepository) -> Result<Vec<u32>> {
    people.all(&store.read()?).keys().collect()
}

#[test]
fn each_operation_is_committed_when_it_returns() -> Result<()> {
    for (_dir, store) in stores()? {
        let people = PersonRepository::open(&store)?;
        let mut each = store.autocommit()?;
        people.insert(&mut each, &person(1, "Oslo"))?;
        assert_eq!(seen(&store, &people)?, [1]);
        people.put(&mut each, &person(2, "Rome"))?;
        assert_eq!(seen(&store, &people)?, [1, 2]);
        assert_eq!(people.replace(&mut each, &person(2, "Graz"))?, Some(person(2, "Rome")));
        assert_eq!(people.insert_with(&mut each, |id| person(id, "Oslo"))?, 3);
        assert!(people.update(&mut each, 3, |row| row.town = "Bonn".to_owned())?);
        let town = people.try_update(&mut each, 3, |row| Ok::<_, Error>(row.town.clone()))?;
        assert_eq!(town.as_deref(), Some("Bonn"));
        people.put_by_email(&mut each, &Person { id: 4, ..person(3, "Ulm") })?;
        assert_eq!(seen(&store, &people)?, [1, 2, 4]);
        assert!(people.delete_by_email(&mut each, "3@example.com")?);
        assert_eq!(people.remove(&mut each, 2)?, Some(person(2, "Graz")));
        assert_eq!(people.find_by_town(&each, "Oslo").query().delete(&mut each)?, 1);
        assert!(!people.delete(&mut each, 1)?);
        assert_eq!(seen(&store, &people)?, [0; 0]);
        each.commit()?;
    }
    Ok(())
}

#[test]
fn an_operation_that_fails_changes_nothing_and_the_next_succeeds() -> Result<()> {
    for (_dir, store) in stores()? {
        let people = PersonRepository::open(&store)?;
        let mut each = store.autocommit()?;
        people.insert(&mut each, &person(1, "Oslo"))?;
        let duplicate = people.insert(&mut each, &person(1, "Rome"));
        assert!(matches!(duplicate, Err(Error::DuplicateKey { .. })), "{duplicate:?}");
        let taken = people.put(&mut each, &Person { id: 2, ..person(1, "Rome") });
        assert!(matches!(taken, Err(Error::UniqueViolation { .. })), "{taken:?}");
        let own = people.try_update(&mut each, 1, |row| {
            row.town = "Rome".to_owned();
            Err::<(), _>(Error::ReopenNeeded { path: "own".into(), reason: "an error" })
        });
        assert!(matches!(own, Err(Error::ReopenNeeded { .. })), "{own:?}");
        let nested: Result<()> = each.nested(|txn| {
            people.insert(txn, &person(5, "Ulm"))?;
            people.insert(txn, &person(1, "Ulm"))
        });
        assert!(matches!(nested, Err(Error::DuplicateKey { .. })), "{nested:?}");
        each.nested(|txn| {
            people.insert(txn, &person(6, "Ulm"))?;
            people.insert(txn, &person(7, "Ulm"))
        })?;
        assert_eq!(seen(&store, &people)?, [1, 6, 7]);
        assert_eq!(people.get(&each, 1)?, Some(person(1, "Oslo")));
        drop(each);
        assert_eq!(seen(&store, &people)?, [1, 6, 7]);
    }
    Ok(())
}

#[test]
fn other_threads_write_between_operations() -> Result<()> {
    for (_dir, store) in stores()? {
        let people = PersonRepository::open(&store)?;
        let mut each = store.autocommit()?;
        people.insert(&mut each, &person(1, "Oslo"))?;
        thread::scope(|scope| {
            let other =
                scope.spawn(|| store.transaction(|txn| people.insert(txn, &person(2, "Rome"))));
            other.join().expect("the thread has not panicked")
        })?;
        let duplicate = people.insert(&mut each, &person(2, "Oslo"));
        assert!(matches!(duplicate, Err(Error::DuplicateKey { .. })), "{duplicate:?}");
        assert_eq!(people.get(&each, 2)?, Some(person(2, "Rome")), "reads see the last state");
        let mut second = store.autocommit()?;
        people.insert(&mut second, &person(3, "Oslo"))?;
        people.insert(&mut each, &person(4, "Oslo"))?;
        assert_eq!(seen(&store, &people)?, [1, 2, 3, 4]);
    }
    Ok(())
}

#[test]
fn an_operation_runs_again_when_the_map_is_enlarged() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::options().map_size(1 << 20).open(dir.path())?;
    let people = PersonRepository::open(&store)?;
    let mut each = store.autocommit()?;
    let town = "x".repeat(400);
    for id in 0..3000 {
        people.insert(&mut each, &person(id, &town))?;
    }
    let update = |each: &mut _| people.update(each, 1, |row| row.town = "x".repeat(400));
    while update(&mut each).is_err() {}
    assert_eq!(people.all(&store.read()?).count()?, 3000);
    assert!(store.verify()?.is_clean());
    Ok(())
}

#[test]
fn operations_that_are_not_single_are_refused() -> Result<()> {
    for (_dir, store) in stores()? {
        let people = PersonRepository::open(&store)?;
        let mut each = store.autocommit()?;
        let load = people.bulk_load_in(&mut each, [person(1, "Oslo")]).run().map(drop);
        assert!(matches!(load, Err(Error::NotOffered { .. })), "{load:?}");
        let repair = people.repair(&mut each).run().map(drop);
        assert!(matches!(repair, Err(Error::NotOffered { .. })), "{repair:?}");
        assert_eq!(seen(&store, &people)?, [0; 0]);
    }
    Ok(())
}

#[test]
fn a_read_only_store_has_no_autocommit() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    drop(Store::open(dir.path())?);
    let store = Store::options().read_only(true).open(dir.path())?;
    assert!(matches!(store.autocommit().map(drop), Err(Error::ReadOnly { .. })));
    Ok(())
}
