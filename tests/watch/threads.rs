//! Many concurrent writers and subscribers.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use index_table::{ChangeKind, Event, Store};

use crate::{Copy, Person, PersonRepository, TestResult, on_each, person};

const WRITERS: u32 = 3;
const ROUNDS: u32 = 60;

/// Each commit increments a number, so the rows show the order of the commits.
#[test]
fn commits_are_received_in_their_order() -> TestResult {
    on_each(|store, people| {
        store.transaction(|txn| people.insert(txn, &Person { tags: vec![0; 4], ..person(0) }))?;
        let watcher = people.watch(&store).buffer(100_000).start()?;
        let group = store.writer()?;
        let raise = |row: &mut Person| {
            let number = row.notes.parse::<u32>().unwrap_or(0) + 1;
            row.notes = number.to_string();
        };
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (store, people, group) = (&store, &people, &group);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        if writer == 0 {
                            let people = people.clone();
                            group.submit(move |txn| people.update(txn, 0, raise)).wait()
                        } else {
                            store.transaction(|txn| people.update(txn, 0, raise))
                        }
                        .expect("a commit");
                    }
                });
            }
        });
        group.close()?;
        drop((group, store));
        let (mut number, mut commit) = (0, None);
        for event in &watcher {
            assert!(commit.is_none_or(|commit| event.commit_number() >= commit));
            commit = Some(event.commit_number());
            let Event::Change(change) = event else { panic!("{event:?}") };
            assert_eq!(change.kind(), ChangeKind::Updated);
            number += 1;
            let row = change.after().ok_or("after")?.row()?;
            assert_eq!(row.notes, number.to_string());
        }
        assert_eq!(number, WRITERS * ROUNDS);
        Ok(())
    })
}

/// The number of copies that each thread makes while other threads write.
const COPIES: u32 = 12;

/// Decrements a number when it is dropped, even by a panic.
struct Watching<'a>(&'a AtomicU32);

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// A subscriber that reads the table and continues with events misses no concurrent change.
#[test]
fn a_copy_started_at_any_time_misses_no_change() -> TestResult {
    on_each(|store, people| {
        let watching = AtomicU32::new(2);
        thread::scope(|scope| {
            let (store, people, watching) = (&store, &people, &watching);
            for writer in 0..WRITERS {
                scope.spawn(move || {
                    for round in (0..).take_while(|_| watching.load(Ordering::Acquire) > 0) {
                        let id = (round * 7 + writer) % 20;
                        store
                            .transaction(|txn| {
                                people.put(txn, &Person { age: round as u8, ..person(id) })?;
                                people.delete(txn, (id + 5) % 20).map(drop)
                            })
                            .expect("a commit");
                    }
                });
            }
            for buffer in [2, 1000] {
                scope.spawn(move || {
                    let _watching = Watching(watching);
                    let mut copies = 0;
                    while copies < COPIES {
                        copies += u32::from(make_copy(store, people, buffer));
                    }
                });
            }
        });
        Ok(())
    })
}

/// Makes a copy, applies events for a while and compares it with the table. Returns true if other threads
/// have written during this time.
fn make_copy(store: &Store, people: &PersonRepository, buffer: usize) -> bool {
    let watcher = people.watch(store).buffer(buffer).start().expect("a watcher");
    let reread = || {
        let txn = store.read().expect("a snapshot");
        Copy::read(&txn, people.all(&txn).rows()).expect("a snapshot")
    };
    let mut copy = reread();
    let started = copy.commit.clone();
    for _ in 0..20 {
        match watcher.try_recv() {
            Ok(event) if event.commit_number() <= copy.commit => {}
            Ok(Event::Change(change)) => copy.apply(&change).expect("a matching change"),
            Ok(Event::Lagged(lagged)) => {
                copy = reread();
                assert!(copy.commit >= lagged.commit_number);
            }
            Err(_) => thread::yield_now(),
        }
    }
    // Every commit is delivered before the next one can start. The write transaction prevents commits,
    // because a small buffer would lag.
    let txn = store.write().expect("a commit");
    let rows = people.all(&txn).rows().map(|row| row.map(|row| (row.id, row)));
    let rows: BTreeMap<_, _> = rows.collect::<Result<_, _>>().expect("a snapshot");
    let commit = store.read().expect("a snapshot").commit_number();
    while let Ok(event) = watcher.try_recv() {
        assert!(event.commit_number() <= commit);
        match event {
            _ if event.commit_number() <= copy.commit => {}
            Event::Change(change) => copy.apply(&change).expect("a matching change"),
            Event::Lagged(_) => copy = Copy { rows: rows.clone(), commit: commit.clone() },
        }
    }
    assert_eq!(copy.rows, rows);
    commit > started
}
