//! Waiting for the messages of a write, and the lag of the indexes.

use std::time::Duration;

use index_table::{Error, IndexToken, OnDuplicate, Store, WhenFull};

use crate::{Item, ItemRepository, TestResult, assert_drained, item, on_each, on_each_local};

const LONG: Duration = Duration::from_mins(1);
const SHORT: Duration = Duration::from_millis(30);

#[test]
fn a_token_waits_for_its_writes() -> TestResult {
    on_each(|store| {
        let items = ItemRepository::open(store)?;
        let worker = store.start_index_worker()?;
        for id in 0..30 {
            let mut txn = store.write()?;
            items.insert(&mut txn, &item(id, id))?;
            let inside = txn.token();
            let token = txn.commit_with_token()?;
            assert_eq!(inside, token);
            assert!(!token.is_empty());
            assert!(items.wait_for(store, &token, LONG)?);
            let txn = store.read()?;
            let found = items.find_by_town(&txn, &item(id, id).town).verified().rows();
            assert!(found.filter_map(Result::ok).any(|row| row.id == id));
        }
        assert!(worker.error().is_none());
        drop(worker);
        assert_drained(&items, store)?;
        Ok(())
    })
}

#[test]
fn a_closure_can_return_its_token() -> TestResult {
    // On a server, a token covers its own transaction only.
    on_each_local(|store| {
        let items = ItemRepository::open(store)?;
        let token = store.transaction(|txn| {
            items.insert(txn, &item(1, 1))?;
            Ok(txn.token())
        })?;
        assert!(!items.wait_for(store, &token, SHORT)?);
        items.drain(store, 1)?;
        assert!(items.wait_for(store, &token, SHORT)?);
        // `number` is in no key of an eventual index.
        let token = store.transaction(|txn| {
            items.update(txn, 1, |row| row.number = 7)?;
            Ok(txn.token())
        })?;
        // A full index carries it nevertheless.
        assert!(!token.is_empty());
        let token = store.transaction(|txn| {
            items.put(txn, &items.get(txn, 1)?.expect("a row"))?;
            Ok(txn.token())
        })?;
        // This transaction writes nothing. Its token covers the earlier messages.
        assert!(!items.wait_for(store, &token, SHORT)?);
        items.drain(store, 1)?;
        assert!(items.wait_for(store, &token, SHORT)?);
        let token = store.transaction(|txn| {
            items.put(txn, &items.get(txn, 1)?.expect("a row"))?;
            Ok(txn.token())
        })?;
        assert!(token.is_empty() && token == IndexToken::default());
        assert!(items.wait_for(store, &token, SHORT)?);
        Ok(())
    })
}

/// After `wait_for`, a row is found by its current values, whichever transaction added its message.
#[test]
fn a_token_covers_rows_that_are_partly_changed_in_line() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::options().index_queue(1, WhenFull::ApplyInLine).open(dir.path())?;
    let items = ItemRepository::open(&store)?;
    let tagged =
        |tags: &[&str]| Item { tags: tags.iter().map(ToString::to_string).collect(), ..item(1, 1) };
    let found = || items.find_by_tags(&store.read()?, "a").verified().count();
    store.transaction(|txn| items.insert(txn, &tagged(&["a", "b"])))?;
    // The queue is full now. One tag is changed in line, and another is in the message.
    let token = store.transaction(|txn| {
        items.put(txn, &tagged(&["a", "c"]))?;
        Ok(txn.token())
    })?;
    assert_eq!(items.find_by_tags(&store.read()?, "c").verified().count()?, 1);
    assert_eq!((items.wait_for(&store, &token, SHORT)?, found()?), (false, 0));
    let loaded = store.transaction(|txn| {
        items.bulk_load_in(txn, [tagged(&["a", "d"])]).on_duplicate(OnDuplicate::Replace).run()?;
        Ok(txn.token())
    })?;
    assert_eq!(loaded, token);
    items.drain(&store, 1)?;
    assert_eq!((items.wait_for(&store, &token, SHORT)?, found()?), (true, 1));
    Ok(())
}

#[test]
fn waiting_within_a_write_transaction_is_refused() -> TestResult {
    // On a server, the worker doesn't wait for this transaction.
    on_each_local(|store| {
        let items = ItemRepository::open(store)?;
        let worker = store.start_index_worker()?;
        let mut txn = store.write()?;
        items.insert(&mut txn, &item(1, 1))?;
        let token = txn.token();
        assert!(matches!(items.wait_for(store, &token, LONG), Err(Error::WriteInProgress)));
        assert!(matches!(items.drain(store, 1), Err(Error::WriteInProgress)));
        // Dropping the worker doesn't wait for the worker, which waits for this transaction.
        drop(worker);
        txn.commit()?;
        items.drain(store, u64::MAX)?;
        assert_drained(&items, store)?;
        Ok(())
    })
}

#[test]
fn lag_has_the_number_and_the_age_of_messages() -> TestResult {
    on_each(|store| {
        let items = ItemRepository::open(store)?;
        assert_eq!(items.lag(&store.read()?)?, index_table::Lag::default());
        store.transaction(|txn| (0..5).try_for_each(|id| items.insert(txn, &item(id, id))))?;
        std::thread::sleep(Duration::from_millis(20));
        let lag = items.lag(&store.read()?)?;
        assert_eq!((lag.messages, lag.dead_letters), (5, 0));
        assert!(lag.behind >= Duration::from_millis(19), "{lag:?}");
        let drained = items.drain(store, 2)?;
        assert_eq!((drained.applied, drained.left), (2, 3));
        assert_eq!(items.lag(&store.read()?)?.messages, 3);
        assert_eq!(items.drain(store, u64::MAX)?.applied, 3);
        let lag = items.lag(&store.read()?)?;
        assert_eq!((lag.messages, lag.behind), (0, Duration::ZERO));
        Ok(())
    })
}

/// The store is closed when its last handle is dropped, even while a worker runs.
#[test]
fn a_worker_does_not_keep_the_store_open() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let items = ItemRepository::open(&store)?;
    let worker = store.start_index_worker()?;
    store.transaction(|txn| items.insert(txn, &item(1, 1)))?;
    drop((items, store));
    let other = Store::options().max_readers(5);
    let started = std::time::Instant::now();
    while other.open(dir.path()).is_err() {
        assert!(started.elapsed() < LONG);
        std::thread::yield_now();
    }
    drop(worker);
    Ok(())
}

/// A group writer runs closures as nested transactions.
#[test]
fn group_writers_return_tokens() -> TestResult {
    on_each(|store| {
        let items = ItemRepository::open(store)?;
        let writer = store.writer()?;
        let submitted: Vec<_> = (0..40_u32)
            .map(|id| {
                let items = items.clone();
                let failed = Error::SequenceExhausted { table: "items", last: 0 };
                let failed = (id % 5 == 4).then_some(failed);
                writer.submit(move |txn| {
                    items.put(txn, &item(id % 10, id))?;
                    items.put(txn, &item(id, id))?;
                    match &failed {
                        Some(Error::SequenceExhausted { table, last }) => {
                            Err(Error::SequenceExhausted { table, last: *last })
                        }
                        _ => Ok(txn.token()),
                    }
                })
            })
            .collect();
        let mut tokens = Vec::new();
        for (id, submitted) in submitted.into_iter().enumerate() {
            match submitted.wait() {
                Ok(token) => tokens.push(token),
                Err(Error::SequenceExhausted { .. }) if id % 5 == 4 => {}
                Err(error) => return Err(format!("{id}: {error}").into()),
            }
        }
        assert_eq!(tokens.len(), 32);
        writer.close()?;
        items.drain(store, u64::MAX)?;
        for token in tokens {
            assert!(items.wait_for(store, &token, Duration::ZERO)?);
        }
        assert_drained(&items, store)?;
        Ok(())
    })
}
