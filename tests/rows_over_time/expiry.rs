//! `#[table(expires = …)]`: rows are deleted after their time.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use index_table::{Error, IndexTable, OnDuplicate, Result, ShardMap, Store};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{
    plain_engines,
    stores::{plain_stores, stores},
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "sessions", shard_by = hash(id), expires = ends)]
#[index(user)]
struct Session {
    #[primary_key]
    id: u32,
    user: u8,
    ends: Option<SystemTime>,
}

/// Returns the time `seconds` after the Unix epoch.
fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

/// Returns a session. Session 0 never ends. Every other session ends at the second of its number.
fn session(id: u32) -> Session {
    Session { id, user: (id % 3) as u8, ends: (id > 0).then(|| at(id.into())) }
}

fn insert(store: &Store, sessions: &SessionRepository, last: u32) -> Result<()> {
    store.transaction(|txn| (0..=last).try_for_each(|id| sessions.insert(txn, &session(id))))
}

fn ids(store: &Store, sessions: &SessionRepository) -> Result<Vec<u32>> {
    sessions.all(&store.read()?).keys().collect()
}

#[test]
fn only_expired_rows_are_deleted() -> Result<()> {
    for tried in stores("sessions")? {
        let sessions = SessionRepository::open(&tried)?;
        insert(&tried, &sessions, 9)?;
        assert_eq!(sessions.expire(&tried, at(0), 100)?, 0);
        assert_eq!(sessions.expire(&tried, at(5), 2)?, 2);
        assert_eq!(ids(&tried, &sessions)?, [0, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(sessions.expire(&tried, at(5), 100)?, 3);
        assert_eq!(sessions.expire(&tried, at(5), 100)?, 0);
        assert_eq!(ids(&tried, &sessions)?, [0, 6, 7, 8, 9]);
        // A row with a new time expires later. A row without a time never expires.
        tried.transaction(|txn| {
            sessions.update(txn, 6, |session| session.ends = Some(at(20)))?;
            sessions.update(txn, 7, |session| session.ends = None)
        })?;
        assert_eq!(sessions.expire(&tried, at(10), 100)?, 2);
        assert_eq!(ids(&tried, &sessions)?, [0, 6, 7]);
        let txn = tried.read()?;
        assert_eq!(sessions.by_ends(&txn).count()?, 1);
        assert!(sessions.verify(&txn).run()?.is_clean());
    }
    Ok(())
}

#[test]
fn many_rows_are_deleted_in_batches() -> Result<()> {
    for tried in stores("sessions")? {
        let sessions = SessionRepository::open(&tried)?;
        insert(&tried, &sessions, 700)?;
        assert_eq!(sessions.expire(&tried, at(690), 600)?, 600);
        assert_eq!(sessions.expire(&tried, at(690), u64::MAX)?, 90);
        assert_eq!(ids(&tried, &sessions)?.len(), 11);
        assert!(sessions.verify(&tried.read()?).run()?.is_clean());
    }
    Ok(())
}

#[test]
fn queries_return_expired_rows_unless_live() -> Result<()> {
    for tried in stores("sessions")? {
        let sessions = SessionRepository::open(&tried)?;
        insert(&tried, &sessions, 6)?;
        let later = SystemTime::now() + Duration::from_hours(1);
        tried.transaction(|txn| sessions.update(txn, 3, |session| session.ends = Some(later)))?;
        let txn = tried.read()?;
        assert_eq!(sessions.all(&txn).count()?, 7);
        let live: Vec<u32> = sessions.live(&txn).keys().collect::<Result<_>>()?;
        assert_eq!(live, [0, 3]);
        assert_eq!(sessions.find_by_user(&txn, 0).count()?, 3);
        let live: Vec<_> = sessions.find_by_user(&txn, 0).live().rows().collect::<Result<_>>()?;
        assert_eq!(live, [session(0), Session { ends: Some(later), ..session(3) }]);
        let get = |id| Ok::<_, Error>((sessions.get(&txn, id)?, sessions.get_live(&txn, id)?));
        assert!(matches!(get(1)?, (Some(_), None)));
        for id in [0, 3] {
            let (found, live) = get(id)?;
            assert!(found.is_some() && found == live);
        }
        assert_eq!(get(9)?, (None, None));
    }
    Ok(())
}

#[test]
fn a_unique_index_has_a_look_up_without_expired_rows() -> Result<()> {
    #[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(expires = ends)]
    #[index(token, unique)]
    struct Invitation {
        #[primary_key]
        id: u32,
        token: String,
        ends: SystemTime,
    }

    let store = Store::in_memory();
    let invitations = InvitationRepository::open(&store)?;
    let later = SystemTime::now() + Duration::from_hours(1);
    let invitation = |id, ends| Invitation { id, token: format!("token-{id}"), ends };
    store.transaction(|txn| {
        invitations.insert(txn, &invitation(1, at(1)))?;
        invitations.insert(txn, &invitation(2, later))
    })?;
    let txn = store.read()?;
    assert!(invitations.get_by_token(&txn, "token-1")?.is_some());
    assert_eq!(invitations.get_by_token_live(&txn, "token-1")?, None);
    assert_eq!(invitations.get_by_token_live(&txn, "token-2")?, Some(invitation(2, later)));
    Ok(())
}

#[test]
fn rows_are_archived_before_they_are_deleted() -> Result<()> {
    for tried in stores("sessions")? {
        let sessions = SessionRepository::open(&tried)?;
        insert(&tried, &sessions, 400)?;
        let archived = Arc::new(Mutex::new(Vec::new()));
        let (into, store, repository) =
            (Arc::clone(&archived), Store::clone(&tried), sessions.clone());
        sessions.archive_expired(move |rows| {
            let txn = store.read()?;
            for row in rows {
                assert_eq!(repository.get(&txn, row.id)?.as_ref(), Some(row), "not deleted yet");
            }
            into.lock().expect("not poisoned").extend_from_slice(rows);
            Ok::<_, Error>(())
        });
        assert_eq!(sessions.expire(&tried, at(300), 1000)?, 300);
        let archived = archived.lock().expect("not poisoned");
        assert!(*archived == (1..=300).map(session).collect::<Vec<_>>(), "in the order of time");
    }
    Ok(())
}

#[test]
fn rows_stay_if_the_archive_fails() -> Result<()> {
    for tried in plain_stores()? {
        let sessions = SessionRepository::open(&tried)?;
        insert(&tried, &sessions, 5)?;
        sessions.archive_expired(|_| Err("the disk is full"));
        let failed = sessions.expire(&tried, at(3), 1000).expect_err("an error");
        assert!(matches!(failed, Error::Archive { table: "sessions", .. }), "{failed:?}");
        assert_eq!(
            failed.to_string(),
            "the expired rows of table `sessions` could not be archived, and were not deleted: the disk is full; \
             the next expiry archives them again"
        );
        assert_eq!(ids(&tried, &sessions)?.len(), 6);
        sessions.archive_expired(|_| Ok::<_, Error>(()));
        assert_eq!(sessions.expire(&tried, at(3), 1000)?, 3);
    }
    Ok(())
}

#[test]
fn a_row_that_changes_after_it_was_archived_stays() -> Result<()> {
    for tried in plain_stores()? {
        let sessions = SessionRepository::open(&tried)?;
        insert(&tried, &sessions, 5)?;
        let (store, repository) = (Store::clone(&tried), sessions.clone());
        sessions.archive_expired(move |rows| {
            if rows.len() > 1 {
                store.transaction(|txn| {
                    repository.update(txn, 1, |row| row.ends = Some(at(1000)))?;
                    repository.update(txn, 2, |row| row.user = 9)
                })?;
            }
            Ok::<_, Error>(())
        });
        assert_eq!(sessions.expire(&tried, at(3), 1000)?, 1);
        assert_eq!(ids(&tried, &sessions)?, [0, 1, 2, 4, 5]);
        // The second row is archived again, with its current values.
        assert_eq!(sessions.expire(&tried, at(3), 1000)?, 1);
        assert_eq!(ids(&tried, &sessions)?, [0, 1, 4, 5]);
    }
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "audits")]
#[index(session)]
struct Audit {
    #[primary_key]
    id: u32,
    #[references(Session)]
    session: u32,
}

/// Returns a store in which rows refer to the sessions with these numbers.
fn refer(
    store: &Store,
    last: u32,
    sessions: &[u32],
) -> Result<(SessionRepository, AuditRepository)> {
    let (rows, audits) = (SessionRepository::open(store)?, AuditRepository::open(store)?);
    insert(store, &rows, last)?;
    let audit = |session| Audit { id: session, session };
    store.transaction(|txn| {
        sessions.iter().try_for_each(|session| audits.insert(txn, &audit(*session)))
    })?;
    Ok((rows, audits))
}

#[test]
fn referenced_rows_stay_and_the_others_are_deleted() -> Result<()> {
    for tried in plain_engines()? {
        // More than a batch of referenced rows is before the others.
        let referenced: Vec<u32> = (1..=300).chain([500, 601]).collect();
        let (sessions, audits) = refer(&tried, 700, &referenced)?;
        let expired = sessions.expire_report(&tried, at(600), 5)?;
        assert_eq!((expired.deleted, expired.refused), (5, 300));
        match expired.refusal {
            Some(Error::Referenced { table: "sessions", by: "audits", key, .. }) => {
                assert_eq!(key, "1");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(sessions.expire(&tried, at(600), 1000)?, 294);
        let expired = sessions.expire_report(&tried, at(600), 1000)?;
        assert_eq!((expired.deleted, expired.refused), (0, 301));
        assert_eq!(sessions.usage().refused_expiries, 300 + 301 + 301);
        assert_eq!(ids(&tried, &sessions)?.len(), 1 + 301 + 100);
        assert!(sessions.verify(&tried.read()?).run()?.is_clean());
        tried.transaction(|txn| (1..=300).try_for_each(|id| audits.delete(txn, id).map(drop)))?;
        assert_eq!(sessions.expire(&tried, at(600), 1000)?, 300);
    }
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(expires = ends)]
struct Lobby {
    #[primary_key]
    id: u32,
    ends: SystemTime,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(lobby)]
struct Seat {
    #[primary_key]
    id: u32,
    #[references(Lobby, on_delete = "cascade")]
    lobby: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(seat)]
struct Ticket {
    #[primary_key]
    id: u32,
    #[references(Seat)]
    seat: u32,
}

#[test]
fn a_refused_cascade_stops_no_other_row() -> Result<()> {
    for store in plain_engines()? {
        let (lobbies, seats) = (LobbyRepository::open(&store)?, SeatRepository::open(&store)?);
        let tickets = TicketRepository::open(&store)?;
        store.transaction(|txn| {
            for id in 0..40_u32 {
                lobbies.insert(txn, &Lobby { id, ends: at(id.into()) })?;
                seats.insert(txn, &Seat { id, lobby: id })?;
            }
            tickets.insert(txn, &Ticket { id: 1, seat: 7 })?;
            tickets.insert(txn, &Ticket { id: 2, seat: 21 })
        })?;
        let expired = lobbies.expire_report(&store, at(100), 1000)?;
        assert_eq!((expired.deleted, expired.refused), (38, 2));
        assert!(matches!(&expired.refusal, Some(Error::Referenced { key, .. }) if key == "7"));
        let txn = store.read()?;
        assert_eq!(lobbies.all(&txn).keys().collect::<Result<Vec<_>>>()?, [7, 21]);
        assert_eq!(seats.all(&txn).keys().collect::<Result<Vec<_>>>()?, [7, 21]);
        assert!(seats.verify(&txn).run()?.is_clean());
    }
    Ok(())
}

#[test]
fn referenced_rows_are_not_archived() -> Result<()> {
    let store = Store::in_memory();
    let (sessions, _audits) = refer(&store, 9, &[2, 4])?;
    let archived = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&archived);
    sessions.archive_expired(move |rows| {
        into.lock().expect("not poisoned").extend(rows.iter().map(|row| row.id));
        Ok::<_, Error>(())
    });
    let expired = sessions.expire_report(&store, at(5), 100)?;
    assert_eq!((expired.deleted, expired.refused), (3, 2));
    assert_eq!(*archived.lock().expect("not poisoned"), [1, 3, 5]);
    Ok(())
}

#[test]
fn a_worker_reports_referenced_rows_and_deletes_the_others() -> Result<()> {
    let store = Store::in_memory();
    let (sessions, _audits) = refer(&store, 600, &[1, 300])?;
    let worker = store.start_expiry_worker()?;
    let deadline = Instant::now() + Duration::from_mins(1);
    while worker.deleted() < 598 || worker.error().is_none() {
        assert!(Instant::now() < deadline, "{worker:?}: {:?}", worker.error());
        thread::sleep(Duration::from_millis(2));
    }
    assert!(matches!(worker.error(), Some(Error::Referenced { key, .. }) if key == "1"));
    // The next rounds don't read the referenced rows again.
    let refused = sessions.usage().refused_expiries;
    let later = session(601);
    store.transaction(|txn| sessions.insert(txn, &later))?;
    while worker.deleted() < 599 {
        assert!(Instant::now() < deadline, "{worker:?}: {:?}", worker.error());
        thread::sleep(Duration::from_millis(2));
    }
    assert!(worker.error().is_some());
    assert_eq!((sessions.usage().refused_expiries, refused), (2, 2));
    Ok(())
}

/// The first release of [`Lapsing`].
#[derive(Debug, Serialize, Deserialize, IndexTable)]
#[table(name = "lapsing", expires = ends, repository = FormerLapsing)]
struct Former {
    #[primary_key]
    id: u32,
    ends: SystemTime,
    size: u64,
}

#[derive(Debug, Serialize, Deserialize, IndexTable)]
#[table(name = "lapsing", expires = ends, version = 2, previous = Former, changed = [size])]
struct Lapsing {
    #[primary_key]
    id: u32,
    ends: SystemTime,
    size: u8,
}

impl TryFrom<Former> for Lapsing {
    type Error = std::num::TryFromIntError;

    fn try_from(Former { id, ends, size }: Former) -> Result<Self, Self::Error> {
        Ok(Self { id, ends, size: size.try_into()? })
    }
}

#[test]
fn rows_that_cannot_be_read_stay_and_the_others_are_deleted() -> Result<()> {
    for is_archived in [false, true] {
        let store = Store::in_memory();
        {
            let rows = FormerLapsing::open(&store)?;
            let former = |id: u32| Former { id, ends: at(id.into()), size: u64::from(id) * 100 };
            store.transaction(|txn| (0..6).try_for_each(|id| rows.insert(txn, &former(id))))?;
        }
        let rows = LapsingRepository::open(&store)?;
        let archived = Arc::new(Mutex::new(Vec::new()));
        if is_archived {
            let into = Arc::clone(&archived);
            rows.archive_expired(move |rows| {
                into.lock().expect("not poisoned").extend(rows.iter().map(|row| row.id));
                Ok::<_, Error>(())
            });
        }
        let expired = rows.expire_report(&store, at(4), 100)?;
        assert_eq!((expired.deleted, expired.refused), (3, 2));
        let refusal = expired.refusal.expect("an error").to_string();
        assert!(refusal.contains("`lapsing`") && refusal.contains('3'), "{refusal}");
        let keys: Vec<u32> = rows.all(&store.read()?).keys().collect::<Result<_>>()?;
        assert_eq!(keys, [3, 4, 5]);
        let expected: &[u32] = if is_archived { &[0, 1, 2] } else { &[] };
        assert_eq!(*archived.lock().expect("not poisoned"), expected);
    }
    Ok(())
}

#[test]
fn rows_of_the_available_shards_expire() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    {
        let store = Store::options()
            .shard("north", "north")
            .shard("south", "south")
            .map("sessions", ShardMap::hashed(["north", "south"]))
            .open(&path)?;
        insert(&store, &SessionRepository::open(&store)?, 40)?;
    }
    let store = Store::options().only(["north"]).open(&path)?;
    let sessions = SessionRepository::open(&store)?;
    let expired = sessions.expire_report(&store, at(30), 1000)?;
    assert!((1..30).contains(&expired.deleted), "{expired:?}");
    assert_eq!((expired.refused, expired.missing.len()), (0, 1));
    assert_eq!(expired.missing[0].name, "south");
    assert_eq!(sessions.expire(&store, at(30), 1000)?, 0);
    drop((store, sessions));
    let store = Store::open(&path)?;
    let sessions = SessionRepository::open(&store)?;
    assert_eq!(sessions.expire(&store, at(30), 1000)?, 30 - expired.deleted);
    assert!(sessions.verify(&store.read()?).run()?.is_clean());
    Ok(())
}

#[test]
fn a_worker_deletes_rows_while_others_write() -> Result<()> {
    for tried in stores("sessions")? {
        let sessions = SessionRepository::open(&tried)?;
        insert(&tried, &sessions, 600)?;
        let worker = tried.start_expiry_worker()?;
        let deadline = Instant::now() + Duration::from_mins(1);
        let mut id = 10_000;
        while ids(&tried, &sessions)?.iter().any(|id| (1..=600).contains(id)) {
            assert!(Instant::now() < deadline, "{:?}", worker.error());
            let later = Some(SystemTime::now() + Duration::from_hours(1));
            let row = Session { ends: later, ..session(id) };
            tried.transaction(|txn| sessions.insert(txn, &row))?;
            id += 1;
            thread::sleep(Duration::from_millis(2));
        }
        assert!(worker.error().is_none());
        drop(worker);
        assert_eq!(ids(&tried, &sessions)?.len() as u32, 1 + id - 10_000);
        assert!(sessions.verify(&tried.read()?).run()?.is_clean());
    }
    Ok(())
}

#[test]
fn a_worker_continues_after_a_panic_of_the_archive() -> Result<()> {
    let store = Store::in_memory();
    let sessions = SessionRepository::open(&store)?;
    insert(&store, &sessions, 9)?;
    let is_fixed = Arc::new(AtomicBool::new(false));
    let fixed = Arc::clone(&is_fixed);
    sessions.archive_expired(move |_: &[Session]| {
        assert!(fixed.load(Ordering::SeqCst), "no archive");
        Ok::<_, Error>(())
    });
    let worker = store.start_expiry_worker()?;
    let deadline = Instant::now() + Duration::from_mins(1);
    let refused = loop {
        assert!(Instant::now() < deadline);
        match worker.error() {
            Some(error) => break error,
            None => thread::sleep(Duration::from_millis(2)),
        }
    };
    assert!(
        matches!(&refused, Error::Panicked { message } if message == "no archive"),
        "{refused}"
    );
    is_fixed.store(true, Ordering::SeqCst);
    while worker.deleted() == 0 || worker.error().is_some() {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

#[derive(Debug, Clone, Serialize, Deserialize, IndexTable)]
#[table(expires = computed(end: SystemTime))]
#[index(kind)]
#[index(computed(end: SystemTime), kind, name = "by_end")]
struct Lease {
    #[primary_key]
    id: u32,
    kind: u8,
    begin: SystemTime,
}

impl Lease {
    fn end(&self) -> SystemTime {
        self.begin + Duration::from_mins(1)
    }
}

#[test]
fn a_declared_index_on_the_expiry_method_is_used() -> Result<()> {
    let store = Store::in_memory();
    let leases = LeaseRepository::open(&store)?;
    let lease = |id: u32| Lease { id, kind: (id % 2) as u8, begin: at(id.into()) };
    store.transaction(|txn| (0..10).try_for_each(|id| leases.insert(txn, &lease(id))))?;
    assert_eq!(leases.expire(&store, at(64), 100)?, 5);
    assert_eq!(leases.all(&store.read()?).keys().next().transpose()?, Some(5));
    let sizes = store.sizes()?;
    let names: Vec<_> = sizes[0].indexes.iter().map(|index| index.name).collect();
    assert_eq!(names, ["kind", "by_end"]);
    Ok(())
}

/// The derive adds an index on the time, because the declared indexes have another order, or lack rows.
#[derive(Debug, Serialize, Deserialize, IndexTable)]
#[table(expires = ends)]
#[index(desc(ends), name = "latest")]
#[index(ends, each(tags), name = "tagged")]
struct Pass {
    #[primary_key]
    id: u32,
    ends: SystemTime,
    tags: Vec<u8>,
}

/// The primary key begins with the time.
#[derive(Debug, Serialize, Deserialize, IndexTable)]
#[table(expires = ends)]
#[index(ends, each(tags), name = "tagged")]
#[index(desc(ends), name = "latest")]
#[deny(deprecated)]
struct Visit {
    #[primary_key]
    ends: SystemTime,
    #[primary_key]
    id: u32,
    tags: Vec<u8>,
}

#[test]
fn an_index_in_another_order_or_without_each_row_is_not_used() -> Result<()> {
    for store in plain_stores()? {
        let passes = PassRepository::open(&store)?;
        let visits = VisitRepository::open(&store)?;
        store.transaction(|txn| {
            for id in 0..10_u32 {
                let (ends, tags) = (at(id.into()), vec![7; (id % 2) as usize]);
                passes.insert(txn, &Pass { id, ends, tags: tags.clone() })?;
                visits.insert(txn, &Visit { ends, id, tags })?;
            }
            Ok::<_, Error>(())
        })?;
        assert_eq!(passes.expire(&store, at(5), 100)?, 6);
        assert_eq!(visits.expire(&store, at(5), 100)?, 6);
        let txn = store.read()?;
        let left: Vec<_> = passes.all(&txn).keys().collect::<Result<_>>()?;
        assert_eq!(left, [6, 7, 8, 9]);
        let left: Vec<_> = visits.all(&txn).keys().collect::<Result<_>>()?;
        assert_eq!(left, [6_u32, 7, 8, 9].map(|id| (at(id.into()), id)));
    }
    Ok(())
}

/// A table with this type of time, in which the row 1 has expired and the rows 2 and 3 have not.
macro_rules! other_clocks {
    ($($name:ident: $ty:ty, $now:expr, $later:expr;)*) => {$(
        mod $name {
            use super::*;

            #[derive(Debug, Serialize, Deserialize, IndexTable)]
            #[table(expires = ends)]
            struct Row {
                #[primary_key]
                id: u8,
                ends: Option<$ty>,
            }

            #[test]
            fn rows_with_this_type_of_time_expire() -> Result<()> {
                let store = Store::in_memory();
                let rows = RowRepository::open(&store)?;
                let ends = [Some($now), Some($later), None];
                store.transaction(|txn| {
                    (1..).zip(ends).try_for_each(|(id, ends)| rows.insert(txn, &Row { id, ends }))
                })?;
                assert_eq!(rows.live(&store.read()?).keys().collect::<Result<Vec<_>>>()?, [2, 3]);
                assert_eq!(rows.expire(&store, SystemTime::now(), 10)?, 1);
                assert_eq!(rows.all(&store.read()?).keys().collect::<Result<Vec<_>>>()?, [2, 3]);
                Ok(())
            }
        }
    )*};
}

other_clocks! {
    chrono_clock: chrono::DateTime<chrono::Utc>,
        chrono::DateTime::from_timestamp(1000, 0).expect("a time"),
        chrono::DateTime::from_timestamp(4_000_000_000, 0).expect("a time");
    time_clock: time::OffsetDateTime,
        time::OffsetDateTime::from_unix_timestamp(1000).expect("a time"),
        time::OffsetDateTime::from_unix_timestamp(4_000_000_000).expect("a time");
    jiff_clock: jiff::Timestamp,
        jiff::Timestamp::from_second(1000).expect("a time"),
        jiff::Timestamp::from_second(4_000_000_000).expect("a time");
}

#[derive(Debug, Clone)]
enum Operation {
    Put(u32, Option<u64>),
    Delete(u32),
    Expire(u64, u64),
    Load(Vec<(u32, Option<u64>)>),
}

fn operation() -> impl Strategy<Value = Operation> {
    let row = || (0..20_u32, prop::option::of(0..50_u64));
    prop_oneof![
        6 => row().prop_map(|(id, ends)| Operation::Put(id, ends)),
        2 => (0..20_u32).prop_map(Operation::Delete),
        3 => (0..50_u64, 0..6_u64).prop_map(|(now, most)| Operation::Expire(now, most)),
        1 => prop::collection::vec(row(), 0..8).prop_map(Operation::Load),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn random_writes_and_expiries_agree_with_a_model(
        operations in prop::collection::vec(operation(), 1..40),
    ) {
        for tried in stores("sessions").expect("stores") {
            let sessions = SessionRepository::open(&tried).expect("a repository");
            let row = |id, ends: Option<u64>| Session { ends: ends.map(at), ..session(id) };
            let mut model: BTreeMap<u32, Option<u64>> = BTreeMap::new();
            for operation in &operations {
                match operation {
                    Operation::Put(id, ends) => {
                        tried.transaction(|txn| sessions.put(txn, &row(*id, *ends))).expect("a write");
                        model.insert(*id, *ends);
                    }
                    Operation::Delete(id) => {
                        tried.transaction(|txn| sessions.delete(txn, *id)).expect("a write");
                        model.remove(id);
                    }
                    Operation::Expire(now, most) => {
                        // The oldest rows expire first.
                        let mut expired: Vec<(u64, u32)> = model
                            .iter()
                            .filter_map(|(id, ends)| Some(((*ends)?, *id)))
                            .filter(|(ends, _)| ends <= now)
                            .collect();
                        expired.sort_unstable();
                        let deleted = sessions.expire(&tried, at(*now), *most).expect("an expiry");
                        prop_assert_eq!(deleted, (expired.len() as u64).min(*most));
                        for (_, id) in expired.into_iter().take(*most as usize) {
                            model.remove(&id);
                        }
                    }
                    Operation::Load(rows) => {
                        let rows: BTreeMap<_, _> = rows.iter().copied().collect();
                        let load = rows.iter().map(|(id, ends)| row(*id, *ends));
                        let load = sessions.bulk_load(&tried, load);
                        load.on_duplicate(OnDuplicate::Replace).run().expect("a load");
                        model.extend(rows);
                    }
                }
                let txn = tried.read().expect("a transaction");
                let stored = sessions.all(&txn).rows().collect::<Result<Vec<_>>>().expect("rows");
                let expected: Vec<_> = model.iter().map(|(id, ends)| row(*id, *ends)).collect();
                prop_assert_eq!(stored, expected);
            }
            let report = sessions.verify(&tried.read().expect("a transaction")).run();
            prop_assert!(report.expect("a report").is_clean());
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "two indexes may both be unique")]
#[table(name = "tokens", shard_by = hash(id), expires = ends)]
#[index(code, unique, scope = "global")]
#[index(id, place, unique)]
struct Token {
    #[primary_key]
    id: u32,
    code: u32,
    place: u32,
    ends: SystemTime,
}

/// The expiry of a row removes its own entries, and no entry of a row that has taken its key.
#[test]
fn rows_exchange_unique_keys_before_one_of_them_expires() -> Result<()> {
    for tried in stores("tokens")? {
        let tokens = TokenRepository::open(&tried)?;
        let token = |id: u32, code| Token { id, code, place: code, ends: at(u64::from(id) * 10) };
        tried.transaction(|txn| (1..4).try_for_each(|id| tokens.insert(txn, &token(id, id))))?;
        tried.transaction(|txn| {
            tokens.put(txn, &token(1, 100))?;
            tokens.put(txn, &token(2, 1))?;
            tokens.put(txn, &token(1, 2))
        })?;
        assert_eq!(tokens.expire(&tried, at(15), 100)?, 1);
        tried.transaction(|txn| tokens.put(txn, &token(3, 2)))?;
        let txn = tried.read()?;
        assert_eq!(tokens.get_by_code(&txn, 1)?, Some(token(2, 1)));
        assert_eq!(tokens.get_by_code(&txn, 2)?, Some(token(3, 2)));
        assert_eq!(tokens.get_by_id_place(&txn, 3, 2)?, Some(token(3, 2)));
        assert_eq!(tokens.by_code(&txn).count()?, 2);
        assert!(tokens.verify(&txn).run()?.is_clean());
    }
    Ok(())
}
