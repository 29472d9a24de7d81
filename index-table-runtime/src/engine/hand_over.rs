//! Functions that get the files of an archive.

use std::{fmt, io, path::Path, path::PathBuf, sync::Arc};

/// A file of an archive; see [`Options::archive_with`](crate::Options::archive_with).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ArchiveFile<'f> {
    /// The name in the archive, with `/` between directories.
    pub name: &'f str,
    /// The file with the contents. It exists until the function returns.
    pub path: &'f Path,
}

/// A function that gets the files of an archive.
#[derive(Clone)]
pub(crate) struct HandOver(pub(crate) Arc<dyn Fn(ArchiveFile<'_>) -> io::Result<()> + Send + Sync>);

impl fmt::Debug for HandOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Options are compared by this text.
        write!(f, "function at {:p}", Arc::as_ptr(&self.0))
    }
}

impl PartialEq for HandOver {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for HandOver {}

/// The place of an archive.
#[derive(Debug, Clone)]
pub(crate) enum Destination {
    Directory(PathBuf),
    Function(HandOver),
}
