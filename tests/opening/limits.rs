//! Limits of a store and of keys, and writes of equal rows.

use index_table::{Durability, Error, Store};

use super::{TestResult, indexed, plain};

#[test]
fn an_equal_row_is_not_written() -> TestResult {
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
fn errors_about_limits_name_the_option() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::options().max_databases(2).max_readers(2).open(dir.path())?;
    let result = indexed::PersonRepository::open(&store).map(drop);
    assert!(matches!(result, Err(Error::TooManyDatabases { max_databases: 2 })), "{result:?}");
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
    // 506 letters, their terminator and the primary key have 511 bytes.
    for (letters, fits) in [(506, true), (507, false), (5000, false)] {
        let outcome = people.update(&mut txn, 1, |person| person.town = "x".repeat(letters));
        if fits {
            assert!(outcome?);
        } else {
            let Err(Error::KeyTooLong { table: "people", index: Some("town"), key, len, .. }) =
                outcome
            else {
                return Err(format!("{outcome:?}").into());
            };
            assert_eq!(len, letters + 5);
            assert!(key.len() < 200, "{key}");
        }
    }
    assert_eq!(people.find_by_town(&txn, &"x".repeat(506)).count()?, 1);
    // A query for a key beyond the limit is not an error.
    assert_eq!(people.find_by_town(&txn, &"x".repeat(5000)).rows().count(), 0);
    assert_eq!(people.find_by_town_range(&txn, "x".repeat(5000).as_str()..).rev().count()?, 0);
    assert_eq!(people.find_by_town_range(&txn, ..="x".repeat(5000).as_str()).rows().count(), 1);
    assert_eq!(people.find_by_town_starting_with(&txn, &"x".repeat(506)).rev().rows().count(), 1);
    // Bounds that exceed LMDB's limit of 511 bytes, on both sides of the row.
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

#[test]
fn the_largest_map_is_not_exceeded() -> TestResult {
    for (most, size) in
        [(100_000, None), (300_000, None), (100_000, Some(70_000)), (1 << 20, Some(0))]
    {
        let dir = tempfile::tempdir()?;
        let options = Store::options().durability(Durability::None).max_map_size(most);
        let store = size.map_or(options.clone(), |size| options.map_size(size)).open(dir.path())?;
        let people = plain::PersonRepository::open(&store)?;
        let mut full = (1..2000).map(|id| {
            let person = plain::Person { town: "x".repeat(2000), ..plain::person(id) };
            store.transaction(|txn| people.insert(txn, &person))
        });
        let full = full.find_map(Result::err);
        let Some(Error::MapFull { map_size }) = full else {
            return Err(format!("{full:?}").into());
        };
        assert!(map_size <= most && map_size + (1 << 16) > most, "{map_size} of {most}");
        assert!(std::fs::metadata(dir.path().join("data.mdb"))?.len() <= most as u64);
    }
    Ok(())
}

#[test]
fn the_default_map_fits_the_limits_of_the_process() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::options().map_size(usize::MAX).open(dir.path().join("largest"))?;
    let people = plain::PersonRepository::open(&store)?;
    store.transaction(|txn| people.insert(txn, &plain::person(1)))?;
    // An explicit size is not reduced.
    let result = Store::options().map_size(usize::MAX / 2).open(dir.path().join("too large"));
    assert!(matches!(result, Err(Error::NoAddressSpace { .. })), "{result:?}");
    Ok(())
}

#[test]
fn impossible_options_are_refused_by_open() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    for (options, option) in [
        (Store::options().max_readers(0), "max_readers"),
        (Store::options().max_readers((1 << 20) + 1), "max_readers"),
        (Store::options().max_readers(1 << 31), "max_readers"),
        (Store::options().max_readers(u32::MAX), "max_readers"),
        (Store::options().max_databases((1 << 20) + 1), "max_databases"),
        (Store::options().max_databases(u32::MAX), "max_databases"),
    ] {
        let result = options.open(&path);
        let Err(Error::Io { source, .. }) = result else {
            return Err(format!("{result:?}").into());
        };
        assert_eq!(source.kind(), std::io::ErrorKind::InvalidInput);
        assert!(source.to_string().contains(option), "{source}");
        assert!(!path.exists(), "nothing was created");
    }
    // A lock file that was created for more readers.
    std::fs::create_dir(&path)?;
    std::fs::File::create(path.join("lock.mdb"))?.set_len(64 << 31)?;
    let result = Store::open(&path);
    let Err(Error::Io { source, .. }) = result else { return Err(format!("{result:?}").into()) };
    assert!(source.to_string().contains("remove it"), "{source}");
    std::fs::remove_file(path.join("lock.mdb"))?;
    Store::options().max_readers(1 << 20).max_databases(1 << 16).open(&path)?;
    Ok(())
}

#[test]
fn a_file_is_not_a_directory() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("shop.db");
    std::fs::write(&path, "")?;
    for options in [Store::options(), Store::options().read_only(true)] {
        let error = options.open(&path).map(drop).expect_err("a file").to_string();
        assert!(error.contains("it is a file, not a directory"), "{error}");
    }
    Ok(())
}
