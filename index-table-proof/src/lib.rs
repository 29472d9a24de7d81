//! Parts of the programs that test index-table's guarantees, which `index-table-lifecycle` has too.

pub mod random;

use std::{io, path::Path, process::ExitCode};

/// Creates a temporary directory, in memory if possible. For tests that don't depend on the speed of a disk.
///
/// # Errors
///
/// The directory can't be created.
pub fn scratch() -> io::Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }
}

/// Prints the error of a program, and returns its exit code.
#[must_use]
pub fn end(outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
