//! The events of a watcher.

use std::{fmt, marker::PhantomData, sync::Arc};

use crate::engine::CommitNumber;
use crate::model::{
    entity::Entity,
    error::Result,
    key::{Key, KeyReader, Unescaped},
    lists::Lists,
    row,
    schema::Source,
};
use crate::store::{OpenTable, ShardId};
use crate::write::watch::{Lagged, Stored, WatchedChange};

/// An event that a [`Watcher`](crate::Watcher) receives.
pub enum Event<R> {
    /// A row was changed.
    Change(Change<R>),
    /// Changes were dropped. Read the table again, or run the query again.
    Lagged(Lagged),
}

impl<R> Event<R> {
    /// Returns the number of the commit, as in [`ReadTxn::commit_number`](crate::ReadTxn::commit_number). Snapshots
    /// with this number or a greater number contain the change.
    #[must_use]
    pub fn commit_number(&self) -> CommitNumber {
        match self {
            Self::Change(change) => change.commit_number(),
            Self::Lagged(lagged) => lagged.commit_number.clone(),
        }
    }
}

impl<R> fmt::Debug for Event<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Change(change) => f.debug_tuple("Change").field(change).finish(),
            Self::Lagged(lagged) => f.debug_tuple("Lagged").field(lagged).finish(),
        }
    }
}

/// A changed row, before and after the change.
///
/// If a scan is watched, both are relative to the scan: a row that the scan newly finds has no `before`, and a row
/// that it no longer finds has no `after`, even if the table has the row.
pub struct Change<R> {
    commit_number: CommitNumber,
    shard: Option<ShardId>,
    noted: WatchedChange,
    lists: Arc<Lists>,
    row: PhantomData<fn() -> R>,
}

/// The kind of a change, relative to the watched scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// The row is new.
    Inserted,
    /// The row has other values.
    Updated,
    /// The row has another primary key.
    Moved,
    /// The row was removed.
    Deleted,
}

impl<R> Change<R> {
    pub(super) fn new(
        table: &OpenTable,
        commit_number: CommitNumber,
        noted: WatchedChange,
    ) -> Self {
        let row = noted.after.as_ref().or(noted.before.as_ref());
        let shard = if let Some(tables) = table.tables.several() {
            row.and_then(|row| tables.shard_of(row.key()))
        } else {
            None
        };
        let shard = shard.map(|(number, name)| ShardId::new(number, name, table.store));
        let lists = Arc::clone(&table.rows.lists);
        Self { commit_number, shard, noted, lists, row: PhantomData }
    }

    /// Returns the number of the commit. Changes of one commit have the same number, and changes of a later commit
    /// have a greater number. Not all numbers occur. In a sharded store, commits of different shards may not be
    /// comparable.
    #[must_use]
    pub fn commit_number(&self) -> CommitNumber {
        self.commit_number.clone()
    }

    /// Returns the shard of the row after the change, or before it if the row was removed; `None` in a store without
    /// shards, and for a reference table, which is in every shard.
    #[must_use]
    pub const fn shard(&self) -> Option<&ShardId> {
        self.shard.as_ref()
    }

    /// Returns the kind of the change.
    #[must_use]
    pub fn kind(&self) -> ChangeKind {
        match (&self.noted.before, &self.noted.after) {
            (None, _) => ChangeKind::Inserted,
            (_, None) => ChangeKind::Deleted,
            (Some(before), Some(after)) if before.key() == after.key() => ChangeKind::Updated,
            (Some(_), Some(_)) => ChangeKind::Moved,
        }
    }

    /// Returns the row before the change; `None` if it is new.
    #[must_use]
    pub fn before(&self) -> Option<ChangedRow<'_, R>> {
        self.changed_row(self.noted.before.as_ref())
    }

    /// Returns the row after the change; `None` if it was removed.
    #[must_use]
    pub fn after(&self) -> Option<ChangedRow<'_, R>> {
        self.changed_row(self.noted.after.as_ref())
    }

    fn changed_row<'c>(&'c self, stored: Option<&'c Stored>) -> Option<ChangedRow<'c, R>> {
        stored.map(|stored| ChangedRow { stored, lists: &self.lists, row: PhantomData })
    }
}

impl<R> fmt::Debug for Change<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Change")
            .field("kind", &self.kind())
            .field("commit_number", &self.commit_number)
            .field("shard", &self.shard)
            .finish_non_exhaustive()
    }
}

/// A row of a [`Change`], decoded on request.
pub struct ChangedRow<'c, R> {
    stored: &'c Stored,
    lists: &'c Lists,
    row: PhantomData<fn() -> R>,
}

impl<R: Entity> ChangedRow<'_, R> {
    /// Returns the primary key of the row.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) if the key can't be decoded. This happens only with an incorrect
    /// hand-written [`Serialize`](serde::Serialize).
    pub fn key(&self) -> Result<R::Key> {
        let (bytes, unescaped) = (self.stored.key(), Unescaped::default());
        R::Key::decode_owned(&mut KeyReader::new(bytes, &unescaped))
            .map_err(|error| R::TABLE.corrupt(Source::Facts, bytes, error))
    }

    /// Decodes the row.
    ///
    /// # Errors
    ///
    /// The errors of [`key`](ChangedRow::key), and [`Error::Conversion`](crate::Error::Conversion) for a row of
    /// an older version that can't be converted.
    pub fn row(&self) -> Result<R> {
        let key = self.stored.key();
        row::decode(self.lists, self.stored.row())
            .map_err(|error| R::TABLE.corrupt(Source::Facts, key, error))
    }
}

impl<R> fmt::Debug for ChangedRow<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangedRow").finish_non_exhaustive()
    }
}
