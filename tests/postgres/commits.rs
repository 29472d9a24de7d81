//! The outcome of each commit whose connection is cut.

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    thread,
};

use index_table::{__private::run_sql, Error, IndexTable};
use serde::{Deserialize, Serialize};

use super::{
    TestResult,
    postgres::Schema,
    proxy::{self, Fate},
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "payments")]
#[index(payer)]
struct Payment {
    #[primary_key]
    id: u32,
    payer: u32,
}

/// When the connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    Never,
    /// The server does not receive the commit.
    Before,
    /// The server receives the commit, and the end of the connection.
    During,
    /// The server has sent the response.
    After,
}

const MOMENTS: [Moment; 4] = [Moment::Never, Moment::Before, Moment::During, Moment::After];

/// The number of commits that are cut: `INDEX_TABLE_CUTS`, or 150.
fn cuts() -> u32 {
    env::var("INDEX_TABLE_CUTS").ok().and_then(|it| it.parse().ok()).unwrap_or(150)
}

#[test]
fn the_outcome_of_a_commit_that_is_cut_is_the_truth() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let direct = schema.open()?;
    let payments = PaymentRepository::open(&direct)?;
    // The moment of the next cut, and the connection whose response is cut.
    let (next, waiting) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU64::new(u64::MAX)));
    let (of_proxy, of_waiting) = (Arc::clone(&next), Arc::clone(&waiting));
    let url = proxy::start(schema.url(), move |message| {
        // An insertion with `autocommit` is a statement of its own, without a `BEGIN`.
        let is_alone = message.is_request
            && message.kind == b'B'
            && message.body.windows(16).any(|part| part == b"alone, to be cut");
        if message.is_commit() || is_alone {
            let moment = MOMENTS[of_proxy.swap(0, Ordering::SeqCst) as usize];
            match moment {
                Moment::Before => return Fate::Cut,
                Moment::During if message.is_commit() => return Fate::ForwardAndCut,
                Moment::During | Moment::After => {
                    of_waiting.store(message.connection, Ordering::SeqCst);
                }
                Moment::Never => {}
            }
        }
        let is_awaited = of_waiting.load(Ordering::SeqCst) == message.connection;
        // The server is ready for the next request.
        if !message.is_request && is_awaited && message.kind == b'Z' {
            of_waiting.store(u64::MAX, Ordering::SeqCst);
            return Fate::Cut;
        }
        Fate::Forward
    })?;
    let store = schema.options().connect(&url)?;
    let through = PaymentRepository::open(&store)?;
    let (notes, of_direct) = (NoteRepository::open(&store)?, NoteRepository::open(&direct)?);
    let (mut unknown, mut known) = (0, [0, 0]);
    for id in 0..cuts() {
        let moment = 1 + id % 3;
        let is_alone = id % 2 == 1;
        let outcome = if is_alone {
            let note = Note { id, text: "alone, to be cut".to_owned() };
            notes.insert(&mut store.autocommit()?, &Note { id: id + 1_000_000, ..note.clone() })?;
            next.store(moment, Ordering::SeqCst);
            notes.insert(&mut store.autocommit()?, &note)
        } else {
            store.transaction(|txn| {
                through.insert(txn, &Payment { id, payer: id % 7 })?;
                next.store(moment, Ordering::SeqCst);
                Ok(())
            })
        };
        assert_eq!(next.load(Ordering::SeqCst), 0, "payment {id} was not cut");
        let txn = direct.read()?;
        let is_there = if is_alone {
            of_direct.get(&txn, id)?.is_some()
        } else {
            payments.get(&txn, id)?.is_some()
        };
        match outcome {
            Ok(()) => assert!(is_there, "{id} at {:?}", MOMENTS[moment as usize]),
            Err(Error::Unreachable { .. }) => {
                assert!(!is_there, "{id} at {:?}", MOMENTS[moment as usize]);
            }
            Err(Error::CommitUnknown { .. }) => unknown += 1,
            Err(error) => return Err(error.into()),
        }
        known[usize::from(is_there)] += 1;
    }
    assert!(unknown * 100 <= cuts(), "{unknown} are unknown");
    assert!(known[0] > 0 && known[1] > 0, "{known:?}");
    let report = payments.verify(&direct.read()?).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes")]
struct Note {
    #[primary_key]
    id: u32,
    text: String,
}

#[test]
fn an_insertion_that_another_client_has_removed_was_committed() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let direct = schema.open()?;
    let of_direct = NoteRepository::open(&direct)?;
    let is_cut = Arc::new(AtomicU32::new(0));
    let (of_proxy, name, server) =
        (Arc::clone(&is_cut), schema.name().to_owned(), schema.url().to_owned());
    let url = proxy::start(schema.url(), move |message| {
        let is_end = !message.is_request && message.kind == b'Z';
        if is_end && of_proxy.load(Ordering::SeqCst) == 1 {
            of_proxy.store(2, Ordering::SeqCst);
            let other = index_table::Store::options().schema(&name).connect(&server);
            let removed = other.and_then(|other| {
                let notes = NoteRepository::open(&other)?;
                notes.delete(&mut other.autocommit()?, 1)
            });
            assert!(matches!(removed, Ok(true)), "{removed:?}");
            return Fate::Cut;
        }
        Fate::Forward
    })?;
    let store = schema.options().connect(&url)?;
    let notes = NoteRepository::open(&store)?;
    let note = |id| Note { id, text: String::new() };
    notes.insert(&mut store.autocommit()?, &note(0))?;
    is_cut.store(1, Ordering::SeqCst);
    notes.insert(&mut store.autocommit()?, &note(1))?;
    assert_eq!(is_cut.load(Ordering::SeqCst), 2);
    assert_eq!(of_direct.get(&direct.read()?, 1)?, None);
    Ok(())
}

#[test]
fn the_tokens_of_closed_connections_are_few() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let direct = schema.open()?;
    let notes = NoteRepository::open(&direct)?;
    thread::scope(|scope| {
        for client in 0..4_u32 {
            let (direct, notes) = (&direct, &notes);
            scope.spawn(move || {
                for id in 0..50 {
                    let note = Note { id: client * 1_000 + id, text: String::new() };
                    direct.transaction(|txn| notes.insert(txn, &note)).expect("a commit");
                }
            });
        }
    });
    let sql = format!("SELECT count(*)::text FROM \"{}\".\".commits\"", schema.name());
    let count = run_sql(&direct, &sql)?.and_then(|count| count.parse().ok()).unwrap_or(u32::MAX);
    // The connections of this client.
    assert!(count <= 16, "{count}");
    Ok(())
}

#[test]
fn a_store_of_an_earlier_release_gets_the_table_of_tokens() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let note = |id| Note { id, text: String::new() };
    let store = schema.open()?;
    NoteRepository::open(&store)?.insert(&mut store.autocommit()?, &note(0))?;
    let name = schema.name();
    run_sql(&store, &format!("DROP TABLE \"{name}\".\".commits\""))?;
    drop(store);
    // Readers need no tokens.
    let reader = schema.open_with(&schema.options().read_only(true))?;
    assert_eq!(NoteRepository::open(&reader)?.get(&reader.read()?, 0)?, Some(note(0)));
    // A user that may not create a table has the message of the server.
    let user = format!("{name} writer");
    let grants = format!(
        "CREATE ROLE \"{user}\" LOGIN; GRANT USAGE ON SCHEMA \"{name}\" TO \"{user}\"; \
         GRANT ALL ON ALL TABLES IN SCHEMA \"{name}\" TO \"{user}\""
    );
    run_sql(&reader, &grants)?;
    let refused = schema.options().create(false).connect(&schema.url_of(&user));
    let message = refused.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(message.contains("permission denied for schema"), "{message}");
    let store = schema.open_with(&schema.options().create(false))?;
    let notes = NoteRepository::open(&store)?;
    notes.insert(&mut store.autocommit()?, &note(1))?;
    store.transaction(|txn| notes.insert(txn, &note(2)))?;
    assert_eq!(notes.get(&store.read()?, 2)?, Some(note(2)));
    // The user has the same rights on the new table as on the others.
    {
        let other = schema.options().create(false).connect(&schema.url_of(&user))?;
        let notes = NoteRepository::open(&other)?;
        other.transaction(|txn| notes.insert(txn, &note(3)))?;
    }
    run_sql(&reader, &format!("DROP OWNED BY \"{user}\"; DROP ROLE \"{user}\""))?;
    Ok(())
}
