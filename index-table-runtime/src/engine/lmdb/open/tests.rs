use std::sync::{
    Barrier,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use super::{super::follow::Left, *};
use crate::model::schema::{KeyField, Parts, TableSchema};

#[test]
fn each_durability_has_its_sync_flags() {
    assert_eq!(flags(Durability::Full), EnvFlags::empty());
    assert_eq!(flags(Durability::Relaxed), EnvFlags::NO_META_SYNC);
    assert_eq!(flags(Durability::None), EnvFlags::NO_SYNC);
}

#[test]
fn lmdb_has_handles_for_all_databases_of_the_file_and_more() {
    assert_eq!(handles(64, 0), 67);
    assert_eq!(handles(64, 32), 67);
    assert_eq!(handles(64, 64), 99);
    assert_eq!(handles(2, 1000), 1004);
    assert_eq!(handles(64, u64::MAX), (1 << 14) + 35);
    assert_eq!(handles(u32::MAX, 3), u32::MAX);
}

#[test]
fn a_file_whose_creation_was_cut_off_is_created_again() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (file, size) = (dir.path().join(FILE), process::page_size());
    let open = || {
        // Another durability has further files.
        let options = Options::default().durability(Durability::Full);
        let opened = Engine::open(&options, dir.path()).map(drop);
        DataFile(dir.path()).wait_until_closed();
        opened
    };
    open()?;
    let whole = fs::read(&file).expect("the file");
    assert_eq!(whole.len(), 2 * size);
    for lost in [0..size, size..2 * size, 0..2 * size, 0..0] {
        for length in [512, size, size + 512, 2 * size] {
            let mut content = whole.clone();
            content[lost.clone()].fill(0);
            content.truncate(length);
            fs::write(&file, &content).expect("the file");
            open()?;
            let made = fs::read(&file).expect("the file");
            assert!(made == whole || made == content, "{lost:?} of {length}");
        }
    }
    // A power failure during the creation leaves none of these states.
    let mut damaged = whole.clone();
    damaged[..size].fill(0);
    damaged[size + 2000] = 1;
    for content in [&damaged[..], &[0][..], &vec![0; 3 * size][..]] {
        fs::write(&file, content).expect("the file");
        let opened = open();
        assert!(matches!(opened, Err(Error::DamagedFile { .. })), "{opened:?}");
    }
    Ok(())
}

/// Returns a directory whose data file can't be read.
fn with_unreadable_file() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    // A directory can be opened, and its bytes can't be read.
    fs::create_dir_all(dir.path().join(FILE).join("inside")).expect("a directory");
    dir
}

#[test]
fn an_error_of_reading_a_data_file_does_not_mean_that_it_has_no_tables() {
    let dir = with_unreadable_file();
    let file = DataFile(dir.path());
    assert!(matches!(file.has_tables(), Err(Error::Io { .. })));
    assert!(matches!(file.is_vacant(), Err(Error::Io { .. })));
    let left = Left::of(dir.path());
    assert!(matches!(left, Err(Error::Io { .. })), "{left:?}");
}

#[cfg(unix)]
#[test]
fn an_error_of_looking_for_a_data_file_does_not_mean_that_it_is_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join(FILE);
    std::os::unix::fs::symlink(&file, &file).expect("a link");
    let missing = DataFile(dir.path()).refuse_missing();
    assert!(matches!(missing, Err(Error::Io { .. })), "{missing:?}");
}

#[test]
fn one_thread_at_a_time_opens_a_store() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join(FILE);
    let begin = || Opening::begin(&Options::default(), &file).expect("the turn");
    let turn = begin();
    let (started, released) = (Barrier::new(2), AtomicBool::new(false));
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            started.wait();
            let turn = begin();
            assert!(released.load(SeqCst), "two threads have the turn");
            turn.is_locked
        });
        started.wait();
        // A thread that did not wait for the turn would have it by now.
        thread::sleep(Duration::from_millis(50));
        released.store(true, SeqCst);
        drop(turn);
        assert!(other.join().expect("no panic"));
    });
}

/// A store without the handles of its databases: it was opened while other processes had all reader slots, for example.
#[test]
fn opening_a_table_finds_the_databases_that_opening_the_store_has_not_found() {
    const KEY: &[KeyField] = &[KeyField::new::<u8>("id")];
    static TABLES: [TableSchema; 3] = [
        TableSchema::of_records("a", KEY),
        TableSchema::of_records("b", KEY),
        TableSchema::of_records("c", KEY),
    ];
    let dir = tempfile::tempdir().expect("a directory");
    let mut engine = Engine::open(&Options::default(), dir.path()).expect("a store");
    engine.main = OnceLock::new();
    let open = |schema| {
        let opened = engine.open_table(schema, Parts::default(), &mut |_| Ok(()), |_| Ok(()));
        opened.map(drop).map_err(|(error, _)| error).expect("a table");
    };
    let [first, others @ ..] = &TABLES;
    open(first);
    let snapshot = engine.read().expect("a transaction");
    others.iter().for_each(open);
    snapshot
        .check_pages()
        .expect("the pages of a snapshot that is older than both states of the file");
}
