//! Limits of a store and of a key, and a write that changes nothing.

use index_table::{Error, Store};

use super::{TestResult, indexed, plain};

#[test]
fn a_row_that_is_there_already_is_not_written() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let people = indexed::PersonRepository::open(&store)?;
    store.transaction(|txn| people.insert(txn, &indexed::person(1)))?;
    let bytes = || std::fs::read(dir.path().join("data.mdb"));
    let before = bytes()?;
    store.transaction(|txn| people.put(txn, &indexed::person(1)))?;
    store.transaction(|txn| people.update(txn, 1, |person| person.age = 40))?;
    assert!(bytes()? == before, "a transaction that changes nothing writes nothing");
    store.transaction(|txn| people.update(txn, 1, |person| person.age = 41))?;
    assert!(bytes()? != before);
    Ok(())
}

#[test]
fn limits_say_what_to_set() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::options().max_databases(2).max_readers(2).open(dir.path())?;
    let refused = indexed::PersonRepository::open(&store).map(drop);
    assert!(matches!(refused, Err(Error::TooManyDatabases { max_databases: 2 })), "{refused:?}");
    let people = plain::PersonRepository::open(&store)?;
    let (_first, _second) = (store.read()?, store.read()?);
    assert!(matches!(store.read(), Err(Error::TooManyReaders { max_readers: 2, oldest: Some(_) })));
    let long = plain::Person { town: "x".repeat(2000), ..plain::person(1) };
    store.transaction(|txn| people.insert(txn, &long))?;
    Ok(())
}

#[test]
fn keys_that_are_too_long_change_nothing() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let people = indexed::PersonRepository::open(&store)?;
    let mut txn = store.write()?;
    people.insert(&mut txn, &indexed::person(1))?;
    // 506 letters, their end, and the primary key make 511.
    for (letters, fits) in [(506, true), (507, false), (5000, false)] {
        let outcome = people.update(&mut txn, 1, |person| person.town = "x".repeat(letters));
        if fits {
            assert!(outcome?);
        } else {
            let Err(Error::KeyTooLong { table: "people", index: Some("town"), key, len }) = outcome
            else {
                return Err(format!("{outcome:?}").into());
            };
            assert_eq!(len, letters + 5);
            assert!(key.len() < 200, "{key}");
        }
    }
    assert_eq!(people.find_by_town(&txn, &"x".repeat(506)).count()?, 1);
    // Asking for what can't be there is no error.
    assert_eq!(people.find_by_town(&txn, &"x".repeat(5000)).rows().count(), 0);
    assert_eq!(people.find_by_town_range(&txn, "x".repeat(5000).as_str()..).rev().count()?, 0);
    assert_eq!(people.find_by_town_range(&txn, ..="x".repeat(5000).as_str()).rows().count(), 1);
    assert_eq!(people.find_by_town_starting_with(&txn, &"x".repeat(506)).rev().rows().count(), 1);
    // Bounds of which LMDB can only be told the first 511 bytes, on both sides of the row.
    let (row, below, above) = ("x".repeat(506), "x".repeat(505) + "w", "x".repeat(507) + "y");
    let cut = "x".repeat(511);
    for (range, count) in [
        ((below.as_str(), row.as_str()), 0),
        ((row.as_str(), above.as_str()), 1),
        ((row.as_str(), cut.as_str()), 1),
        ((cut.as_str(), above.as_str()), 0),
        ((below.as_str(), cut.as_str()), 1),
    ] {
        let scan = || people.find_by_town_range(&txn, range.0..range.1);
        assert_eq!(scan().rows().count(), count, "{range:?}");
        assert_eq!(scan().rev().rows().count(), count, "{range:?}");
        assert_eq!(scan().count()?, count as u64, "{range:?}");
    }
    Ok(())
}
