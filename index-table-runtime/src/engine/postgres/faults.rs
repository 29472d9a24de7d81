//! Tests on a server for other clients that hold locks, lost connections, and clients that wait no longer.

use std::time::Instant;

use super::{
    tests::{TABLE, connected, ids, on_a_server, open, open_as, put, url},
    token::Token,
    *,
};
use crate::{
    engine::{CommitFailure, Write as _},
    model::schema::TableSchema,
};

const OTHER: &TableSchema = &TableSchema { name: "other_things", ..*TABLE };

/// A time that is shorter than any limit.
const SOON: Duration = Duration::from_secs(4);

/// Puts a row in a transaction of its own.
fn put_one(engine: &Engine, tables: &Tables, id: u8) -> Result<()> {
    let mut txn = engine.write()?;
    put(&mut txn, tables, id)?;
    txn.simple("SELECT 1")?;
    Ok(txn.commit(|| ())?)
}

/// Another client holds the lock of a table while it loads an index. The statements that change the table are known.
#[test]
fn the_lock_of_a_table_delays_neither_new_connections_nor_fences() {
    on_a_server(|engine| {
        let (tables, others) = (open(engine), open_as(engine, OTHER));
        // After its second use, a change is prepared.
        (0..3).try_for_each(|_| put_one(engine, &tables, 1))?;
        let holder = engine.pool.open()?;
        let lock = format!("BEGIN; LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", tables.facts.sql);
        holder.simple(&lock).expect("the lock");
        let begun = Instant::now();
        // Most of these connections are new.
        let leased: Vec<_> = (0..6).map(|_| engine.pool.take()).collect::<Result<_>>()?;
        assert!(leased.iter().any(|it| !it.is_replaceable()), "no new connection");
        assert!(leased.iter().all(|it| it.get().is_ok_and(|it| !it.is_closed())));
        leased.into_iter().for_each(Leased::keep);
        put_one(engine, &others, 2)?;
        assert_eq!(ids(engine, &others)?, [2]);
        let fence = Token::new().fence(&engine.catalog.commits, SOON);
        let found = engine.pool.open_within(SOON)?.simple(&fence);
        assert_eq!(found.expect("a fence").as_deref(), Some("0"));
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        holder.simple("COMMIT").expect("the end");
        assert_eq!(ids(engine, &tables)?, [1]);
        Ok(())
    });
}

/// A thread has looked whether a connection is closed while the end of its transaction should have been sent.
#[test]
fn the_end_of_a_read_transaction_is_sent_although_its_connection_was_in_use() {
    on_a_server(|engine| {
        let tables = open(engine);
        let leased = engine.pool.take()?;
        let connection = leased.get()?;
        let read = format!("BEGIN; SELECT count(*) FROM {}", tables.facts.sql);
        connection.simple(&read).expect("a read transaction");
        let used = connection.driver();
        engine.pool.ends.end(&connection);
        std::thread::sleep(Duration::from_millis(100));
        drop(used);
        let other = engine.pool.open()?;
        let lock = format!("BEGIN; LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", tables.facts.sql);
        other.simple(&lock).expect("no other client reads the table");
        other.simple("COMMIT").expect("the end");
        leased.keep();
        Ok(())
    });
}

/// Returns another client of the store, with this time limit for responses.
fn client(engine: &Engine, response: Duration) -> Result<Engine> {
    let options = Options::default().schema(&engine.schema).response_timeout(response);
    Engine::connect(&options, &url().expect("a server"))
}

#[test]
fn each_session_has_the_settings_by_which_the_server_notices_a_lost_client() {
    on_a_server(|engine| {
        let connection = engine.pool.open()?;
        for (name, value) in sql::NOTICING {
            let shown = format!("SELECT current_setting('{name}', true)");
            // PostgreSQL 13 lacks one of them.
            if let Some(found) = connection.simple(&shown).expect("a setting") {
                assert_eq!(found, value, "{name}");
            }
        }
        let found = connection.simple("SHOW lock_timeout").expect("a setting");
        assert_eq!(found.as_deref(), Some("5s"));
        Ok(())
    });
}

#[test]
fn waiting_for_the_row_of_another_client_is_a_conflict() {
    on_a_server(|engine| {
        let tables = open(engine);
        put_one(engine, &tables, 1)?;
        let waiting = client(engine, SOON)?;
        let of_waiting = open(&waiting);
        let mut holder = engine.write()?;
        put(&mut holder, &tables, 1)?;
        holder.send_pending()?;
        for excludes in [false, true] {
            let mut txn = waiting.write()?;
            if excludes {
                txn.exclude_writers(&of_waiting);
            }
            put(&mut txn, &of_waiting, 1)?;
            let begun = Instant::now();
            let sent = txn.send_pending();
            assert!(matches!(sent, Err(Error::RetriesExhausted { .. })), "{sent:?}");
            assert_eq!(txn.retry(), Some(Retry::Conflict));
            assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        }
        holder.commit(|| ())?;
        put_one(&waiting, &of_waiting, 1)
    });
}

#[test]
fn the_server_ends_a_statement_that_the_client_no_longer_waits_for() {
    on_a_server(|engine| {
        let tables = open(engine);
        let late = client(engine, Duration::from_secs(1))?;
        let mut txn = late.write()?;
        put(&mut txn, &tables, 1)?;
        let sleep = format!("SELECT pg_sleep(600) AS \"of {}\"", engine.schema);
        let slept = txn.simple(&sleep);
        assert!(matches!(slept, Err(Error::Unreachable { .. })), "{slept:?}");
        assert_eq!(txn.retry(), None);
        let begun = Instant::now();
        let sleeping = format!(
            "SELECT count(*)::text FROM pg_stat_activity WHERE query = '{sleep}' AND state = 'active'"
        );
        while engine.run(&sleeping)?.as_deref() != Some("0") {
            assert!(begun.elapsed() < SOON, "the statement is still running");
        }
        // The row has no lock.
        put_one(engine, &tables, 1)
    });
}

/// The token of a commit can't be prepared, so neither the token nor the commit is sent.
#[test]
fn a_connection_whose_commit_was_not_sent_is_not_used_again() {
    on_a_server(|engine| {
        let (tables, commits) = (open(engine), &engine.catalog.commits.sql);
        let holder = engine.pool.open()?;
        let run = |sql: String| holder.simple(&sql).map(drop).expect("a statement");
        for (id, is_locked) in [(1, false), (2, true)] {
            // The connection of `other` has not prepared the token.
            let other = connected(&engine.schema).expect("a server");
            let mut txn = other.write()?;
            txn.simple("SET LOCAL lock_timeout = 100")?;
            put(&mut txn, &tables, id)?;
            if is_locked {
                run(format!("BEGIN; LOCK TABLE {commits} IN SHARE ROW EXCLUSIVE MODE"));
            } else {
                run(format!("ALTER TABLE {commits} RENAME v TO hidden"));
            }
            let committed = txn.commit(|| ());
            if is_locked {
                assert!(matches!(committed, Err(CommitFailure::Conflict(_))), "{committed:?}");
                run("COMMIT".to_owned());
            } else {
                assert!(matches!(committed, Err(CommitFailure::Failed(_))), "{committed:?}");
                run(format!("ALTER TABLE {commits} RENAME hidden TO v"));
            }
            // A transaction that is one statement would fail on that connection.
            let mut txn = other.write()?;
            txn.assume_new();
            let mut writer = txn.writer(&tables).expect("a writer");
            assert!(writer.defer_new());
            assert!(writer.insert_fact(&[id + 10], b"row")?);
            assert!(writer.settle_new()?);
            txn.commit(|| ())?;
        }
        assert_eq!(ids(engine, &tables)?, [11, 12]);
        Ok(())
    });
}

#[test]
fn a_connection_with_the_lock_of_a_session_is_not_replaced() {
    on_a_server(|engine| {
        let tables = open(engine);
        let mut txn = engine.write()?;
        txn.exclude_builders(&tables)?;
        let connection = txn.session().leased.with(|leased| leased.as_ref().map(Leased::get));
        let connection = connection.expect("a connection")?;
        let own = connection.simple("SELECT pg_backend_pid()::text").expect("a number");
        let end = format!("SELECT pg_terminate_backend({}, 5000)::text", own.unwrap_or_default());
        engine.pool.open()?.simple(&end).expect("an end");
        put(&mut txn, &tables, 1)?;
        let sent = txn.send_pending();
        assert!(matches!(sent, Err(Error::Unreachable { .. })), "{sent:?}");
        assert!(txn.commit(|| ()).is_err());
        let txn = engine.write()?;
        txn.exclude_builders(&tables)?;
        assert_eq!(ids(engine, &tables)?, [0_u8; 0]);
        Ok(())
    });
}
