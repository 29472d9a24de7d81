//! The accesses of processes to a store, and what each of them may do beside others.

use std::path::Path;

use index_table::{Durability, Options, Store};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Full,
    Journal,
    Relaxed,
    None,
    /// For writing, with the default durability.
    Unset,
    /// With a journal and an archive.
    Archive,
}

pub(super) const ALL: [Access; 7] = [
    Access::Read,
    Access::Full,
    Access::Journal,
    Access::Relaxed,
    Access::None,
    Access::Unset,
    Access::Archive,
];

/// The outcome of opening a store beside other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Opened,
    /// The process with this id writes, with a journal or not.
    Elsewhere {
        process: u32,
        has_journal: bool,
    },
    /// The store has an archive.
    NotNamed,
}

impl Access {
    pub(super) fn find(name: &str) -> Option<Self> {
        ALL.into_iter().find(|access| format!("{access:?}") == name)
    }

    /// Returns the options for a store in a directory with this path.
    pub(super) fn options(self, path: &Path) -> Options {
        let with = |durability| Store::options().durability(durability);
        match self {
            Self::Read => Store::options().read_only(true),
            Self::Full => with(Durability::Full),
            Self::Journal => crate::journal(),
            Self::Relaxed => with(Durability::Relaxed),
            Self::None => with(Durability::None),
            Self::Unset => Store::options(),
            Self::Archive => crate::journal().archive(archive(path)),
        }
    }

    pub(super) fn writes(self) -> bool {
        self != Self::Read
    }

    pub(super) const fn has_journal(self) -> bool {
        matches!(self, Self::Journal | Self::Archive)
    }

    /// Returns the access with the durability that a process gets beside other processes.
    pub(super) fn used(self, others: &[(Self, u32)]) -> Self {
        let has_writer = || others.iter().any(|(other, _)| other.writes() && !other.has_journal());
        match self {
            Self::Unset if has_writer() => Self::Full,
            Self::Unset => Self::Journal,
            _ => self,
        }
    }

    /// Returns the outcome beside other processes with their ids.
    pub(super) fn beside(self, others: &[(Self, u32)], is_archived: bool) -> Outcome {
        if is_archived && self.writes() && self != Self::Archive {
            return Outcome::NotNamed;
        }
        let own = self.used(others);
        let refuses = |(other, _): &&(Self, u32)| {
            self.writes() && other.writes() && (own.has_journal() || other.has_journal())
        };
        others.iter().find(refuses).map_or(Outcome::Opened, |(other, process)| Outcome::Elsewhere {
            process: *process,
            has_journal: other.has_journal(),
        })
    }
}

/// Returns the directory of the archive.
pub(super) fn archive(path: &Path) -> std::path::PathBuf {
    path.join("archive")
}

/// Returns the directory of the store.
pub(super) fn store(path: &Path) -> std::path::PathBuf {
    path.join("store")
}
