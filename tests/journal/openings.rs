use std::fs;

use index_table::{Durability, Error, Store};

use crate::{NoteRepository, TestResult, expect, killed, options, write};

fn journal_files(path: &std::path::Path) -> usize {
    (0..3).filter(|at| path.join(format!("journal.{at}")).exists()).count()
}

/// Returns the files of a store whose process was killed after this number of steps.
fn left(
    dir: &std::path::Path,
    steps: u32,
) -> Result<std::path::PathBuf, Box<dyn std::error::Error>> {
    let path = dir.join("killed");
    let store = options().open(&path)?;
    let notes = NoteRepository::open(&store)?;
    for step in 0..steps {
        write(&store, &notes, step)?;
    }
    Ok(killed(&path, &dir.join("left"))?)
}

#[test]
fn another_durability_ends_or_starts_the_journal() -> TestResult {
    let dir = tempfile::tempdir()?;
    let durabilities = [
        Durability::Full,
        Durability::Journal,
        Durability::Relaxed,
        Durability::Journal,
        Durability::None,
        Durability::Journal,
        Durability::Full,
    ];
    for (steps, durability) in (0..).zip(durabilities) {
        let store = Store::options().durability(durability).open(dir.path())?;
        expect(&store, steps)?;
        let notes = NoteRepository::open(&store)?;
        write(&store, &notes, steps)?;
        let files = if durability == Durability::Journal { 3 } else { 0 };
        assert_eq!(journal_files(dir.path()), files, "{durability:?}");
    }
    Ok(())
}

#[test]
fn a_reader_recovers_a_store_that_was_not_closed() -> TestResult {
    let dir = tempfile::tempdir()?;
    let left = left(dir.path(), 5)?;
    let read_only = Store::options().read_only(true);
    for was_recovered in [true, false] {
        let store = read_only.open(&left)?;
        assert_eq!(store.was_recovered(), was_recovered);
        expect(&store, 5)?;
        assert!(matches!(store.write(), Err(Error::ReadOnly { .. })));
    }
    // The next writer continues with the journal.
    let store = options().open(&left)?;
    assert!(!store.was_recovered());
    write(&store, &NoteRepository::open(&store)?, 5)?;
    drop(store);
    expect(&read_only.open(&left)?, 6)
}

#[test]
fn a_missing_journal_is_detected() -> TestResult {
    let dir = tempfile::tempdir()?;
    let left = left(dir.path(), 5)?;
    for at in 0..3 {
        fs::remove_file(left.join(format!("journal.{at}")))?;
    }
    for durability in [Durability::Journal, Durability::Full] {
        let outcome = Store::options().durability(durability).open(&left);
        assert!(
            matches!(&outcome, Err(Error::DamagedFile { reason, .. }) if reason.contains("missing")),
            "{outcome:?}"
        );
    }
    Ok(())
}

#[test]
fn a_journal_of_another_data_file_is_not_applied() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (one, other) = (dir.path().join("one"), dir.path().join("other"));
    let stores = [&one, &other].map(|path| {
        let store = options().open(path).expect("a store");
        let notes = NoteRepository::open(&store).expect("a table");
        (0..5).for_each(|step| write(&store, &notes, step).expect("written"));
        (store, notes)
    });
    let left = killed(&one, &dir.path().join("left"))?;
    fs::copy(other.join("data.mdb"), left.join("data.mdb"))?;
    let outcome = options().open(&left);
    assert!(matches!(outcome, Err(Error::DamagedFile { .. })), "{outcome:?}");
    drop(stores);

    // An older state of the same data file.
    let path = dir.path().join("same");
    let store = options().open(&path)?;
    let notes = NoteRepository::open(&store)?;
    write(&store, &notes, 0)?;
    let old = killed(&path, &dir.path().join("old"))?;
    for step in 1..50 {
        write(&store, &notes, step)?;
    }
    drop((store, notes));
    let store = options().open(&path)?;
    let notes = NoteRepository::open(&store)?;
    write(&store, &notes, 50)?;
    let left = killed(&path, &dir.path().join("left 2"))?;
    fs::copy(old.join("data.mdb"), left.join("data.mdb"))?;
    let before = fs::read(left.join("data.mdb"))?;
    let outcome = options().open(&left);
    assert!(matches!(outcome, Err(Error::DamagedFile { .. })), "{outcome:?}");
    assert!(before == fs::read(left.join("data.mdb"))?, "the data file was changed");
    Ok(())
}

#[test]
fn copies_need_no_journal() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = options().open(dir.path().join("store"))?;
    let notes = NoteRepository::open(&store)?;
    for step in 0..20 {
        write(&store, &notes, step)?;
    }
    store.backup_to(dir.path().join("backup"))?;
    store.compact_to(dir.path().join("compact"))?;
    for copy in ["backup", "compact"] {
        let path = dir.path().join(copy);
        expect(&Store::options().read_only(true).open(&path)?, 20)?;
        expect(&Store::options().durability(Durability::Full).open(&path)?, 20)?;
        expect(&options().open(&path)?, 20)?;
    }
    Store::restore(dir.path().join("backup"), dir.path().join("restored"))?;
    expect(&options().open(dir.path().join("restored"))?, 20)
}

#[test]
fn damage_before_durable_records_is_found() -> TestResult {
    let dir = tempfile::tempdir()?;
    let left = left(dir.path(), 8)?;
    let file = (0..3).map(|at| left.join(format!("journal.{at}")));
    let mut used = None;
    for path in file {
        let bytes = fs::read(&path)?;
        if bytes[4096..].iter().any(|byte| *byte != 0) {
            used = Some((path, bytes));
        }
    }
    let (path, bytes) = used.ok_or("no segment has frames")?;
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap_or_default();
    let mut errors = 0;
    for at in (4096..end).step_by(701) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x20;
        fs::write(&path, damaged)?;
        match options().open(&left) {
            Err(Error::DamagedFile { reason, .. }) => {
                assert!(reason.contains("segment") && reason.contains("byte"), "{reason}");
                errors += 1;
            }
            // Damage in the last record looks like an incomplete write.
            Ok(store) => {
                drop(NoteRepository::open(&store)?);
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    assert!(errors > 5, "{errors}");
    Ok(())
}

#[test]
fn recovery_maps_a_file_that_has_grown() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let small = || options().map_size(1 << 17);
    let store = small().open(&path)?;
    let notes = NoteRepository::open(&store)?;
    for step in 0..80 {
        write(&store, &notes, step)?;
    }
    let left = killed(&path, &dir.path().join("left"))?;
    expect(&small().open(&left)?, 80)
}
