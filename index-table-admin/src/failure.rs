//! Errors, and their exit codes.

use std::{fmt, io};

use index_table::Error;

/// A failed command.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
    /// The cursor with which the command continues.
    pub(crate) next: Option<String>,
}

/// The advice for missing permissions.
pub(crate) const OTHER_USER: &str = "run the command as the user that runs the service";

/// The exit codes. The documentation of the crate describes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Damage = 1,
    Arguments = 2,
    NotFound = 3,
    Unavailable = 4,
    Other = 5,
    TimeLimit = 6,
    /// By the convention of shells.
    Interrupted = 130,
}

impl Code {
    /// Returns the code with this number; of any other number, `Other`.
    pub(crate) fn of(number: u64) -> Self {
        let all = [Self::Damage, Self::Arguments, Self::NotFound, Self::Unavailable];
        let all = all.into_iter().chain([Self::Other, Self::TimeLimit, Self::Interrupted]);
        all.into_iter().find(|code| *code as u64 == number).unwrap_or(Self::Other)
    }
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), next: None }
    }

    pub(crate) fn arguments(message: impl Into<String>) -> Self {
        Self::new(Code::Arguments, message)
    }

    pub(crate) fn damage(message: impl Into<String>) -> Self {
        Self::new(Code::Damage, message)
    }

    /// Returns the kind and the message of a reason for the health of a store.
    pub(crate) fn reason(self) -> (&'static str, String) {
        let kind = if self.code == Code::Damage { "damage" } else { "error" };
        (kind, self.message)
    }

    pub(crate) fn other(message: impl Into<String>) -> Self {
        Self::new(Code::Other, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Returns the message for a shard that is not available. The message of the library is about its options.
pub(crate) fn unavailable(shard: &str, reason: &str) -> String {
    format!("shard `{shard}` is not available: {reason}")
}

/// Joins the messages of several shards: what happened to each, and then each advice once.
pub(crate) fn joined(messages: &[String]) -> String {
    let (mut happened, mut advice) = (Vec::new(), Vec::new());
    for message in messages {
        let mut parts = message.split("; ");
        happened.extend(parts.next());
        for part in parts {
            if !advice.contains(&part) {
                advice.push(part);
            }
        }
    }
    [happened, advice].concat().join("; ")
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::DamagedFile { .. } | Error::DamagedArchive { .. } | Error::Corrupt { .. } => {
                Code::Damage
            }
            // The library checks all lengths before LMDB does, except lengths in the file.
            Error::Engine { source, .. } if source.to_string().contains("MDB_BAD_VALSIZE") => {
                Code::Damage
            }
            Error::StoreNotFound { .. } => Code::NotFound,
            Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => Code::NotFound,
            Error::AlreadyOpen { .. }
            | Error::WriterElsewhere { .. }
            | Error::ShardUnavailable { .. }
            | Error::IndexNotReadable { .. }
            | Error::RecoveryNeeded { .. }
            | Error::TooManyReaders { .. }
            | Error::LockFile { .. }
            | Error::SnapshotTooOld { .. }
            | Error::Unreachable { .. }
            | Error::RetriesExhausted { .. } => Code::Unavailable,
            Error::InvalidCursor { .. }
            | Error::ArchiveNotNamed { .. }
            | Error::ArchiveInUse { .. } => Code::Arguments,
            _ => Code::Other,
        };
        let message = match &error {
            // The message of the library is about its options.
            Error::StoreNotFound { path } => {
                let what =
                    if path.starts_with("postgresql:") { "database and schema" } else { "path" };
                format!("there is no store at `{}`; check the {what}", path.display())
            }
            // A command opens a store once, so another process has it open.
            Error::AlreadyOpen { path, .. } => {
                format!(
                    "another process writes `{}`, and this command would write too; stop that process first, or let it do the work with `--url`",
                    path.display()
                )
            }
            // The message of the library is about its options.
            Error::WriterElsewhere { path, process, .. } => {
                let id = process.map_or_else(String::new, |id| format!(" (process {id})"));
                format!(
                    "another process writes `{}`{id}, and this command would write too; stop that process first, or let it do the work with `--url`",
                    path.display()
                )
            }
            Error::RecoveryNeeded { path } => {
                format!(
                    "the process that wrote `{0}` did not close it, and this command may not write its files; run \
                     `recover {0}` as a user who may, or start that process again",
                    path.display()
                )
            }
            Error::ShardUnavailable { shard, reason } => unavailable(shard, reason),
            // The message of the library is about its options.
            Error::ArchiveNotNamed { path, archive } => match archive {
                Some(archive) => format!(
                    "`{}` has the archive `{1}`, which would miss the commits of this command; give `--archive {1}`, or \
                     `--without-archive` to give it up",
                    path.display(),
                    archive.display()
                ),
                None => format!(
                    "`{}` has an archive, which would miss the commits of this command; give `--archive DIR`, or \
                     `--without-archive` to give it up",
                    path.display()
                ),
            },
            Error::Io { source, .. }
            | Error::ReadOnly { source: Some(source), .. }
            | Error::NoReaderSlot { source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                format!("{error}; {OTHER_USER}")
            }
            Error::Engine { path, .. } if !path.starts_with("postgresql:") => format!(
                "{error}; run `check {}`, and restore the directory from a copy if it finds damage",
                path.display()
            ),
            _ => error.to_string(),
        };
        Self::new(code, message)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(Code::Other, format!("the output can't be written: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn errors_of_several_shards_have_each_advice_once() {
        let all = ["`a` is lost; restore it", "`b` is lost; restore it; or not", "`c` is lost"];
        let all = all.map(str::to_owned);
        assert_eq!(joined(&all), "`a` is lost; `b` is lost; `c` is lost; restore it; or not");
        assert_eq!(joined(&all[..1]), all[0]);
    }

    #[test]
    fn an_error_of_lmdb_has_a_way_out() {
        let failed = |path: &str, reason: &'static str| {
            let source = Arc::new(io::Error::other(reason));
            Failure::from(Error::Engine { path: path.into(), source })
        };
        let size = failed("data/shop", "MDB_BAD_VALSIZE: wrong size");
        assert_eq!(size.code, Code::Damage);
        assert!(size.message.contains("; run `check data/shop`"), "{size}");
        assert_eq!(failed("data/shop", "MDB_PANIC").code, Code::Other);
        let server = failed("postgresql://a/b", "syntax error");
        assert_eq!((server.code, server.message.contains("check")), (Code::Other, false));
    }
}
