//! Conversions of errors of the system, the codec and keys; copies of errors; boxed errors in iterators.

use std::{any::Any, error, fmt, io, iter, path::Path};

use super::Error;
use crate::model::key::{DecodeError, StoreFailure};

#[cfg(feature = "json")]
impl Error {
    /// Returns the error for a name that is none of these.
    #[cold]
    pub(crate) fn unknown_name(
        (place, kind, name): (&str, &'static str, &str),
        known: &[String],
    ) -> Self {
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Self::UnknownName { place: place.to_owned(), kind, name: name.to_owned(), known }
    }
}

impl Error {
    /// Returns the error for a directory that can't be opened.
    #[cold]
    pub(crate) fn opening(path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::ReadOnly { path: path.to_owned(), source: Some(source) }
            }
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory if path.is_file() => {
                let source = io::Error::new(source.kind(), "it is a file, not a directory");
                Self::io(path, source)
            }
            _ => Self::io(path, source),
        }
    }

    /// Returns the error for an error of the operating system.
    #[cold]
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        if is_full(&source) { Self::DiskFull { path, source } } else { Self::Io { path, source } }
    }

    /// Returns the error for a copy of a store in memory.
    #[cold]
    pub(crate) fn no_file() -> Self {
        Self::NotOffered { what: "copies, because it is in memory and has no file" }
    }

    /// Returns the error for a defect of this crate, which doesn't panic.
    #[cold]
    pub(crate) fn internal(reason: impl Into<String>) -> Self {
        Self::Internal { reason: reason.into() }
    }

    /// Returns the error for a panic of the user's code.
    #[cold]
    pub(crate) fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Self::Panicked { message: text.unwrap_or("with a value that is not text").to_owned() }
    }

    /// Returns a copy, so that each transaction affected by a failure has one.
    #[cold]
    #[expect(clippy::too_many_lines, reason = "it lists all variants")]
    pub(crate) fn again(&self) -> Self {
        /// Copies the listed variants by cloning their fields.
        macro_rules! copy {
            ($($variant:ident { $($field:ident),* })*) => {
                match self {
                    Self::ReadOnly { path, source } => {
                        Self::ReadOnly { path: path.clone(), source: source.as_ref().map(same) }
                    }
                    Self::NoReaderSlot { path, source } => {
                        Self::NoReaderSlot { path: path.clone(), source: same(source) }
                    }
                    Self::DiskFull { path, source } => {
                        Self::DiskFull { path: path.clone(), source: same(source) }
                    }
                    Self::Io { path, source } => {
                        Self::Io { path: path.clone(), source: same(source) }
                    }
                    Self::NoAddressSpace { path, map_size, source } => Self::NoAddressSpace {
                        path: path.clone(),
                        map_size: *map_size,
                        source: same(source),
                    },
                    Self::TooManyOpenFiles { path, limit, source } => Self::TooManyOpenFiles {
                        path: path.clone(),
                        limit: *limit,
                        source: same(source),
                    },
                    Self::CommitUnknown { source } => {
                        Self::CommitUnknown { source: Box::new(source.again()) }
                    }
                    Self::ShardsNotLoaded { table, loaded, not_loaded, source } => {
                        Self::ShardsNotLoaded {
                            table,
                            loaded: loaded.clone(),
                            not_loaded: not_loaded.clone(),
                            source: Box::new(source.again()),
                        }
                    }
                    Self::Thread { name, source } => Self::Thread { name, source: same(source) },
                    $(Self::$variant { $($field),* } => {
                        Self::$variant { $($field: $field.clone()),* }
                    })*
                }
            };
        }
        copy! {
            UnknownName { place, kind, name, known }
            InvalidJson { place, reason }
            DuplicateKey { table, key }
            SequenceExhausted { table, last }
            OtherKey { table, given, key }
            Conflict { table, key, expected, found }
            MissingReference { table, key, reference, to, referred }
            Referenced { table, key, by, reference }
            RepositoryNeeded { table, key, by, reference, repository }
            AggregateOverflow { table, aggregate, key }
            RevisionExhausted { table, key }
            Archive { table, source }
            ChangesMissed { table, consumer, missed }
            BatchSuperseded { table, consumer }
            NoConsumer { table, consumer }
            ConsumerShared { table, consumer }
            ChangesLeft { table, consumer, changes }
            UniqueViolation { table, index, key, holder }
            KeyTooLong { table, index, key, row, len }
            SchemaMismatch { table, difference, way_out }
            Corrupt { table, index, key, reason }
            NewerRow { table, index, key, version, known }
            UnknownField { table, key, field }
            Conversion { table, key, version, reason }
            Codec { table, reason }
            MapFull { map_size }
            GrowthBlocked { map_size, readers, oldest }
            InvalidCursor { reason }
            EmptyPage { table }
            NotCombinable { table, index, reason }
            WrongStore { table }
            SnapshotTooOld { table }
            WriteInProgress {}
            Panicked { message }
            WriterClosed {}
            CallDropped {}
            CallsClosed {}
            AlreadyOpen { path, reason }
            Forked { path }
            DamagedFile { path, reason }
            DamagedArchive { path, reason }
            NotInArchive { path, reason }
            ArchiveNotNamed { path, archive }
            ArchiveInUse { path, archive }
            RecoveryNeeded { path }
            WriterElsewhere { path, process, has_journal }
            StoreNotFound { path }
            LockFile { path, reason }
            MapTooSmall { map_size }
            TooManyDatabases { max_databases }
            TooManyReaders { max_readers, oldest }
            IndexNotReadable { table, index, state }
            IndexQueueFull { table, messages }
            TransactionTooLarge {}
            TransactionFailed { reason }
            ReopenNeeded { path, reason }
            FileReplaced { path }
            Engine { path, source }
            NoShard { table, key, map }
            OtherShard { table, key, shard, own }
            ShardUnavailable { shard, reason }
            ShardReadOnly { table, key, shard, to, rows }
            ShardRefused { what, reason }
            NotOffered { what }
            Unreachable { server, problem, reason }
            RetriesExhausted { attempts }
            Internal { reason }
        }
    }
}

/// Whether a write failed for lack of space.
pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};

    matches!(error.kind(), FileTooLarge | QuotaExceeded | StorageFull)
}

/// Copies an error. The copy of an error without a code of the operating system has its kind and its
/// messages.
fn same(error: &io::Error) -> io::Error {
    match (error.raw_os_error(), error.get_ref()) {
        (Some(code), _) => io::Error::from_raw_os_error(code),
        (None, Some(inner)) => io::Error::new(error.kind(), Messages::of(inner)),
        (None, None) => error.kind().into(),
    }
}

/// The messages of an error of an unknown type and of its sources.
#[derive(Debug)]
struct Messages {
    message: String,
    source: Option<Box<Self>>,
}

impl Messages {
    fn of(error: &dyn error::Error) -> Self {
        let mut all =
            iter::successors(Some(error), |&error| error.source()).map(ToString::to_string);
        let first = all.next().unwrap_or_default();
        let mut sources: Vec<String> = all.collect();
        let mut source = None;
        while let Some(message) = sources.pop() {
            source = Some(Box::new(Self { message, source }));
        }
        Self { message: first, source }
    }
}

impl fmt::Display for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl error::Error for Messages {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// The reason why a row can't be encoded. The caller adds the table.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct EncodeError(#[from] Reason);

#[derive(Debug, thiserror::Error)]
enum Reason {
    #[error(transparent)]
    Row(#[from] index_table_rows::Error),
    /// What the row needs could not be recorded.
    #[error(transparent)]
    Store(#[from] Box<Error>),
}

impl From<Error> for EncodeError {
    fn from(error: Error) -> Self {
        Self(Box::new(error).into())
    }
}

impl From<index_table_rows::Error> for EncodeError {
    fn from(error: index_table_rows::Error) -> Self {
        Self(error.into())
    }
}

impl From<EncodeError> for DecodeError {
    /// Converts the error of encoding a stored row again.
    #[cold]
    fn from(error: EncodeError) -> Self {
        match error.0 {
            Reason::Store(error) => Self::Store(StoreFailure::new(*error)),
            Reason::Row(error) => Self::Again(error.to_string().into()),
        }
    }
}

impl From<DecodeError> for EncodeError {
    /// Converts the error of copying fields from a stored row.
    #[cold]
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Store(failure) => of_store(failure).into(),
            DecodeError::Fields(error) => error.into(),
            other => {
                index_table_rows::Error::from(index_table_rows::Reason::Serde(other.to_string()))
                    .into()
            }
        }
    }
}

fn of_store(failure: StoreFailure) -> Error {
    failure.into_error().unwrap_or_else(|reason| Error::TransactionFailed { reason })
}

impl EncodeError {
    /// Returns the error of the row with this primary key.
    pub(crate) fn of(self, table: &'static str, key: impl FnOnce() -> String) -> Error {
        match self.0 {
            Reason::Store(error) => *error,
            Reason::Row(error) => {
                let reason = format!("the one with primary key {}: {error}", key());
                Error::Codec { table, reason }
            }
        }
    }
}

impl DecodeError {
    pub(crate) fn at(self, table: &'static str, index: Option<&'static str>, key: String) -> Error {
        match self {
            Self::Version { found, expected } if found > expected => {
                Error::NewerRow { table, index, key, version: found, known: expected }
            }
            Self::Altered { version, field } => {
                let reason = format!(
                    "its conversion changes `{field}`, a field that `changed` does not name"
                );
                Error::Conversion { table, key, version, reason }
            }
            Self::Unconvertible { version, reason } => {
                Error::Conversion { table, key, version, reason: reason.into() }
            }
            Self::Store(failure) => of_store(failure),
            error => Error::Corrupt { table, index, key, reason: error.to_string() },
        }
    }
}

/// An [`Error`] in an iterator, of the size of a pointer, so that items stay small.
pub(crate) struct Boxed(Box<Error>);

impl From<Error> for Boxed {
    #[cold]
    fn from(error: Error) -> Self {
        Self(Box::new(error))
    }
}

impl Sealed for Boxed {}

#[diagnostic::do_not_recommend]
impl StoreError for Boxed {
    #[cold]
    fn into_error(self) -> Error {
        *self.0
    }
}

/// Keeps other crates from implementing [`StoreError`].
pub trait Sealed {}

/// The errors that `?` converts into [`Error`]: only errors of this crate. Other crates can't implement it.
///
/// The compiler names it where a closure of [`Store::transaction`](crate::Store::transaction) uses `?` on another error.
/// [`Store::try_transaction`](crate::Store::try_transaction) accepts every error type that can be made from [`Error`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an error of the store",
    label = "is not an error of the store; with your own errors, call `try_transaction` instead \
             of `transaction`"
)]
pub trait StoreError: Sealed {
    /// Returns the error.
    fn into_error(self) -> Error;
}

impl<E: StoreError> From<E> for Error {
    #[inline]
    fn from(error: E) -> Self {
        error.into_error()
    }
}

#[cfg(test)]
mod tests {
    use std::{error::Error as _, path::PathBuf, sync::Arc};

    use super::*;

    fn chain(error: &dyn error::Error) -> Vec<String> {
        iter::successors(Some(error), |&error| error.source()).map(ToString::to_string).collect()
    }

    #[test]
    fn a_copy_has_the_kind_the_message_and_the_sources() {
        let path = || PathBuf::from("shop");
        let inner = Messages { message: "inner".into(), source: None };
        let outer = Messages { message: "outer".into(), source: Some(Box::new(inner)) };
        let errors = [
            Error::DuplicateKey { table: "customers", key: "7".into() },
            Error::WriteInProgress,
            Error::TooManyReaders { max_readers: 1, oldest: None },
            Error::Io { path: path(), source: io::Error::from_raw_os_error(5) },
            Error::DiskFull { path: path(), source: io::Error::from_raw_os_error(28) },
            Error::ReadOnly { path: path(), source: Some(io::ErrorKind::PermissionDenied.into()) },
            Error::ReadOnly { path: path(), source: None },
            Error::Thread { name: "writer", source: io::Error::other(outer) },
            Error::Engine { path: path(), source: Arc::new(io::Error::other("odd")) },
            Error::internal("unexpected"),
        ];
        for error in errors {
            let copy = error.again();
            assert_eq!(std::mem::discriminant(&copy), std::mem::discriminant(&error));
            assert_eq!(chain(&copy), chain(&error));
            let kind = |error: &Error| {
                error.source().and_then(|source| source.downcast_ref()).map(io::Error::kind)
            };
            assert_eq!(kind(&copy), kind(&error));
        }
    }
}
