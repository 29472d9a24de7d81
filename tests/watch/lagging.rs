//! `Lagged` events for subscribers that are too slow or start too late.

use index_table::{ChangeKind::*, Event, Lagged};

use crate::{Copy, TestResult, on_each, person, received, summary};

fn lagged(event: Option<Event<crate::Person>>) -> Lagged {
    match event {
        Some(Event::Lagged(lagged)) => lagged,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_full_buffer_is_emptied() -> TestResult {
    on_each(|store, people| {
        let slow = people.watch(&store).buffer(3).start()?;
        let quick = people.watch(&store).start()?;
        for id in 0..5 {
            store.transaction(|txn| people.insert(txn, &person(id)))?;
        }
        let at = lagged(slow.try_recv().ok());
        // The fourth event found no room, and the three before it were discarded.
        assert_eq!(at.missed, 4);
        let rest = received(&slow);
        assert_eq!(rest.iter().map(summary).collect::<Vec<_>>(), [(Inserted, None, Some(4))]);
        assert!(rest[0].commit_number() > at.commit_number);
        assert_eq!(received(&quick).len(), 5, "another watcher lost events");
        Ok(())
    })
}

#[test]
fn a_commit_is_received_as_a_whole_or_not_at_all() -> TestResult {
    on_each(|store, people| {
        let watcher = people.watch(&store).buffer(3).start()?;
        store.transaction(|txn| people.insert(txn, &person(0)))?;
        let number = {
            let mut txn = store.write()?;
            (1..6).try_for_each(|id| people.insert(&mut txn, &person(id)))?;
            let number = txn.commit_number();
            txn.commit()?;
            number
        };
        let events = received(&watcher);
        assert_eq!(events.len(), 1);
        let at = lagged(events.into_iter().next());
        assert_eq!((at.missed, at.commit_number), (6, number));
        // Two notices are merged into one.
        for _ in 0..2 {
            store.transaction(|txn| (1..6).try_for_each(|id| people.delete(txn, id).map(drop)))?;
            store.transaction(|txn| (1..6).try_for_each(|id| people.insert(txn, &person(id))))?;
        }
        assert_eq!(lagged(watcher.try_recv().ok()).missed, 20);
        assert!(watcher.try_recv().is_err());
        Ok(())
    })
}

#[test]
fn a_buffer_is_also_bounded_in_bytes() -> TestResult {
    on_each(|store, people| {
        let watcher = people.watch(&store).buffer_bytes(1000).start()?;
        let long = |id| crate::Person { notes: "n".repeat(600), ..person(id) };
        store.transaction(|txn| people.insert(txn, &long(1)))?;
        assert!(matches!(watcher.try_recv(), Ok(Event::Change(_))));
        store.transaction(|txn| (2..4).try_for_each(|id| people.insert(txn, &long(id))))?;
        assert_eq!(lagged(watcher.try_recv().ok()).missed, 2);
        // An event larger than the buffer is accepted by an empty buffer.
        let longer = crate::Person { notes: "n".repeat(6000), ..person(9) };
        store.transaction(|txn| people.insert(txn, &longer))?;
        assert!(matches!(watcher.try_recv(), Ok(Event::Change(_))));
        Ok(())
    })
}

/// A subscriber that starts during a transaction has missed its first changes, and a snapshot from before the
/// commit has none of them.
#[test]
fn a_subscriber_during_a_transaction_receives_lagged() -> TestResult {
    for others in [false, true] {
        on_each(|store, people| {
            let early = others.then(|| people.watch(&store).start()).transpose()?;
            let mut txn = store.write()?;
            people.insert(&mut txn, &person(1))?;
            let watcher = people.watch(&store).start()?;
            let mut copy = {
                let txn = store.read()?;
                Copy::read(&txn, people.all(&txn).rows())?
            };
            people.insert(&mut txn, &person(2))?;
            txn.commit()?;
            assert!(copy.rows.is_empty());
            let at = lagged(watcher.try_recv().ok());
            assert!(at.commit_number > copy.commit);
            let txn = store.read()?;
            copy = Copy::read(&txn, people.all(&txn).rows())?;
            assert_eq!(copy.commit, at.commit_number);
            assert!(watcher.try_recv().is_err());
            assert!(early.is_none_or(|early| received(&early).len() == 2));
            Ok(())
        })?;
    }
    Ok(())
}

/// Unchanged rows give no events.
#[test]
fn a_transaction_without_changes_gives_no_events() -> TestResult {
    on_each(|store, people| {
        let mut txn = store.write()?;
        people.delete(&mut txn, 1)?;
        let watcher = people.watch(&store).start()?;
        txn.commit()?;
        assert!(watcher.try_recv().is_err());
        Ok(())
    })
}

#[test]
fn a_subscriber_between_closures_of_one_commit_receives_lagged() -> TestResult {
    on_each(|store, people| {
        let held = store.write()?;
        let writer = store.writer()?;
        let (sender, receiver) = std::sync::mpsc::channel();
        let first = {
            let people = people.clone();
            writer.submit(move |txn| people.insert(txn, &person(1)))
        };
        let second = {
            let (people, store) = (people.clone(), store.clone());
            writer.submit(move |txn| {
                let _ = sender.send(people.watch(&store).start());
                people.insert(txn, &person(2))
            })
        };
        drop(held);
        first.wait()?;
        second.wait()?;
        let watcher = receiver.recv()??;
        // Both closures are in one commit, and the subscriber has missed a part of it.
        let events = received(&watcher);
        let [Event::Lagged(lagged)] = events.as_slice() else { panic!("{events:?}") };
        let txn = store.read()?;
        assert_eq!(
            (lagged.commit_number.clone(), people.all(&txn).count()?),
            (txn.commit_number(), 2)
        );
        Ok(())
    })
}
