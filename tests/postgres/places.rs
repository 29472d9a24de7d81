//! Servers and programs to which a URL can lead: a hot standby, several hosts, and a pooler of connections.

use std::{
    thread,
    time::{Duration, Instant},
};

use index_table::{__private::run_sql, Error, IndexTable, ServerProblem, Store};
use serde::{Deserialize, Serialize};

use super::{
    TestResult,
    cluster::{Beside, Cluster},
    postgres::Schema,
    proxy::address,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "places", changes)]
#[index(town)]
#[index(name, consistency = "eventual")]
struct Place {
    #[primary_key]
    id: u32,
    town: String,
    name: String,
}

fn place(id: u32) -> Place {
    Place { id, town: "Oslo".to_owned(), name: format!("place {id}") }
}

fn problem<T>(result: &Result<T, Error>) -> Option<ServerProblem> {
    match result {
        Err(Error::Unreachable { problem, .. }) => Some(*problem),
        _ => None,
    }
}

#[test]
fn a_read_only_store_is_opened_on_a_hot_standby() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let primary = schema.open()?;
    let places = PlaceRepository::open(&primary)?;
    primary.transaction(|txn| (0..100).try_for_each(|id| places.insert(txn, &place(id))))?;
    let Some(standby) = Beside::standby(&primary, schema.url())? else { return Ok(()) };
    let options = || schema.options().connect_timeout(Duration::from_secs(1));
    let refused = options().connect(&standby.url);
    assert_eq!(problem(&refused), Some(ServerProblem::NotPrimary));

    let store = options().read_only(true).connect(&standby.url)?;
    let copies = PlaceRepository::open(&store)?;
    let txn = store.read()?;
    assert_eq!(copies.get(&txn, 7)?, Some(place(7)));
    assert_eq!(copies.find_by_town(&txn, "Oslo").rows().count(), 100);
    assert!(copies.verify(&txn).run().is_ok());
    drop(txn);
    primary.transaction(|txn| places.insert(txn, &place(500)))?;
    let begun = Instant::now();
    while copies.get(&store.read()?, 500)?.is_none() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the standby does not follow");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(matches!(store.write(), Err(Error::ReadOnly { .. })));
    assert_eq!(problem(&store.read_serializable()), Some(ServerProblem::NotPrimary));

    // Both hosts in one URL, with each word of libpq.
    let (first, second) = (address(schema.url())?, address(&standby.url)?);
    let is_standby = |words: &str, read_only: bool| -> Result<String, Error> {
        let url = schema.url().replace(&first, &format!("{first},{second}"));
        let url = format!("{url}&target_session_attrs={words}");
        let store = options().read_only(read_only).connect(&url)?;
        Ok(run_sql(&store, "SELECT pg_is_in_recovery()::text")?.unwrap_or_default())
    };
    for (words, expected) in [
        ("any", "false"),
        ("read-write", "false"),
        ("primary", "false"),
        ("read-only", "true"),
        ("standby", "true"),
        ("prefer-standby", "true"),
    ] {
        assert_eq!(is_standby(words, true)?, expected, "{words}");
    }
    for words in ["any", "read-write", "primary", "prefer-standby"] {
        assert_eq!(is_standby(words, false)?, "false", "{words}");
    }
    let only = |url: &str, words: &str, read_only: bool| {
        let url = format!("{url}&target_session_attrs={words}");
        options().read_only(read_only).connect(&url).map(drop)
    };
    assert!(only(schema.url(), "standby", true).is_err());
    assert!(only(schema.url(), "read-only", true).is_err());
    assert_eq!(problem(&only(&standby.url, "primary", true)), Some(ServerProblem::NotPrimary));
    // The default isolation of a server is no matter: a standby does not have this level.
    let serializable = "options=-c%20default_transaction_isolation%3Dserializable";
    for words in ["any", "standby", "read-only"] {
        only(&format!("{}&{serializable}", standby.url), words, true)?;
    }
    let refused = options().connect(&format!("{}&{serializable}", standby.url));
    assert_eq!(problem(&refused), Some(ServerProblem::NotPrimary));
    only(schema.url(), "prefer-standby", true)?;
    only(schema.url(), "prefer-standby", false)?;
    assert!(matches!(only(schema.url(), "master", true), Err(Error::Io { .. })));
    Ok(())
}

/// The runbook of the guide.
#[test]
fn a_store_moves_to_the_promoted_standby() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let cluster = Cluster::start()?;
    let direct = schema.options().connect(&cluster.url)?;
    let Some(standby) = Beside::standby(&direct, &cluster.url)? else { return Ok(()) };
    let (first, second) = (address(&cluster.url)?, address(&standby.url)?);
    let url = cluster.url.replace(&first, &format!("{first},{second}"));
    let store = schema.options().connect_timeout(Duration::from_secs(2)).connect(&url)?;
    let places = PlaceRepository::open(&store)?;
    store.transaction(|txn| places.insert(txn, &place(1)))?;
    let replayed = "SELECT (pg_current_wal_lsn() <= replay_lsn)::text FROM pg_stat_replication";
    let begun = Instant::now();
    while run_sql(&direct, replayed)?.as_deref() != Some("true") {
        assert!(begun.elapsed() < Duration::from_secs(20), "the standby does not follow");
        thread::sleep(Duration::from_millis(5));
    }
    let reader = schema.options().read_only(true).connect(&standby.url)?;
    drop((direct, cluster));
    let (begun, refused) = (Instant::now(), store.transaction(|txn| places.insert(txn, &place(2))));
    assert!(problem(&refused).is_some(), "{refused:?}");
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    run_sql(&reader, "SELECT pg_promote()::text")?;
    while let Err(error) = store.transaction(|txn| places.insert(txn, &place(3))) {
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{error:?}");
    }
    let txn = store.read()?;
    let found = [1, 2, 3].map(|id| places.get(&txn, id).map(|place| place.is_some()));
    assert!(matches!(found, [Ok(true), Ok(false), Ok(true)]), "{found:?}");
    Ok(())
}

#[test]
fn a_pooler_in_transaction_mode_is_refused() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    schema.open()?;
    let Some(pooler) = Beside::pooler(schema.url(), "transaction")? else { return Ok(()) };
    let is_refused = || {
        let opened = schema.options().connect_timeout(Duration::from_secs(2)).connect(&pooler.url);
        match opened {
            Err(Error::Unreachable { problem, reason, .. }) => {
                assert_eq!(problem, ServerProblem::NotSupported, "{reason}");
                assert!(reason.contains("PgBouncer") && reason.contains("session"), "{reason}");
            }
            other => panic!("{:?}", other.map(drop)),
        }
    };
    for _ in 0..5 {
        is_refused();
    }
    // Also while there are several opening clients, so that each transaction gets another session.
    thread::scope(|scope| {
        let clients: Vec<_> =
            (0..6).map(|_| scope.spawn(|| (0..5).for_each(|_| is_refused()))).collect();
        for client in clients {
            client.join().expect("a thread");
        }
    });
    Ok(())
}

#[test]
fn a_pooler_in_session_mode_is_used() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    schema.open()?;
    let reset = "session\nserver_reset_query = DEALLOCATE ALL; RESET ALL";
    for (at, mode) in (0..).zip(["session", reset]) {
        let Some(pooler) = Beside::pooler(schema.url(), mode)? else { return Ok(()) };
        for id in at * 3..at * 3 + 3 {
            let store = schema.options().connect(&pooler.url)?;
            let places = PlaceRepository::open(&store)?;
            store.transaction(|txn| places.insert(txn, &place(id)))?;
            assert_eq!(places.get(&store.read()?, id)?, Some(place(id)));
        }
    }
    Ok(())
}

/// A server that withholds its sessions, or has no room for a second one, is no pooler.
#[test]
fn a_server_that_tells_nothing_is_used() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    schema.open()?;
    let cluster = Cluster::start()?;
    let admin = Store::options().schema("admin").connect(&cluster.url)?;
    run_sql(
        &admin,
        "CREATE ROLE owner; CREATE ROLE member LOGIN; GRANT owner TO member; \
         ALTER ROLE member SET role = 'owner'; CREATE ROLE single LOGIN CONNECTION LIMIT 1; \
         GRANT CREATE ON DATABASE postgres TO owner, single",
    )?;
    let open = |user: &str, schema: &str| {
        let options = Store::options().schema(schema).connections(1);
        options.connect(format!("{}&user={user}", cluster.url).as_str()).map(drop)
    };
    for _ in 0..5 {
        open("member", "of_owner")?;
    }
    open("single", "of_single")?;
    run_sql(&admin, "REVOKE SELECT ON pg_stat_activity FROM PUBLIC")?;
    open("member", "of_owner")?;
    Ok(())
}

/// As in libpq, `sslmode` has no meaning for a socket of the system.
#[cfg(unix)]
#[test]
fn a_socket_of_the_system_needs_no_encryption() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let setting = |name: &str| run_sql(&store, &format!("SHOW {name}"));
    let (Some(directory), Some(port)) = (setting("unix_socket_directories")?, setting("port")?)
    else {
        return Err("no setting".into());
    };
    let directory = directory.split(',').next().unwrap_or_default();
    if !std::path::Path::new(directory).join(format!(".s.PGSQL.{port}")).exists() {
        eprintln!("not run: the server has no socket on this machine");
        return Ok(());
    }
    let base = format!("host={directory} port={port} user=postgres dbname=postgres");
    for mode in ["disable", "prefer", "require"] {
        let store = schema.options().connect(&format!("{base} sslmode={mode}"))?;
        let address = run_sql(&store, "SELECT coalesce(inet_client_addr()::text, 'socket')")?;
        assert_eq!(address.as_deref(), Some("socket"), "{mode}");
    }
    Ok(())
}
