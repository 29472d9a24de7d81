//! The spans and events of `tracing`, as a subscriber sees them.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use heed::{CommitOrAbort, EnvOpenOptions, types::Bytes};
use index_table::{Durability, Error, IndexTable, Store};
use serde::{Deserialize, Serialize};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
    subscriber,
};

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// A span: its level, its name and its fields, and whether it has ended.
#[derive(Debug, Clone)]
struct Seen {
    level: Level,
    name: &'static str,
    fields: BTreeMap<&'static str, String>,
    closed: bool,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

/// A subscriber that keeps all spans of this crate in order.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<Seen>>>);

impl Spans {
    fn with<T>(&self, work: impl FnOnce(&mut Vec<Seen>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn with_span(&self, id: &Id, work: impl FnOnce(&mut Seen)) {
        self.with(|spans| work(&mut spans[usize::try_from(id.into_u64()).unwrap() - 1]));
    }

    /// Runs `work`, and returns its spans as text: `DEBUG scan entries=2 facts=0 table=films`.
    fn of(work: impl FnOnce() -> index_table::Result<()>) -> Vec<String> {
        let spans = Self::default();
        subscriber::with_default(spans.clone(), work).expect("the store works");
        let show = |span: &Seen| {
            let fields = span.fields.iter().map(|(name, value)| format!(" {name}={value}"));
            let open = if span.closed { "" } else { " (open)" };
            format!("{} {}{}{open}", span.level, span.name, fields.collect::<String>())
        };
        spans.with(|spans| spans.iter().map(show).collect())
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "index_table"
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let metadata = attributes.metadata();
        let (level, name, fields) = (*metadata.level(), metadata.name(), BTreeMap::new());
        let mut span = Seen { level, name, fields, closed: false };
        attributes.record(&mut span);
        self.with(|spans| {
            spans.push(span);
            Id::from_u64(spans.len() as u64)
        })
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        self.with_span(id, |span| values.record(span));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let level = *event.metadata().level();
        let mut seen = Seen { level, name: "event", fields: BTreeMap::new(), closed: true };
        event.record(&mut seen);
        self.with(|spans| spans.push(seen));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}

    fn try_close(&self, id: Id) -> bool {
        self.with_span(&id, |span| span.closed = true);
        true
    }
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "films")]
#[index(year)]
#[index(title, include = [year])]
struct Film {
    #[primary_key]
    id: u32,
    title: String,
    year: u16,
}

fn film(id: u32) -> Film {
    Film { id, title: format!("film {id}"), year: 1942 }
}

#[test]
fn writes_and_opening_have_spans() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let open = || FilmRepository::open(&store).map(drop);
    assert_eq!(Spans::of(open), ["DEBUG open table=films", "DEBUG build indexes=2 table=films"]);
    // The table is open already, so nothing is built.
    assert_eq!(Spans::of(open), ["DEBUG open table=films"]);
    let films = FilmRepository::open(&store)?;
    assert_eq!(Spans::of(open), [""; 0]);

    let write = || {
        let mut txn = store.write()?;
        films.insert(&mut txn, &film(1))?;
        films.insert_with(&mut txn, film)?;
        films.put(&mut txn, &film(3))?;
        films.update(&mut txn, 3, |film| film.year = 1946)?;
        films.delete(&mut txn, 3)?;
        txn.commit()
    };
    assert_eq!(
        Spans::of(write),
        [
            "TRACE insert table=films",
            "TRACE insert table=films",
            "TRACE put table=films",
            "TRACE update table=films",
            "TRACE delete table=films",
            "DEBUG commit",
        ]
    );
    Ok(())
}

#[test]
fn a_dropped_transaction_with_changes_is_a_warning() -> TestResult {
    let store = Store::in_memory();
    let (films, movies) = (FilmRepository::open(&store)?, MovieRepository::open(&store)?);
    let movie = || Movie { id: 1, title: String::new(), year: 1942 };
    let warnings = |work: &dyn Fn() -> index_table::Result<()>| {
        let seen = Spans::of(work);
        seen.into_iter().filter(|seen| seen.starts_with("WARN")).collect::<Vec<_>>()
    };
    let dropped = || {
        let mut txn = store.write()?;
        movies.insert(&mut txn, &movie())?;
        films.put(&mut txn, &film(1))
    };
    let seen = warnings(&dropped);
    let [warning] = &*seen else { return Err(format!("{seen:?}").into()) };
    assert!(warning.contains("dropped without `commit`"), "{warning}");
    assert!(warning.contains("tables=`movies`, `films`"), "{warning}");
    let count = || (films.usage().uncommitted, movies.usage().uncommitted);
    assert_eq!(count(), (1, 1));
    let committed = || {
        let mut txn = store.write()?;
        films.put(&mut txn, &film(1))?;
        txn.commit()
    };
    let unchanged = || {
        let mut txn = store.write()?;
        films.put(&mut txn, &film(1))?;
        assert!(films.get(&txn, 1)?.is_some() && !films.delete(&mut txn, 2)?);
        Ok(())
    };
    let undone = || {
        let gives_up = |txn: &mut index_table::WriteTxn<'_>| {
            films.insert(txn, &film(2))?;
            Err::<(), _>(Error::NotOffered { what: "a film" })
        };
        assert!(store.transaction(gives_up).is_err());
        let mut txn = store.write()?;
        assert!(txn.nested(gives_up).is_err());
        txn.commit()
    };
    for work in [&committed as &dyn Fn() -> _, &unchanged, &undone] {
        assert_eq!(warnings(work), [""; 0]);
    }
    assert_eq!(count(), (1, 1));
    Ok(())
}

#[test]
fn queries_have_spans_with_their_cost() -> TestResult {
    let store = Store::in_memory();
    let films = FilmRepository::open(&store)?;
    store.transaction(|txn| (1..4).try_for_each(|id| films.insert(txn, &film(id))))?;
    let txn = store.read()?;

    let get = || films.get(&txn, 1).map(drop);
    assert_eq!(Spans::of(get), ["TRACE get table=films"]);
    let many = || films.get_many(&txn, [1, 2]).try_for_each(|row| row.map(drop));
    assert_eq!(Spans::of(many), ["DEBUG get_many facts=2 table=films"]);
    let rows = || films.find_by_year(&txn, 1942).rows().try_for_each(|row| row.map(drop));
    assert_eq!(Spans::of(rows), ["DEBUG scan entries=3 facts=3 index=year table=films"]);
    let entries = || films.by_title(&txn).limit(2).entries().try_for_each(|entry| entry.map(drop));
    assert_eq!(Spans::of(entries), ["DEBUG scan entries=2 facts=0 index=title table=films"]);
    let all = || films.all(&txn).keys().try_for_each(|key| key.map(drop));
    assert_eq!(Spans::of(all), ["DEBUG scan entries=3 facts=0 table=films"]);
    let count = || films.find_by_year(&txn, 1942).count().map(drop);
    assert_eq!(Spans::of(count), ["DEBUG scan entries=3 facts=0 index=year table=films"]);
    let values = || films.distinct_year(&txn).values().try_for_each(|year| year.map(drop));
    assert_eq!(Spans::of(values), ["DEBUG scan entries=1 facts=0 index=year table=films"]);
    let both = || {
        let by_title = films.find_by_title(&txn, "film 2");
        by_title.and(films.find_by_year(&txn, 1942)).rows().try_for_each(|row| row.map(drop))
    };
    assert_eq!(
        Spans::of(both),
        [
            "DEBUG scan entries=1 facts=0 index=title table=films",
            "DEBUG scan entries=1 facts=0 index=year table=films",
        ]
    );
    Ok(())
}

#[test]
fn a_span_is_open_as_long_as_its_scan() -> TestResult {
    let store = Store::in_memory();
    let films = FilmRepository::open(&store)?;
    store.transaction(|txn| (1..4).try_for_each(|id| films.insert(txn, &film(id))))?;
    let txn = store.read()?;
    let mut open_scan = None;
    let begin = || {
        let mut rows = films.by_year(&txn).rows();
        rows.next().transpose()?;
        open_scan = Some(rows);
        Ok(())
    };
    assert_eq!(Spans::of(begin), ["DEBUG scan index=year table=films (open)"]);
    drop(open_scan);
    Ok(())
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "movies")]
struct Movie {
    #[primary_key]
    id: u32,
    title: String,
    year: u16,
}

#[test]
fn a_new_table_that_resembles_an_unopened_table_is_a_warning() -> TestResult {
    let in_shards = Store::options().shard("a", "").shard("b", "").in_memory()?;
    for store in [Store::in_memory(), in_shards] {
        let warnings = || {
            let seen = Spans::of(|| MovieRepository::open(&store).map(drop));
            seen.into_iter().filter(|seen| seen.starts_with("WARN")).collect::<Vec<_>>()
        };
        drop(FilmRepository::open(&store)?);
        let warned = warnings();
        let [warned] = warned.as_slice() else { return Err(format!("{warned:?}").into()) };
        assert!(warned.contains("other=films table=movies"), "{warned}");
        assert!(warned.contains(r#"`#[table(name = "movies", was = "films")]`"#), "{warned}");
        // The table exists now.
        assert_eq!(warnings(), [""; 0]);
    }
    let store = Store::in_memory();
    let films = FilmRepository::open(&store)?;
    let seen = Spans::of(|| MovieRepository::open(&store).map(drop));
    assert!(seen.iter().all(|seen| !seen.starts_with("WARN")), "{seen:?}");
    drop(films);
    Ok(())
}

/// The rows are read by the other copy of their lists.
#[test]
fn a_damaged_copy_of_lists_is_a_warning_until_a_writer_opens_the_table() -> TestResult {
    let dir = tempfile::tempdir()?;
    let options = || Store::options().durability(Durability::None);
    let open = |read_only: bool| -> index_table::Result<()> {
        let store = options().read_only(read_only).open(dir.path())?;
        FilmRepository::open(&store).map(drop)
    };
    {
        let store = options().open(dir.path())?;
        let films = FilmRepository::open(&store)?;
        store.transaction(|txn| films.insert(txn, &film(1)))?;
    }
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: nothing else has the files of this test open.
    let env = unsafe { EnvOpenOptions::new().max_dbs(1).map_size(1 << 24).open(dir.path())? };
    let txn = env.write_txn()?;
    env.create_databases_and_commit(txn, |opener, txn| {
        let catalog = opener.create_database::<Bytes, Bytes>(txn, Some(".catalog"))?;
        catalog.put(txn, b"films.@lists", &[1; 40])?;
        Ok::<_, heed::Error>(CommitOrAbort::<(), ()>::Commit(()))
    })?;
    drop(env);
    let warnings = |read_only| {
        let seen = Spans::of(|| open(read_only));
        seen.into_iter().filter(|seen| seen.starts_with("WARN")).collect::<Vec<_>>()
    };
    for read_only in [true, false] {
        let seen = warnings(read_only);
        let [warning] = &*seen else { return Err(format!("{seen:?}").into()) };
        assert!(warning.contains("the first copy of their record is damaged"), "{warning}");
        assert!(warning.contains("table=films"), "{warning}");
    }
    assert_eq!(warnings(true), [""; 0]);
    Ok(())
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "reviews")]
#[index(stars, consistency = "eventual")]
struct Review {
    #[primary_key]
    id: u32,
    stars: u8,
}

/// The events of a thread of the store reach the global subscriber, which this test sets.
#[test]
fn a_worker_that_fails_is_a_warning() -> TestResult {
    let dir = tempfile::tempdir()?;
    {
        let store = Store::open(dir.path())?;
        let reviews = ReviewRepository::open(&store)?;
        store.transaction(|txn| reviews.insert(txn, &Review { id: 1, stars: 5 }))?;
    }
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: nothing else has the files of this test open.
    let env = unsafe { EnvOpenOptions::new().max_dbs(40).map_size(1 << 30).open(dir.path())? };
    let txn = env.write_txn()?;
    env.create_databases_and_commit(txn, |opener, txn| {
        let queue = opener.create_database::<Bytes, Bytes>(txn, Some(".queue.reviews"))?;
        // The position of the first message to apply.
        queue.put(txn, &[0; 8], b"\xff")?;
        Ok::<_, heed::Error>(CommitOrAbort::<(), ()>::Commit(()))
    })?;
    drop(env);

    let seen = Spans::default();
    subscriber::set_global_default(seen.clone())?;
    let store = Store::open(dir.path())?;
    let _reviews = ReviewRepository::open(&store)?;
    let worker = store.start_index_worker()?;
    let deadline = Instant::now() + Duration::from_mins(1);
    while worker.error().is_none() {
        assert!(Instant::now() < deadline, "the worker has no error");
        thread::sleep(Duration::from_millis(5));
    }
    drop(worker);
    let is_own = |seen: &&Seen| seen.fields.values().any(|text| text.contains("the index worker"));
    let found: Vec<_> = seen.with(|seen| seen.iter().filter(is_own).cloned().collect());
    let [event] = &*found else { return Err(format!("{found:?}").into()) };
    let message = event.fields.get("message").map(String::as_str).unwrap_or_default();
    assert_eq!(event.level, Level::WARN);
    assert!(message.contains("can't apply messages") && message.contains("reviews"), "{message}");
    assert_eq!(store.index_worker_failures(), 1);
    Ok(())
}
