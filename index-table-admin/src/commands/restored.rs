//! Copies of archives that a command restores to read them, in a directory for temporary files.
//!
//! A copy is removed when the command ends, also by Ctrl-C. While the command runs, it holds the lock of a file beside the copy. So
//! the next command with the same directory removes the copy of a killed process.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process,
};

use super::copies::remove_partial;
use crate::{failure::Failure, interrupt::on_ctrl_c, output::Output};

/// The start of the names of copies.
const NAME: &str = "index-table-copy-";

/// The most copies of one command.
const MOST: usize = 2;

/// The directory for the copies of one command.
pub(super) struct Copies(PathBuf);

impl Copies {
    /// Removes the copies of killed processes in a directory, by default that of the system for temporary files.
    pub(super) fn begin(out: &Output, temp: Option<&Path>) -> Self {
        let copies = Self(temp.map_or_else(std::env::temp_dir, Path::to_owned));
        remove_left(&copies.0);
        let own: [_; MOST] = std::array::from_fn(|number| copies.place(number));
        on_ctrl_c(out, "the restored archive was removed; run the command again", move || {
            for copy in own {
                remove(&copy);
                let _ = fs::remove_file(lock_of(&copy));
            }
        });
        copies
    }

    fn place(&self, number: usize) -> PathBuf {
        self.0.join(format!("{NAME}{}-{number}", process::id()))
    }

    /// Reserves the name of a copy, which has a number below [`MOST`].
    pub(super) fn reserve(&self, number: usize) -> Result<Copy, Failure> {
        let place = self.place(number);
        let lock = lock_of(&place);
        let failed = |error: io::Error| {
            Failure::other(format!("`{}` can't be created and locked: {error}", lock.display()))
        };
        let file = File::create_new(&lock).map_err(failed)?;
        file.lock().map_err(failed)?;
        // Another command can have taken it for a file that is left.
        fs::metadata(&lock).map_err(failed)?;
        Ok(Copy { place, _lock: file })
    }
}

/// A restored archive, which is removed.
pub(super) struct Copy {
    pub(super) place: PathBuf,
    _lock: File,
}

impl Drop for Copy {
    fn drop(&mut self) {
        // The directory of temporary files may be cleaned by the system.
        let _ = fs::remove_dir_all(&self.place);
        let _ = fs::remove_file(lock_of(&self.place));
    }
}

fn lock_of(copy: &Path) -> PathBuf {
    copy.with_extension("lock")
}

/// Removes the copies whose lock no process holds.
fn remove_left(temp: &Path) {
    for entry in fs::read_dir(temp).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let is_lock = name.to_string_lossy().starts_with(NAME)
            && path.extension().is_some_and(|it| it == "lock")
            && entry.file_type().is_ok_and(|it| it.is_file());
        let is_left = |file: &File| file.try_lock().is_ok();
        if is_lock && let Some(_lock) = File::open(&path).ok().filter(is_left) {
            remove(&path.with_extension(""));
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes a copy, complete or not.
fn remove(copy: &Path) {
    remove_partial(copy);
    let _ = fs::remove_dir_all(copy);
}
