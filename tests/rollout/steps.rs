//! The steps of a deployment that adds an index.

use std::{
    thread,
    time::{Duration, Instant},
};

use index_table::{Error, IndexState, ReadTxn, Result, Store};

use crate::{
    TestResult,
    client::{Client, Place},
    on_both,
    release::{
        Table as _, first,
        second::{UserRepository, user},
    },
};

/// The time within which a server notices the end of a process.
const NOTICED: Duration = Duration::from_secs(5);

const ANNOUNCED: &str = "index `owner` of table `users` is not readable: clients of an earlier release have the table open; it is built \
                         when they have ended";

/// The number of users with the same owner among the first `users`.
fn owned(users: u32) -> u64 {
    (1..=users).map(|id| u64::from(id % 7 == 3)).sum()
}

/// Returns the number of users with this owner.
fn count(users: &UserRepository, store: &Store, owner: &str) -> Result<u64> {
    users.find_by_owner(&store.read()?, owner).count()
}

/// Checks that the index is not readable because of this state.
fn has_state(users: &UserRepository, store: &Store, expected: &IndexState) -> TestResult {
    match count(users, store, "o3") {
        Err(Error::IndexNotReadable { table: "users", index: "owner", state }) => {
            assert_eq!(state, *expected);
            Ok(())
        }
        other => Err(format!("{other:?}").into()),
    }
}

fn is_announced(users: &UserRepository, store: &Store) -> TestResult {
    has_state(users, store, &IndexState::Announced)
}

fn build(users: &UserRepository, store: &Store) -> index_table::Result<IndexState> {
    let report = users.build(store).run()?;
    Ok(report.indexes.into_iter().next().map_or(IndexState::Readable, |index| index.state))
}

/// Builds the index when the server has noticed the end of the other process.
fn build_soon(users: &UserRepository, store: &Store) -> TestResult {
    let begun = Instant::now();
    while build(users, store)? != IndexState::Readable {
        assert!(begun.elapsed() < NOTICED, "the other process is still seen");
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn is_clean(users: &UserRepository, store: &Store) -> TestResult {
    let report = users.verify(&store.read()?).run()?;
    if report.is_clean() { Ok(()) } else { Err(report.to_string().into()) }
}

#[test]
fn an_index_is_built_when_the_clients_of_the_earlier_release_have_ended() -> TestResult {
    on_both(|place| {
        let mut earlier = Client::start(place, "first")?;
        assert_eq!(earlier.ask("put 1 50"), "ok");
        let store = place.open()?;
        let users = UserRepository::open(&store)?;
        is_announced(&users, &store)?;
        let catalog = store.catalog()?;
        let owner = catalog.tables[0].indexes.iter().find(|index| index.name == "owner");
        assert_eq!(owner.map(|index| &index.state), Some(&IndexState::Announced));

        // Both write, and read the index that both have.
        store
            .transaction(|txn| (51..=60).try_for_each(|id| users.put(txn, &user(id)).map(drop)))?;
        assert_eq!(earlier.ask("put 61 70"), "ok");
        assert_eq!(earlier.ask("age 55"), "ok");
        assert_eq!(earlier.ask("delete 1"), "ok");
        store.transaction(|txn| users.put(txn, &user(1)))?;
        for town in ["t0", "t1"] {
            assert_eq!(users.find_by_town(&store.read()?, town).count()?, 14);
            assert_eq!(earlier.ask(&format!("town {town}")), "14");
        }
        is_clean(&users, &store)?;
        assert_eq!(earlier.ask("verify"), "ok");
        assert_eq!(build(&users, &store)?, IndexState::Announced);
        is_announced(&users, &store)?;
        assert_eq!(earlier.ask("put 71"), "ok");

        // Another process of the later release does not change that.
        let mut later = Client::start(place, "second")?;
        assert_eq!(later.ask("owner o3"), ANNOUNCED);
        earlier.end();
        build_soon(&users, &store)?;
        // Rows of the earlier release have no owner.
        assert_eq!(count(&users, &store, "")?, 49 + 10 + 1);
        assert_eq!(later.ask("owner o3"), "2");
        assert_eq!(later.ask("put 1 80"), "ok");
        assert_eq!(count(&users, &store, "o3")?, owned(80));
        assert_eq!(later.ask("verify"), "ok");
        is_clean(&users, &store)
    })
}

#[test]
fn an_earlier_release_is_deployed_again() -> TestResult {
    on_both(|place| {
        // Otherwise, it would be later than the rows with an owner.
        Client::start(place, "first")?.end();
        let store = place.open()?;
        let users = UserRepository::open(&store)?;
        store.transaction(|txn| (1..=50).try_for_each(|id| users.put(txn, &user(id)).map(drop)))?;
        let before = store.read()?;
        assert_eq!(users.find_by_owner(&before, "o3").count()?, owned(50));

        let mut earlier = Client::start(place, "first")?;
        has_state(&users, &store, &IndexState::Retired)?;
        // A snapshot of before has the index.
        assert_eq!(users.find_by_owner(&before, "o3").count()?, owned(50));
        drop(before);
        store.transaction(|txn| {
            users.update(txn, 3, |user| user.owner = "o4".to_owned()).map(drop)
        })?;
        assert_eq!(earlier.ask("put 51 60"), "ok");
        assert_eq!(earlier.ask("age 10"), "ok");
        assert_eq!(earlier.ask("town t0"), "12");
        assert_eq!(earlier.ask("verify"), "ok");
        is_clean(&users, &store)?;
        assert_eq!(build(&users, &store)?, IndexState::Retired);

        earlier.end();
        build_soon(&users, &store)?;
        // The earlier release has kept the owners of rows that it has changed.
        assert_eq!(count(&users, &store, "o3")?, owned(50) - 1);
        assert_eq!(count(&users, &store, "")?, 10);
        is_clean(&users, &store)
    })
}

#[test]
fn an_operator_refuses_an_earlier_release() -> TestResult {
    on_both(|place| {
        let mut earlier = Client::start(place, "first")?;
        assert_eq!(earlier.ask("put 1 50"), "ok");
        let store = place.open()?;
        let users = UserRepository::open(&store)?;
        is_announced(&users, &store)?;
        let report = users.build(&store).refuse_earlier_releases().run()?;
        assert!(report.is_readable(), "{report}");
        assert_eq!(count(&users, &store, "")?, 50);
        let refused = format!(
            "table `users` doesn't match its declaration: its index `owner`, added by `{} {}`, is not maintained by this \
             process; restart this process with the release that has opened the table last",
            env!("CARGO_PKG_NAME"),
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(earlier.ask("put 51"), refused);
        assert_eq!(earlier.ask("delete 1"), refused);
        // It still reads.
        assert_eq!(earlier.ask("town t0"), "10");
        assert_eq!(earlier.ask("verify"), "ok");
        assert_eq!(earlier.ask("put 51"), refused);
        is_clean(&users, &store)?;

        // It writes when it has opened the table again, without the index.
        assert_eq!(earlier.ask("open first"), "ok");
        assert_eq!(earlier.ask("put 51"), "ok");
        is_clean(&users, &store)
    })
}

#[test]
fn a_thread_builds_the_index_when_the_earlier_release_was_killed() -> TestResult {
    on_both(|place| {
        let mut earlier = Client::start(place, "first")?;
        assert_eq!(earlier.ask("put 1 50"), "ok");
        let store = place.open()?;
        let users = UserRepository::open(&store)?;
        is_announced(&users, &store)?;
        earlier.kill();
        let begun = Instant::now();
        while count(&users, &store, "").ok() != Some(50) {
            assert!(begun.elapsed() < Duration::from_secs(30), "the index is not built");
            thread::sleep(Duration::from_millis(200));
        }
        is_clean(&users, &store)
    })
}

/// The record lacked nothing when the table was opened.
#[test]
fn a_thread_builds_an_index_that_another_process_has_retired() -> TestResult {
    on_both(|place| {
        Client::start(place, "first")?.end();
        let store = place.open()?;
        let users = UserRepository::open(&store)?;
        store.transaction(|txn| (1..=50).try_for_each(|id| users.put(txn, &user(id)).map(drop)))?;
        let earlier = Client::start(place, "first")?;
        has_state(&users, &store, &IndexState::Retired)?;
        earlier.kill();
        let begun = Instant::now();
        while count(&users, &store, "o3").ok() != Some(owned(50)) {
            assert!(begun.elapsed() < Duration::from_secs(30), "the index is not built");
            thread::sleep(Duration::from_millis(200));
        }
        is_clean(&users, &store)
    })
}

/// The thread uses the table until its batch ends.
#[test]
fn a_table_that_a_thread_builds_is_opened_with_another_declaration() -> TestResult {
    let dir = tempfile::tempdir()?;
    let place = &Place::File(dir.path().to_owned());
    let mut earlier = Client::start(place, "first")?;
    assert_eq!(earlier.ask("put 1 60000"), "ok");
    let store = place.open()?;
    let users = UserRepository::open(&store)?;
    is_announced(&users, &store)?;
    earlier.kill();
    let begun = Instant::now();
    while !matches!(
        count(&users, &store, ""),
        Err(Error::IndexNotReadable { state: IndexState::Building { .. }, .. })
    ) {
        assert!(begun.elapsed() < Duration::from_secs(30), "the thread builds nothing");
        thread::sleep(Duration::from_millis(1));
    }
    drop(users);
    let opened = Instant::now();
    let users = first::UserRepository::open(&store)?;
    assert!(opened.elapsed() < Duration::from_secs(10));
    assert_eq!(users.find_by_town(&store.read()?, "t0").count()?, 12_000);
    assert!(users.verify(&store.read()?).run()?.is_clean());
    Ok(())
}

/// A client of a server reads by records that another client has replaced.
#[test]
fn a_read_does_not_fail_because_another_client_has_changed_the_declaration() -> TestResult {
    on_both(|place| {
        let store = place.open()?;
        let users = UserRepository::open(&store)?;
        store.transaction(|txn| (1..=50).try_for_each(|id| users.put(txn, &user(id)).map(drop)))?;
        let by_town = || users.find_by_town(&store.read()?, "t0").count();
        let by_key = || users.get(&store.read()?, 7);
        let verify = || users.verify(&store.read()?).run();
        for round in 0..3 {
            for release in ["first", "second"] {
                assert_eq!(by_town()?, 10);
                let other = Client::start(place, release)?;
                match round {
                    0 => assert_eq!(by_town()?, 10, "{release}"),
                    1 => assert_eq!(by_key()?, Some(user(7)), "{release}"),
                    _ => assert!(verify()?.is_clean(), "{release}"),
                }
                // The snapshot goes on with its own records.
                let txn = store.read()?;
                assert!(users.get(&txn, 7)?.is_some());
                let found = users.find_by_owner(&txn, "o3").count();
                match found {
                    Ok(found) => assert_eq!((release, found), ("second", owned(50))),
                    Err(Error::IndexNotReadable { .. }) => {}
                    other => panic!("{other:?}"),
                }
                drop(txn);
                other.end();
            }
        }
        Ok(())
    })
}

/// A query that was allowed before the snapshot began reads no index that the snapshot lacks.
#[test]
fn no_query_reads_an_index_that_another_client_has_retired_since() -> TestResult {
    on_both(|place| {
        let store = place.open()?;
        let users = UserRepository::open(&store)?;
        store.transaction(|txn| (1..=50).try_for_each(|id| users.put(txn, &user(id)).map(drop)))?;
        let shapes: [fn(&UserRepository, &ReadTxn<'_>) -> Result<u64>; 4] = [
            |users, txn| users.find_by_owner(txn, "o3").count(),
            |users, txn| users.find_by_town(txn, "t0").or(users.find_by_owner(txn, "o3")).count(),
            |users, txn| {
                let query = users.find_by_owner(txn, "o3");
                // The program goes on without this row.
                drop(users.get(txn, 7));
                query.count()
            },
            |users, txn| {
                let mut query = users.find_by_owner(txn, "o3").rows();
                let _ = txn.commit_number();
                query.try_fold(0, |count, row| row.map(|_| count + 1))
            },
        ];
        for (number, shape) in shapes.into_iter().enumerate() {
            // With the present record in the cache, the index is built again.
            let begun = Instant::now();
            while !matches!(users.find_by_owner(&store.read()?, "o3").count(), Ok(found) if found == owned(50))
            {
                assert!(begun.elapsed() < Duration::from_mins(1), "it is not built");
                thread::sleep(Duration::from_millis(20));
            }
            let other = Client::start(place, "first")?;
            let found = shape(&users, &store.read()?);
            // A transaction that has failed has the reason as text. On a server, the snapshot can be older than the change of the
            // declaration.
            let is_refused = matches!(
                &found,
                Err(Error::IndexNotReadable { .. }
                    | Error::TransactionFailed { .. }
                    | Error::SnapshotTooOld { .. })
            );
            assert!(is_refused, "{number}: {found:?}");
            other.end();
        }
        Ok(())
    })
}

/// Without clients of an earlier release, an opening builds the index.
#[test]
fn an_ended_client_is_not_seen() -> TestResult {
    on_both(|place: &Place| {
        for way in ["end", "kill", "drop"] {
            let mut earlier = Client::start(place, "first")?;
            assert_eq!(earlier.ask("put 1 50"), "ok");
            match way {
                "end" => earlier.end(),
                "kill" => earlier.kill(),
                _ => assert_eq!(earlier.ask("open second"), "ok"),
            }
            let store = place.open()?;
            let users = UserRepository::open(&store)?;
            assert_eq!(users.run(&store, "owner", "")?, "50", "{way}");
        }
        Ok(())
    })
}
