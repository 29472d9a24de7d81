//! Directories and files that are private to their owner.

use std::{fs, io, path::Path};

/// Creates the directory and its missing parents. On Unix, only their owner has access.
pub(crate) fn create_directories(path: &Path) -> io::Result<()> {
    private().recursive(true).create(path)
}

/// Creates the directory, which must not exist. On Unix, only its owner has access.
pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
    private().create(path)
}

fn private() -> fs::DirBuilder {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "other systems have no mode"))]
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

/// Creates a file for writing, which must not exist. On Unix, only its owner has access.
pub(crate) fn create_file(path: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
