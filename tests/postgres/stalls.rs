//! A server or a network that does not respond: each call ends.

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use index_table::{__private::run_sql, Error, IndexTable, Result, ServerProblem, Store};
use serde::{Deserialize, Serialize};

use super::{
    TestResult,
    postgres::Schema,
    proxy::{self, Fate},
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "calls")]
#[index(town)]
#[index(number, unique)]
struct Call {
    #[primary_key]
    id: u64,
    town: String,
    number: u64,
}

fn call(id: u64) -> Call {
    Call { id, town: "Oslo".to_owned(), number: id }
}

/// The time limit for a response, for opening a connection, and for the outcome of a commit.
const LIMIT: Duration = Duration::from_millis(250);

/// No message of a connection passes after this one.
const NEVER: u64 = u64::MAX;

/// A name, and an operation with the number of its run.
type Operation<'a> = (&'a str, &'a dyn Fn(&Store, u64) -> Result<()>);

/// The number of messages between two stalls: `INDEX_TABLE_STALLS`, or 6.
fn stride() -> usize {
    env::var("INDEX_TABLE_STALLS").ok().and_then(|it| it.parse().ok()).unwrap_or(6)
}

#[test]
fn each_call_ends_when_a_connection_is_stalled_at_any_message() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    schema.open()?;
    // The number of messages until the stall, and the connection that is stalled.
    let (left, stalled) = (Arc::new(AtomicU64::new(NEVER)), Arc::new(AtomicU64::new(NEVER)));
    let (of_proxy, of_stalled) = (Arc::clone(&left), Arc::clone(&stalled));
    let url = proxy::start(schema.url(), move |message| {
        if of_stalled.load(Ordering::SeqCst) == message.connection {
            return Fate::Hold;
        }
        let counts = |left: u64| (left != NEVER).then(|| left.checked_sub(1).unwrap_or(NEVER));
        if of_proxy.fetch_update(Ordering::SeqCst, Ordering::SeqCst, counts) == Ok(0) {
            of_stalled.store(message.connection, Ordering::SeqCst);
            return Fate::Hold;
        }
        Fate::Forward
    })?;
    let options = schema.options().connections(1).retry_for(Duration::from_secs(2));
    let options =
        options.connect_timeout(LIMIT * 4).response_timeout(LIMIT).commit_timeout(LIMIT * 4);
    let store = options.connect(&url)?;
    let calls = CallRepository::open(&store)?;
    store.transaction(|txn| (0..20).try_for_each(|id| calls.insert(txn, &call(id))))?;
    let operations: [Operation<'_>; 7] = [
        ("get", &|store, _| calls.get(&store.read()?, 1).map(drop)),
        ("scan", &|store, _| {
            let txn = store.read()?;
            calls.find_by_town(&txn, "Oslo").rows().try_for_each(|row| row.map(drop))
        }),
        ("insert", &|store, id| store.transaction(|txn| calls.insert(txn, &call(id)))),
        ("insert with autocommit", &|store, id| calls.insert(&mut store.autocommit()?, &call(id))),
        ("update", &|store, id| {
            store.transaction(|txn| calls.update(txn, 1, |it| it.number = id).map(drop))
        }),
        ("nested", &|store, id| {
            store.transaction(|txn| txn.nested(|txn| calls.insert(txn, &call(id))))
        }),
        ("open", &|store, _| CallRepository::open(store).map(drop)),
    ];
    let mut id = 1_000;
    for (first, (name, operation)) in (0..).zip(operations) {
        // Until the operation has fewer messages.
        for message in (first % stride() as u64..).step_by(stride()) {
            id += 1;
            calls.get(&store.read()?, 2)?;
            left.store(message, Ordering::SeqCst);
            let begun = Instant::now();
            let outcome = operation(&store, id);
            let (elapsed, was_stalled) =
                (begun.elapsed(), left.swap(NEVER, Ordering::SeqCst) == NEVER);
            // The look-up of the commit takes its own time, and so does a new connection.
            let most = LIMIT * 9 + Duration::from_secs(1);
            assert!(elapsed < most, "{name}, message {message}: {elapsed:?}, {outcome:?}");
            match &outcome {
                Ok(()) | Err(Error::Unreachable { .. } | Error::TransactionFailed { .. }) => {}
                Err(error) => panic!("{name}, message {message}: {error}"),
            }
            // The pool serves the next call.
            let begun = Instant::now();
            let next = calls.get(&store.read()?, 3);
            let is_stalled_while_idle = next.is_err();
            assert!(begun.elapsed() < most, "{name}, message {message}");
            stalled.store(NEVER, Ordering::SeqCst);
            if is_stalled_while_idle {
                assert!(calls.get(&store.read()?, 3)?.is_some());
            }
            if !was_stalled {
                outcome?;
                break;
            }
            assert!(message < 200, "{name}");
        }
    }
    let report = calls.verify(&store.read()?).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

#[test]
fn a_commit_whose_outcome_can_not_be_read_is_unknown_in_time() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    schema.open()?;
    let from = Arc::new(AtomicU64::new(NEVER));
    let is_armed = Arc::new(AtomicU64::new(0));
    let (of_proxy, armed) = (Arc::clone(&from), Arc::clone(&is_armed));
    let url = proxy::start(schema.url(), move |message| {
        if message.connection >= of_proxy.load(Ordering::SeqCst) {
            return Fate::Hold;
        }
        if message.is_commit() && armed.swap(0, Ordering::SeqCst) == 1 {
            of_proxy.store(message.connection + 1, Ordering::SeqCst);
            return Fate::Cut;
        }
        Fate::Forward
    })?;
    let options = schema.options().response_timeout(LIMIT).commit_timeout(LIMIT * 2);
    let store = options.connect(&url)?;
    let calls = CallRepository::open(&store)?;
    store.transaction(|txn| calls.insert(txn, &call(1)))?;
    is_armed.store(1, Ordering::SeqCst);
    let begun = Instant::now();
    let outcome = store.transaction(|txn| calls.insert(txn, &call(2)));
    assert!(matches!(outcome, Err(Error::CommitUnknown { .. })), "{outcome:?}");
    assert!(begun.elapsed() < LIMIT * 2 + Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(store.server_usage().map(|usage| usage.unknown_commits), Some(1));
    Ok(())
}

/// The commit takes the snapshots of all read transactions that have not begun.
#[test]
fn a_commit_beside_many_readers_ends_in_time_when_the_server_is_stalled() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    schema.open()?;
    let is_stalled = Arc::new(AtomicBool::new(false));
    let of_proxy = Arc::clone(&is_stalled);
    let url = proxy::start(schema.url(), move |_| {
        if of_proxy.load(Ordering::SeqCst) { Fate::Hold } else { Fate::Forward }
    })?;
    let options = schema.options().response_timeout(LIMIT).commit_timeout(LIMIT);
    let store = options.connect(&url)?;
    let calls = CallRepository::open(&store)?;
    let mut txn = store.write()?;
    calls.insert(&mut txn, &call(1))?;
    let readers = (0..12).map(|_| store.read()).collect::<Result<Vec<_>>>()?;
    is_stalled.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    let outcome = txn.commit();
    assert!(matches!(outcome, Err(Error::CommitUnknown { .. })), "{outcome:?}");
    assert!(begun.elapsed() < LIMIT * 3 + Duration::from_secs(1), "{:?}", begun.elapsed());
    is_stalled.store(false, Ordering::SeqCst);
    for reader in readers {
        assert!(calls.get(&reader, 1).is_err());
    }
    calls.get(&store.read()?, 1)?;
    Ok(())
}

#[test]
fn an_opening_waits_longer_than_a_response_for_another_client() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let direct = schema.open()?;
    // Another client has the lock for longer.
    let name = format!("index-table {}", schema.name());
    let held = format!(
        "SELECT pg_advisory_lock(hashtextextended('{name}', 0)); SELECT pg_sleep({})",
        (LIMIT * 8).as_secs_f32()
    );
    thread::scope(|scope| {
        let holder = scope.spawn(|| run_sql(&direct, &held).map(drop));
        let is_held = format!(
            "SELECT count(*)::text FROM pg_stat_activity WHERE wait_event = 'PgSleep' \
             AND query LIKE '%{name}%' AND pid <> pg_backend_pid()"
        );
        while run_sql(&direct, &is_held)?.as_deref() == Some("0") {
            thread::sleep(Duration::from_millis(5));
        }
        let begun = Instant::now();
        let store = schema.open_with(&schema.options().response_timeout(LIMIT * 2))?;
        assert!(begun.elapsed() > LIMIT * 3, "{:?}", begun.elapsed());
        CallRepository::open(&store)?;
        holder.join().expect("a thread")?;
        Ok(())
    })
}

#[test]
fn the_errors_of_a_server_tell_problems_apart() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let problem = |url: &str| {
        let options = schema.options().connect_timeout(LIMIT);
        match options.connect(url) {
            Err(Error::Unreachable { problem, .. }) => Some(problem),
            other => panic!("{:?}", other.map(|_| ())),
        }
    };
    let url = schema.url();
    assert_eq!(
        problem(&url.replace("/postgres?", "/no_such_database?")),
        Some(ServerProblem::NoSuchDatabase)
    );
    assert_eq!(problem(&schema.url_of("nobody there")), Some(ServerProblem::NotAuthorized));
    let server = url.split('@').nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
    assert_eq!(problem(&url.replace(server, "127.0.0.1:1")), Some(ServerProblem::Network));
    let standby = format!(
        "{url}&target_session_attrs=read-write&options=-cdefault_transaction_read_only%3Don"
    );
    assert_eq!(problem(&standby), Some(ServerProblem::NotPrimary));
    // Several hosts: the first does not exist.
    let several = url.replace(server, &format!("127.0.0.1:1,{server}"));
    schema.options().connect(&several)?;
    schema.open()?;
    Ok(())
}

/// A batch of a build can take longer than any response.
#[test]
fn a_build_waits_for_the_build_of_another_client() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let direct = schema.open()?;
    let store = schema.open_with(&schema.options().response_timeout(LIMIT))?;
    let calls = CallRepository::open(&store)?;
    let lock = format!("hashtextextended('index-table build \"{}\".\"calls\"', 0)", schema.name());
    let seconds = (LIMIT * 6).as_secs_f64();
    let hold = format!("SELECT pg_advisory_lock({lock}); SELECT pg_sleep({seconds})::text");
    let is_free = format!("SELECT pg_try_advisory_lock({lock})::text");
    thread::scope(|scope| {
        let other = scope.spawn(|| run_sql(&direct, &hold));
        while run_sql(&direct, &is_free)?.as_deref() == Some("true") {
            thread::sleep(Duration::from_millis(10));
        }
        let begun = Instant::now();
        calls.build(&store).run()?;
        assert!(begun.elapsed() > LIMIT * 3, "{:?}", begun.elapsed());
        other.join().expect("a thread").map(drop)
    })?;
    Ok(())
}
