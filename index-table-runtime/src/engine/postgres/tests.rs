//! Tests on a server. They need the URL of a database in `INDEX_TABLE_POSTGRES_URL`; see `scripts/postgres`.

use std::{
    env, process,
    sync::{
        Once,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use super::*;
use crate::{
    engine::{CommitFailure, Read as _, Space, Write as _},
    model::{
        key::MAX_KEY_LEN,
        maintain::{Change, Sink as _},
        schema::{IndexSchema, KeyField, Parts, Source, Strategy},
    },
};

pub(super) const TABLE_ROW: &[u8] = b"row";

/// Returns the URL of the server. Without one, the test is not run, which is printed once.
pub(super) fn url() -> Option<String> {
    static PRINTED: Once = Once::new();
    let url = env::var("INDEX_TABLE_POSTGRES_URL").ok();
    if url.is_none() {
        PRINTED.call_once(|| {
            eprintln!("not run on PostgreSQL: INDEX_TABLE_POSTGRES_URL is not set");
        });
    }
    url
}

pub(super) fn connected(schema: &str) -> Option<Engine> {
    let options = Options::default().schema(schema).connections(8);
    url().map(|url| Engine::connect(&options, &url).expect("a store on the server"))
}

/// Returns an engine in a schema of its own, without tables; `None` without a server.
pub(crate) fn empty() -> Option<Engine> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    connected(&format!("index-table {} {number}", process::id()))
}

impl Engine {
    /// Closes the store and opens it again.
    pub(crate) fn reopened(self) -> Self {
        let schema = self.schema.clone();
        drop(self);
        connected(&schema).expect("a server")
    }

    /// Removes the store from the server.
    pub(crate) fn drop_schema(&self) {
        let sql = format!("DROP SCHEMA {} CASCADE", quoted(&self.schema));
        let dropped = self.run(&sql);
        assert!(thread::panicking() || dropped.is_ok(), "{dropped:?}");
    }
}

/// Removes the store of a test.
struct Dropped(Engine);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.drop_schema();
    }
}

const KEY: &[KeyField] = &[KeyField::new::<u8>("key")];

const fn index(name: &'static str, unique: bool) -> IndexSchema {
    IndexSchema {
        name,
        key: KEY,
        strategy: Strategy::Normalized,
        unique,
        eventual: false,
        conditions: &[],
        findings: &[],
    }
}

pub(super) const TABLE: &TableSchema = &TableSchema {
    name: "things",
    was: &[],
    version: 1,
    fields: &[],
    previous: None,
    changed: &[],
    aggregates: &[],
    primary_key: &[KeyField::new::<u8>("id")],
    indexes: &[index("plain", false), index("unique", true)],
};

pub(super) fn open(engine: &Engine) -> Tables {
    open_as(engine, TABLE)
}

pub(super) fn open_as(engine: &Engine, schema: &'static TableSchema) -> Tables {
    let opened = engine.open_table(schema, Parts::default(), false, &mut |_| Ok(()), |_| Ok(()));
    opened.unwrap_or_else(|(error, _)| panic!("a table: {error}"))
}

pub(super) fn put(txn: &mut Txn<'_>, tables: &Tables, id: u8) -> Result<()> {
    let mut writer = txn.writer(tables).expect("a write transaction");
    writer.change(Change::PutFact { primary_key: &[id], row: b"row" })
}

pub(super) fn ids(engine: &Engine, tables: &Tables) -> Result<Vec<u8>> {
    let (txn, mut ids) = (engine.read()?, Vec::new());
    let all = crate::engine::Query::new(Source::Facts, crate::model::KeyRange::ALL);
    for entry in txn.reader(tables).scan(all)? {
        ids.extend(entry?.primary_key.bytes);
    }
    Ok(ids)
}

/// Ends the session of a transaction on the server.
pub(super) fn cut(engine: &Engine, txn: &Txn<'_>) -> Result<()> {
    let own = txn.simple("SELECT pg_backend_pid()::text")?.expect("a number");
    let other = engine.pool.open()?;
    other.simple(&format!("SELECT pg_terminate_backend({own}, 5000)::text")).expect("a session");
    Ok(())
}

/// Runs a test in a store of its own.
pub(super) fn on_a_server(test: impl FnOnce(&Engine) -> Result<()>) {
    if let Some(engine) = empty().map(Dropped) {
        test(&engine.0).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn write_transactions_run_beside_each_other() {
    on_a_server(|engine| {
        let tables = open(engine);
        let (mut one, mut other) = (engine.write()?, engine.write()?);
        put(&mut one, &tables, 1)?;
        put(&mut other, &tables, 2)?;
        one.commit(|| ())?;
        other.commit(|| ())?;
        assert_eq!(ids(engine, &tables)?, [1, 2]);
        Ok(())
    });
}

#[test]
fn a_scan_fetches_no_more_entries_than_its_caller_reads() {
    on_a_server(|engine| {
        let tables = open(engine);
        let mut txn = engine.write()?;
        (0..40).try_for_each(|id| put(&mut txn, &tables, id))?;
        txn.commit(|| ())?;
        let txn = engine.read()?;
        let all = crate::engine::Query::new(Source::Facts, crate::model::KeyRange::ALL);
        for (limit, most) in [(None, 7), (Some(2), 7), (Some(2), 1), (Some(9), 39), (None, 90)] {
            let query = crate::engine::Query { limit, at_most: Some(most), ..all.clone() };
            let fetched = txn.reader(&tables).scan(query)?.count();
            assert_eq!(fetched, usize::try_from(most.min(40)).expect("few"), "{limit:?}, {most}");
        }
        Ok(())
    });
}

#[test]
fn one_of_two_transactions_that_read_the_row_of_the_other_conflicts() {
    on_a_server(|engine| {
        let tables = open(engine);
        let (mut one, mut other) = (engine.write()?, engine.write()?);
        assert_eq!(one.reader(&tables).fact(&[2])?, None);
        assert_eq!(other.reader(&tables).fact(&[1])?, None);
        put(&mut one, &tables, 1)?;
        one.commit(|| ())?;
        // The server may report the conflict with the statement or with the commit.
        let outcome = put(&mut other, &tables, 2);
        let retry = other.retry();
        let committed = other.commit(|| ());
        assert!(matches!(committed, Err(CommitFailure::Conflict(_))), "{outcome:?} {committed:?}");
        assert!(outcome.is_ok() || retry == Some(Retry::Conflict));
        assert_eq!(ids(engine, &tables)?, [1]);
        Ok(())
    });
}

/// The count reads a message of a transaction that has read what a third transaction has changed and committed before.
#[test]
fn the_count_of_a_queue_does_not_conflict() {
    const QUEUED: &TableSchema = &TableSchema {
        name: "queued",
        was: &[],
        indexes: &[IndexSchema { eventual: true, ..index("later", false) }],
        ..*TABLE
    };
    on_a_server(|engine| {
        let opened =
            engine.open_table(QUEUED, Parts::default(), false, &mut |_| Ok(()), |_| Ok(()));
        let tables = opened.map_err(|(error, _)| error)?;
        let queue = tables.queue.as_ref().expect("a queue").relation.sql.clone();
        let facts = &tables.facts.sql;
        let run = |connection: &connection::Connection, sql: &str| {
            connection.simple(sql).expect("a statement")
        };
        let (writer, third) = (engine.pool.open()?, engine.pool.open()?);
        // The statement is prepared, so the next count takes its snapshot before it waits for the table.
        let txn = engine.read()?;
        assert_eq!(txn.reader(&tables).queued(10)?, 0);
        run(&third, &format!("INSERT INTO {facts} (k, v) VALUES ('a', 'a')"));
        run(&writer, &format!("BEGIN; SELECT v FROM {facts} WHERE k = 'a'; LOCK TABLE {queue}"));
        run(&third, &format!("UPDATE {facts} SET v = 'b' WHERE k = 'a'"));
        thread::scope(|scope| {
            scope.spawn(|| {
                let waiting =
                    "SELECT count(*)::text FROM pg_locks WHERE NOT granted AND relation = ";
                let waiting = format!("{waiting} '{queue}'::regclass");
                while run(&third, &waiting).as_deref() == Some("0") {
                    thread::yield_now();
                }
                run(&writer, &format!("INSERT INTO {queue} (k, v) VALUES ('a', 'a'); COMMIT"));
            });
            assert!(txn.reader(&tables).queued(11)? <= 1);
            Ok(())
        })
    });
}

#[test]
fn a_key_that_two_transactions_insert_is_a_conflict_or_taken() {
    on_a_server(|engine| {
        let tables = open(engine);
        let mut first = engine.write()?;
        assert!(first.writer(&tables).expect("a writer").insert_entry(1, &[7], &[1], b"")?);
        let outcomes = crate::locks::Mutex::<_>::new(Vec::new());
        thread::scope(|scope| {
            let second = scope.spawn(|| {
                let mut txn = engine.write().expect("a transaction");
                let mut writer = txn.writer(&tables).expect("a writer");
                let inserted = writer.insert_entry(1, &[7], &[2], b"");
                let retry = txn.retry();
                outcomes.lock().push((inserted.ok(), retry));
            });
            first.commit(|| ()).map_err(Error::from).expect("the first commit");
            second.join().expect("a thread");
        });
        let outcomes = outcomes.into_inner();
        let is_refused = |(inserted, retry): &(Option<bool>, Option<Retry>)| {
            *inserted == Some(false) || *retry == Some(Retry::Conflict)
        };
        assert!(outcomes.iter().all(is_refused), "{outcomes:?}");
        Ok(())
    });
}

#[test]
fn a_lost_connection_is_unreachable_and_the_next_transaction_has_another() {
    on_a_server(|engine| {
        let tables = open(engine);
        let mut txn = engine.write()?;
        put(&mut txn, &tables, 1)?;
        cut(engine, &txn)?;
        // The change is sent with the query.
        put(&mut txn, &tables, 2)?;
        let outcome = txn.reader(&tables).fact(&[2]);
        assert!(matches!(outcome, Err(Error::Unreachable { .. })), "{outcome:?}");
        let later = put(&mut txn, &tables, 3);
        assert!(matches!(later, Err(Error::TransactionFailed { .. })), "{later:?}");
        assert!(matches!(txn.commit(|| ()), Err(CommitFailure::Failed(_))));
        assert_eq!(ids(engine, &tables)?, [0_u8; 0]);
        Ok(())
    });
}

#[test]
fn a_connection_that_was_lost_while_idle_is_replaced() {
    on_a_server(|engine| {
        let tables = open(engine);
        for _ in 0..3 {
            let txn = engine.read()?;
            cut(engine, &txn)?;
            drop(txn);
            assert_eq!(ids(engine, &tables)?, [0_u8; 0]);
        }
        Ok(())
    });
}

#[test]
fn changes_of_the_catalog_are_seen_in_the_snapshots_that_have_them() {
    on_a_server(|engine| {
        let tables = open(engine);
        let other = connected(&engine.schema).expect("a server");
        let of_other = open(&other);
        let record = |txn: &Txn<'_>, tables: &Tables| -> Result<Option<Vec<u8>>> {
            Ok(txn.reader(tables).get(Space::Catalog, b"part")?.map(<[u8]>::to_vec))
        };
        let set = |value: &[u8]| -> Result<()> {
            let mut txn = other.write()?;
            txn.writer(&of_other).expect("a writer").put(Space::Catalog, b"part", value)?;
            Ok(txn.commit(|| ())?)
        };
        let before = engine.read()?;
        assert_eq!(record(&before, &tables)?, None);
        set(b"1")?;
        let first = engine.read()?;
        assert_eq!(record(&first, &tables)?.as_deref(), Some(&b"1"[..]));
        set(b"2")?;
        assert_eq!(record(&engine.read()?, &tables)?.as_deref(), Some(&b"2"[..]));
        assert_eq!(record(&first, &tables)?.as_deref(), Some(&b"1"[..]));
        assert_eq!(record(&before, &tables)?, None);
        // A transaction reads its own changes, and not those that a nested transaction has rolled back.
        let mut txn = engine.write()?;
        assert_eq!(record(&txn, &tables)?.as_deref(), Some(&b"2"[..]));
        {
            let mut nested = txn.nested().expect("a write transaction")?;
            nested.writer(&tables).expect("a writer").put(Space::Catalog, b"part", b"3")?;
            assert_eq!(record(&nested, &tables)?.as_deref(), Some(&b"3"[..]));
        }
        assert_eq!(record(&txn, &tables)?.as_deref(), Some(&b"2"[..]));
        txn.writer(&tables).expect("a writer").remove(Space::Catalog, b"part")?;
        assert_eq!(record(&txn, &tables)?, None);
        txn.commit(|| ())?;
        assert_eq!(record(&engine.read()?, &tables)?, None);
        Ok(())
    });
}

#[test]
fn a_commit_on_a_lost_connection_is_known_to_have_failed() {
    on_a_server(|engine| {
        let tables = open(engine);
        let mut txn = engine.write()?;
        put(&mut txn, &tables, 1)?;
        cut(engine, &txn)?;
        let mut called = false;
        let outcome = txn.commit(|| called = true);
        let Err(CommitFailure::Failed(Error::Unreachable { .. })) = outcome else {
            panic!("{outcome:?}");
        };
        assert!(!called);
        assert_eq!(ids(engine, &tables)?, [0_u8; 0]);
        Ok(())
    });
}

#[test]
fn a_statement_that_the_server_refuses_fails_a_nested_transaction_only() {
    on_a_server(|engine| {
        let tables = open(engine);
        let mut txn = engine.write()?;
        put(&mut txn, &tables, 1)?;
        {
            let nested = txn.nested().expect("a write transaction")?;
            assert!(matches!(nested.simple("SELECT 1 / 0"), Err(Error::Engine { .. })));
            assert!(matches!(nested.simple("SELECT 1"), Err(Error::TransactionFailed { .. })));
            assert!(matches!(nested.commit(|| ()), Err(CommitFailure::Failed(_))));
        }
        put(&mut txn, &tables, 2)?;
        txn.commit(|| ())?;
        assert_eq!(ids(engine, &tables)?, [1, 2]);
        Ok(())
    });
}

#[test]
fn a_failed_transaction_is_not_committed() {
    on_a_server(|engine| {
        let tables = open(engine);
        let mut txn = engine.write()?;
        put(&mut txn, &tables, 1)?;
        assert!(txn.simple("SELECT 1 / 0").is_err());
        // The server accepts the statement COMMIT, and rolls back.
        assert!(matches!(txn.commit(|| ()), Err(CommitFailure::Failed(_))));
        assert_eq!(ids(engine, &tables)?, [0_u8; 0]);
        Ok(())
    });
}

#[test]
fn a_transaction_waits_for_a_connection_and_then_fails() {
    let Some(url) = url() else { return };
    let schema = format!("index-table {} few", process::id());
    let options = Options::default().schema(schema).connections(1);
    let engine =
        Dropped(Engine::connect(&options.retry_for(Duration::ZERO), &url).expect("a store"));
    let first = engine.0.read().expect("a connection");
    let second = engine.0.read().map(|_| ());
    let Err(Error::Unreachable { reason, .. }) = second else { panic!("{second:?}") };
    assert!(reason.contains("all 1 connections"), "{reason}");
    drop(first);
    assert!(engine.0.read().is_ok());
}

#[test]
fn several_clients_can_open_a_table_at_once() {
    on_a_server(|engine| {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let client = connected(&engine.schema).expect("a server");
                    open(&client);
                });
            }
        });
        open(engine);
        Ok(())
    });
}

#[test]
fn a_schema_of_another_format_is_refused() {
    on_a_server(|engine| {
        let sql = format!("UPDATE {}.\".catalog\" SET v = '2'", quoted(&engine.schema));
        let txn = engine.write()?;
        txn.simple(&sql)?;
        txn.commit(|| ())?;
        let options = Options::default().schema(&engine.schema);
        let outcome = Engine::connect(&options, &url().expect("a server")).map(|_| ());
        assert!(matches!(outcome, Err(Error::SchemaMismatch { .. })), "{outcome:?}");
        Ok(())
    });
}

#[test]
fn a_missing_schema_is_not_created_if_that_is_refused() {
    let Some(url) = url() else { return };
    let options = Options::default().schema("index-table missing").create(false);
    let outcome = Engine::connect(&options, &url).map(|_| ());
    assert!(matches!(outcome, Err(Error::StoreNotFound { .. })), "{outcome:?}");
}

#[test]
fn scans_and_joins_follow_the_primary_keys() {
    on_a_server(|engine| {
        let tables = open(engine);
        let mut txn = engine.write()?;
        let mut writer = txn.writer(&tables).expect("a writer");
        for id in 0..=255 {
            writer.change(Change::PutFact { primary_key: &[id], row: b"row" })?;
            for index in [0, 1] {
                let entry = Change::PutEntry { index, key: &[id], primary_key: &[id], data: b"" };
                writer.change(entry)?;
            }
        }
        let [facts, entries, unique] =
            [Some(&tables.facts), tables.indexes.first(), tables.indexes.get(1)];
        for relation in [facts, entries, unique].into_iter().flatten() {
            let joined = (relation.form != Form::Pairs).then_some(&tables.facts);
            let bounds = crate::model::KeyRange::beginning_with(&[7]);
            let source = if joined.is_some() { Source::Index(0) } else { Source::Facts };
            let query = crate::engine::Query::new(source, bounds);
            let conditions = select::Conditions::new(&query, &select::Place::Start);
            let sql = conditions.entries(relation, false, joined);
            let mut plan = String::new();
            let explain = format!("EXPLAIN {sql}")
                .replace("$1", "'\\x07'")
                .replace("$2", "'\\x08'")
                .replace("$3", "20");
            for row in txn.query(&explain, &[])? {
                plan.push_str(column::<&str>(&row, 0)?);
                plan.push('\n');
            }
            for other in ["Seq Scan", "Hash Join", "Merge Join", "Bitmap"] {
                assert!(!plan.contains(other), "{plan}");
            }
            assert!(plan.contains("Index Scan") || plan.contains("Index Only Scan"), "{plan}");
            assert_eq!(plan.contains("Nested Loop"), joined.is_some(), "{plan}");
        }
        Ok(())
    });
}

#[test]
fn the_longest_keys_fit() {
    on_a_server(|engine| {
        let tables = open(engine);
        let mut txn = engine.write()?;
        let key: Vec<u8> = (0..MAX_KEY_LEN).map(|at| ((at * 7919) >> 3) as u8).collect();
        let mut writer = txn.writer(&tables).expect("a writer");
        writer.change(Change::PutFact { primary_key: &key, row: b"row" })?;
        let (of_index, primary_key) = key.split_at(300);
        writer.put_shared(1, of_index, &[1], b"")?;
        writer.put_shared(1, of_index, primary_key, b"")?;
        assert_eq!(txn.reader(&tables).fact(&key)?, Some(&b"row"[..]));
        txn.commit(|| ())?;
        Ok(())
    });
}
