//! A server that is killed and started again, while clients write. Needs `scripts/postgres`, which sets
//! `INDEX_TABLE_POSTGRES_RESTART` to the program that kills and starts the server. Without this variable, the tests only
//! print that they are not run.

#[path = "support/postgres.rs"]
mod postgres;
#[path = "support/proxy.rs"]
mod proxy;
#[path = "support/serial.rs"]
mod serial;

use std::{
    env,
    process::Command,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use index_table::{__private::run_sql, Error, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

/// The number of times that the server is killed.
const KILLS: u32 = 2;

/// Held by the test that restarts the server.
static RESTARTS: Mutex<()> = Mutex::new(());

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes")]
struct Note {
    #[primary_key]
    id: u32,
}

#[test]
fn committed_transactions_survive_a_server_that_is_killed() -> Result<(), Box<dyn std::error::Error>>
{
    // Until the schema is dropped.
    let _alone = RESTARTS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(schema) = postgres::Schema::new() else { return Ok(()) };
    let Ok(restart) = env::var("INDEX_TABLE_POSTGRES_RESTART") else {
        eprintln!("not run: INDEX_TABLE_POSTGRES_RESTART is not set");
        return Ok(());
    };
    let direct = schema.open()?;
    serial::prepare(&direct)?;
    let stores = [schema.open()?, schema.open()?];
    let kills = AtomicU32::new(0);
    let outcomes = thread::scope(|scope| {
        let kills = &kills;
        scope.spawn(move || {
            for _ in 0..KILLS {
                thread::sleep(Duration::from_millis(300));
                let restarted = Command::new(&restart).status().expect("the program");
                assert!(restarted.success());
                kills.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Some transactions must follow the last kill.
        let last = AtomicU64::new(0);
        let goes_on = |_, outcomes: &serial::Outcomes| {
            if kills.load(Ordering::Relaxed) < KILLS {
                return true;
            }
            let committed = outcomes.committed.load(Ordering::Relaxed);
            let set =
                last.compare_exchange(0, committed + 80, Ordering::Relaxed, Ordering::Relaxed);
            committed < set.map_or_else(|last| last, |_| committed + 80)
        };
        serial::run(&stores, 8, goes_on, &direct)
    })?;
    assert!(outcomes.committed.load(Ordering::Relaxed) > 0, "{outcomes:?}");
    assert!(outcomes.failed.load(Ordering::Relaxed) > 0, "{outcomes:?}");
    Ok(())
}

#[test]
fn a_commit_after_a_restart_is_known_to_have_failed() -> Result<(), Box<dyn std::error::Error>> {
    // Until the schema is dropped.
    let _alone = RESTARTS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(schema) = postgres::Schema::new() else { return Ok(()) };
    let Ok(restart) = env::var("INDEX_TABLE_POSTGRES_RESTART") else { return Ok(()) };
    let store = schema.open()?;
    let notes = NoteRepository::open(&store)?;
    let mut txn = store.write()?;
    notes.insert(&mut txn, &Note { id: 1 })?;
    assert!(Command::new(&restart).status()?.success());
    let outcome = txn.commit();
    assert!(matches!(outcome, Err(Error::Unreachable { .. })), "{outcome:?}");
    assert_eq!(notes.get(&store.read()?, 1)?, None);
    Ok(())
}

/// Changes settings of the server until this is dropped.
struct Settings<'s>(&'s postgres::Schema);

impl<'s> Settings<'s> {
    fn set(schema: &'s postgres::Schema, settings: &[(&str, &str)]) -> Result<Self> {
        let store = schema.open()?;
        for (name, value) in settings {
            run_sql(&store, &format!("ALTER SYSTEM SET {name} = '{value}'"))?;
        }
        run_sql(&store, "SELECT pg_reload_conf()")?;
        thread::sleep(Duration::from_millis(200));
        Ok(Self(schema))
    }
}

impl Drop for Settings<'_> {
    fn drop(&mut self) {
        let reset = reset(self.0);
        assert!(thread::panicking() || reset.is_ok(), "{reset:?}");
    }
}

fn reset(schema: &postgres::Schema) -> Result<()> {
    let store = schema.open()?;
    run_sql(&store, "ALTER SYSTEM RESET ALL")?;
    run_sql(&store, "SELECT pg_reload_conf()")?;
    thread::sleep(Duration::from_millis(200));
    Ok(())
}

/// Kills one session of the schema. The server then ends all others, and loses what is not in its WAL.
fn kill_session(store: &Store, schema: &postgres::Schema) {
    let sql = format!(
        "SELECT pid::text FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query LIKE '%\"{}\"%' LIMIT 1",
        schema.name()
    );
    if let Ok(Some(pid)) = run_sql(store, &sql) {
        assert!(Command::new("kill").args(["-9", &pid]).status().expect("kill").success());
    }
}

#[test]
fn a_commit_that_the_server_has_lost_is_not_acknowledged() -> Result<(), Box<dyn std::error::Error>>
{
    let _alone = RESTARTS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(schema) = postgres::Schema::new() else { return Ok(()) };
    if env::var("INDEX_TABLE_POSTGRES_RESTART").is_err() {
        return Ok(());
    }
    // What a transaction has written stays in memory until its commit.
    let _settings = Settings::set(&schema, &[("wal_writer_delay", "10s")])?;
    let is_armed = Arc::new(AtomicBool::new(false));
    let (of_proxy, name, server) =
        (Arc::clone(&is_armed), schema.name().to_owned(), schema.url().to_owned());
    let url = proxy::start(schema.url(), move |message| {
        if !message.is_commit() || !of_proxy.swap(false, Ordering::SeqCst) {
            return proxy::Fate::Forward;
        }
        let other = Store::options().schema(&name).connect(&server).expect("a store");
        let own = "SELECT pid::text FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
                   AND state = 'idle in transaction' LIMIT 1";
        let pid = run_sql(&other, own).expect("a statement").expect("a session");
        assert!(Command::new("kill").args(["-9", &pid]).status().expect("kill").success());
        thread::sleep(Duration::from_millis(300));
        // Other transactions get the number of the lost one.
        let other = Store::options().schema(&name).connect(&server).expect("a store");
        for id in 100..103 {
            let notes = NoteRepository::open(&other).expect("a table");
            other.transaction(|txn| notes.insert(txn, &Note { id })).expect("a commit");
        }
        proxy::Fate::Cut
    })?;
    let store = schema.options().connect(&url)?;
    let notes = NoteRepository::open(&store)?;
    store.transaction(|txn| notes.insert(txn, &Note { id: 1 }))?;
    is_armed.store(true, Ordering::SeqCst);
    let outcome = store.transaction(|txn| {
        notes.insert(txn, &Note { id: 2 })?;
        let _ = txn.commit_number();
        Ok(())
    });
    assert!(matches!(outcome, Err(Error::Unreachable { .. })), "{outcome:?}");
    assert_eq!(notes.get(&store.read()?, 2)?, None);
    Ok(())
}

#[test]
fn acknowledged_commits_survive_sessions_that_are_killed() -> Result<(), Box<dyn std::error::Error>>
{
    let _alone = RESTARTS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(schema) = postgres::Schema::new() else { return Ok(()) };
    if env::var("INDEX_TABLE_POSTGRES_RESTART").is_err() {
        return Ok(());
    }
    let settings =
        [("wal_writer_delay", "10s"), ("commit_delay", "2000"), ("commit_siblings", "0")];
    let _settings = Settings::set(&schema, &settings)?;
    let direct = schema.open()?;
    let notes = NoteRepository::open(&direct)?;
    let is_over = AtomicBool::new(false);
    let next = AtomicU32::new(0);
    let outcomes = thread::scope(|scope| {
        let (is_over, next, schema, notes, direct) = (&is_over, &next, &schema, &notes, &direct);
        let writer = |worker: u32| {
            let mut outcomes = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let id = next.fetch_add(1, Ordering::Relaxed);
                let insert = || match worker % 2 {
                    0 => notes.insert(&mut direct.autocommit()?, &Note { id }),
                    _ => direct.transaction(|txn| notes.insert(txn, &Note { id })),
                };
                outcomes.push((id, insert()));
            }
            outcomes
        };
        let writers: Vec<_> = (0..6).map(|worker| scope.spawn(move || writer(worker))).collect();
        for _ in 0..4 {
            thread::sleep(Duration::from_millis(300));
            if let Ok(other) = schema.open() {
                kill_session(&other, schema);
            }
        }
        thread::sleep(Duration::from_millis(500));
        is_over.store(true, Ordering::Relaxed);
        let all = writers.into_iter().flat_map(|writer| writer.join().expect("a writer"));
        all.collect::<Vec<_>>()
    });
    let direct = schema.open()?;
    let notes = NoteRepository::open(&direct)?;
    let txn = direct.read()?;
    let (mut committed, mut failed) = (0, 0);
    for (id, outcome) in outcomes {
        let is_there = notes.get(&txn, id)?.is_some();
        match outcome {
            Ok(()) => {
                assert!(is_there, "note {id} is lost");
                committed += 1;
            }
            Err(Error::CommitUnknown { .. }) => {}
            Err(error) => {
                assert!(!is_there, "note {id}: {error}");
                failed += 1;
            }
        }
    }
    assert!(committed > 0 && failed > 0, "{committed} {failed}");
    Ok(())
}

#[test]
fn a_commit_without_its_standby_is_unknown() -> Result<(), Box<dyn std::error::Error>> {
    let _alone = RESTARTS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(schema) = postgres::Schema::new() else { return Ok(()) };
    if env::var("INDEX_TABLE_POSTGRES_RESTART").is_err() {
        return Ok(());
    }
    let store = schema.open_with(&schema.options().commit_timeout(Duration::from_secs(1)))?;
    let notes = NoteRepository::open(&store)?;
    // The first insertion adds the names of the fields to the catalog, by a commit of its own.
    store.transaction(|txn| notes.insert(txn, &Note { id: 0 }))?;
    for (id, end) in [(1, "pg_terminate_backend"), (2, "pg_cancel_backend")] {
        for is_alone in [true, false] {
            let id = id * 10 + u32::from(is_alone);
            // The store opens its statements first.
            notes.get(&store.read()?, id)?;
            let settings = Settings::set(&schema, &[("synchronous_standby_names", "nobody")])?;
            let outcome = thread::scope(|scope| {
                let insert = || {
                    if is_alone {
                        return notes.insert(&mut store.autocommit()?, &Note { id });
                    }
                    store.transaction(|txn| notes.insert(txn, &Note { id }))
                };
                let commit = scope.spawn(insert);
                let other = schema.open().expect("a store");
                let sql = format!(
                    "SELECT count({end}(pid))::text FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
                );
                let begun = Instant::now();
                while run_sql(&other, &sql).expect("a statement").as_deref() != Some("1") {
                    assert!(begun.elapsed() < Duration::from_secs(10), "no commit waits");
                    thread::sleep(Duration::from_millis(20));
                }
                commit.join().expect("a thread")
            });
            drop(settings);
            assert!(matches!(outcome, Err(Error::CommitUnknown { .. })), "{end}: {outcome:?}");
            assert!(notes.get(&store.read()?, id)?.is_some());
        }
    }
    Ok(())
}
