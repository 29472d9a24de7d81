//! Dumps that are restored in another cluster, whose transactions have other numbers.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use index_table::{
    __private::run_sql, Changes, Error, IndexTable, IndexToken, Result, ServerProblem, Store,
};
use serde::{Deserialize, Serialize};

use super::{
    TestResult,
    cluster::{Cluster, binaries, burn, copy_schema, next_number},
    postgres::Schema,
    proxy::{Fate, start_between},
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "crates", changes)]
#[index(town, consistency = "eventual")]
struct Crate {
    #[primary_key]
    id: u32,
    town: String,
}

fn set(store: &Store, crates: &CrateRepository, id: u32, value: u32) -> Result<IndexToken> {
    store.transaction(|txn| {
        crates.put(txn, &Crate { id, town: format!("town {value}") })?;
        Ok(txn.token())
    })
}

/// Reads and commits `len` changes, and checks that there are no others.
fn drain(store: &Store, changes: &mut Changes<Crate>, len: usize) -> Result<Vec<(u32, String)>> {
    let (mut all, begun) = (Vec::new(), Instant::now());
    while all.len() < len && begun.elapsed() < Duration::from_mins(2) {
        let batch = changes.next_batch(1_000)?;
        all.extend(batch.iter().map(|change| (change.key, change.row.town.clone())));
        if batch.is_empty() {
            // A transaction of another test delays changes.
            thread::sleep(Duration::from_millis(1));
        } else {
            batch.commit(store)?;
        }
    }
    assert_eq!(changes.lag()?.changes, 0);
    Ok(all)
}

fn expected(values: impl IntoIterator<Item = (u32, u32)>) -> Vec<(u32, String)> {
    values.into_iter().map(|(id, value)| (id, format!("town {value}"))).collect()
}

/// The last changes before the dump.
const LAST: [(u32, u32); 5] = [(1, 11), (3, 30), (1, 12), (2, 21), (1, 13)];

/// Writes changes and messages, of which a consumer has received the first two changes. Returns the token of the last write.
fn write(store: &Store) -> std::result::Result<IndexToken, Box<dyn std::error::Error>> {
    let crates = CrateRepository::open(store)?;
    set(store, &crates, 1, 10)?;
    set(store, &crates, 2, 20)?;
    let mut changes = crates.changes(store, "copy")?;
    assert_eq!(drain(store, &mut changes, 2)?, expected([(1, 10), (2, 20)]));
    let mut last = IndexToken::default();
    for (id, value) in LAST {
        last = set(store, &crates, id, value)?;
    }
    Ok(last)
}

/// Checks a restored store: the consumer receives what it has not received, and then new changes, each once and in order. No message is lost.
fn check(store: &Store, last: &IndexToken, new: u32) -> TestResult {
    let crates = CrateRepository::open(store)?;
    assert!(!crates.wait_for(store, last, Duration::ZERO)?, "it has messages to apply");
    let new: Vec<_> = (0..new).map(|at| (at % 4, 100 + at)).collect();
    for (id, value) in &new {
        set(store, &crates, *id, *value)?;
    }
    let all = expected(LAST.into_iter().chain(new.iter().copied()));
    let mut changes = crates.changes(store, "copy")?;
    assert_eq!(drain(store, &mut changes, all.len())?, all);
    // 2 messages before the first batch of the consumer.
    assert_eq!(crates.lag(&store.read()?)?.messages, 2 + all.len() as u64);
    crates.drain(store, u64::MAX)?;
    assert!(crates.wait_for(store, last, Duration::ZERO)?);
    let report = crates.verify(&store.read()?).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

/// Restores the schema of one server in another one. `before` is called with the number of the last transaction in the dump and with a store of
/// the other server.
fn restore(
    schema: &Schema,
    to: &str,
    before: impl FnOnce(u64, &Store) -> TestResult,
) -> std::result::Result<Option<(Store, IndexToken)>, Box<dyn std::error::Error>> {
    let store = schema.open()?;
    if binaries(&store)?.is_none() {
        eprintln!("not run: the programs of the server are not on this machine");
        return Ok(None);
    }
    let last = write(&store)?;
    let number = next_number(&store)?;
    copy_schema(&store, schema.url(), schema.name(), to)?;
    let other = Store::options().schema("other").connect(to)?;
    before(number, &other)?;
    Ok(Some((schema.options().connect(to)?, last)))
}

#[test]
fn a_dump_can_be_restored_where_the_numbers_of_transactions_are_less() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    burn(&schema.open()?, 20_000)?;
    let cluster = Cluster::start()?;
    let before = |number, other: &Store| {
        assert!(next_number(other)? + 10_000 < number);
        Ok(())
    };
    let restored = restore(&schema, &cluster.url, before)?;
    restored.map_or(Ok(()), |(store, last)| check(&store, &last, 20))
}

#[test]
fn new_changes_do_not_replace_restored_ones() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    burn(&schema.open()?, 20_000)?;
    let cluster = Cluster::start()?;
    // The new transactions reach the numbers of the old ones.
    let before = |number, other: &Store| {
        burn(other, number - 60)?;
        assert!(next_number(other)? < number - 40);
        Ok(())
    };
    let restored = restore(&schema, &cluster.url, before)?;
    restored.map_or(Ok(()), |(store, last)| check(&store, &last, 160))
}

#[test]
fn a_dump_can_be_restored_where_the_numbers_of_transactions_are_greater() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let cluster = Cluster::start()?;
    let before = |number, other: &Store| {
        burn(other, number + 30_000)?;
        Ok(())
    };
    let restored = restore(&schema, &cluster.url, before)?;
    restored.map_or(Ok(()), |(store, last)| check(&store, &last, 20))
}

#[test]
fn a_dump_can_be_restored_in_another_database_of_the_cluster() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let name = format!("index_table_restored_{}", std::process::id());
    run_sql(&store, &format!("CREATE DATABASE {name}"))?;
    let url = schema.url().replace("/postgres?", &format!("/{name}?"));
    let restored = restore(&schema, &url, |_, _| Ok(()))?;
    restored.map_or(Ok(()), |(store, last)| check(&store, &last, 20))?;
    run_sql(&store, &format!("DROP DATABASE {name} WITH (FORCE)"))?;
    Ok(())
}

/// Adds to the numbers of the transactions of all changes without numbers.
fn shift(store: &Store, schema: &Schema, by: i64) -> Result<()> {
    let name = schema.name();
    let changes = format!(
        "UPDATE \"{name}\".\"crates.change-stream\" SET k = '\\x05'::bytea || \
         int8send(('x' || encode(substr(k, 2, 8), 'hex'))::bit(64)::int8 + {by}) || substr(k, 10) \
         WHERE k >= '\\x05' AND k < '\\x06'"
    );
    run_sql(store, &changes).map(drop)
}

/// As after a dump was restored, with clients that open the table at the same time, and write at once.
#[test]
fn clients_that_open_a_restored_table_at_the_same_time_number_it_once() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let last = write(&schema.open()?)?;
    shift(&schema.open()?, &schema, 100_000_000)?;
    let (stores, barrier) = ([schema.open()?, schema.open()?, schema.open()?], Barrier::new(3));
    let open = |(of, store): (u32, &Store)| -> Result<()> {
        barrier.wait();
        let crates = CrateRepository::open(store)?;
        (0..8).try_for_each(|at| set(store, &crates, 10 + of, at).map(drop))
    };
    thread::scope(|scope| {
        let open = &open;
        let threads: Vec<_> = (0..).zip(&stores).map(|of| scope.spawn(move || open(of))).collect();
        threads.into_iter().try_for_each(|it| it.join().expect("a thread"))
    })?;
    let crates = CrateRepository::open(&stores[0])?;
    assert_eq!(crates.lag(&stores[0].read()?)?.messages, 2 + 5 + 24);
    let mut changes = crates.changes(&stores[0], "copy")?;
    let mut all = drain(&stores[0], &mut changes, 5 + 24)?;
    let new = all.split_off(5);
    assert_eq!(all, expected(LAST));
    for of in 0..3 {
        let own: Vec<_> = new.iter().filter(|(id, _)| *id == 10 + of).cloned().collect();
        assert_eq!(own, expected((0..8).map(|at| (10 + of, at))));
    }
    crates.drain(&stores[0], u64::MAX)?;
    assert!(crates.wait_for(&stores[0], &last, Duration::ZERO)?);
    assert!(crates.verify(&stores[0].read()?).run()?.is_clean());
    Ok(())
}

/// The next client continues, even if the numbers of transactions have passed some of the old ones.
#[test]
fn an_opening_that_was_killed_is_continued() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let last = write(&store)?;
    let first = run_sql(
        &store,
        &format!(
            "SELECT (('x' || encode(substr(k, 2, 8), 'hex'))::bit(64)::int8)::text FROM \
             \"{}\".\"crates.change-stream\" WHERE k >= '\\x05' ORDER BY k LIMIT 1",
            schema.name()
        ),
    )?;
    let first: i64 = first.expect("a number").parse()?;
    // Other tests use numbers, too.
    let by = i64::try_from(next_number(&store)?)? - first;
    // In two steps, because each number is taken until it is changed.
    shift(&store, &schema, 100_000_000)?;
    shift(&store, &schema, by + 3 - 100_000_000)?;
    check(&schema.open()?, &last, 40)
}

/// Each later transaction has the number of a transaction of which the queue has a message.
#[test]
fn messages_do_not_replace_those_of_another_cluster() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let last = write(&store)?;
    let crates = CrateRepository::open(&store)?;
    let queue = format!("\"{}\".\".queue.crates\"", schema.name());
    let more = format!(
        "INSERT INTO {queue} (k, v) SELECT int8send((pg_current_xact_id()::text::int8 + n) << 24), \
         (SELECT v FROM {queue} ORDER BY k LIMIT 1) FROM generate_series(1, 5000) n"
    );
    run_sql(&store, &more)?;
    for value in 0..20 {
        set(&store, &crates, 7, value)?;
    }
    assert_eq!(crates.lag(&store.read()?)?.messages, 2 + 5 + 5_000 + 20);
    assert!(!crates.wait_for(&store, &last, Duration::ZERO)?);
    crates.drain(&store, u64::MAX)?;
    assert!(crates.wait_for(&store, &last, Duration::ZERO)?);
    assert!(crates.verify(&store.read()?).run()?.is_clean());
    Ok(())
}

#[test]
fn an_open_store_refuses_another_cluster() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let direct = schema.open()?;
    if binaries(&direct)?.is_none() {
        return Ok(());
    }
    write(&direct)?;
    let cluster = Cluster::start()?;
    copy_schema(&direct, schema.url(), schema.name(), &cluster.url)?;
    let (is_second, is_armed) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (of_proxy, armed) = (Arc::clone(&is_second), Arc::clone(&is_armed));
    let url = start_between([schema.url(), &cluster.url], &is_second, move |message| {
        if message.is_commit() && armed.load(Ordering::SeqCst) {
            of_proxy.store(true, Ordering::SeqCst);
            return Fate::Cut;
        }
        Fate::Forward
    })?;
    let options = schema.options().commit_timeout(Duration::from_secs(30));
    let reader = options.clone().read_only(true).connect(&url)?;
    let copies = CrateRepository::open(&reader)?;
    // With this, the next one needs a new connection.
    let held = reader.read()?;
    assert!(copies.get(&held, 5).is_ok());
    let store = options.connect(&url)?;
    let crates = CrateRepository::open(&store)?;
    is_armed.store(true, Ordering::SeqCst);
    // The tokens there tell nothing about this commit.
    let begun = Instant::now();
    let unknown = set(&store, &crates, 5, 50);
    assert!(matches!(unknown, Err(Error::CommitUnknown { .. })), "{unknown:?}");
    assert!(begun.elapsed() < Duration::from_secs(10), "it waits for the first cluster");
    let mut refused = set(&store, &crates, 5, 51);
    for _ in 0..20 {
        if matches!(refused, Err(Error::Unreachable { problem: ServerProblem::Replaced, .. })) {
            break;
        }
        // A connection to the first cluster was idle.
        refused = set(&store, &crates, 5, 52);
    }
    let is_refused = |result: &Result<IndexToken>| {
        matches!(result, Err(Error::Unreachable { problem: ServerProblem::Replaced, .. }))
    };
    assert!(is_refused(&refused), "{refused:?}");
    let kept: Vec<_> = (0..4)
        .map_while(|_| reader.read().and_then(|txn| copies.get(&txn, 5).map(|_| txn)).ok())
        .collect();
    let other = reader.read().and_then(|txn| copies.get(&txn, 5).map(drop));
    let problem = |error: &Error| {
        matches!(error, Error::Unreachable { problem: ServerProblem::Replaced, .. })
    };
    assert!(other.as_ref().is_err_and(problem), "{} {other:?}", kept.len());
    drop((kept, held));
    is_armed.store(false, Ordering::SeqCst);
    let again = schema.options().connect(&url)?;
    set(&again, &CrateRepository::open(&again)?, 5, 53)?;
    Ok(())
}

/// Without changes of another cluster, a table that is opened from the catalog needs no lock of the schema.
#[test]
fn an_opening_from_the_catalog_waits_for_no_other_client() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    // Elsewhere, an older transaction of another test could be running.
    let cluster = Cluster::start()?;
    let store = schema.options().connect(&cluster.url)?;
    let crates = CrateRepository::open(&store)?;
    set(&store, &crates, 1, 10)?;
    let other = schema.options().connect(&cluster.url)?;
    let name = format!("index-table {}", schema.name());
    let held =
        format!("SELECT pg_advisory_lock(hashtextextended('{name}', 0)); SELECT pg_sleep(3)::text");
    thread::scope(|scope| -> TestResult {
        let holder = scope.spawn(|| run_sql(&store, &held).map(drop));
        let is_held = format!(
            "SELECT count(*)::text FROM pg_stat_activity WHERE wait_event = 'PgSleep' \
             AND query LIKE '%{name}%' AND pid <> pg_backend_pid()"
        );
        while run_sql(&store, &is_held)?.as_deref() == Some("0") {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(other.table("crates")?.rows(&other.read()?).next().is_some());
        assert!(!holder.is_finished(), "it has waited");
        holder.join().expect("a thread")?;
        Ok(())
    })
}
