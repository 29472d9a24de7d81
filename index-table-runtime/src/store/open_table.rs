//! Tables in use.

use std::mem;
#[cfg(feature = "async")]
use std::sync::OnceLock;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

#[cfg(feature = "async")]
use super::RowKey;
use super::{
    Client,
    inner::{ALL_OPENED, Declared},
    relied::KnownRecords,
    rollout::Rollout,
};
#[cfg(feature = "async")]
use crate::model::lists::Lists;
use crate::{
    engine::{Limit, ReadRecords as _, Stamp, list::List},
    locks::Mutex,
    model::{
        entity::Entity,
        error::{Error, Result},
        index_state::IndexState,
        maintain::Image,
        row_vtable::TableRows,
        schema::{Source, StateRecord, TableRecord, TableSchema},
        shard::ShardNumber,
    },
    placement::{Reader, Tables, shards::OpenTables},
    write::{
        SharedTable,
        maintenance::MaintenancePlan,
        rows::{self, LoadRow, MadeLists},
    },
};

/// The number of rows of a table that each process reads back as a test.
const TRIED_ROWS: u64 = 256;

/// The number in place of the tried rows after one of them was refused.
const ALL_TRIED: u64 = u64::MAX;

/// A table in use, shared by its repositories.
pub(crate) struct OpenTable {
    pub(crate) schema: &'static TableSchema,
    pub(crate) rows: TableRows,
    pub(crate) tables: Tables,
    /// The limit of its queue.
    pub(crate) limit: Limit,
    /// The [`Inner::id`] of its store.
    pub(crate) store: u64,
    /// The [`Inner::opened`] of its store after the table was opened.
    pub(crate) opened: u64,
    /// The least counter of a transaction that has all of the table's databases: the counter at the time when this
    /// process opened the last database. It is 0 if all of them existed when the store was opened.
    pub(crate) since: u64,
    /// The declaration of this process, as a record.
    pub(super) declaration: Vec<u8>,
    /// The record of the table in the catalog at the time of opening.
    pub(crate) record: Vec<u8>,
    /// The positions of the declared indexes and aggregates that this record lacks.
    pub(super) lacking: Box<[usize]>,
    /// The other records of the table that this process knows.
    pub(super) records: KnownRecords,
    /// This process, as other clients see it; `None` if it is the only one that can write.
    pub(crate) client: Option<Client>,
    pub(super) rollout: Arc<Rollout>,
    pub(super) readable: Readable,
    /// The number of rows that were read back as a test.
    pub(crate) tried: AtomicU64,
    pub(crate) shared: Arc<SharedTable>,
    /// Other tables that stay open as long as this one: the tables in the shards, and the table of main rows.
    pub(crate) kept: List<Arc<Self>>,
    /// The lists of rows that are copied for asynchronous calls.
    #[cfg(feature = "async")]
    pub(in crate::store) copied: OnceLock<Arc<Lists>>,
}

/// The readable indexes and aggregates, each with the transactions for which it is readable.
///
/// A transaction has the store's counter at the time before it began. The counter increases when a table is opened,
/// and when an index becomes readable. For a transaction with a smaller counter, the catalog in its snapshot
/// decides.
pub(super) struct Readable {
    /// For each index, and then for each aggregate, the least counter of transactions for which it is readable; `u64::MAX` if there are no such
    /// transactions.
    from: Box<[AtomicU64]>,
    /// For each of them, the least counter of transactions that can find that it is readable. Transactions with a smaller
    /// counter may have a snapshot from before it was emptied. `u64::MAX` while a commit that empties it may become visible.
    /// Locked while `from` changes.
    found_from: Mutex<Box<[u64]>>,
    /// The counter of the store.
    counter: Arc<AtomicU64>,
}

impl Readable {
    /// Lets transactions that begin from now on find the states in their catalog.
    pub(super) fn forget(&self) {
        let mut found_from = self.found_from.lock();
        let now = self.counter.fetch_add(1, Ordering::AcqRel) + 1;
        self.from.iter().for_each(|from| from.store(u64::MAX, Ordering::Relaxed));
        for from in found_from.iter_mut().filter(|from| **from != u64::MAX) {
            *from = now;
        }
    }

    pub(super) fn new(
        schema: &TableSchema,
        (tables, readable): (&Tables, &[bool]),
        opened: u64,
        counter: &Arc<AtomicU64>,
    ) -> Self {
        // An eventual index may be disabled at any time, by any process. In several shards, it is never disabled.
        let stays = tables.are_split();
        let once = |(at, readable): (usize, &bool)| *readable && (stays || !schema.is_eventual(at));
        let from = readable.iter().enumerate().map(|it| if once(it) { opened } else { u64::MAX });
        let found_from = Mutex::new(vec![0; readable.len()].into());
        let from = from.map(AtomicU64::new).collect();
        Self { from, found_from, counter: Arc::clone(counter) }
    }

    fn set(&self, index: usize, change: impl FnOnce(&AtomicU64, &mut u64, u64)) {
        let mut found_from = self.found_from.lock();
        if let (Some(from), Some(found_from)) = (self.from.get(index), found_from.get_mut(index)) {
            let now = self.counter.fetch_add(1, Ordering::AcqRel) + 1;
            change(from, found_from, now);
        }
    }
}

/// A guard: a commit may empty an index.
pub(crate) struct Emptying<'t> {
    table: &'t OpenTable,
    index: usize,
}

impl Drop for Emptying<'_> {
    fn drop(&mut self) {
        self.table.readable.set(self.index, |_, found_from, now| *found_from = now);
    }
}

impl OpenTable {
    /// Returns the table in one of its shards; `None` if it is not open there.
    pub(crate) fn in_shard(&self, shard: ShardNumber) -> Option<Arc<Self>> {
        let open = &self.tables.several()?.in_shard(shard)?.tables;
        let is_own = |own: &&Arc<Self>| own.tables.one().is_some_and(|own| Arc::ptr_eq(own, open));
        self.kept.iter().find(is_own).cloned()
    }

    /// Accepts the record that the table gets when the store grows, or when a writer opens the table since. It has the global
    /// indexes of the table.
    pub(crate) fn will_be_global(&self) -> Result<()> {
        let global = self.rows.distribution.global();
        if global.is_empty() {
            return Ok(());
        }
        let name = self.schema.name;
        for record in self.known_records() {
            let record = TableRecord::decode(name, &record)?;
            let record = record.grown(self.schema, global).encode(name)?;
            if !self.knows(&record) {
                self.records.add(record);
            }
        }
        Ok(())
    }

    /// Uses the table through the shards of the store, which has grown. No write transaction is running.
    pub(crate) fn grow(&self, tables: Tables, declared: &Declared) -> Result<()> {
        let Tables::Several(tables) = tables else {
            return Err(Error::internal("a grown table that is not in shards"));
        };
        for in_shard in &declared.kept {
            self.keep(in_shard)?;
        }
        self.tables.grow(tables);
        Ok(())
    }

    /// Keeps the table open in a shard. Returns its databases there.
    pub(crate) fn keep(&self, in_shard: &Arc<Self>) -> Result<OpenTables> {
        if !self.kept.iter().any(|own| Arc::ptr_eq(own, in_shard)) {
            self.kept.push(Arc::clone(in_shard));
        }
        // It counts other changes of the declaration, and the first shard had no global indexes before the store has grown.
        if !self.knows(&in_shard.record) {
            self.records.add(in_shard.record.clone());
        }
        in_shard.databases()
    }

    /// Returns the databases in a shard.
    pub(crate) fn databases(&self) -> Result<OpenTables> {
        let in_several = || Error::internal("a table of a shard that is in several shards");
        let tables = Arc::clone(self.tables.one().ok_or_else(in_several)?);
        Ok(OpenTables { tables, record: self.record.as_slice().into() })
    }

    /// Returns true if the index is readable for transactions with this counter, and false if they have to read the
    /// catalog.
    #[inline]
    pub(crate) fn is_readable(&self, index: usize, opened: u64) -> bool {
        self.readable.from.get(index).is_none_or(|from| from.load(Ordering::Relaxed) <= opened)
    }

    /// Returns the maintenance plan of a write transaction; `None` if no index is eventual or not readable.
    pub(crate) fn maintenance_plan(
        &self,
        reader: Reader<'_>,
        opened: u64,
    ) -> Result<Option<MaintenancePlan>> {
        let is_split = reader.is_split();
        if self.is_all_readable(opened) && !(is_split && self.schema.has_eventual()) {
            return Ok(None);
        }
        if is_split {
            return Ok(Some(MaintenancePlan::by_shard(self.schema, self.limit)));
        }
        MaintenancePlan::of(self.schema, self.limit, reader, self.unreadable(reader, opened)?)
    }

    /// Whether all indexes are readable for transactions with this counter.
    pub(crate) fn is_all_readable(&self, opened: u64) -> bool {
        (0..self.readable.from.len()).all(|index| self.is_readable(index, opened))
    }

    /// Records that a commit is about to empty an index: from now on, transactions find its state in their catalog. Drop the
    /// result when the commit is visible, or has failed.
    pub(crate) fn will_be_emptied(&self, index: usize) -> Emptying<'_> {
        self.readable.set(index, |from, found_from, _| {
            from.store(u64::MAX, Ordering::Relaxed);
            *found_from = u64::MAX;
        });
        Emptying { table: self, index }
    }

    /// Records that an index is readable in all later snapshots, unless it may be disabled. `opened` is the counter of the
    /// transaction that has found it readable, or the counter before that of a build began. A snapshot from before the index
    /// was emptied does not show that it is readable now.
    pub(crate) fn became_readable_in(&self, index: usize, opened: u64) {
        // A table that was opened without its struct does not learn that an index is emptied.
        if self.schema.is_eventual(index) && !self.tables.are_split() || !self.rows.has_rows() {
            return;
        }
        self.readable.set(index, |from, found_from, now| {
            let is_later = *found_from != u64::MAX && *found_from <= opened;
            // A write transaction can have begun before the index was emptied.
            if is_later && (opened != ALL_OPENED || *found_from == 0) {
                from.store(now, Ordering::Relaxed);
            }
        });
    }

    /// Returns the states of the indexes that are not readable in this snapshot, with their positions.
    pub(crate) fn unreadable(
        &self,
        reader: Reader<'_>,
        opened: u64,
    ) -> Result<Vec<(usize, StateRecord)>> {
        let mut states = Vec::new();
        for index in self.schema.positions() {
            if !self.is_readable(index, opened)
                && let Some(state) = self.state(reader, index)?
            {
                states.push((index, state));
            }
        }
        Ok(states)
    }

    /// Returns the state of the index or aggregate at this position in the snapshot; `None` if it is readable. In a table in several shards, this is
    /// the [merged](StateRecord::merged) state of a local index in the shards that the transaction reads.
    pub(crate) fn state(&self, reader: Reader<'_>, index: usize) -> Result<Option<StateRecord>> {
        let Some(name) = self.schema.name_at(index) else { return Ok(None) };
        let decode = |record| {
            let damaged = || StateRecord::unreadable(self.schema.name, name);
            StateRecord::decode(record).ok_or_else(damaged)
        };
        if let state @ Some(_) = self.state_if_lacking(reader, index)? {
            return Ok(state);
        }
        if let Some(records) = reader.states(index, name)? {
            let mut merged = None;
            for record in records {
                merged = Some(decode(record)?.merged(merged));
            }
            return Ok(merged);
        }
        reader.record(name)?.map(decode).transpose()
    }

    /// Returns the states of all indexes and aggregates, by their positions. They are readable without a state.
    pub(crate) fn states(&self, reader: Reader<'_>) -> Result<Vec<(usize, Option<StateRecord>)>> {
        self.schema.positions().map(|index| Ok((index, self.state(reader, index)?))).collect()
    }

    /// Whether the declaration in the snapshot is known to equal the declaration at the time of opening. Once a
    /// record is replaced, it never returns, so all earlier snapshots have it as well.
    #[inline]
    pub(crate) fn is_as_declared(&self, snapshot: Stamp) -> bool {
        snapshot.number() <= self.shared.as_declared.load(Ordering::Relaxed)
            && snapshot != Stamp::UNKNOWN
    }

    /// Checks in the catalog that the index is readable in this snapshot.
    #[cold]
    pub(crate) fn check_readable(
        &self,
        reader: Reader<'_>,
        index: usize,
        snapshot: Stamp,
        opened: u64,
    ) -> Result<()> {
        let is_older = opened < self.opened;
        self.check_declared(reader, snapshot, is_older)?;
        reader.note_read(index);
        if self.is_readable(index, opened) {
            return Ok(());
        }
        if is_older && self.lacking_in(reader)?.contains(&index) {
            return Err(Error::SnapshotTooOld { table: self.schema.name });
        }
        let Some(state) = self.state(reader, index)? else {
            // A transaction of one shard does not read the states in the other shards.
            if !is_older && !reader.is_limited() {
                // Another process has built the index; later snapshots have it too.
                self.became_readable_in(index, opened);
            }
            return Ok(());
        };
        Err(Error::IndexNotReadable {
            table: self.schema.name,
            index: self.schema.index_name(Source::Index(index)).unwrap_or_default(),
            state: IndexState::from(state),
        })
    }

    /// Returns true if the index is violated in this snapshot, so that a key may have several entries.
    ///
    /// # Errors
    ///
    /// The errors of [`check_readable`](OpenTable::check_readable) for an index in any other state.
    #[cold]
    pub(crate) fn check_scannable(
        &self,
        reader: Reader<'_>,
        index: usize,
        snapshot: Stamp,
        opened: u64,
    ) -> Result<bool> {
        let declared = self.schema.indexes.get(index).filter(|declared| declared.unique);
        if let Some(declared) = declared {
            // Before the state is read: it can be that of another declaration.
            self.check_declared(reader, snapshot, opened < self.opened)?;
            if self.is_violated(reader, index, declared.name)? {
                reader.note_read(index);
                return Ok(true);
            }
        }
        self.check_readable(reader, index, snapshot, opened).map(|()| false)
    }

    /// Whether the index has the entries of all rows, and is violated somewhere.
    fn is_violated(&self, reader: Reader<'_>, index: usize, name: &str) -> Result<bool> {
        if reader.is_split() {
            return Ok(matches!(self.state(reader, index)?, Some(StateRecord::Violated(_))));
        }
        let is_violated = reader.record(name)?.is_some_and(StateRecord::is_violated);
        // It can be the state of another declaration.
        Ok(is_violated && self.state_if_lacking(reader, index)?.is_none())
    }

    /// Checks that the record in this snapshot has the rows of this process. A snapshot `is_older` if it can be from before the table
    /// was opened.
    fn check_declared(&self, reader: Reader<'_>, snapshot: Stamp, is_older: bool) -> Result<()> {
        match self.check_record(reader, snapshot) {
            Err(Error::SchemaMismatch { table, .. }) if is_older => {
                Err(Error::SnapshotTooOld { table })
            }
            outcome => outcome,
        }
    }

    fn check_record(&self, reader: Reader<'_>, snapshot: Stamp) -> Result<()> {
        let record = reader.record("")?.ok_or_else(|| self.declared_otherwise())?;
        if !self.knows(record) && !self.compare(reader, record)? {
            return Err(self.declared_otherwise());
        }
        // A write without another comparison maintains everything in the record.
        if snapshot != Stamp::UNKNOWN && self.maintains(record) {
            self.shared.as_declared.fetch_max(snapshot.number(), Ordering::Relaxed);
        }
        Ok(())
    }

    #[cold]
    pub(crate) fn declared_otherwise(&self) -> Error {
        Error::SchemaMismatch {
            table: self.schema.name,
            difference: "another process has opened it with another declaration since".to_owned(),
            way_out: "all processes that use a table must declare it alike; restart this process \
                      with the declaration in use",
        }
    }

    /// Returns a row to be written to the table.
    pub(crate) const fn new_row<'a, R>(&'a self, row: &'a R) -> NewRow<'a, R> {
        NewRow { table: self, row }
    }

    /// Returns the shard that has the rows with this shard key; 0 in a store with one shard.
    ///
    /// # Errors
    ///
    /// [`Error::NoShard`]
    pub(crate) fn shard_of_shard_key(&self, shard_key: &[u8]) -> Result<ShardNumber> {
        let Some(routing) = self.tables.routing() else { return Ok(0) };
        routing.shard_of_shard_key(shard_key).ok_or_else(|| Error::NoShard {
            table: self.schema.name,
            key: self.schema.show_primary_key(shard_key),
            map: routing.map().to_owned(),
        })
    }

    /// Returns the key of the group writer for the row with this primary key; `None` if the row is in no single shard.
    #[cfg(feature = "async")]
    pub(crate) fn row_key(self: &Arc<Self>, primary_key: &[u8]) -> Option<RowKey> {
        let routing = self.tables.routing()?;
        // If one shard has the whole table, its shard does not depend on a key.
        let is_whole = || routing.shard_of_shard_key(&[]).is_some();
        let shard_key = routing.shard_key_in(primary_key);
        Some(RowKey::new(self, shard_key.or_else(|| is_whole().then_some(&[]))?))
    }

    /// Checks that the store with this number is the table's store.
    pub(crate) fn check_store(&self, store: u64) -> Result<()> {
        if store == self.store {
            return Ok(());
        }
        Err(Error::WrongStore { table: self.schema.name })
    }
}

/// A row to be written to a table.
///
/// Before it is written, it is tested whether the row can be read back.
/// A row can't be read back if its `Deserialize` does not accept the output of its `Serialize`. The derive sees the serde
/// attributes of the row's fields, but not those inside the types of the fields. Without a test, the error would only
/// occur when the row is read. The result mostly depends on the types and kinds, so a release build tests the first rows,
/// and each row that makes new lists. After a row was refused, and with debug assertions, every row is tested.
pub(crate) struct NewRow<'a, R> {
    table: &'a OpenTable,
    row: &'a R,
}

impl<R: Entity> LoadRow for NewRow<'_, R> {
    #[inline]
    fn load_row(&self, new: &mut Image) -> Result<MadeLists> {
        let lists = &self.table.rows.lists;
        let before = lists.position();
        new.load_row(lists, self.row)?;
        if lists.position() == before {
            return Ok(MadeLists::No);
        }
        // The transaction may run again, and then the row makes none, or end before the row is tested.
        let start = |tried: u64| (tried != ALL_TRIED).then_some(0);
        let _ = self.table.tried.fetch_update(Ordering::Relaxed, Ordering::Relaxed, start);
        Ok(MadeLists::Yes)
    }

    #[inline]
    fn is_tested(&self, made: MadeLists) -> bool {
        let so_far = self.table.tried.load(Ordering::Relaxed);
        cfg!(debug_assertions)
            || R::READS_BACK
            || made == MadeLists::Yes
            || !(TRIED_ROWS..ALL_TRIED).contains(&so_far)
    }

    #[inline]
    fn load_entries(&self, new: &mut Image, tried: &mut Image, made: MadeLists) -> Result<()> {
        let Self { table, row } = *self;
        new.load_entries(&table.rows.lists, row)?;
        if !self.is_tested(made) {
            return Ok(());
        }
        let so_far = table.tried.load(Ordering::Relaxed);
        if so_far < TRIED_ROWS {
            let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
            let _ = table.tried.compare_exchange(so_far, so_far + 1, set, fetch);
        }
        if let Err(error) = rows::try_back(&table.rows, new, tried) {
            // The lists of the refused row stay, so a later row like it makes none.
            table.tried.store(ALL_TRIED, Ordering::Relaxed);
            return Err(error);
        }
        if R::READS_BACK {
            // The entries, totals and references are those of the row as it is read later.
            mem::swap(new, tried);
        }
        Ok(())
    }

    fn load(&self, new: &mut Image, tried: &mut Image) -> Result<()> {
        let made = self.load_row(new)?;
        self.load_entries(new, tried, made)
    }
}
