//! Repositories on a PostgreSQL server, from declaring to repairing. The server is in `INDEX_TABLE_POSTGRES_URL`; see
//! `scripts/postgres`. Without a server, the tests print that they are not run.

mod changes;
#[cfg(unix)]
#[path = "../support/fork.rs"]
mod child;
mod clients;
#[path = "../support/cluster.rs"]
mod cluster;
mod commits;
mod cuts;
#[cfg(feature = "postgres-tls")]
mod encrypted;
mod eventual;
mod forked;
mod hot;
mod kinds;
#[path = "../support/kinds.rs"]
mod methods;
mod numbers;
mod places;
mod plans;
#[path = "../support/postgres.rs"]
mod postgres;
#[path = "../support/proxy.rs"]
mod proxy;
mod redeclared;
mod restored;
#[path = "../support/serial.rs"]
mod serial;
mod serial_clients;
mod snapshots;
mod stalls;
mod statements;
mod stripes;
mod totals;
mod trips;
mod turns;

use std::time::Duration;

use index_table::{
    __private::run_sql, Cursor, Durability, Error, IndexTable, ReadTxn, Result, Store,
};
use serde::{Deserialize, Serialize};

use postgres::Schema;

type TestResult = std::result::Result<(), Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers")]
#[index(town)]
#[index(town, last_name, include = [phone])]
#[index(last_name, strategy = "full")]
#[index(email, unique)]
#[index(phone, consistency = "eventual")]
#[aggregate(town, sum = [points])]
struct Customer {
    #[primary_key]
    id: u64,
    last_name: String,
    town: String,
    phone: String,
    email: String,
    points: i64,
}

fn customer(id: u64) -> Customer {
    Customer {
        id,
        last_name: ["Smith", "Jones", "Ng"][id as usize % 3].to_owned(),
        town: ["Redmond", "Seattle", "Oslo", "Graz"][id as usize % 4].to_owned(),
        phone: format!("555-{:04}", id % 50),
        email: format!("c{id}@example.com"),
        points: id.cast_signed(),
    }
}

/// Returns all results of a workload, as text, and all cursors.
fn results(txn: &ReadTxn<'_>, customers: &CustomerRepository) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for row in customers.find_by_town(txn, "Oslo").rows().chain(customers.all(txn).rev().rows()) {
        all.push(format!("{:?}", row?));
    }
    for entry in customers.find_by_town_last_name_starting_with(txn, "Graz", "N").entries() {
        let entry = entry?;
        all.push(format!("{} {} {} {}", entry.id, entry.town, entry.last_name, entry.phone));
    }
    for id in customers.find_by_town_in(txn, ["Oslo", "Graz"]).keys() {
        all.push(id?.to_string());
    }
    let mut after: Option<Cursor> = None;
    loop {
        let scan = customers.by_last_name(txn);
        let page = match &after {
            Some(cursor) => scan.after(cursor).page(7)?,
            None => scan.page(7)?,
        };
        all.push(format!("{:?}", page.items));
        let Some(next) = page.next else { break };
        all.push(next.to_string());
        after = Some(next);
    }
    for row in customers.get_many(txn, [3, 900, 1]) {
        all.push(format!("{:?}", row?));
    }
    all.push(customers.find_by_town(txn, "Redmond").count()?.to_string());
    all.push(format!("{:?}", customers.get_by_email(txn, "c5@example.com")?));
    for totals in customers.aggregates_by_town(txn) {
        let totals = totals?;
        all.push(format!("{} {} {}", totals.town, totals.count, totals.sum_points));
    }
    Ok(all)
}

/// Writes rows in all ways, and returns the results.
fn workload(store: &Store) -> std::result::Result<Vec<String>, Box<dyn std::error::Error>> {
    let customers = CustomerRepository::open(store)?;
    customers.bulk_load(store, (0..60).map(customer)).run()?;
    store.transaction(|txn| {
        for id in 60..80 {
            customers.insert(txn, &customer(id))?;
        }
        customers.update(txn, 7, |it| it.town = "Oslo".into())?;
        customers.delete(txn, 8)?;
        let mut moved = customer(9);
        moved.id = 200;
        customers.put_by_email(txn, &moved)?;
        let number = customers.insert_with(txn, customer)?;
        assert_eq!(number, 201);
        // An operation that fails changes nothing, and the transaction continues.
        let duplicate = customers.insert(txn, &customer(1));
        assert!(matches!(duplicate, Err(Error::DuplicateKey { .. })), "{duplicate:?}");
        let taken = customers.insert(txn, &Customer { id: 500, ..customer(2) });
        assert!(
            matches!(&taken, Err(Error::UniqueViolation { holder, .. }) if holder == "2"),
            "{taken:?}"
        );
        let nested = txn.nested(|txn| {
            customers.delete(txn, 3)?;
            customers.insert(txn, &customer(4))
        });
        assert!(matches!(nested, Err(Error::DuplicateKey { .. })), "{nested:?}");
        assert!(customers.get(txn, 3)?.is_some());
        Ok(())
    })?;
    assert!(customers.drain(store, u64::MAX)?.applied > 0);
    let txn = store.read()?;
    let mut results = results(&txn, &customers)?;
    for row in customers.find_by_phone(&txn, "555-0010").verified().rows() {
        results.push(format!("{:?}", row?));
    }
    let report = customers.verify(&txn).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(results)
}

#[test]
fn each_operation_of_autocommit_is_a_transaction() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let customers = CustomerRepository::open(&store)?;
    let mut each = store.autocommit()?;
    customers.insert(&mut each, &customer(1))?;
    let duplicate = customers.insert(&mut each, &customer(1));
    assert!(matches!(duplicate, Err(Error::DuplicateKey { .. })), "{duplicate:?}");
    customers.insert(&mut each, &customer(2))?;
    assert!(customers.update(&mut each, 2, |row| row.town = "Oslo".to_owned())?);
    assert_eq!(customers.all(&store.read()?).count()?, 2);
    assert_eq!(customers.find_by_town(&each, "Oslo").count()?, 1);
    each.commit()?;
    Ok(())
}

#[test]
fn results_pages_and_cursors_are_those_of_lmdb() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let dir = tempfile::tempdir()?;
    assert_eq!(workload(&schema.open()?)?, workload(&Store::open(dir.path())?)?);
    Ok(())
}

#[test]
fn a_store_on_disk_moves_to_a_server() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let dir = tempfile::tempdir()?;
    let (old, new) = (Store::open(dir.path())?, schema.open()?);
    workload(&old)?;
    let (from, to) = (CustomerRepository::open(&old)?, CustomerRepository::open(&new)?);
    let txn = old.read()?;
    new.transaction(|new_txn| {
        let mut failure = None;
        let rows = from.all(&txn).rows();
        let rows = rows.map_while(|row| row.map_err(|it| failure = Some(it)).ok());
        to.bulk_load_in(new_txn, rows).run()?;
        failure.map_or(Ok(()), Err)
    })?;
    assert!(to.verify(&new.read()?).run()?.is_clean());
    assert_eq!(results(&new.read()?, &to)?, results(&txn, &from)?);
    drop(txn);
    for (store, customers) in [(&old, &from), (&new, &to)] {
        assert_eq!(store.transaction(|txn| customers.insert_with(txn, customer))?, 202);
    }
    Ok(())
}

#[test]
fn a_store_is_as_it_was_when_it_is_opened_again() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let before = workload(&schema.open()?)?;
    let store = schema.open_with(&schema.options().create(false))?;
    let customers = CustomerRepository::open(&store)?;
    let txn = store.read()?;
    let after = results(&txn, &customers)?;
    assert_eq!(after, before[..after.len()]);
    Ok(())
}

#[test]
fn an_insertion_replaces_entries_without_a_row() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let customers = CustomerRepository::open(&store)?;
    customers.insert(&mut store.autocommit()?, &customer(500))?;
    for table in ["customers", "customers.email"] {
        run_sql(&store, &format!("DELETE FROM \"{}\".\"{table}\"", schema.name()))?;
    }
    let entries = |phone: &str| {
        let txn = store.read()?;
        let town = customers.find_by_town_last_name(&txn, "Redmond", "Ng");
        let phones = town.entries().map(|entry| Ok(entry?.phone.to_owned()));
        assert_eq!(phones.collect::<Result<Vec<_>>>()?, [phone]);
        customers.get(&txn, 500)
    };
    assert_eq!(entries(&customer(500).phone)?, None);
    let other = Customer { phone: "none".to_owned(), ..customer(500) };
    customers.insert(&mut store.autocommit()?, &other)?;
    assert_eq!(entries("none")?, Some(other));
    Ok(())
}

#[test]
fn wrong_entries_are_found_and_repaired() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    workload(&store)?;
    let table = |name: &str| format!("\"{}\".\"{name}\"", schema.name());
    for index in ["customers.town", "customers.email"] {
        run_sql(&store, &format!("DELETE FROM {} WHERE p < '\\x0000000000000020'", table(index)))?;
    }
    let customers = CustomerRepository::open(&store)?;
    let report = customers.verify(&store.read()?).run()?;
    assert!(!report.is_clean());
    store.transaction(|txn| customers.repair(txn).run().map(drop))?;
    let report = customers.verify(&store.read()?).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

/// Every row of the table "not offered" in the README and in the guide.
#[test]
fn functions_of_files_are_not_offered() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let customers = CustomerRepository::open(&store)?;
    let dir = tempfile::tempdir()?;
    let refused = [
        store.backup_to(dir.path().join("copy")).map(drop),
        store.backup(dir.path().join("copy")).run(),
        store.compact_to(dir.path().join("copy")).map(drop),
        store.check(),
        customers.watch(&store).start().map(drop),
    ];
    for outcome in refused {
        assert!(matches!(outcome, Err(Error::NotOffered { .. })), "{outcome:?}");
    }
    let options = || schema.options();
    let mut refused = vec![
        ("map_size", options().map_size(1 << 30)),
        ("max_map_size", options().max_map_size(1 << 30)),
        ("durability", options().durability(Durability::Relaxed)),
        ("max_databases", options().max_databases(100)),
        ("max_readers", options().max_readers(100)),
        ("reserve", options().reserve(0)),
        ("archive", options().archive(dir.path())),
        ("archive_with", options().archive_with(|_| Ok(()))),
        ("shard", options().shard("a", "a")),
        ("checkpoint", options().checkpoint(1 << 20, 1 << 20, Duration::from_secs(1))),
    ];
    if cfg!(unix) {
        refused.push(("file_mode", options().file_mode(0o644)));
        refused.push(("directory_mode", options().directory_mode(0o755)));
    }
    for (option, options) in refused {
        let refused = schema.open_with(&options).map(drop);
        let Err(Error::NotOffered { what }) = refused else { panic!("{option}: {refused:?}") };
        assert!(what.contains(&format!("`{option}`")), "{option}: {what}");
    }
    Ok(())
}

#[test]
fn sql_tables_of_other_programs_are_refused() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let name = schema.name();
    let foreign = [
        ("customers", "a int"),
        ("customers", "k bytea, v bytea, w bytea"),
        ("customers.town", "k bytea, v bytea"),
        ("customers.email", "k bytea, p bytea, v bytea"),
    ];
    for (table, columns) in foreign {
        run_sql(&store, &format!("CREATE TABLE \"{name}\".\"{table}\" ({columns})"))?;
        let refused = CustomerRepository::open(&store).map(drop);
        let Err(Error::SchemaMismatch { table: "customers", difference, .. }) = refused else {
            panic!("{table} ({columns}): {refused:?}")
        };
        assert!(difference.contains(&format!("\"{table}\"")), "{difference}");
        run_sql(&store, &format!("DROP TABLE \"{name}\".\"{table}\""))?;
    }
    CustomerRepository::open(&store)?;
    Ok(())
}

#[test]
fn a_dropped_sql_table_is_an_error_when_the_repository_is_opened() -> TestResult {
    for table in ["customers.town", ".queue.customers", "customers"] {
        let Some(schema) = Schema::new() else { return Ok(()) };
        let store = schema.open()?;
        let customers = CustomerRepository::open(&store)?;
        store.transaction(|txn| customers.insert(txn, &customer(1)))?;
        run_sql(&store, &format!("DROP TABLE \"{}\".\"{table}\"", schema.name()))?;
        let refused = CustomerRepository::open(&schema.open()?).map(drop);
        let Err(Error::SchemaMismatch { table: "customers", difference, .. }) = refused else {
            panic!("{table}: {refused:?}")
        };
        assert!(difference.contains(&format!("\"{table}\"")), "{difference}");
    }
    Ok(())
}

#[test]
fn all_other_functions_are_offered() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    workload(&store)?;
    let customers = CustomerRepository::open(&store)?;
    customers.bulk_load(&store, (1_000..1_010).map(customer)).run()?;
    store.transaction(|txn| customers.bulk_load_in(txn, [customer(1_010)]).run().map(drop))?;
    let online = CustomerRepository::open_online(&store)?;
    online.build(&store).run()?;
    online.upgrade(&store).run()?;
    customers.drain(&store, u64::MAX)?;
    let txn = store.read()?;
    customers.verify(&txn).run()?;
    customers.analyze(&txn)?;
    customers.lag(&txn)?;
    drop(txn);
    let (_, _) = (store.start_index_worker()?, store.start_expiry_worker()?);
    store.transaction(|txn| txn.nested(|_| Ok(())))?;
    store.writer()?.submit(|_| Ok::<_, Error>(())).wait()?;
    store.autocommit()?.commit()?;
    let (_, _, _) = (store.catalog()?, store.drop_retired()?, store.sizes()?);
    let (_, _, _) = (store.readers(), store.clear_stale_readers()?, store.verify()?);
    assert!(!store.usage().is_empty());
    Ok(())
}

#[test]
fn a_read_only_store_reads_with_the_right_to_read_alone() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let read_only = schema.options().read_only(true);
    let missing = schema.open_with(&read_only);
    assert!(matches!(missing, Err(Error::StoreNotFound { .. })), "{missing:?}");
    let store = schema.open()?;
    workload(&store)?;
    let customers = CustomerRepository::open(&store)?;
    let expected = results(&store.read()?, &customers)?;

    let (name, role) = (schema.name(), format!("{} reader", schema.name()));
    run_sql(
        &store,
        &format!(
            "CREATE ROLE \"{role}\" LOGIN; GRANT USAGE ON SCHEMA \"{name}\" TO \"{role}\"; \
             GRANT SELECT ON ALL TABLES IN SCHEMA \"{name}\" TO \"{role}\""
        ),
    )?;
    let reader = read_only.connect(&schema.url_of(&role))?;
    {
        let copy = CustomerRepository::open(&reader)?;
        assert_eq!(results(&reader.read()?, &copy)?, expected);
        let refused = [
            reader.write().map(drop),
            reader.transaction(|txn| copy.delete(txn, 1)).map(drop),
            copy.bulk_load(&reader, [customer(900)]).run().map(drop),
            reader.autocommit().map(drop),
            reader.drop_retired().map(drop),
        ];
        for outcome in refused {
            assert!(matches!(outcome, Err(Error::ReadOnly { .. })), "{outcome:?}");
        }
        // A later commit of another client.
        assert!(store.transaction(|txn| customers.delete(txn, 5))?);
        assert!(copy.get(&reader.read()?, 5)?.is_none());
    }
    // The catalog has the types of all keys.
    let recorded = reader.open_recorded()?;
    let names: Vec<_> = recorded.tables[0].index_names().collect();
    assert_eq!(names, ["town", "town_last_name", "last_name", "email", "phone"]);
    drop((recorded, reader));
    run_sql(&store, &format!("DROP OWNED BY \"{role}\"; DROP ROLE \"{role}\""))?;
    Ok(())
}

#[test]
fn sizes_and_readers_are_those_of_the_server() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    workload(&store)?;
    let _customers = CustomerRepository::open(&store)?;
    let sizes = store.sizes()?;
    assert_eq!(sizes.len(), 1);
    assert!(sizes[0].rows > 70 && sizes[0].bytes >= 8192, "{sizes:?}");
    assert!(sizes[0].indexes.iter().all(|index| index.bytes >= 8192), "{sizes:?}");
    assert_eq!(store.readers().count, 0);
    let txn = store.read()?;
    assert_eq!(store.readers().count, 1);
    assert!(store.readers().oldest.is_some());
    drop(txn);
    assert_eq!(store.readers().count, 0);
    Ok(())
}

#[test]
fn a_group_writer_commits_closures_of_many_threads() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let customers = CustomerRepository::open(&store)?;
    let writer = store.writer()?;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (writer, customers) = (&writer, &customers);
            scope.spawn(move || {
                for id in thread * 10..thread * 10 + 10 {
                    let customers = customers.clone();
                    let insert = move |txn: &mut index_table::WriteTxn<'_>| {
                        customers.insert(txn, &customer(id))
                    };
                    writer.submit(insert).wait().expect("an insertion");
                }
            });
        }
    });
    assert_eq!(customers.all(&store.read()?).count()?, 40);
    Ok(())
}

#[test]
fn an_index_worker_applies_messages_of_another_client() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let (store, other) = (schema.open()?, schema.open()?);
    let (customers, of_other) =
        (CustomerRepository::open(&store)?, CustomerRepository::open(&other)?);
    let _worker = store.start_index_worker()?;
    let mut txn = other.write()?;
    of_other.insert(&mut txn, &customer(1))?;
    let token = txn.commit_with_token()?;
    assert!(of_other.wait_for(&other, &token, Duration::from_mins(1))?);
    let txn = store.read()?;
    assert_eq!(customers.find_by_phone(&txn, "555-0001").stale().count()?, 1);
    Ok(())
}

#[test]
fn a_store_can_be_called_in_asynchronous_code() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let store = schema.open()?;
        let customers = CustomerRepository::open(&store)?;
        store.transaction(|txn| customers.insert(txn, &customer(1)))?;
        tokio::task::yield_now().await;
        assert_eq!(customers.get(&store.read()?, 1)?, Some(customer(1)));
        Ok(())
    })
}
