//! The state that the handles to a store share: the engine, the tables in use, and the turn to write.

use std::{
    collections::{BTreeMap, BTreeSet},
    ptr,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use super::lists::TableLists;
use super::{
    Client, Engines, Shards, Store,
    commits::Outcomes,
    follower,
    open_table::{OpenTable, Readable},
    relied::KnownRecords,
    rollout::Rollout,
    transaction,
};
use crate::{
    engine::{self, Conflicts, Limit, Records, WhenFull},
    locks::{Mutex, MutexGuard, rank},
    model::{
        error::{Error, Result},
        reference::Referrer,
        row_vtable::TableRows,
        schema::Source,
    },
    placement::Tables,
    usage::{Durations, Inspections, Requests, TableCounters},
    write::{Scratch, SharedTable, changes::Orders, queue::Signals, watch::Watchers},
};

/// The pause between two transactions of long work, in which other writers begin their transactions.
const PAUSE: Duration = Duration::from_millis(1);

/// The maximum time for which long work pauses while other writers wait.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Inner {
    pub(crate) engines: Engines,
    /// The number of the store, by which its transactions and repositories are recognized.
    pub(crate) id: u64,
    writer: Mutex<WriterState>,
    /// Signals about the queues of tables.
    pub(crate) signals: Arc<Signals>,
    /// The commits of rows, while a thread waits for one.
    pub(crate) commits_seen: Signals,
    /// The limit of the queues.
    limit: Limit,
    /// The open tables and their declarations. A thread that holds this lock must not wait for a transaction,
    /// since the thread with the transaction may wait for the lock.
    tables: Mutex<BTreeMap<&'static str, Opened>>,
    /// The tables that were opened without their structs, in a store that can be written. They are not in use by others: the
    /// program can open them with their structs.
    recorded: Arc<Mutex<Vec<Weak<OpenTable>>>>,
    /// Locked while a table is opened, so that it is opened once.
    opening: Mutex<(), rank::Opening>,
    /// The number of tables that have been opened, and of indexes that have become readable since.
    opened: Arc<AtomicU64>,
    /// The durations of some commits.
    pub(crate) commits: Durations,
    pub(crate) outcomes: Outcomes,
    pub(crate) inspections: Inspections,
    /// The transactions, in a store with one shard.
    pub(crate) requests: Requests,
    /// The follower that applies commits to the store.
    pub(super) follower: Mutex<Weak<follower::Shared>>,
    /// The lists of the tables.
    pub(super) lists: Arc<TableLists>,
    /// Builds indexes that records lacked.
    pub(crate) rollout: Arc<Rollout>,
    /// In the store of a follower, opens the tables in use in the shards to which their rows have moved; `None` before the
    /// first table is opened.
    pub(crate) open_followed: OnceLock<fn(&Store, &Shards)>,
    #[cfg(feature = "async")]
    pub(in crate::store) calls: super::calls::Calls,
}

/// The value of [`Inner::opened`] for write transactions. Opening a table takes a write transaction, so a
/// write transaction has the databases of all open tables. The counter for an index that isn't readable is
/// greater.
pub(super) const ALL_OPENED: u64 = u64::MAX - 1;

/// A table that has been opened.
struct Opened {
    table: Weak<OpenTable>,
    /// See [`OpenTable::since`].
    since: u64,
    /// [`Inner::opened`] when its struct was last opened. Tables without their structs that were opened before are no longer written.
    with_struct: u64,
}

/// The result of opening a table.
#[derive(Default)]
pub(crate) struct Declared {
    /// The record of the table in the catalog.
    pub(crate) record: Vec<u8>,
    /// The declaration of this process, if the record is another.
    pub(crate) declaration: Option<Vec<u8>>,
    /// The positions of the indexes and aggregates that the record lacks.
    pub(crate) lacking: Vec<usize>,
    /// This process, as other clients see it.
    pub(crate) client: Option<Client>,
    /// For each index, whether it is readable.
    pub(crate) readable: Vec<bool>,
    /// Whether the table has changes with numbers of another cluster.
    pub(crate) has_foreign: bool,
    /// The new records of the referenced tables.
    pub(crate) renewed: Vec<Renewed>,
    /// The place of the last change in the order of all shards.
    pub(crate) last_change: u64,
    /// Other tables that stay open as long as this one.
    pub(crate) kept: Vec<Arc<OpenTable>>,
}

/// A new record of a referenced table.
#[derive(Debug)]
pub(crate) struct Renewed {
    pub(crate) table: &'static str,
    pub(crate) before: Vec<u8>,
    pub(crate) after: Vec<u8>,
}

/// The state of the only write transaction. A sharded store has a write transaction for each shard.
#[derive(Default)]
struct WriterState {
    /// The thread that has the write transaction.
    thread: Option<ThreadId>,
    /// The threads that have the write transactions of other shards.
    others: Vec<ThreadId>,
    /// The buffers of the last transaction, for the next transaction.
    scratch: Option<Box<Scratch>>,
}

impl Inner {
    /// Returns the state of a store that is not a shard.
    pub(super) fn new(engines: Engines, limit: Limit) -> Self {
        Self::with_place(engines, limit, 0)
    }

    /// Returns the state of a shard.
    pub(super) fn of_shard(engines: Engines, limit: Limit) -> Self {
        Self::with_place(engines, limit, 1)
    }

    /// Returns the state of the first shard of a store that grows. Tables without their structs keep its only data file in use.
    pub(super) fn of_grown(store: &Self, engine: &Arc<engine::Engine>, limit: Limit) -> Self {
        let mut shard = Self::of_shard(Engines::of(Arc::clone(engine)), limit);
        shard.recorded = Arc::clone(&store.recorded);
        shard
    }

    /// `place` is that of the lock of opening tables among these locks: a thread that opens a table of a sharded store opens it
    /// in the stores of the shards.
    fn with_place(engines: Engines, limit: Limit, place: u64) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let opening = Mutex::numbered(place, ());
        let (writer, tables) = (Mutex::default(), Mutex::default());
        let (opened, signals) = (Arc::default(), Arc::default());
        let (commits, follower) = (Durations::default(), Mutex::default());
        let lists = engines.several().map(|shards| Arc::clone(shards.lists())).unwrap_or_default();
        Self {
            engines,
            id,
            writer,
            signals,
            commits_seen: Signals::default(),
            limit,
            tables,
            recorded: Arc::default(),
            opening,
            opened,
            commits,
            outcomes: Outcomes::default(),
            inspections: Inspections::default(),
            requests: Requests::default(),
            follower,
            lists,
            rollout: Arc::default(),
            open_followed: OnceLock::new(),
            #[cfg(feature = "async")]
            calls: super::calls::Calls::default(),
        }
    }

    /// Returns the only engine of the store.
    pub(crate) fn engine(&self) -> Result<&Arc<engine::Engine>> {
        self.engines.one().ok_or_else(|| Error::internal("a shard that has shards"))
    }

    /// Opens a table, or returns the open table while a repository of it is in use. While it is in use, a
    /// different declaration is refused, since each repository would write rows without the indexes of the
    /// other. If only the thread of [`Rollout`] uses it, waits for the end of its batch.
    pub(crate) fn open_once(
        &self,
        rows: &TableRows,
        open: impl FnOnce(&Engines) -> Result<(Tables, Declared)>,
    ) -> Result<Arc<OpenTable>> {
        let schema = rows.schema;
        // A thread with a write transaction would wait for a batch that waits for it.
        if self.refuse_nested_write().is_ok() {
            self.rollout.wait_for(schema.name);
        }
        if let Some(used) = self.used(rows)? {
            return Ok(used);
        }
        self.refuse_nested_write()?;
        let _opening = self.opening.lock();
        if let Some(used) = self.used(rows)? {
            return Ok(used);
        }
        if rows.has_rows() {
            // Before the first shard is opened, since writers of other shards can run.
            let new = || Opened { table: Weak::new(), since: 0, with_struct: 0 };
            self.tables().entry(schema.name).or_insert_with(new).with_struct = self.opened();
        }
        let (tables, declared) = open(&self.engines)?;
        let Declared { record, declaration, lacking, client, readable, .. } = declared;
        let (renewed, last_change, kept) = (declared.renewed, declared.last_change, declared.kept);
        let declaration = declaration.unwrap_or_else(|| record.clone());
        if self.limit.when_full == WhenFull::Disable && schema.has_eventual() && tables.are_split()
        {
            let what = "`WhenFull::Disable`, for a table with rows in several shards and an eventual index";
            return Err(Error::NotOffered { what });
        }
        let opened = self.opened.fetch_add(1, Ordering::AcqRel) + 1;
        let since = match self.tables().get(schema.name) {
            _ if !tables.were_known() => opened,
            Some(before) => before.since,
            None => 0,
        };
        let orders = OnceLock::new();
        if self.engines.several().is_some() {
            let _ = orders.set(Orders::after(last_change));
        }
        let readable = Readable::new(schema, (&tables, &readable), opened, &self.opened);
        let table = Arc::new(OpenTable {
            schema,
            rows: rows.clone(),
            tables,
            limit: self.limit,
            declaration,
            record,
            lacking: lacking.into(),
            records: KnownRecords::default(),
            client,
            rollout: Arc::clone(&self.rollout),
            readable,
            tried: AtomicU64::new(0),
            shared: Arc::new(SharedTable {
                usage: Arc::new(TableCounters::new(schema)),
                watchers: Watchers::default(),
                as_declared: AtomicU64::new(0),
                archive: Mutex::default(),
                orders,
            }),
            store: self.id,
            opened,
            since,
            kept: kept.into_iter().collect(),
            #[cfg(feature = "async")]
            copied: OnceLock::new(),
        });
        for reference in rows.references {
            let is_own = reference.to.name == schema.name;
            let to = if is_own { Some(Arc::clone(&table)) } else { self.table(reference.to.name) };
            if let Some(to) = to {
                let source = reference.index.map_or(Source::Facts, Source::Index);
                to.tables.link(Referrer::of(schema, reference), &table.tables, source);
            }
        }
        for Renewed { table, before, after } in renewed {
            if let Some(used) = self.table(table) {
                used.renew(&before, after);
            }
        }
        if self.is_apart(rows) {
            self.recorded.lock().push(Arc::downgrade(&table));
            return Ok(table);
        }
        let (own, mut tables) = (Arc::downgrade(&table), self.tables());
        let with_struct = tables.get(schema.name).map_or(0, |before| before.with_struct);
        tables.insert(schema.name, Opened { table: own, since, with_struct });
        drop(tables);
        Ok(table)
    }

    /// Prevents the opening of tables.
    pub(crate) fn lock_opening(&self) -> MutexGuard<'_, ()> {
        self.opening.lock()
    }

    /// Whether a table is kept apart from the tables in use.
    fn is_apart(&self, rows: &TableRows) -> bool {
        !rows.has_rows() && !self.engines.is_read_only()
    }

    /// Returns the tables that were opened without their structs in a store that can be written.
    pub(crate) fn recorded(&self) -> Vec<Arc<OpenTable>> {
        let mut recorded = self.recorded.lock();
        recorded.retain(|own| own.strong_count() > 0);
        recorded.iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the table if a repository of it is in use.
    fn used(&self, rows: &TableRows) -> Result<Option<Arc<OpenTable>>> {
        self.engines.refuse_forked()?;
        let table = rows.schema.name;
        // It is not dropped while the tables are locked.
        let used = self.tables().get(table).and_then(|opened| opened.table.upgrade());
        let Some(used) = used else {
            let is_same = |own: &Arc<OpenTable>| {
                own.store == self.id && ptr::eq(own.schema, rows.schema) && self.is_current(own)
            };
            return Ok(self.recorded().into_iter().find(|own| self.is_apart(rows) && is_same(own)));
        };
        if used.rows.is_same_type(rows) || !rows.has_rows() {
            return Ok(Some(used));
        }
        if !used.rows.has_rows() {
            return Ok(None);
        }
        let (other, own) = (used.rows.type_name(), rows.type_name());
        Err(Error::SchemaMismatch {
            table,
            difference: format!(
                "this process uses it with another declaration: `{other}` has the same name for its \
                 table as `{own}`"
            ),
            way_out: "declare one of the two with another `#[table(name = …)]`, or drop the \
                      other's repositories first",
        })
    }

    /// Whether a table that was opened without its struct can be written: since then, its struct was not opened, the store has not
    /// grown, and no keys have moved to further shards. A repository may have changed the record, and has its own places of changes.
    pub(crate) fn is_current(&self, table: &OpenTable) -> bool {
        let opened = self.tables().get(table.schema.name).map_or(0, |opened| opened.with_struct);
        let is_in_place = match table.tables.several() {
            Some(tables) => tables.are_complete(),
            None => self.engines.several().is_none(),
        };
        is_in_place && table.opened > opened
    }

    /// Returns the table with these counters; `None` if it belongs to another store, or no repository of it
    /// is left.
    pub(crate) fn table_of(&self, usage: &Arc<TableCounters>) -> Option<Arc<OpenTable>> {
        let table = self.table(usage.schema.name)?;
        Arc::ptr_eq(&table.shared.usage, usage).then_some(table)
    }

    /// Returns the table with this name if this process has it in use. A forked process has none.
    pub(crate) fn table(&self, name: &str) -> Option<Arc<OpenTable>> {
        self.engines.refuse_forked().ok()?;
        self.tables().get(name)?.table.upgrade()
    }

    /// Returns the tables that this process has in use, by name. A forked process has none. In a store that can be written, these are
    /// tables with their structs.
    pub(crate) fn tables_in_use(&self) -> Vec<Arc<OpenTable>> {
        let mut used = self.all_in_use();
        // A follower may have been promoted since it was opened.
        used.retain(|table| !self.is_apart(&table.rows));
        used
    }

    /// Returns the tables that this process has in use, also without their structs.
    fn all_in_use(&self) -> Vec<Arc<OpenTable>> {
        if self.engines.refuse_forked().is_err() {
            return Vec::new();
        }
        self.tables().values().filter_map(|opened| opened.table.upgrade()).collect()
    }

    /// Returns the tables with eventual indexes that this process has in use.
    pub(crate) fn eventual_tables(&self) -> Vec<Arc<OpenTable>> {
        let used = self.tables_in_use().into_iter();
        used.filter(|table| table.schema.has_eventual()).collect()
    }

    fn tables(&self) -> MutexGuard<'_, BTreeMap<&'static str, Opened>> {
        self.tables.lock()
    }

    /// Pauses between two transactions of long work, so that other writers get their turn first. In this process, a thread
    /// that waits for its turn gets it. Without the pause, the calling thread would lock again before that thread wakes
    /// up.
    pub(crate) fn let_others_write(&self) {
        let began = Instant::now();
        loop {
            thread::sleep(PAUSE);
            if !self.engines.is_contended() || began.elapsed() > LONGEST_PAUSE {
                return;
            }
        }
    }

    /// Returns the counter for transactions that begin now.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Acquire)
    }

    /// Returns the contents of the catalog.
    pub(crate) fn catalog(&self) -> Result<Records> {
        self.engines.refuse_forked()?;
        if !self.engines.has_catalog() {
            self.refuse_nested_write()?;
        }
        self.engines.catalog()
    }

    /// Drops the indexes that `choose` returns. `choose` gets the records of the catalog, and a function that
    /// returns true for an index of an open table.
    pub(crate) fn drop_indexes(
        &self,
        mut choose: impl FnMut(&Records, &dyn Fn(&str, &str) -> bool) -> Vec<String>,
    ) -> Result<Vec<String>> {
        self.refuse_nested_write()?;
        // Prevents the opening of tables until the function returns.
        let _opening = self.opening.lock();
        let is_in_use = |table: &str, index: &str| {
            let used = self.tables().get(table).and_then(|opened| opened.table.upgrade());
            used.is_some_and(|used| {
                let mut parts = used.rows.parts().names();
                let mut indexes = used.schema.indexes.iter().map(|own| own.name);
                indexes.any(|own| own == index) || parts.any(|own| own == index)
            })
        };
        let tables = [self.all_in_use(), self.recorded()].concat();
        let in_use = tables.iter().filter_map(|used| used.tables.one()).flat_map(|it| it.names());
        let in_use: BTreeSet<String> = in_use.collect();
        let choose = &mut |records: &Records| choose(records, &is_in_use);
        let attempt = || self.engines.drop_indexes(&in_use, choose);
        let mut conflicts = Conflicts::default();
        transaction::run(attempt, |retry| {
            transaction::prepare(&self.engines, retry, &mut conflicts)
        })
    }

    /// Calls `change` while no table can be opened, if this process does not have this table open.
    pub(crate) fn while_closed<T>(
        &self,
        table: &str,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.refuse_nested_write()?;
        let _opening = self.opening.lock();
        let is_open = |open: &Arc<OpenTable>| open.schema.name == table;
        if [self.all_in_use(), self.recorded()].concat().iter().any(is_open) {
            return Err(Error::NotOffered {
                what: "giving up an index of a table that this process has open",
            });
        }
        change()
    }

    /// Fails if this thread has a write transaction. With LMDB, it would be a deadlock.
    pub(crate) fn refuse_nested_write(&self) -> Result<()> {
        self.engines.refuse_forked()?;
        let own = thread::current().id();
        let writer = self.writer();
        if writer.thread == Some(own) || writer.others.contains(&own) {
            return Err(Error::WriteInProgress);
        }
        Ok(())
    }

    fn writer(&self) -> MutexGuard<'_, WriterState> {
        self.writer.lock()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // In a forked process, a lock may be held by a thread that does not exist.
        if self.engines.refuse_forked().is_ok() {
            self.rollout.end();
            #[cfg(feature = "async")]
            self.calls.end();
        }
        for table in self.tables_in_use() {
            table.shared.watchers.close();
        }
    }
}

/// A guard that records the thread of the write transaction, and has its buffers.
pub(crate) struct WriterGuard<'s> {
    inner: &'s Inner,
    scratch: Option<Box<Scratch>>,
    /// Whether the thread is in `others`.
    is_other: bool,
}

impl<'s> WriterGuard<'s> {
    pub(super) fn new(inner: &'s Inner) -> Self {
        let (mut writer, own) = (inner.writer(), thread::current().id());
        let is_other = writer.thread.is_some();
        if is_other {
            writer.others.push(own);
        } else {
            writer.thread = Some(own);
        }
        let scratch = writer.scratch.take();
        Self { inner, scratch, is_other }
    }

    pub(crate) const fn store(&self) -> &'s Inner {
        self.inner
    }

    #[inline]
    pub(crate) fn scratch(&mut self) -> &mut Scratch {
        self.scratch.get_or_insert_default()
    }
}

impl Drop for WriterGuard<'_> {
    fn drop(&mut self) {
        let scratch = self.scratch.take().filter(|scratch| !scratch.is_large());
        // In a forked process, the lock may be held by a thread that does not exist.
        if self.inner.engines.refuse_forked().is_err() {
            return;
        }
        let mut writer = self.inner.writer();
        writer.scratch = scratch;
        if self.is_other {
            let own = thread::current().id();
            writer.others.retain(|other| *other != own);
        } else {
            writer.thread = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering::SeqCst},
        thread,
        time::{Duration, Instant},
    };

    use super::LONGEST_PAUSE;
    use crate::Store;

    /// Waits until the store has the given contention.
    fn wait_until(store: &Store, is_contended: bool) {
        let began = Instant::now();
        while store.inner.engines.is_contended() != is_contended {
            assert!(began.elapsed() < Duration::from_secs(30), "not contended: {is_contended}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn long_work_pauses_until_a_waiting_thread_has_had_its_turn() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::open(directory.path()).expect("a store");
        assert!(!store.inner.engines.is_contended());
        let had_its_turn = AtomicBool::new(false);
        thread::scope(|scope| {
            let txn = store.write().expect("a transaction");
            scope.spawn(|| {
                let txn = store.write().expect("a transaction");
                had_its_turn.store(true, SeqCst);
                drop(txn);
            });
            wait_until(&store, true);
            assert!(!had_its_turn.load(SeqCst));
            // The pause is limited, even if the other thread can't get its turn.
            let began = Instant::now();
            store.inner.let_others_write();
            assert!(began.elapsed() >= LONGEST_PAUSE && !had_its_turn.load(SeqCst));
            drop(txn);
            wait_until(&store, false);
        });
        assert!(had_its_turn.load(SeqCst));
    }
}
