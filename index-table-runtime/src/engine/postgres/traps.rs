//! Tests on a server for cases that could break atomicity, or use a wrong plan, without an error.

use super::{
    batch::{Batch, Kind, Mode},
    pending::Item,
    sql,
    tests::{TABLE_ROW as ROW, connected, cut, ids, on_a_server, open, put},
    token::{self, Insertion, Kept, Token},
    *,
};
use std::thread;

use crate::{
    engine::{CommitFailure, Read as _, Space, Write as _},
    model::{
        maintain::{Change, Sink as _},
        schema::{Parts, Source},
    },
};

/// Inserts a row with its entry in the unique index, all deferred. Returns whether the keys were free.
fn insert(txn: &mut Txn<'_>, tables: &Tables, id: u8, key: u8) -> Result<bool> {
    let mut writer = txn.writer(tables).expect("a write transaction");
    assert!(writer.defer_new());
    assert!(writer.insert_entry(1, &[key], &[id], b"")?);
    assert!(writer.insert_fact(&[id], ROW)?);
    let entry = Change::PutEntry { index: 0, key: &[key], primary_key: &[id], data: b"" };
    writer.change(entry)?;
    writer.settle_new()
}

/// Returns the number of entries of both indexes.
fn entries(engine: &Engine, tables: &Tables) -> Result<Vec<u64>> {
    let txn = engine.read()?;
    let count = |index| {
        let all = crate::engine::Query::new(Source::Index(index), crate::model::KeyRange::ALL);
        txn.reader(tables).count(&all).map(|count| count.found)
    };
    [0, 1].into_iter().map(count).collect()
}

#[test]
fn a_statement_that_fails_beside_a_commit_undoes_all_on_a_new_connection() {
    on_a_server(|engine| {
        let tables = open(engine);
        // The connections of `other` have no prepared statements.
        let other = connected(&engine.schema).expect("a server");
        let tables_of_other = Tables::new(&other.schema, tables.schema, Parts::default());
        let mut txn = other.write()?;
        txn.simple("SELECT 1")?;
        put(&mut txn, &tables_of_other, 1)?;
        let failing = Item::Simple("SELECT 1 / 0".to_owned());
        txn.session().pending.with(|pending| pending.items.push_back(failing));
        put(&mut txn, &tables_of_other, 2)?;
        let committed = txn.commit(|| ());
        assert!(matches!(committed, Err(CommitFailure::Failed(_))), "{committed:?}");
        assert_eq!(ids(engine, &tables)?, [0_u8; 0]);
        // The connection can be used again.
        let mut txn = other.write()?;
        put(&mut txn, &tables_of_other, 3)?;
        txn.commit(|| ())?;
        assert_eq!(ids(engine, &tables)?, [3]);
        Ok(())
    });
}

#[test]
fn a_change_after_a_begin_that_has_failed_changes_nothing() {
    on_a_server(|engine| {
        let tables = open(engine);
        let mut batch = Batch::default();
        assert!(batch.push(&tables.facts, Kind::Put, &[&[1], ROW]));
        let commits = &engine.catalog.commits;
        let run = |mode: Mode<'_>, setting: &str| -> Result<bool> {
            let connection = engine.pool.open()?;
            connection.simple(setting).expect("a statement");
            let statement = batch.statement(mode, true, "'7'");
            let insertion = Insertion::new(Token::new(), None);
            let mut parameters = statement.parameters();
            if matches!(mode, Mode::Alone { .. }) {
                parameters.extend(insertion.parameters());
            }
            let rows = connection.query(&statement.sql, &parameters);
            column(&rows.expect("rows")[0], 1)
        };
        assert!(!run(Mode::Begun, "SELECT 1")?);
        assert!(!run(Mode::Alone { changes: None, commits }, sql::BEGIN_WRITE)?);
        assert!(!run(Mode::Alone { changes: Some(8), commits }, "SELECT 1")?);
        assert_eq!(ids(engine, &tables)?, [0_u8; 0]);
        assert!(run(Mode::Alone { changes: Some(7), commits }, "SELECT 1")?);
        assert_eq!(ids(engine, &tables)?, [1]);
        Ok(())
    });
}

#[test]
fn insertions_of_neighbouring_keys_do_not_conflict() {
    on_a_server(|engine| {
        let tables = open(engine);
        for first in [1_u8, 11] {
            let mut txns = [engine.write()?, engine.write()?, engine.write()?];
            for (id, txn) in (first..).zip(&mut txns) {
                assert!(insert(txn, &tables, id, id)?);
            }
            for txn in txns {
                txn.commit(|| ())?;
            }
        }
        assert_eq!(ids(engine, &tables)?, [1, 2, 3, 11, 12, 13]);
        assert_eq!(entries(engine, &tables)?, [6, 6]);
        Ok(())
    });
}

#[test]
fn an_insertion_with_a_taken_key_changes_neither_rows_nor_entries() {
    on_a_server(|engine| {
        let tables = open(engine);
        let mut txn = engine.write()?;
        assert!(insert(&mut txn, &tables, 1, 7)?);
        assert!(!insert(&mut txn, &tables, 2, 7)?, "the unique key is taken");
        assert!(!insert(&mut txn, &tables, 1, 8)?, "the primary key is taken");
        assert!(insert(&mut txn, &tables, 2, 8)?);
        let reader = txn.reader(&tables);
        let holder = reader.unique(1, &[7])?.map(|entry| entry.primary_key.to_vec());
        assert_eq!(holder, Some(vec![1]));
        txn.commit(|| ())?;
        assert_eq!(ids(engine, &tables)?, [1, 2]);
        assert_eq!(entries(engine, &tables)?, [2, 2]);

        // Here, each insertion is sent as a transaction of its own.
        for (id, key) in [(3, 7), (1, 9)] {
            let mut txn = engine.write()?;
            txn.assume_new();
            assert!(insert(&mut txn, &tables, id, key)?);
            let committed = txn.commit(|| ());
            assert!(matches!(committed, Err(CommitFailure::Conflict(_))), "{committed:?}");
        }
        assert_eq!(entries(engine, &tables)?, [2, 2]);
        let mut txn = engine.write()?;
        txn.assume_new();
        assert!(insert(&mut txn, &tables, 3, 9)?);
        assert!(!txn.session().has_begun());
        txn.commit(|| ())?;
        assert_eq!((ids(engine, &tables)?, entries(engine, &tables)?), (vec![1, 2, 3], vec![3, 3]));
        Ok(())
    });
}

#[test]
fn an_operation_that_is_abandoned_changes_nothing() {
    on_a_server(|engine| {
        let tables = open(engine);
        let mut txn = engine.write()?;
        put(&mut txn, &tables, 1)?;
        let mut writer = txn.writer(&tables).expect("a write transaction");
        assert!(writer.defer_new());
        writer.insert_fact(&[2], ROW)?;
        writer.abandon_new();
        put(&mut txn, &tables, 3)?;
        txn.commit(|| ())?;
        assert_eq!(ids(engine, &tables)?, [1, 3]);

        // If a part of the operation was sent, abandoning it fails the transaction.
        let mut txn = engine.write()?;
        let mut writer = txn.writer(&tables).expect("a write transaction");
        assert!(writer.defer_new());
        writer.insert_fact(&[4], ROW)?;
        assert!(writer.reader().fact(&[4])?.is_some());
        writer.abandon_new();
        assert!(matches!(txn.commit(|| ()), Err(CommitFailure::Failed(_))));
        assert_eq!(ids(engine, &tables)?, [1, 3]);
        Ok(())
    });
}

#[test]
fn a_change_that_relies_on_an_older_catalog_is_refused() {
    on_a_server(|engine| {
        let tables = open(engine);
        let other = connected(&engine.schema).expect("a server");
        let of_other = open(&other);
        let record = |txn: &Txn<'_>| -> Result<Option<Vec<u8>>> {
            Ok(txn.reader(&tables).get(Space::Catalog, b"part")?.map(<[u8]>::to_vec))
        };
        // The record is cached, and a statement follows.
        for _ in 0..2 {
            let mut txn = engine.write()?;
            assert_eq!(record(&txn)?, None);
            put(&mut txn, &tables, 1)?;
            txn.commit(|| ())?;
        }
        let mut txn = other.write()?;
        txn.writer(&of_other).expect("a writer").put(Space::Catalog, b"part", b"1")?;
        txn.commit(|| ())?;
        // Without a read, the change is sent as a transaction of its own. With a read, it follows a `BEGIN`.
        for reads in [false, true] {
            let mut txn = engine.write()?;
            let found = record(&txn)?;
            if found.is_some() {
                continue;
            }
            put(&mut txn, &tables, 2)?;
            let read = if reads { txn.reader(&tables).fact(&[1]).map(drop) } else { Ok(()) };
            let committed = txn.commit(|| ());
            assert!(matches!(committed, Err(CommitFailure::Conflict(_))), "{read:?} {committed:?}");
        }
        let txn = engine.read()?;
        assert_eq!(record(&txn)?.as_deref(), Some(&b"1"[..]));
        assert_eq!(ids(engine, &tables)?, [1]);
        Ok(())
    });
}

/// Returns the number of tokens.
fn tokens(engine: &Engine) -> Result<Option<String>> {
    engine.run(&format!("SELECT count(*)::text FROM {}", engine.catalog.commits.sql))
}

#[test]
fn a_commit_on_a_lost_connection_has_failed_for_good() {
    on_a_server(|engine| {
        let tables = open(engine);
        for alone in [true, false] {
            let mut txn = engine.write()?;
            if alone {
                txn.assume_new();
            } else {
                txn.reader(&tables).fact(&[9])?;
            }
            assert!(insert(&mut txn, &tables, 1, 1)?);
            if !alone {
                txn.simple("SELECT 1")?;
            }
            cut(engine, &txn)?;
            let committed = txn.commit(|| ());
            assert!(matches!(committed, Err(CommitFailure::Failed(_))), "{committed:?}");
            assert_eq!(ids(engine, &tables)?, [0_u8; 0]);
        }
        Ok(())
    });
}

#[test]
fn a_fence_has_the_outcome_of_its_commit_and_prevents_a_later_one() {
    on_a_server(|engine| {
        open(engine);
        let commits = &engine.catalog.commits;
        let [one, other] = [engine.pool.open()?, engine.pool.open()?];
        let limit = Duration::from_millis(200);
        let fence = |token: Token| other.simple(&token.fence(commits, limit));
        let insertion = |token| Insertion::new(token, None);
        let insert = |token| {
            one.simple(sql::BEGIN_WRITE).expect("a transaction");
            one.query(&token::insert(commits), &insertion(token).parameters())
        };
        // The commit comes first. A second fence has the same result.
        let token = Token::new();
        assert!(insert(token).is_ok());
        // Before the commit, the fence waits.
        assert!(fence(token).is_err());
        other.simple("ROLLBACK").expect("a rollback");
        one.simple("COMMIT").expect("a commit");
        for _ in 0..2 {
            assert_eq!(fence(token).expect("a fence").as_deref(), Some("1"));
        }
        // The fence comes first.
        let token = Token::new();
        for _ in 0..2 {
            assert_eq!(fence(token).expect("a fence").as_deref(), Some("0"));
        }
        assert!(insert(token).is_err());
        one.simple("ROLLBACK").expect("a rollback");
        assert_eq!(fence(token).expect("a fence").as_deref(), Some("0"));
        Ok(())
    });
}

#[test]
fn a_connection_has_one_token_and_old_tokens_are_removed() {
    on_a_server(|engine| {
        let tables = open(engine);
        let commits = &engine.catalog.commits;
        let mut before = None;
        for id in 0..20 {
            // The first commits use other connections.
            if id == 4 {
                before = tokens(engine)?;
            }
            let mut txn = engine.write()?;
            put(&mut txn, &tables, id)?;
            if id % 2 == 0 {
                txn.simple("SELECT 1")?;
            }
            txn.commit(|| ())?;
        }
        assert_eq!(tokens(engine)?, before);
        // The place of the previous token is read, and no page of an index.
        let connection = engine.pool.open()?;
        let plan = token::insert(commits).replace("$1", "''").replace("$2", "'(1,1)'");
        let plan = connection.query(&format!("EXPLAIN {}", plan.replace("$3", "''")), &[]);
        let plan: Vec<String> =
            plan.expect("a plan").iter().map(|row| row.get::<_, &str>(0).to_owned()).collect();
        assert!(plan.iter().any(|line| line.contains("Tid Scan")), "{plan:#?}");
        assert!(!plan.iter().any(|line| line.contains("Index")), "{plan:#?}");

        let old = "int8send(((extract(epoch FROM clock_timestamp()) - 90000) * 1000000)::int8)";
        let table = &commits.sql;
        let add = format!("INSERT INTO {table} (k, v) VALUES ('\\x07', '\\x00'::bytea || {old})");
        let remove = || connection.simple(&token::remove_old(commits)).expect("a statement");
        // Transactions of other tests can be older than the row.
        let are_removed = || -> Result<bool> {
            for _ in 0..500 {
                remove();
                if tokens(engine)? == before {
                    return Ok(true);
                }
                thread::sleep(Duration::from_millis(20));
            }
            Ok(false)
        };
        engine.run(&add)?;
        assert!(are_removed()?);
        // A transaction that was running when the fence was written may still be.
        let running = engine.pool.open()?;
        let number = format!("{}; SELECT pg_current_xact_id()", sql::BEGIN_WRITE);
        running.simple(&number).expect("a number");
        engine.run(&add)?;
        remove();
        assert_ne!(tokens(engine)?, before);
        running.simple("COMMIT").expect("a commit");
        assert!(are_removed()?);
        Ok(())
    });
}

#[test]
fn each_transaction_that_may_change_something_has_a_token() {
    type Way<'a> = (&'a str, bool, &'a dyn Fn(&mut Txn<'_>, &Tables) -> Result<()>);
    on_a_server(|engine| {
        let tables = open(engine);
        let facts = &tables.facts.sql;
        let insertion = format!("INSERT INTO {facts} (k, v) VALUES ('\\x09', '')");
        let returning = format!("{insertion} RETURNING k");
        let within = format!("WITH n AS ({returning}) SELECT k FROM n");
        let none = format!("SELECT v FROM {facts}");
        let ways: [Way<'_>; 8] = [
            ("a query", false, &|txn, _| txn.query(&none, &[]).map(drop)),
            ("numbers", false, &|txn, _| {
                txn.stamp();
                Ok(())
            }),
            ("a query that inserts", true, &|txn, _| txn.query(&returning, &[]).map(drop)),
            ("a query with a part", true, &|txn, _| txn.query(&within, &[]).map(drop)),
            ("a statement", true, &|txn, _| txn.execute(&insertion, &[]).map(drop)),
            ("a text", true, &|txn, _| txn.simple(&insertion).map(drop)),
            ("rows", true, &|txn, tables| {
                let mut rows = copy::Copied::new(tables.facts.form);
                rows.end();
                let mut rows = [rows.piece()].into_iter();
                txn.copy(&sql::copy(&tables.facts), &mut || rows.next()).map(drop)
            }),
            ("a change", true, &|txn, tables| {
                put(txn, tables, 9)?;
                txn.send_pending()
            }),
        ];
        for (way, is_change, perform) in ways {
            let mut txn = engine.write()?;
            perform(&mut txn, &tables)?;
            assert_eq!(txn.session().has_changed.get(), is_change, "{way}");
        }
        Ok(())
    });
}

#[test]
fn tokens_of_concurrent_commits_do_not_conflict() {
    on_a_server(|engine| {
        open(engine);
        let commits = &engine.catalog.commits;
        let mut connections = Vec::new();
        for _ in 0..6 {
            connections.push((engine.pool.open()?, None::<Kept>));
        }
        for round in 0..20 {
            for (connection, kept) in &mut connections {
                connection.simple(sql::BEGIN_WRITE).expect("a transaction");
                // All take their snapshots before the first commit.
                connection.simple("SELECT pg_current_xact_id()::text").expect("a snapshot");
                let token = Token::new();
                let insertion = Insertion::new(token, kept.as_ref());
                let rows = connection.query(&token::insert(commits), &insertion.parameters());
                let place: String = rows.expect("a token")[0].get(0);
                *kept = Some(Kept::new(token, &place));
            }
            for (connection, _) in &connections {
                let committed = connection.simple("COMMIT");
                assert!(committed.is_ok(), "round {round}: {committed:?}");
            }
        }
        Ok(())
    });
}

#[test]
fn an_ambiguous_error_is_not_a_conflict() {
    on_a_server(|engine| {
        let connection = engine.pool.open()?;
        let raised = |code: &str| {
            let sql = format!("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{code}'; END $$");
            error::kind(&connection.simple(&sql).expect_err("an error"))
        };
        assert_eq!(raised("40003"), error::Kind::Ambiguous);
        for code in ["40001", "40P01", "23505"] {
            assert_eq!(raised(code), error::Kind::Conflict, "{code}");
        }
        assert_eq!(raised("53100"), error::Kind::Refused);
        Ok(())
    });
}

#[test]
fn each_session_has_the_settings() {
    on_a_server(|engine| {
        let connection = engine.pool.open()?;
        for (name, value) in sql::SETTINGS {
            let found = connection.simple(&format!("SHOW {name}")).expect("a setting");
            assert_eq!(found.as_deref(), Some(value), "{name}");
        }
        Ok(())
    });
}

#[test]
fn many_entries_are_loaded_in_any_order() {
    use crate::{engine::Ascending, model::entry::RawEntry};

    struct All(Vec<u16>, [u8; 2], usize);

    impl Ascending for All {
        fn next(&mut self) -> Result<Option<RawEntry<'_>>> {
            let Some(id) = self.0.get(self.2) else { return Ok(None) };
            self.2 += 1;
            self.1 = id.to_be_bytes();
            Ok(Some(RawEntry { key: &[], primary_key: &self.1, data: b"row" }))
        }
    }

    on_a_server(|engine| {
        let tables = open(engine);
        // First, the entries are sorted. Then, an entry after the first thousands is out of order. Finally, the table
        // already has rows.
        for mut ids in
            [(0..5_000).collect::<Vec<u16>>(), (0..5_000).collect(), (2_000..7_000).collect()]
        {
            let is_sorted = ids.len() == 5_000 && ids[0] == 0 && ids[4_999] == 4_999;
            if !is_sorted {
                ids.swap(3_000, 4_000);
            }
            let mut txn = engine.write()?;
            let count = ids.len() as u64;
            let mut writer = txn.writer(&tables).expect("a writer");
            assert_eq!(writer.append(Source::Facts, &mut All(ids, [0; 2], 0))?, count);
            txn.commit(|| ())?;
        }
        let txn = engine.read()?;
        let all = crate::engine::Query::new(Source::Facts, crate::model::KeyRange::ALL);
        assert_eq!(txn.reader(&tables).count(&all)?.found, 7_000);
        drop(txn);
        let mut txn = engine.write()?;
        txn.simple(&format!("TRUNCATE {}", tables.facts.sql))?;
        let mut ids: Vec<u16> = (0..5_000).collect();
        ids.swap(3_000, 4_000);
        ids.push(7);
        let mut writer = txn.writer(&tables).expect("a writer");
        assert_eq!(writer.append(Source::Facts, &mut All(ids, [0; 2], 0))?, 5_001);
        assert_eq!(txn.reader(&tables).count(&all)?.found, 5_000);
        txn.commit(|| ())?;
        Ok(())
    });
}
