//! Bulk loads in killed processes.

use std::{
    env,
    error::Error,
    process::{Command, ExitStatus},
};

use crate::{all, item, open};

/// Set in the child process to its directory, and to the phase in which it aborts.
const CHILD: &str = "INDEX_TABLE_BULK_CHILD";

/// Whether a process has ended by `abort`, not by a failed test.
fn has_aborted(status: ExitStatus) -> bool {
    #[cfg(unix)]
    return std::os::unix::process::ExitStatusExt::signal(&status) == Some(libc::SIGABRT);
    #[cfg(not(unix))]
    return status.code() != Some(101);
}

#[test]
fn a_killed_load_leaves_no_rows_and_no_files() -> Result<(), Box<dyn Error>> {
    if let Ok(child) = env::var(CHILD) {
        let (path, writing) = child.split_at(child.len() - 1);
        let (store, items) = open(path.as_ref())?;
        let load = items.bulk_load(&store, (0..40_000).map(item)).memory(1 << 20);
        load.progress(|progress| {
            let (in_phase, after) = match writing {
                "w" => (progress.unit == "rows and entries written", 50_000),
                _ => (progress.unit == "rows read", 20_000),
            };
            let dies = in_phase && progress.done > after;
            if dies {
                std::process::abort();
            }
        })
        .run()?;
        return Ok(());
    }
    for dies in ["r", "w"] {
        let directory = tempfile::tempdir()?;
        let (store, items) = open(directory.path())?;
        store.transaction(|txn| items.insert(txn, &item(50_000)))?;
        drop((store, items));
        let files = || std::fs::read_dir(directory.path()).map(Iterator::count);
        let before = files()?;
        let child = Command::new(env::current_exe()?)
            .args(["killed::a_killed_load_leaves_no_rows_and_no_files", "--exact", "--nocapture"])
            .env(CHILD, format!("{}{dies}", directory.path().display()))
            .output()?;
        assert!(has_aborted(child.status), "{child:?}");
        assert_eq!(files()?, before);
        let (store, items) = open(directory.path())?;
        assert_eq!(all(&items, &store.read()?)?, [item(50_000)]);
    }
    Ok(())
}
