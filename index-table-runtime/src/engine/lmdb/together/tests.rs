//! Commits that fail in one of several data files.

use std::{
    cell::Cell,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use crate::{
    engine::{
        self, DataFile, Durability, Options, Query, Retry,
        lmdb::{
            Archive, SharedJournal, Until,
            journal::{archive::format::Manifest, marker::tests::with_failures_after},
        },
    },
    model::{
        KeyRange,
        error::{Error, Result},
        maintain::{Change, Sink as _},
        schema::{KeyField, Parts, Source, TableSchema},
        shard::Distribution,
    },
    placement::shards::{self, OpenTables, Shard},
};

thread_local! {
    /// The commit that fails next, as its position among the commits of a transaction.
    static REFUSED: Cell<Option<usize>> = const { Cell::new(None) };
    /// The delay before this failure.
    static DELAY: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

pub(super) fn refuse(at: usize) -> heed::Result<()> {
    if REFUSED.get() == Some(at) {
        REFUSED.set(None);
        thread::sleep(DELAY.get());
        return Err(heed::Error::Io(std::io::Error::other("refused")));
    }
    Ok(())
}

const KEY: &[KeyField] = &[KeyField::new::<u8>("id")];

/// The table of each shard.
static TABLES: [TableSchema; 3] = [
    TableSchema::of_records("a", KEY),
    TableSchema::of_records("b", KEY),
    TableSchema::of_records("c", KEY),
];

/// A store with three shards, and one table in each.
struct Opened {
    tables: Vec<shards::Tables>,
    engine: shards::Engine,
    engines: Vec<Arc<engine::Engine>>,
}

fn open(directory: &Path) -> Result<Opened> {
    open_with(directory, &Options::default().map_size(1 << 24))
}

fn open_with(directory: &Path, options: &Options) -> Result<Opened> {
    let options = options.clone().durability(Durability::Journal);
    let journal = SharedJournal::open(directory, [7; 16])?;
    let mut engines = Vec::new();
    for shard in 0..3 {
        let place = directory.join(shard.to_string());
        std::fs::create_dir_all(&place).expect("created");
        DataFile(&place).wait_until_closed();
        engines.push(engine::Engine::open_shard(&options, &place, (&journal, shard))?);
    }
    let of_lmdb = engines.iter().filter_map(engine::Engine::lmdb);
    journal.begin_with((0..).zip(of_lmdb), (&[], &[]), &options, &[])?;
    let places = (0..).zip(&TABLES).map(|(shard, schema)| (schema.name.to_owned(), shard));
    let opened = engines.iter().zip(&TABLES).map(|(engine, schema)| {
        engine
            .open_table(schema, Parts::default(), false, &mut |_| Ok(()))
            .map_err(|(error, _)| error)
    });
    let opened = opened.collect::<Result<Vec<_>>>()?;
    let engines: Vec<_> = engines.into_iter().map(Arc::new).collect();
    let shards = engines.iter().map(|engine| Shard::open("s".into(), Arc::clone(engine)));
    let engine = shards::Engine::new(shards.collect(), [], places.collect(), None, None, false);
    let mut tables = Vec::new();
    for (at, opened) in opened.into_iter().enumerate() {
        let routing = engine.routing(TABLES.get(at).expect("a table"), Distribution::Whole)?;
        let own = OpenTables { tables: Arc::new(opened), record: Arc::default() };
        let mut of_shards = vec![None, None, None];
        of_shards[at] = Some(own);
        tables.push(shards::Tables::new(routing, &engine, of_shards));
    }
    Ok(Opened { tables, engine, engines })
}

impl Opened {
    /// Writes a row in each of these shards.
    fn write(&self, shards: &[usize], id: u8) -> Result<(), (Error, Option<Retry>)> {
        self.write_row(shards, id, &[id])
    }

    fn write_row(
        &self,
        shards: &[usize],
        id: u8,
        row: &[u8],
    ) -> Result<(), (Error, Option<Retry>)> {
        let mut txn = self.engine.write().map_err(|error| (error, None))?;
        for shard in shards {
            let mut writer = txn.writer(&self.tables[*shard]).expect("a write transaction");
            let written = writer.change(Change::PutFact { primary_key: &[id], row });
            written.map_err(|error| (error, None))?;
        }
        txn.commit(|| ()).map_err(|failure| {
            let retry = failure.retry();
            (failure.into(), retry)
        })
    }

    /// Returns the rows of each shard.
    fn rows(&self) -> Result<Vec<Vec<u8>>> {
        let txn = self.engine.read()?;
        let rows = self.tables.iter().map(|tables| {
            let found = txn.reader(tables).scan(Query::new(Source::Facts, KeyRange::ALL))?;
            found.map(|row| Ok(row?.primary_key.bytes[0])).collect::<Result<Vec<u8>>>()
        });
        rows.collect()
    }
}

#[test]
fn a_record_is_taken_back_if_the_commit_fails_in_the_first_shard() {
    let directory = tempfile::tempdir().expect("a directory");
    let opened = open(directory.path()).expect("a store");
    opened.write(&[0, 1, 2], 1).expect("a commit");
    REFUSED.set(Some(0));
    let outcome = opened.write(&[0, 1, 2], 2);
    assert!(matches!(outcome, Err((Error::Io { .. }, None))), "{outcome:?}");
    assert_eq!(opened.rows().expect("a snapshot"), [[1], [1], [1]]);
    opened.write(&[0, 2], 3).expect("a commit");
    opened.write(&[1, 0], 4).expect("a commit");
    let left = killed(directory.path());
    drop(opened);
    for place in [left.path(), directory.path()] {
        let opened = open(place).expect("a store");
        assert_eq!(opened.rows().expect("rows"), [&[1, 3, 4][..], &[1, 4], &[1, 3]]);
    }
}

#[test]
fn a_commit_that_fails_in_a_later_shard_is_completed_when_the_store_is_opened_again() {
    for refused in 1..3 {
        let directory = tempfile::tempdir().expect("a directory");
        let opened = open(directory.path()).expect("a store");
        opened.write(&[0, 1, 2], 1).expect("a commit");
        REFUSED.set(Some(refused));
        let outcome = opened.write(&[0, 1, 2], 2);
        assert!(matches!(outcome, Err((Error::CommitUnknown { .. }, None))), "{outcome:?}");
        // Readers don't see a part of the commit.
        assert!(matches!(opened.rows(), Err(Error::ReopenNeeded { .. })));
        let outcome = opened.write(&[0], 3);
        assert!(matches!(outcome, Err((Error::ReopenNeeded { .. }, None))), "{outcome:?}");
        let left = killed(directory.path());
        drop(opened);
        for place in [left.path(), directory.path()] {
            let opened = open(place).expect("a store");
            assert_eq!(opened.rows().expect("rows"), [[1, 2], [1, 2], [1, 2]]);
            opened.write(&[2, 0], 3).expect("a commit");
        }
    }
}

#[test]
fn an_older_file_of_a_shard_that_was_closed_before_the_last_checkpoint_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = Options::default().map_size(1 << 24);
    let options = options.checkpoint(1 << 14, 1 << 13, Duration::from_hours(1));
    let opened = open_with(directory.path(), &options).expect("a store");
    opened.write(&[0, 1, 2], 1).expect("a commit");
    drop(opened);
    let place = directory.path().join("2");
    DataFile(&place).wait_until_closed();
    let older = std::fs::read(place.join("data.mdb")).expect("a file");
    let opened = open_with(directory.path(), &options).expect("a store");
    opened.write(&[2], 2).expect("a commit");
    let Opened { tables, engine, mut engines } = opened;
    drop((tables, engine));
    drop(engines.pop());
    DataFile(&place).wait_until_closed();
    let first = engines.first().expect("a shard");
    let open_table = first.open_table(&TABLES[0], Parts::default(), false, &mut |_| Ok(()));
    let tables = open_table.map_err(|(error, _)| error).expect("a table");
    for id in 10..40 {
        let mut txn = first.write().expect("a transaction");
        let mut writer = txn.writer(&tables).expect("a writer");
        let change = Change::PutFact { primary_key: &[id], row: &[id; 1000] };
        writer.change(change).expect("a change");
        txn.commit(|| ()).map_err(Error::from).expect("a commit");
        thread::sleep(Duration::from_millis(5));
    }
    drop((tables, engines));
    for shard in ["0", "1"] {
        DataFile(&directory.path().join(shard)).wait_until_closed();
    }
    let newer = std::fs::read(place.join("data.mdb")).expect("a file");
    std::fs::write(place.join("data.mdb"), older).expect("written");
    let refused = open_with(directory.path(), &options).map(drop).expect_err("an older file");
    assert!(refused.to_string().contains("lacks commits"), "{refused}");
    std::fs::write(place.join("data.mdb"), newer).expect("written");
    let opened = open_with(directory.path(), &options).expect("a store");
    assert_eq!(opened.rows().expect("rows").get(2), Some(&vec![1, 2]));
}

#[test]
fn a_commit_of_several_shards_needs_room_in_all_of_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let size = 1 << 20;
    let options = Options::default().map_size(size).max_map_size(size);
    let opened = open_with(directory.path(), &options).expect("a store");
    let mut ids = 1..u8::MAX;
    let full = loop {
        let id = ids.next().expect("the map is full before the ids run out");
        opened.write_row(&[2], id, &[id; 4000]).expect("room for a row");
        if let Err(full) = opened.write(&[0, 2], 0) {
            break full;
        }
    };
    assert!(
        matches!(full, (Error::MapFull { .. }, Some(Retry::Map { map_size })) if map_size == size)
    );
    // A checkpoint makes pages free, and there is nothing for a second one.
    let reason = full.1.expect("a reason");
    assert!(opened.engine.prepare(reason).expect("a checkpoint"));
    assert!(!opened.engine.prepare(reason).expect("the same size"));
    // The reserve is for commits that can't be taken back.
    opened.write_row(&[2], ids.next().expect("an id"), &[0; 4000]).expect("room for a row");
    opened.write(&[0, 1], 0).expect("room in these shards");
}

#[test]
fn each_map_grows_beyond_the_size_at_which_one_of_them_was_full() {
    let directory = tempfile::tempdir().expect("a directory");
    let size = 1 << 20;
    let options = Options::default().map_size(size).max_map_size(4 * size);
    let opened = open_with(directory.path(), &options).expect("a store");
    let sizes = || -> Vec<_> {
        let of_lmdb = opened.engines.iter().filter_map(|it| it.lmdb());
        of_lmdb.map(engine::lmdb::Engine::map_size).collect()
    };
    let full = Retry::ShardMap { shard: 0, map_size: size };
    assert!(opened.engine.prepare(full).expect("a larger map"));
    assert_eq!(sizes(), [2 * size, size, size]);
    // A failed commit of several shards doesn't name the full one. The next failure has another size, so another attempt is made.
    let full = Retry::Map { map_size: 2 * size };
    assert!(opened.engine.prepare(full).expect("larger maps"));
    assert_eq!(sizes(), [4 * size; 3]);
    let full = Retry::Map { map_size: 4 * size };
    opened.engine.prepare(full).expect("a checkpoint");
    assert_eq!(sizes(), [4 * size; 3]);
}

#[test]
fn a_failed_commit_and_a_due_checkpoint_do_not_deadlock() {
    let (sender, receiver) = mpsc::channel();
    // A deadlock would otherwise block the test.
    let writer = thread::spawn(move || {
        let directory = tempfile::tempdir().expect("a directory");
        // The thread of the journal looks for changes once a second.
        let options = Options::default().map_size(1 << 24).checkpoint(
            u64::MAX,
            u64::MAX,
            Duration::from_millis(1),
        );
        let opened = open_with(directory.path(), &options).expect("a store");
        opened.write(&[0, 1, 2], 1).expect("a commit");
        DELAY.set(Duration::from_millis(2500));
        REFUSED.set(Some(1));
        let outcome = opened.write(&[0, 1, 2], 2);
        drop(opened);
        let opened = open(directory.path()).expect("a store");
        sender.send((outcome, opened.rows().expect("rows"))).expect("a receiver");
    });
    let (outcome, rows) =
        receiver.recv_timeout(Duration::from_mins(1)).expect("a deadlock, or a panic");
    assert!(matches!(outcome, Err((Error::CommitUnknown { .. }, None))), "{outcome:?}");
    assert_eq!(rows, [[1, 2], [1, 2], [1, 2]]);
    writer.join().expect("no panic");
}

#[test]
fn an_archive_has_no_record_that_was_taken_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let archive = directory.path().join("archive");
    // Files of an archive have the mode of the shard map manager, which this store does not have.
    std::fs::write(directory.path().join("data.mdb"), "").expect("written");
    let options = Options::default().map_size(1 << 26);
    let options = options.checkpoint(1 << 16, 1 << 12, Duration::from_hours(1)).archive(&archive);
    let opened = open_with(directory.path(), &options).expect("a store");
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            DELAY.set(Duration::from_millis(2));
            for id in 0..200 {
                REFUSED.set((id % 3 > 0).then_some(0));
                let outcome = opened.write(&[0, 1], id);
                assert_eq!(outcome.is_err(), id % 3 > 0, "{outcome:?}");
            }
            is_done.store(true, SeqCst);
        });
        let mut ids = (0..u8::MAX).cycle();
        while !is_done.load(SeqCst) {
            opened.write(&[2], ids.next().expect("an endless iterator")).expect("a commit");
        }
    });
    let rows = opened.rows().expect("rows");
    drop(opened);
    let restored = tempfile::tempdir().expect("a directory");
    let archive = Archive::open(&archive).expect("an archive");
    let bases = archive.shard_bases(&Until::End, &|_| Ok(vec![0, 1, 2])).expect("bases");
    let places = bases.iter().map(|base| {
        let place = restored.path().join(base.shard().to_string());
        std::fs::create_dir(&place).expect("created");
        let file = std::fs::File::create(place.join("data.mdb")).expect("created");
        archive.copy(base, (&file, &place), &mut |_| ()).expect("copied");
        place
    });
    let places: Vec<_> = places.collect();
    let outcome = archive.apply_to_shards(&bases, &Until::End, &places, &mut |_| ());
    assert!(outcome.is_ok(), "{:?}", outcome.err());
    let opened = open(restored.path()).expect("a store");
    assert_eq!(opened.rows().expect("rows"), rows);
}

#[test]
fn an_archive_has_no_gap_if_a_checkpoint_is_made_while_shards_are_closed() {
    let directory = tempfile::tempdir().expect("a directory");
    let archive = directory.path().join("archive");
    std::fs::write(directory.path().join("data.mdb"), "").expect("written");
    let options = Options::default().map_size(1 << 24).archive(&archive);
    let options = options.checkpoint(u64::MAX, u64::MAX, Duration::from_millis(1));
    for id in 1..3 {
        let opened = open_with(directory.path(), &options).expect("a store");
        opened.write(&[0, 1, 2], id).expect("a commit");
        let last = opened.engines[1..].to_vec();
        drop(opened);
        // The thread of the journal looks for changes once a second.
        thread::sleep(Duration::from_millis(1500));
        drop(last);
    }
    let opened = open_with(directory.path(), &options).expect("a store");
    assert_eq!(opened.rows().expect("rows"), [[1, 2], [1, 2], [1, 2]]);
    let manifest = std::fs::read(archive.join("manifest")).expect("a manifest");
    assert_eq!(Manifest::read(&manifest).map(|found| found.generation), Some(1));
}

/// Closes the last shard as after an error, before its data file is complete. The other shards stay open.
fn close_incomplete(opened: &Opened) {
    let last = opened.engines.last().and_then(|engine| engine.lmdb()).expect("a data file");
    last.journal.get().expect("a journal").close_incomplete();
}

#[test]
fn no_shard_is_written_after_another_was_closed_incomplete() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut expected: Vec<u8> = (1..130).collect();
    let left = {
        let endless = Options::default().map_size(1 << 24).checkpoint(
            u64::MAX,
            u64::MAX,
            Duration::from_hours(1),
        );
        let opened = open_with(directory.path(), &endless).expect("a store");
        for id in &expected {
            opened.write_row(&[2], *id, &[7; 4000]).expect("a commit");
        }
        killed(directory.path())
    };
    // The files of the journal are longer than these limits allow, so that they would be truncated after a checkpoint.
    let options = Options::default().map_size(1 << 24);
    let options = options.checkpoint(u64::MAX, 1 << 12, Duration::from_hours(1));
    let opened = open_with(left.path(), &options).expect("a store");
    let long = std::fs::read_dir(left.path()).expect("a directory").filter(|entry| {
        let length = entry.as_ref().ok().and_then(|entry| Some(entry.metadata().ok()?.len()));
        length > Some(1 << 18)
    });
    assert!(long.count() > 0, "no file of the journal is long");
    opened.write(&[2], 200).expect("a commit");
    expected.push(200);
    close_incomplete(&opened);
    for shards in [&[0][..], &[1, 0]] {
        let outcome = opened.write(shards, 201);
        assert!(matches!(outcome, Err((Error::ReopenNeeded { .. }, None))), "{outcome:?}");
    }
    assert_eq!(opened.rows().expect("rows"), [vec![], vec![], expected.clone()]);
    drop(opened);
    let opened = open_with(left.path(), &options).expect("a store");
    assert_eq!(opened.rows().expect("rows"), [vec![], vec![], expected]);
    opened.write(&[0, 1, 2], 201).expect("a commit");
}

#[test]
fn a_shard_that_was_closed_incomplete_needs_the_store_to_be_opened_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let opened = open(directory.path()).expect("a store");
    opened.write(&[2], 1).expect("a commit");
    close_incomplete(&opened);
    let Opened { tables, engine, mut engines } = opened;
    drop((tables, engine, engines.pop()));
    let place = directory.path().join("2");
    DataFile(&place).wait_until_closed();
    // The data file is not damaged, but this process does not read the journal that it writes.
    let running = SharedJournal::running(directory.path(), [7; 16]);
    let options = Options::default().map_size(1 << 24).durability(Durability::Journal);
    let outcome = engine::Engine::open_shard(&options, &place, (&running, 2)).map(drop);
    let said = outcome.as_ref().err().map(ToString::to_string).unwrap_or_default();
    assert!(matches!(outcome, Err(Error::Io { .. })), "{outcome:?}");
    assert!(said.contains("drop all handles to the store, and open it again"), "{said}");
    drop(engines);
    let opened = open(directory.path()).expect("a store");
    assert_eq!(opened.rows().expect("rows"), [vec![], vec![], vec![1]]);
}

fn lmdb(engine: &engine::Engine) -> &engine::lmdb::Engine {
    engine.lmdb().expect("a data file")
}

/// Requires that the journal keeps the state of the last shard, which was closed without its marker, until the store is opened
/// again. `others` are the open shards.
fn require_reopening(directory: &Path, others: Vec<Arc<engine::Engine>>) {
    // It would make a checkpoint without the last shard.
    let outcome = lmdb(&others[1]).leave_no_records();
    assert!(outcome.is_err(), "a checkpoint lacks the state that a marker requires");
    drop(others);
    let opened = open(directory).expect("a store");
    assert_eq!(opened.rows().expect("rows"), [[1], [1], [1]]);
    opened.write(&[0, 1, 2], 2).expect("a commit");
}

/// Opens a store with a row in each shard.
fn open_with_rows(directory: &Path) -> Opened {
    let opened = open(directory).expect("a store");
    opened.write(&[0, 1, 2], 1).expect("a commit");
    opened
}

#[test]
fn a_shard_that_was_closed_without_its_marker_keeps_its_state_in_the_journal() {
    // The marker is not written, or not synced.
    for calls in 0..2 {
        let directory = tempfile::tempdir().expect("a directory");
        let Opened { tables, engine, mut engines } = open_with_rows(directory.path());
        with_failures_after(calls, || drop((tables, engine, engines.pop())));
        require_reopening(directory.path(), engines);
    }
}

#[test]
fn a_shard_that_has_left_without_its_marker_keeps_its_state_in_the_journal() {
    for calls in 0..2 {
        let directory = tempfile::tempdir().expect("a directory");
        let opened = open_with_rows(directory.path());
        let outcome = with_failures_after(calls, || lmdb(&opened.engines[2]).leave_journal());
        assert!(matches!(outcome, Err(Error::ReopenNeeded { .. })), "{outcome:?}");
        let outcome = opened.write(&[0], 2);
        assert!(matches!(outcome, Err((Error::ReopenNeeded { .. }, None))), "{outcome:?}");
        let Opened { tables, engine, mut engines } = opened;
        drop((tables, engine, engines.pop()));
        require_reopening(directory.path(), engines);
    }
}

#[test]
fn a_shard_that_could_not_join_keeps_its_state_in_the_journal() {
    let directory = tempfile::tempdir().expect("a directory");
    let Opened { tables, engine, mut engines } = open_with_rows(directory.path());
    let place = directory.path().join("2");
    lmdb(&engines[2]).leave_journal().expect("a complete data file");
    drop((tables, engine, engines.pop()));
    DataFile(&place).wait_until_closed();
    let running = SharedJournal::running(directory.path(), [7; 16]);
    let options = Options::default().map_size(1 << 24).durability(Durability::Journal);
    let again = engine::Engine::open_shard(&options, &place, (&running, 2)).expect("a shard");
    // The marker is written, but it can't be synced, and the marker of before is not written again.
    let joined = with_failures_after(1, || lmdb(&again).join_journal(2, lmdb(&engines[0]), true));
    assert!(joined.is_err());
    drop(again);
    DataFile(&place).wait_until_closed();
    require_reopening(directory.path(), engines);
}

/// Copies the files except LMDB's lock files: the files that remain if the process is killed now.
fn killed(directory: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().expect("a directory");
    let copy = |from: &Path, to: &Path| {
        std::fs::create_dir_all(to).expect("created");
        for entry in std::fs::read_dir(from).expect("a directory") {
            let entry = entry.expect("an entry");
            if entry.path().is_file() && entry.file_name() != "lock.mdb" {
                std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
            }
        }
    };
    copy(directory, to.path());
    for shard in ["0", "1", "2"] {
        copy(&directory.join(shard), &to.path().join(shard));
    }
    to
}
