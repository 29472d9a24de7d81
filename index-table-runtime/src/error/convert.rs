//! Errors made of others: of what the system, the codec and keys say, once more for each transaction
//! that a failure concerns, and boxed on the way through an iterator.

use std::{io, path::Path};

use super::Error;
use crate::key::DecodeError;

impl Error {
    /// Why a directory was not opened.
    #[cold]
    pub(crate) fn opening(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::ReadOnly { path, source }
            }
            _ => Self::Io { path, source },
        }
    }

    /// The same once more, for everyone whose transaction it was.
    #[cold]
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::MapFull { map_size } => Self::MapFull { map_size: *map_size },
            Self::MapTooSmall { map_size } => Self::MapTooSmall { map_size: *map_size },
            Self::GrowthBlocked { map_size, readers, oldest } => {
                Self::GrowthBlocked { map_size: *map_size, readers: *readers, oldest: *oldest }
            }
            Self::Forked { path } => Self::Forked { path: path.clone() },
            Self::DamagedFile { path, reason } => {
                Self::DamagedFile { path: path.clone(), reason: reason.clone() }
            }
            Self::Io { path, source } => {
                let same = |code| io::Error::from_raw_os_error(code);
                let other = || io::Error::new(source.kind(), source.to_string());
                let source = source.raw_os_error().map_or_else(other, same);
                Self::Io { path: path.clone(), source }
            }
            Self::Engine(reason) => Self::Engine(reason.clone()),
            error => Self::Engine(error.to_string()),
        }
    }
}

/// Why a row or an included field can't be written. The write that met it says for which table.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct EncodeError(#[from] pub(crate) postcard::Error);

impl EncodeError {
    pub(crate) fn of(self, table: &'static str) -> Error {
        Error::Codec { table, reason: self.to_string() }
    }
}

impl DecodeError {
    pub(crate) fn at(self, table: &'static str, index: Option<&'static str>, key: String) -> Error {
        match self {
            Self::Version { found, expected } if found > expected => {
                Error::NewerRow { table, index, key, version: found, known: expected }
            }
            error => Error::Corrupt { table, index, key, reason: error.to_string() },
        }
    }
}

/// An [`Error`] on the way through an iterator: as small as a pointer, so that an entry is not
/// copied with room for an error around it.
pub(crate) struct Boxed(Box<Error>);

impl From<Error> for Boxed {
    #[cold]
    fn from(error: Error) -> Self {
        Self(Box::new(error))
    }
}

impl From<Boxed> for Error {
    #[cold]
    fn from(Boxed(error): Boxed) -> Self {
        *error
    }
}
