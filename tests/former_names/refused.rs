//! Former names that are still used.

use std::{path::PathBuf, process::Command};

use index_table::{Durability, Error, Result, Store};

use crate::{Kind, Place, TENANTS, TestResult, fill, shop, with};

/// Returns the message of a [`Error::SchemaMismatch`] about a table.
#[track_caller]
fn mismatch<T>(outcome: Result<T>, about: &str) -> String {
    match outcome {
        Err(error @ Error::SchemaMismatch { table, .. }) if table == about => error.to_string(),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it is not refused"),
    }
}

#[test]
fn a_program_with_the_former_name_gets_an_error_with_the_new_name() -> TestResult {
    for place in Place::all()? {
        fill(&place)?;
        with!(place, second, |store, _people, _orders| { drop(store) });
        let store = place.open()?;
        let message = mismatch(shop::first::People::open(&store), "customers");
        assert!(
            message.contains("it was renamed to `clients`; open it by its new name"),
            "{message}"
        );
        let message = mismatch(shop::first::Orders::open(&store), "customers");
        assert!(message.contains("it was renamed to `clients`"), "{message}");
        drop(store);
        with!(place, third, |store, _people, _orders| { drop(store) });
        let store = place.open()?;
        for (outcome, table) in [
            (shop::first::People::open(&store).map(drop), "customers"),
            (shop::plain::People::open(&store).map(drop), "clients"),
        ] {
            let message = mismatch(outcome, table);
            assert!(message.contains("it was renamed to `buyers`"), "{message}");
        }
    }
    Ok(())
}

#[test]
fn a_program_that_uses_the_renamed_table_can_use_the_former_name_for_a_new_table() -> TestResult {
    for place in Place::all()? {
        fill(&place)?;
        with!(place, second, |store, _people, _orders| { drop(store) });
        for rows in 0..3 {
            // The name is free since the first opening.
            let is_open = rows == 0 || rows == 2;
            let store = place.open()?;
            let clients = is_open.then(|| shop::plain::People::open(&store)).transpose()?;
            let customers = shop::first::People::open(&store)?;
            assert_eq!(customers.all(&store.read()?).count()?, rows);
            let person = shop::first::Person {
                parent: rows as u32 + 1,
                ..shop::first::person(3, rows as u32 + 1)
            };
            store.transaction(|txn| customers.put(txn, &person))?;
            assert!(customers.verify(&store.read()?).run()?.is_clean());
            assert_eq!(customers.find_by_town(&store.read()?, &person.town).count()?, 1);
            if let Some(clients) = clients {
                assert_eq!(clients.all(&store.read()?).count()?, 9);
                assert!(clients.verify(&store.read()?).run()?.is_clean());
            }
            // Now `was` would rename two tables to one.
            drop(customers);
            let message = mismatch(shop::second::People::open(&store), "clients");
            assert!(message.contains("its former table `customers`"), "{message}");
        }
    }
    Ok(())
}

#[test]
fn a_table_is_not_renamed_while_the_process_uses_its_former_name() -> TestResult {
    for place in Place::all()? {
        fill(&place)?;
        let store = place.open()?;
        let people = shop::first::People::open(&store)?;
        let message = mismatch(shop::second::People::open(&store), "clients");
        assert!(message.contains("`customers` is in use in this process by"), "{message}");
        drop(people);
        let orders = shop::first::Orders::open(&store)?;
        mismatch(shop::second::People::open(&store), "clients");
        let refused = shop::second::Orders::open(&store).map(drop);
        assert!(matches!(refused, Err(Error::SchemaMismatch { .. })), "{refused:?}");
        drop(orders);
        let people = shop::second::People::open(&store)?;
        assert_eq!(people.all(&store.read()?).count()?, 9);
    }
    Ok(())
}

#[test]
fn a_referring_table_renames_the_table_to_which_it_refers() -> TestResult {
    for place in Place::all()? {
        fill(&place)?;
        let store = place.open()?;
        let regions = shop::second::Regions::open(&store)?;
        // The regions would not find the customers by their new name.
        let message = mismatch(shop::second::Orders::open(&store), "clients");
        assert!(
            message.contains("refers to `regions`, which is in use; open its repository"),
            "{message}"
        );
        drop(regions);
        let orders = shop::second::Orders::open(&store)?;
        let regions = shop::second::Regions::open(&store)?;
        let people = shop::second::People::open(&store)?;
        for tenant in TENANTS {
            let refused = store.transaction(|txn| people.delete(txn, tenant, 2));
            assert!(matches!(refused, Err(Error::Referenced { by: "orders", .. })), "{refused:?}");
            let order = shop::second::Order { tenant, number: 5, customer: 3 };
            store.transaction(|txn| orders.put(txn, &order))?;
        }
        // The repository was open before its referring table was renamed.
        let refused = store.transaction(|txn| regions.delete(txn, 1));
        assert!(matches!(refused, Err(Error::Referenced { by: "clients", .. })), "{refused:?}");
        store.transaction(|txn| regions.put(txn, &shop::second::Region { code: 2 }))?;
    }
    Ok(())
}

#[test]
fn a_table_is_not_renamed_if_both_exist_and_the_former_one_has_rows() -> TestResult {
    for place in Place::all()? {
        with!(place, plain, |store, _people, _orders| { drop(store) });
        let store = place.open()?;
        let people = shop::first::People::open(&store)?;
        let regions = shop::first::Regions::open(&store)?;
        drop(people);
        let people = shop::first::People::open(&store)?;
        // Without rows, the former table stays as it is.
        drop(people);
        drop(shop::second::People::open(&store)?);
        let people = shop::first::People::open(&store)?;
        store.transaction(|txn| regions.put(txn, &shop::first::Region { code: 1 }))?;
        store.transaction(|txn| people.put(txn, &shop::first::person(3, 1)))?;
        drop((people, regions));
        let message = mismatch(shop::second::People::open(&store), "clients");
        assert!(message.contains("also has rows in its former table `customers`"), "{message}");
        assert_eq!(shop::first::People::open(&store)?.all(&store.read()?).count()?, 1);
        assert_eq!(shop::plain::People::open(&store)?.all(&store.read()?).count()?, 0);
    }
    Ok(())
}

#[test]
fn a_new_table_is_created_by_its_new_name() -> TestResult {
    for place in Place::all()? {
        with!(place, second, |store, people, _orders| {
            assert_eq!(people.all(&store.read()?).count()?, 0);
        });
        with!(place, plain, |store, people, _orders| {
            assert_eq!(people.all(&store.read()?).count()?, 0);
        });
    }
    Ok(())
}

#[test]
fn a_failed_opening_renames_nothing() -> TestResult {
    for place in Place::all()? {
        fill(&place)?;
        let store = place.open()?;
        mismatch(shop::retyped::People::open(&store), "clients");
        drop(store);
        with!(place, first, |store, people, _orders| {
            assert_eq!(people.all(&store.read()?).count()?, 9);
        });
    }
    Ok(())
}

#[test]
fn a_reader_says_that_the_store_has_the_former_name() -> TestResult {
    for kind in [Kind::OneFile, Kind::Several] {
        let place = Place::of(kind);
        fill(&place)?;
        let read = || Store::options().read_only(true).open(place.path());
        let message = mismatch(shop::second::People::open(&read()?), "clients");
        let expected = kind.of("the file has it by its former name `customers`", "");
        assert!(message.contains(expected), "{message}");
        with!(place, second, |store, _people, _orders| { drop(store) });
        let store = read()?;
        let people = shop::second::People::open(&store)?;
        assert_eq!(people.find_by_town(&store.read()?, "Rome").count()?, 3);
        let message = mismatch(shop::first::People::open(&store), "customers");
        assert!(message.contains("renamed to `clients`") || kind == Kind::Several, "{message}");
    }
    Ok(())
}

#[test]
fn a_process_with_the_former_name_stops_writing_when_another_process_renames_the_table()
-> TestResult {
    let full = Store::options().durability(Durability::Full);
    let name = "INDEX_TABLE_OTHER_PROCESS";
    if let Some(path) = std::env::var_os(name).map(PathBuf::from) {
        shop::second::People::open(&full.open(path)?)?;
        return Ok(());
    }
    let place = Place::of(Kind::OneFile);
    fill(&place)?;
    let store = full.open(place.path())?;
    let people = shop::first::People::open(&store)?;
    let regions = shop::first::Regions::open(&store)?;
    let older = store.read()?;
    assert_eq!(people.find_by_town(&older, "Rome").count()?, 3);
    let test = "refused::a_process_with_the_former_name_stops_writing_when_another_process_renames_the_table";
    let mut child = Command::new(std::env::current_exe()?);
    let output = child.args(["--exact", test]).env(name, place.path()).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let person = shop::first::person(3, 4);
    let message = mismatch(store.transaction(|txn| people.put(txn, &person)), "customers");
    assert!(message.contains("it was renamed to `clients`"), "{message}");
    mismatch(people.find_by_town(&store.read()?, "Rome").count(), "customers");
    mismatch(store.transaction(|txn| regions.delete(txn, 1).map(drop)), "regions");
    // Its snapshots, and rows by their primary keys, can still be read.
    assert_eq!(people.find_by_town(&older, "Rome").count()?, 3);
    assert!(people.get(&store.read()?, 3, 1)?.is_some());
    drop((older, people, regions));
    let people = shop::second::People::open(&store)?;
    store.transaction(|txn| people.put(txn, &shop::second::person(3, 4)))?;
    assert!(people.verify(&store.read()?).run()?.is_clean());
    Ok(())
}

#[cfg(feature = "postgres")]
#[test]
fn a_client_with_the_former_name_stops_when_another_client_renames_the_table() -> TestResult {
    let Some(schema) = crate::postgres::Schema::new() else { return Ok(()) };
    let place = Place::Server(schema);
    fill(&place)?;
    let (store, other) = (place.open()?, place.open()?);
    let people = shop::first::People::open(&store)?;
    assert_eq!(people.find_by_town(&store.read()?, "Rome").count()?, 3);
    let renamed = shop::second::People::open(&other)?;
    let person = shop::first::person(3, 4);
    let message = mismatch(store.transaction(|txn| people.put(txn, &person)), "customers");
    assert!(message.contains("it was renamed to `clients`"), "{message}");
    mismatch(people.find_by_town(&store.read()?, "Rome").count(), "customers");
    // The server has no SQL table with this name.
    let refused = people.get(&store.read()?, 3, 1);
    assert!(matches!(refused, Err(Error::Engine { .. })), "{refused:?}");
    assert_eq!(renamed.find_by_town(&other.read()?, "Rome").count()?, 3);
    Ok(())
}
