//! Tests on a server.

mod executor;
mod failures;
#[cfg(unix)]
mod forked;
mod measured;
mod proxy;

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU32, Ordering},
    time::Instant,
};

use executor::{Tasks, finish};
use proxy::Proxy;

use super::{
    super::tests::{TABLE, connected, on_a_server, open, open_as, url},
    *,
};
use crate::{
    engine::{Options, Read as _},
    model::{
        error::Result,
        maintain::{Change, Sink as _},
        schema::TableSchema,
    },
};

const OTHER: &TableSchema = &TableSchema { name: "other_things", ..*TABLE };

/// A time that no test needs.
const LONG: Duration = Duration::from_secs(30);

/// A time that is shorter than the default limits.
const SOON: Duration = Duration::from_secs(4);

/// A statement for the number of the session, as a look-up with any key.
const OWN: &str = "SELECT convert_to(pg_backend_pid()::text, 'UTF8') WHERE $1::bytea IS NOT NULL";

fn put_rows(engine: &Engine, tables: &Tables, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
    let mut txn = engine.write()?;
    let mut writer = txn.writer(tables).expect("a write transaction");
    for (primary_key, row) in rows {
        writer.change(Change::PutFact { primary_key, row })?;
    }
    Ok(txn.commit(|| ())?)
}

/// Puts rows with the keys 0 to 999, in two bytes, and with their keys as text.
fn put_thousand(engine: &Engine, tables: &Tables) -> Result<()> {
    let rows: Vec<_> = (0..1000).map(|id| (key(id), text(id))).collect();
    put_rows(engine, tables, &rows)
}

fn key(id: u16) -> Vec<u8> {
    id.to_be_bytes().to_vec()
}

fn text(id: u16) -> Vec<u8> {
    format!("row {id}").into_bytes()
}

/// Another client of the store, through a proxy.
fn through(engine: &Engine, url: &str, response: Duration) -> Result<Engine> {
    let options = Options::default().schema(&engine.schema).response_timeout(response);
    Engine::connect(&options.connect_timeout(SOON / 4), url)
}

/// Returns the look-ups of these keys.
fn look_ups(
    pipeline: &Pipeline,
    tables: &Tables,
    ids: impl IntoIterator<Item = u16>,
) -> Vec<Later<Option<Vec<u8>>>> {
    let sql = select::fact(&tables.facts);
    ids.into_iter().map(|id| pipeline.get(sql.clone(), &key(id))).collect()
}

/// Returns the numbers of the sessions, one for each line.
fn sessions(pipeline: &Pipeline) -> Result<Vec<String>> {
    let (begun, mut numbers) = (Instant::now(), BTreeSet::new());
    while begun.elapsed() < LONG {
        let all = (0..400).map(|_| pipeline.get(OWN.to_owned(), b""));
        for found in finish(all, LONG) {
            numbers.insert(String::from_utf8(found?.expect("a number")).expect("a text"));
        }
        if numbers.len() == pipeline.0.counts()[2] {
            return Ok(numbers.into_iter().collect());
        }
    }
    panic!("some lines get no look-ups: {numbers:?}");
}

/// Waits until all responses have arrived. Returns the number of lines.
fn lines(pipeline: &Pipeline) -> usize {
    wait_until("look-ups are left", || pipeline.0.counts()[..2] == [0, 0]);
    pipeline.0.counts()[2]
}

/// Returns the number of these sessions that the server has.
fn open_sessions(engine: &Engine, numbers: &[String]) -> Result<usize> {
    let numbers = numbers.join(", ");
    let sql = format!("SELECT count(*)::text FROM pg_stat_activity WHERE pid IN ({numbers})");
    Ok(engine.run(&sql)?.expect("a count").parse().expect("a number"))
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LONG, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn is_unreachable(found: &FoundBytes) -> bool {
    matches!(found, Err(Error::Unreachable { .. }))
}

#[test]
fn look_ups_find_what_a_transaction_finds() {
    on_a_server(|engine| {
        let (tables, others) = (open(engine), open_as(engine, OTHER));
        let large: Vec<u8> = (0..3_000_000_u32).map(|at| (at * 7) as u8).collect();
        let rows = [(vec![1], Vec::new()), (vec![2; 400], b"row".to_vec()), (vec![3], large)];
        put_rows(engine, &tables, &rows)?;
        put_rows(engine, &others, &[(vec![1], b"other".to_vec())])?;
        let keys = [&[1][..], &[2; 400], &[3], &[4], &[], &[9; 5000], &[1], &[3]];
        let both = [&tables, &others];
        let later = both.iter().flat_map(|tables| keys.map(|key| engine.get_later(tables, key)));
        let found = finish(later, LONG).into_iter().collect::<Result<Vec<_>>>()?;
        let txn = engine.read()?;
        let mut wanted = Vec::new();
        for tables in both {
            for key in keys {
                wanted.push(txn.reader(tables).fact(key)?.map(<[u8]>::to_vec));
            }
        }
        assert!(found == wanted);
        assert_eq!(wanted.iter().flatten().count(), 7);
        Ok(())
    });
}

#[test]
fn a_thousand_look_ups_of_one_thread_are_in_flight_at_once() {
    on_a_server(|engine| {
        let tables = open(engine);
        put_thousand(engine, &tables)?;
        let delay = Duration::from_millis(20);
        let (_proxy, url) = Proxy::start(&url().expect("a server"), delay, b"").expect("a proxy");
        let slow = through(engine, &url, LONG)?;
        let ids = || (0..1200).map(|id| id % 1100);
        // The first time, connections are opened.
        for limit in [LONG, SOON] {
            let begun = Instant::now();
            let found = finish(look_ups(&slow.pipeline, &tables, ids()), LONG);
            assert!(begun.elapsed() < limit, "{:?}", begun.elapsed());
            for (id, found) in ids().zip(found) {
                assert_eq!(found?, (id < 1000).then(|| text(id)), "{id}");
            }
        }
        assert_eq!(lines(&slow.pipeline), 2);
        Ok(())
    });
}

#[test]
fn one_look_up_after_the_other_uses_one_connection() {
    on_a_server(|engine| {
        let tables = open(engine);
        for id in 0..200 {
            put_rows(engine, &tables, &[(key(1), text(id))])?;
            // A look-up sees all commits before it.
            let found = finish(look_ups(&engine.pipeline, &tables, [1]), LONG);
            assert_eq!(found.into_iter().next().expect("a result")?, Some(text(id)));
        }
        assert_eq!(lines(&engine.pipeline), 1);
        Ok(())
    });
}

#[test]
fn nothing_happens_before_the_first_poll() {
    on_a_server(|engine| {
        let tables = open(engine);
        let futures = look_ups(&engine.pipeline, &tables, 0..100);
        assert_eq!(engine.pipeline.0.counts(), [0; 3]);
        drop(futures);
        assert_eq!(engine.pipeline.0.counts(), [0; 3]);
        Ok(())
    });
}

#[test]
fn dropped_look_ups_leave_nothing() {
    on_a_server(|engine| {
        let tables = open(engine);
        put_thousand(engine, &tables)?;
        let (_proxy, url) = Proxy::start(&url().expect("a server"), Duration::from_millis(1), b"")
            .expect("a proxy");
        let slow = through(engine, &url, LONG)?;
        let bounds = LineBounds { in_flight: 8, ..BOUNDS };
        let pipeline = Pipeline::with(&slow.pool, bounds);
        let mut random = 1_u32;
        let mut next = |below: usize| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) as usize % below
        };
        let mut dropped = 0;
        for _ in 0..10 {
            // The others are dropped at the end of a round.
            let mut tasks = Tasks::new(look_ups(&pipeline, &tables, 0..200));
            while tasks.turn() > 100 {
                dropped += u32::from(tasks.drop_one(next(200)));
                if next(8) == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
                let [_, in_flight, _] = pipeline.0.counts();
                assert!(in_flight <= 16, "{in_flight}");
            }
            let finished = tasks.results.iter().enumerate();
            for (id, found) in finished.filter_map(|(id, it)| Some((id, it.as_ref()?))) {
                assert_eq!(found.as_ref().expect("a row"), &Some(text(id as u16)));
            }
        }
        assert!(dropped > 100, "{dropped}");
        assert_eq!(pipeline.0.counts()[0], 0);
        lines(&pipeline);
        for found in finish(look_ups(&pipeline, &tables, 0..100), LONG) {
            assert!(found?.is_some());
        }
        Ok(())
    });
}

/// The response has more parts than the client library keeps for a caller.
#[test]
fn a_caller_that_does_not_poll_delays_no_other() {
    on_a_server(|engine| {
        let tables = open(engine);
        put_thousand(engine, &tables)?;
        put_rows(engine, &tables, &[(key(2000), vec![7; 5_000_000])])?;
        let late = through(engine, &url().expect("a server"), SOON)?;
        let mut lazy = Tasks::new(look_ups(&late.pipeline, &tables, [2000; 20]));
        lazy.turn();
        let begun = Instant::now();
        for found in finish(look_ups(&late.pipeline, &tables, 0..1000), LONG) {
            assert!(found?.is_some());
        }
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        for found in lazy.finish(LONG) {
            assert_eq!(found?.map(|row| row.len()), Some(5_000_000));
        }
        Ok(())
    });
}

#[test]
fn sessions_have_the_settings_and_read_only() {
    on_a_server(|engine| {
        let settings = super::super::sql::SETTINGS.iter().copied();
        let own = [("default_transaction_isolation", "read committed")];
        let own = own.into_iter().chain([("default_transaction_read_only", "on")]);
        let others = settings.filter(|(name, _)| {
            !matches!(*name, "default_transaction_isolation" | "default_transaction_read_only")
        });
        let own = own.chain([("transaction_isolation", "read committed"), ("lock_timeout", "5s")]);
        for (name, value) in others.chain(own) {
            let sql = "SELECT convert_to(current_setting(convert_from($1::bytea, 'UTF8')), 'UTF8')";
            let found = finish([engine.pipeline.get(sql.to_owned(), name.as_bytes())], LONG);
            let found = found.into_iter().next().expect("a result")?;
            assert_eq!(found.as_deref(), Some(value.as_bytes()), "{name}");
        }
        Ok(())
    });
}

#[test]
fn an_unused_line_ends_with_its_session() {
    on_a_server(|engine| {
        let tables = open(engine);
        let bounds = LineBounds { idle: Duration::from_millis(100), ..BOUNDS };
        let pipeline = Pipeline::with(&engine.pool, bounds);
        for _ in 0..3 {
            let numbers = sessions(&pipeline)?;
            assert!(!numbers.is_empty());
            wait_until("a line is running", || pipeline.0.counts() == [0; 3]);
            wait_until("a session is open", || {
                open_sessions(engine, &numbers).expect("a number") == 0
            });
            assert!(finish(look_ups(&pipeline, &tables, [1]), LONG)[0].is_ok());
        }
        Ok(())
    });
}

#[test]
fn look_ups_and_sessions_end_with_the_store() {
    on_a_server(|engine| {
        let tables = open(engine);
        let (proxy, url) =
            Proxy::start(&url().expect("a server"), Duration::ZERO, b"").expect("a proxy");
        let closed = through(engine, &url, LONG)?;
        let numbers = sessions(&closed.pipeline)?;
        assert_eq!(open_sessions(engine, &numbers)?, numbers.len());
        proxy.holds.store(true, Ordering::Relaxed);
        let mut pending = Tasks::new(look_ups(&closed.pipeline, &tables, 0..100));
        let unpolled = look_ups(&closed.pipeline, &tables, 0..10);
        pending.turn();
        let look_ups = Arc::clone(&closed.pipeline.0);
        drop(closed);
        let begun = Instant::now();
        let found = pending.finish(SOON);
        assert!(begun.elapsed() < SOON / 4, "{:?}", begun.elapsed());
        assert!(found.iter().all(is_unreachable), "{:?}", found[0]);
        assert!(finish(unpolled, SOON).iter().all(is_unreachable));
        wait_until("a line is running", || look_ups.counts() == [0; 3]);
        proxy.holds.store(false, Ordering::Relaxed);
        wait_until("a session is open", || open_sessions(engine, &numbers).expect("a number") == 0);
        Ok(())
    });
}

#[test]
fn a_panic_of_a_waker_ends_nothing() {
    struct Panics;
    impl std::task::Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker of a test");
        }
    }
    on_a_server(|engine| {
        let tables = open(engine);
        put_thousand(engine, &tables)?;
        let mut panicking = look_ups(&engine.pipeline, &tables, 0..10);
        let waker = std::task::Waker::from(Arc::new(Panics));
        for future in &mut panicking {
            assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        for found in finish(look_ups(&engine.pipeline, &tables, 0..100), LONG) {
            assert!(found?.is_some());
        }
        for found in finish(panicking, LONG) {
            assert!(found?.is_some());
        }
        Ok(())
    });
}

#[test]
fn threads_share_the_look_ups_of_a_store() {
    on_a_server(|engine| {
        let tables = open(engine);
        put_thousand(engine, &tables)?;
        let bounds = LineBounds { in_flight: 16, enough: 4, idle: Duration::from_millis(2) };
        let pipeline = Pipeline::with(&engine.pool, bounds);
        let found = AtomicU32::new(0);
        thread::scope(|scope| {
            for thread in 0..4 {
                let (pipeline, tables, found) = (&pipeline, &tables, &found);
                scope.spawn(move || {
                    for round in 0..40_u16 {
                        let ids = (thread * 200..).take(usize::from(round * 7 % 41 + 1));
                        for (id, row) in
                            ids.clone().zip(finish(look_ups(pipeline, tables, ids), LONG))
                        {
                            assert_eq!(row.expect("a row"), Some(text(id)));
                            found.fetch_add(1, Ordering::Relaxed);
                        }
                        // The lines end and begin again.
                        thread::sleep(Duration::from_millis(u64::from(round % 5)));
                    }
                });
            }
        });
        assert!(found.load(Ordering::Relaxed) > 1000);
        wait_until("a line is running", || pipeline.0.counts() == [0; 3]);
        Ok(())
    });
}
