//! Snapshots, reads of a transaction's own writes, nested transactions, outcomes.

use super::*;
use crate::{
    engine::{CommitFailure, Retry},
    locks::Mutex,
    model::error::Error,
};

/// Returns the primary keys of the facts.
fn ids(reader: Reader<'_>) -> Result<Vec<u16>> {
    let facts = all(reader, Source::Facts)?;
    Ok(facts.iter().map(|(_, id, _)| u16::from_be_bytes([id[0], id[1]])).collect())
}

fn add(txn: &mut Txn<'_>, tables: &Tables, id: u16) -> Result<()> {
    let mut writer = writer(txn, tables);
    for source in SOURCES {
        put(&mut writer, source, id as u8, id, b"row")?;
    }
    writer.flush()
}

#[test]
fn a_snapshot_is_not_affected_by_later_commits() {
    on_each(|harness| {
        let engine = harness.engine();
        let tables = open(engine, TABLE);
        let mut txn = engine.write()?;
        add(&mut txn, &tables, 1)?;
        commit(txn)?;

        let before = engine.read()?;
        let mut txn = engine.write()?;
        add(&mut txn, &tables, 2)?;
        assert_eq!(ids(reader(&before, &tables))?, [1]);
        assert_eq!(ids(reader(&txn, &tables))?, [1, 2]);
        let stamp = txn.stamp();
        commit(txn)?;
        assert_eq!(ids(reader(&before, &tables))?, [1]);

        let after = engine.read()?;
        assert_eq!(ids(reader(&after, &tables))?, [1, 2]);
        if !harness.is_sharded {
            assert!(before.stamp() < stamp);
            // A snapshot may be older than the last commit if other transactions run.
            assert!(harness.has_several_writers || after.stamp() == stamp);
        }
        Ok(())
    });
}

#[test]
fn a_transaction_that_is_dropped_has_changed_nothing() {
    on_each(|harness| {
        let engine = harness.engine();
        let tables = open(engine, TABLE);
        let mut txn = engine.write()?;
        add(&mut txn, &tables, 1)?;
        drop(txn);
        let txn = engine.read()?;
        for source in SOURCES {
            assert_eq!(all(reader(&txn, &tables), source)?, []);
        }
        Ok(())
    });
}

#[test]
fn inserts_report_whether_the_key_was_free() {
    on_each(|harness| {
        let engine = harness.engine();
        let tables = open(engine, TABLE);
        let mut txn = engine.write()?;
        let mut writer = writer(&mut txn, &tables);
        assert!(writer.insert_fact(&[0, 1], b"first")?);
        assert!(!writer.insert_fact(&[0, 1], b"second")?);
        assert!(writer.insert_entry(UNIQUE, &[7], &[0, 1], b"")?);
        assert!(!writer.insert_entry(UNIQUE, &[7], &[0, 2], b"")?);
        let reader = writer.reader();
        assert_eq!(reader.fact(&[0, 1])?, Some(&b"first"[..]));
        let holder = reader.unique(UNIQUE, &[7])?.map(|entry| entry.primary_key.to_vec());
        assert_eq!(holder, Some(vec![0, 1]));
        Ok(())
    });
}

#[test]
fn a_unique_key_has_one_entry_and_a_put_replaces_it() {
    on_each(|harness| {
        let engine = harness.engine();
        let tables = open(engine, TABLE);
        let mut txn = engine.write()?;
        let mut writer = writer(&mut txn, &tables);
        put(&mut writer, Source::Index(UNIQUE), 7, 1, b"")?;
        put(&mut writer, Source::Index(UNIQUE), 7, 2, b"")?;
        let entries = all(writer.reader(), Source::Index(UNIQUE))?;
        assert_eq!(entries, [(vec![7], vec![0, 2], vec![])]);
        Ok(())
    });
}

#[test]
fn a_shared_unique_key_has_an_entry_for_each_row() {
    on_each(|harness| {
        let engine = harness.engine();
        let tables = open(engine, TABLE);
        let mut txn = engine.write()?;
        let mut writer = writer(&mut txn, &tables);
        let ids = |reader: Reader<'_>| -> Result<Vec<u8>> {
            let entries = all(reader, Source::Index(UNIQUE))?;
            assert!(entries.iter().all(|(key, ..)| key == &[7]));
            Ok(entries.into_iter().map(|(_, id, _)| id[1]).collect())
        };
        for id in [3, 1, 4, 2, 3] {
            writer.put_shared(UNIQUE, &[7], &[0, id], b"")?;
        }
        assert_eq!(ids(writer.reader())?, [1, 2, 3, 4]);
        for id in 1..5 {
            assert_eq!(writer.reader().entry(UNIQUE, &[7], &[0, id])?, Some(&b""[..]));
        }
        assert_eq!(writer.reader().entry(UNIQUE, &[7], &[0, 5])?, None);
        let first = |reader: Reader<'_>| -> Result<Option<u8>> {
            let first = reader.unique(UNIQUE, &[7])?;
            Ok(first.and_then(|first| first.primary_key.bytes.last().copied()))
        };
        assert_eq!(first(writer.reader())?, Some(1));
        for (id, left) in [(3, &[1, 2, 4][..]), (1, &[2, 4]), (9, &[2, 4]), (2, &[4])] {
            writer.remove_shared(UNIQUE, &[7], &[0, id])?;
            assert_eq!(
                (ids(writer.reader())?, first(writer.reader())?),
                (left.to_vec(), left.first().copied())
            );
        }
        // A single entry has the same form as in any unique index.
        put(&mut writer, Source::Index(UNIQUE), 7, 5, b"")?;
        assert_eq!(ids(writer.reader())?, [5]);
        writer.remove_shared(UNIQUE, &[7], &[0, 5])?;
        assert_eq!(ids(writer.reader())?, [0; 0]);
        Ok(())
    });
}

#[test]
fn removing_a_missing_entry_succeeds() {
    on_each(|harness| {
        let engine = harness.engine();
        let tables = open(engine, TABLE);
        let mut txn = engine.write()?;
        let mut writer = writer(&mut txn, &tables);
        for source in SOURCES {
            delete(&mut writer, source, 1, 1)?;
            put(&mut writer, source, 1, 1, b"")?;
            delete(&mut writer, source, 1, 2)?;
            delete(&mut writer, source, 1, 1)?;
            delete(&mut writer, source, 1, 1)?;
            assert_eq!(all(writer.reader(), source)?, [], "{source:?}");
        }
        Ok(())
    });
}

#[test]
fn clearing_an_index_leaves_the_others() {
    on_each(|harness| {
        let engine = harness.engine();
        let tables = open(engine, TABLE);
        let mut txn = engine.write()?;
        add(&mut txn, &tables, 1)?;
        writer(&mut txn, &tables).clear(ENTRIES)?;
        let reader = reader(&txn, &tables);
        let lengths = SOURCES.map(|source| all(reader, source).map(|all| all.len()));
        assert!(matches!(lengths, [Ok(1), Ok(1), Ok(0), Ok(1), Ok(1)]), "{lengths:?}");
        Ok(())
    });
}

#[test]
fn a_nested_transaction_is_part_of_the_outer_transaction_or_changes_nothing() {
    on_each(|harness| {
        let engine = harness.engine();
        let tables = open(engine, TABLE);
        let mut txn = engine.write()?;
        add(&mut txn, &tables, 1)?;
        {
            let mut nested = txn.nested().expect("a write transaction")?;
            assert_eq!(ids(reader(&nested, &tables))?, [1]);
            add(&mut nested, &tables, 2)?;
            let mut inner = nested.nested().expect("a write transaction")?;
            add(&mut inner, &tables, 3)?;
            drop(inner);
            assert_eq!(ids(reader(&nested, &tables))?, [1, 2]);
            commit(nested)?;
        }
        {
            let mut nested = txn.nested().expect("a write transaction")?;
            add(&mut nested, &tables, 4)?;
        }
        assert_eq!(ids(reader(&txn, &tables))?, [1, 2]);
        commit(txn)?;
        let txn = engine.read()?;
        assert_eq!(ids(reader(&txn, &tables))?, [1, 2]);
        Ok(())
    });
}

#[test]
fn a_read_transaction_neither_writes_nor_nests() {
    on_each(|harness| {
        let engine = harness.engine();
        let tables = open(engine, TABLE);
        let mut txn = engine.read()?;
        assert!(txn.writer(&tables).is_none());
        assert!(txn.nested().is_none());
        assert_eq!(txn.retry(), None);
        Ok(())
    });
}

#[test]
fn stamps_ascend_and_a_rollback_leaves_its_own_to_the_next() {
    on_each(|harness| {
        if harness.is_sharded {
            return Ok(());
        }
        let engine = harness.engine();
        let tables = open(engine, TABLE);
        let mut last = engine.read()?.stamp();
        for id in 0..5 {
            let mut txn = engine.write()?;
            add(&mut txn, &tables, id)?;
            let own = txn.stamp();
            assert!(own > last);
            drop(txn);
            if harness.has_several_writers {
                last = own;
                continue;
            }
            let mut txn = engine.write()?;
            add(&mut txn, &tables, id)?;
            assert_eq!(txn.stamp(), own);
            commit(txn)?;
            last = own;
            assert_eq!(engine.read()?.stamp(), own);
        }
        Ok(())
    });
}

#[test]
fn the_callback_of_a_commit_runs_before_the_next_writer() {
    on_each(|harness| {
        if harness.has_several_writers {
            return Ok(());
        }
        let engine = harness.engine();
        let tables = open(engine, TABLE);
        let (mut first, order) = (engine.write()?, Mutex::<_>::new(Vec::new()));
        add(&mut first, &tables, 1)?;
        std::thread::scope(|scope| {
            let next = scope.spawn(|| {
                let txn = engine.write().expect("the turn to write");
                order.lock().push("next");
                drop(txn);
            });
            let committed = || order.lock().push("committed");
            let outcome = first.commit(committed).map_err(Error::from);
            next.join().expect("a thread");
            outcome
        })?;
        assert_eq!(order.into_inner(), ["committed", "next"]);
        Ok(())
    });
}

#[test]
fn commits_survive_reopening() {
    on_each(|harness| {
        let tables = open(harness.engine(), TABLE);
        let mut txn = harness.engine().write()?;
        add(&mut txn, &tables, 1)?;
        commit(txn)?;
        let mut txn = harness.engine().write()?;
        add(&mut txn, &tables, 2)?;
        drop(txn);
        let stamp = harness.engine().read()?.stamp();
        drop(tables);
        if harness.reopen() {
            let tables = open(harness.engine(), TABLE);
            let txn = harness.engine().read()?;
            assert!(txn.stamp() >= stamp);
            for source in SOURCES {
                assert_eq!(all(reader(&txn, &tables), source)?.len(), 1, "{source:?}");
            }
        }
        Ok(())
    });
}

#[test]
fn a_full_map_is_reported_by_retry_and_the_transaction_succeeds_after_growth() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let options = Options::default().map_size(1 << 18).max_map_size(1 << 24);
    let engine = Engine::from(engine::Engine::open(&options, directory.path())?);
    let tables = open(&engine, TABLE);
    let fill = |txn: &mut Txn<'_>| -> Result<()> {
        (0..200).try_for_each(|id| put(&mut writer(txn, &tables), Source::Facts, 0, id, &[7; 4096]))
    };
    let mut attempts = 0;
    loop {
        attempts += 1;
        let mut txn = engine.write()?;
        let outcome = fill(&mut txn);
        let retry = txn.retry();
        match retry {
            None => {
                outcome?;
                commit(txn)?;
                break;
            }
            Some(retry @ Retry::Map { .. }) => {
                assert!(matches!(outcome, Err(Error::MapFull { .. })));
                // The transaction has failed, even if the closure ignores the error.
                assert!(put(&mut writer(&mut txn, &tables), Source::Facts, 0, 0, b"").is_err());
                assert!(matches!(txn.commit(|| ()), Err(CommitFailure::Failed(_))));
                assert!(engine.one().prepare(retry)?);
            }
            Some(retry) => panic!("{retry:?}"),
        }
    }
    assert!(attempts > 1);
    let txn = engine.read()?;
    assert_eq!(all(reader(&txn, &tables), Source::Facts)?.len(), 200);
    Ok(())
}

#[test]
fn a_nested_transaction_that_failed_does_not_fail_the_outer_transaction() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let options = Options::default().map_size(1 << 18).max_map_size(1 << 18);
    let engine = Engine::from(engine::Engine::open(&options, directory.path())?);
    let tables = open(&engine, TABLE);
    let mut txn = engine.write()?;
    add(&mut txn, &tables, 1)?;
    {
        let mut nested = txn.nested().expect("a write transaction")?;
        let filled = (2..200).try_for_each(|id| {
            put(&mut writer(&mut nested, &tables), Source::Facts, 0, id, &[7; 4096])
        });
        assert!(matches!(filled, Err(Error::MapFull { .. })));
        assert!(matches!(nested.commit(|| ()), Err(CommitFailure::Failed(_))));
    }
    commit(txn)?;
    let txn = engine.read()?;
    assert_eq!(ids(reader(&txn, &tables))?, [1]);
    Ok(())
}

#[test]
fn failed_commits_report_whether_anything_has_changed() {
    let error = || Error::TransactionTooLarge;
    assert_eq!(CommitFailure::Conflict(error()).retry(), Some(Retry::Conflict));
    assert_eq!(CommitFailure::Failed(error()).retry(), Some(Retry::Pages));
    assert_eq!(CommitFailure::Failed(Error::WriteInProgress).retry(), None);
    assert_eq!(CommitFailure::Unknown(error()).retry(), None);
    let unknown = Error::from(CommitFailure::Unknown(error()));
    assert!(matches!(unknown, Error::CommitUnknown { .. }), "{unknown}");
}
