//! Journals and data files with a limit on their size, which acts as a full disk.

use std::{fs, path::Path, process::Command};

use index_table::{Error, Store};

use crate::{NoteRepository, TestResult, expect, note, options, write};

const CHILD: &str = "INDEX_TABLE_JOURNAL_ROOM";

fn limited(name: &str, path: &Path) -> TestResult {
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 8192; exec \"$0\" --exact \"$1\""])
        .arg(std::env::current_exe()?)
        .arg(name)
        .env(CHILD, path)
        .output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

#[test]
fn a_record_without_room_is_refused() -> TestResult {
    if let Some(path) = std::env::var_os(CHILD) {
        let store = options().open(path)?;
        let notes = NoteRepository::open(&store)?;
        write(&store, &notes, 0)?;
        // The rows take much space in the journal, and little in the data file.
        let outcome = store
            .transaction(|txn| (0..8000).try_for_each(|version| notes.put(txn, &note(0, version))));
        assert!(matches!(outcome, Err(Error::DiskFull { .. })), "{outcome:?}");
        expect(&store, 1)?;
        write(&store, &notes, 1)?;
        return expect(&store, 2);
    }
    let dir = tempfile::tempdir()?;
    limited("room::a_record_without_room_is_refused", dir.path())?;
    expect(&Store::open(dir.path())?, 2)
}

#[test]
fn a_record_is_undone_if_lmdb_has_no_room() -> TestResult {
    if let Some(path) = std::env::var_os(CHILD) {
        let store = options().open(&path)?;
        let notes = NoteRepository::open(&store)?;
        for step in 0.. {
            match write(&store, &notes, step) {
                Ok(()) => fs::write(Path::new(&path).join("steps"), (step + 1).to_string())?,
                Err(Error::DiskFull { .. }) => {
                    expect(&store, step)?;
                    // The process ends without closing the store, so that the next opening applies the
                    // journal.
                    std::mem::forget(store);
                    std::process::exit(0);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    let dir = tempfile::tempdir()?;
    limited("room::a_record_is_undone_if_lmdb_has_no_room", dir.path())?;
    let steps: u32 = fs::read_to_string(dir.path().join("steps"))?.parse()?;
    assert!(steps > 10, "{steps}");
    expect(&Store::open(dir.path())?, steps)
}
