//! Tables in use.

use std::any::Any;
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    engine::{Limit, ReadRecords as _, Reader, Stamp, Tables},
    model::{
        entity::Entity,
        error::{Error, Result},
        maintain::Image,
        row_vtable::RowVtable,
        schema::{IndexSchema, IndexState, Source, StateRecord, TableRecord, TableSchema},
    },
    write::{SharedTable, maintenance::MaintenancePlan, rows},
};

/// Rows of a table that are read back for a test, in each process.
const TRIED_ROWS: u64 = 256;

/// A table in use: what its repositories share.
pub(crate) struct OpenTable {
    pub(crate) schema: &'static TableSchema,
    pub(crate) rows: &'static RowVtable,
    pub(crate) tables: Tables,
    /// How long its queue may get.
    pub(crate) limit: Limit,
    /// The [`Inner::id`] of its store.
    pub(crate) store: u64,
    /// The [`Inner::opened`] of its store once it was open.
    pub(crate) opened: u64,
    /// The least counter of transactions that have the table's databases: that of the last time that one
    /// of them was new to this process. It is 0 if all were there when the store was opened.
    pub(crate) since: u64,
    /// Its record in the catalog.
    pub(crate) record: Vec<u8>,
    pub(super) readable: Readable,
    /// How many rows have been written and read back for a test.
    pub(crate) tried: AtomicU64,
    pub(crate) shared: Arc<SharedTable>,
    /// What the layers above can do to the table without naming the type of its rows.
    pub(crate) operations: OnceLock<&'static (dyn Any + Send + Sync)>,
}

/// Which indexes of a table can be asked, and by which transactions.
///
/// A transaction knows the store's counter from before it began. A table that is opened and an index that
/// becomes readable raise it; for a transaction that knows less, the catalog in its own snapshot counts.
pub(super) struct Readable {
    /// For each index, the least counter of transactions that find it readable; none does with
    /// `u64::MAX`.
    from: Box<[AtomicU64]>,
    /// The counter of the store.
    counter: Arc<AtomicU64>,
}

impl Readable {
    pub(super) fn new(
        schema: &TableSchema,
        readable: &[bool],
        opened: u64,
        counter: &Arc<AtomicU64>,
    ) -> Self {
        // One that is eventual may be disabled at any time, by any process.
        let once = |(readable, index): (&bool, &IndexSchema)| *readable && !index.eventual;
        let from =
            readable.iter().zip(schema.indexes).map(|it| if once(it) { opened } else { u64::MAX });
        Self { from: from.map(AtomicU64::new).collect(), counter: Arc::clone(counter) }
    }
}

impl OpenTable {
    /// Whether the transactions that know this counter find the index readable; `false`: they have
    /// to look.
    #[inline]
    pub(crate) fn is_readable(&self, index: usize, opened: u64) -> bool {
        self.readable.from.get(index).is_none_or(|from| from.load(Ordering::Relaxed) <= opened)
    }

    /// What a write transaction has to do differently for indexes that are not readable, or are eventual;
    /// `None`: nothing.
    pub(crate) fn maintenance_plan(
        &self,
        reader: Reader<'_>,
        opened: u64,
    ) -> Result<Option<MaintenancePlan>> {
        if self.is_all_readable(opened) {
            return Ok(None);
        }
        MaintenancePlan::of(self.schema, self.limit, reader, self.unreadable(reader, opened)?)
    }

    /// Whether all indexes are.
    pub(crate) fn is_all_readable(&self, opened: u64) -> bool {
        (0..self.readable.from.len()).all(|index| self.is_readable(index, opened))
    }

    /// An index is readable in all snapshots from now on, unless it is eventual.
    pub(crate) fn became_readable(&self, index: usize) {
        if self.schema.is_eventual(index) {
            return;
        }
        let now = self.readable.counter.fetch_add(1, Ordering::AcqRel) + 1;
        if let Some(from) = self.readable.from.get(index) {
            from.store(now, Ordering::Relaxed);
        }
    }

    /// The states of the indexes that are not readable in this snapshot, by their positions.
    pub(crate) fn unreadable(
        &self,
        reader: Reader<'_>,
        opened: u64,
    ) -> Result<Vec<(usize, StateRecord)>> {
        let mut states = Vec::new();
        for index in 0..self.schema.indexes.len() {
            if !self.is_readable(index, opened)
                && let Some(state) = self.state(reader, index)?
            {
                states.push((index, state));
            }
        }
        Ok(states)
    }

    /// What the snapshot has for the index; `None`: it is readable.
    pub(crate) fn state(&self, reader: Reader<'_>, index: usize) -> Result<Option<StateRecord>> {
        let Some(declared) = self.schema.indexes.get(index) else { return Ok(None) };
        let Some(state) = reader.record(declared.name)? else { return Ok(None) };
        StateRecord::decode(state)
            .map(Some)
            .ok_or_else(|| StateRecord::unreadable(self.schema.name, declared.name))
    }

    /// Whether the table is known to be declared in the snapshot as it was opened. A record that another
    /// one has taken the place of never comes back, so that all snapshots before have it as well.
    #[inline]
    pub(crate) fn is_as_declared(&self, snapshot: Stamp) -> bool {
        snapshot.number() <= self.shared.as_declared.load(Ordering::Relaxed)
    }

    /// Whether the index can be asked in this snapshot, whose transaction can't tell.
    #[cold]
    pub(crate) fn check_readable(
        &self,
        reader: Reader<'_>,
        index: usize,
        snapshot: Stamp,
        opened: u64,
    ) -> Result<()> {
        let is_older = opened < self.opened;
        let is_as_declared = match self.check_declared(reader, index, snapshot) {
            Err(Error::SchemaMismatch { table, .. }) if is_older => {
                return Err(Error::SnapshotTooOld { table });
            }
            outcome => outcome?,
        };
        if is_as_declared && self.is_readable(index, opened) {
            return Ok(());
        }
        let Some(state) = self.state(reader, index)? else {
            if is_as_declared && !is_older {
                // Another process has built it, and later snapshots have that too.
                self.became_readable(index);
            }
            return Ok(());
        };
        Err(Error::IndexNotReadable {
            table: self.schema.name,
            index: self.schema.index_name(Source::Index(index)).unwrap_or_default(),
            state: IndexState::of(state),
        })
    }

    /// Whether the index is violated in this snapshot, so that a key may have several entries.
    ///
    /// # Errors
    ///
    /// Those of [`check_readable`](OpenTable::check_readable) for an index in any other state.
    #[cold]
    pub(crate) fn check_scannable(
        &self,
        reader: Reader<'_>,
        index: usize,
        snapshot: Stamp,
        opened: u64,
    ) -> Result<bool> {
        let declared = self.schema.indexes.get(index).filter(|declared| declared.unique);
        if let Some(declared) = declared
            && reader.record(declared.name)?.is_some_and(StateRecord::is_violated)
        {
            return self.check_declared(reader, index, snapshot).map(|_| true);
        }
        self.check_readable(reader, index, snapshot, opened).map(|()| false)
    }

    /// Whether the table has its record in the snapshot; `false`: another process has declared it
    /// otherwise, but not this index.
    fn check_declared(&self, reader: Reader<'_>, index: usize, snapshot: Stamp) -> Result<bool> {
        let record = reader.record("")?.ok_or_else(|| self.declared_otherwise())?;
        if record == self.record {
            self.shared.as_declared.fetch_max(snapshot.number(), Ordering::Relaxed);
            return Ok(true);
        }
        let [file, own] =
            [record, &self.record].map(|it| TableRecord::decode(self.schema.name, it));
        let (file, own) = (file?, own?);
        let is_retired =
            || Ok::<_, Error>(matches!(self.state(reader, index)?, Some(StateRecord::Retired(_))));
        // One that is retired says so itself.
        if file.has_index_of(&own, index) || is_retired()? {
            return Ok(false);
        }
        Err(self.declared_otherwise())
    }

    #[cold]
    pub(crate) fn declared_otherwise(&self) -> Error {
        Error::SchemaMismatch {
            table: self.schema.name,
            difference: "another process has opened it with another declaration since".to_owned(),
            way_out: "all processes that use it at the same time must declare it alike; restart this \
                      one with the declaration that is in use",
        }
    }

    /// Takes the image of a row that is to be written, and tries whether it can be read back.
    ///
    /// The derive sees the serde attributes of the row's own fields and not those of the types
    /// inside, which may need a format that describes itself just the same. That would be noticed
    /// when the row is read, which is too late. It is mostly a matter of types, so in a release
    /// build the first rows will do; with debug assertions every row is tried.
    pub(crate) fn load_new<R: Entity>(
        &self,
        row: &R,
        new: &mut Image,
        tried: &mut Image,
    ) -> Result<()> {
        new.load(row)?;
        if !cfg!(debug_assertions) {
            if self.tried.load(Ordering::Relaxed) >= TRIED_ROWS {
                return Ok(());
            }
            self.tried.fetch_add(1, Ordering::Relaxed);
        }
        rows::try_back(self.rows, new, tried)
    }

    /// Whether the store of this number is the table's.
    pub(crate) fn check_store(&self, store: u64) -> Result<()> {
        if store == self.store {
            return Ok(());
        }
        Err(Error::WrongStore { table: self.schema.name })
    }
}
