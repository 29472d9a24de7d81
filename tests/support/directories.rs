//! The files of directories.
#![allow(dead_code, reason = "each suite uses a part of it")]

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// Returns the contents of all files in a directory and its subdirectories.
pub(crate) fn files(directory: &Path) -> io::Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            let bytes = fs::read(&path)?;
            found.insert(path, bytes);
        }
    }
    Ok(found)
}

/// Copies a directory with its subdirectories, without a file that another thread removes meanwhile.
pub(crate) fn copied(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copied(&entry.path(), &to)?;
        } else {
            let copied = fs::copy(entry.path(), to).map(|_| ());
            copied.or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })?;
        }
    }
    Ok(())
}
