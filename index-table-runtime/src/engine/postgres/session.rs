//! The state of a server's transaction.

use std::{
    cell::{Cell, OnceCell},
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
};

use super::{
    catalog::{Catalog, Record},
    connection::Connection,
    names::Relation,
    numbers::{Blocks, Explicit},
    patience,
    pending::Pending,
    pool::{Counted, Leased, Pool},
    slot::Slot,
    start::Start,
    stripes::{self, Group, Striped},
    tables::Tables,
    token::Kept,
};
use crate::{
    engine::CommitFailure,
    model::{
        error::{Error, Result},
        numbering::Numbering,
        schema::TableSchema,
    },
};

/// The parts of an open store that its transactions use.
#[derive(Clone, Copy)]
pub(super) struct Server<'s> {
    pub(super) pool: &'s Arc<Pool>,
    pub(super) catalog: &'s Catalog,
    /// The numbers that `insert_with` assigns.
    pub(super) blocks: &'s Blocks,
}

/// The state of a server's transaction, which nested transactions share.
pub(super) struct Session<'s> {
    pub(super) pool: &'s Arc<Pool>,
    pub(super) catalog: &'s Catalog,
    pub(super) blocks: &'s Blocks,
    pub(super) writes: bool,
    /// Whether the catalog exists.
    pub(super) has_catalog: bool,
    /// Counts a read transaction until it ends.
    counted: OnceCell<Counted>,
    /// Other threads may take the snapshot of a read transaction.
    pub(super) start: Arc<Start>,
    pub(super) leased: Slot<Option<Leased>>,
    /// The failure that ends the transaction with all nested transactions.
    failure: OnceCell<Failure>,
    /// The number of changes of the catalog by this transaction, and of their rollbacks.
    own_changes: Cell<u64>,
    /// The number of changes that this transaction has added to change streams.
    streamed: Cell<u64>,
    /// Whether no closure runs again after a conflict.
    pub(super) has_one_attempt: Cell<bool>,
    /// The tables that this transaction has written.
    written: Slot<Vec<&'static str>>,
    /// Whether its conflict was counted.
    is_counted: Cell<bool>,
    /// The tables in which this transaction has inserted rows with keys that are not from a block of numbers.
    explicit: Slot<Vec<&'static str>>,
    /// The table in SQL whose other writers wait until the end of this transaction.
    pub(super) exclusive: OnceCell<String>,
    /// The groups whose stripes are merged after the commit.
    merged: Slot<Vec<Group>>,
    /// The number of calls of [`count_numbered`](Self::count_numbered), in all nested transactions.
    numbered: Cell<u64>,
    pub(super) numbers: OnceCell<Numbers>,
    /// The cached records that this transaction used before the numbers were known.
    pub(super) assumed: Slot<Option<Assumed>>,
    /// What a read transaction has read before the numbers were known.
    pub(super) reads: Slot<AssumedReads>,
    /// The counter of the catalog for which cached records were used.
    pub(super) assumed_at: Cell<Option<u64>>,
    /// The table of the index or aggregate that was read last.
    pub(super) last_read: Cell<Option<&'static str>>,
    /// The keys of the records that were used since the last statement.
    pub(super) used: Slot<Vec<Vec<u8>>>,
    /// The items that are sent with the next statement.
    pub(super) pending: Slot<Pending>,
    /// Whether a statement was sent that may change something.
    pub(super) has_changed: Cell<bool>,
    /// The token that the transaction has inserted.
    pub(super) token: Slot<Option<Kept>>,
}

/// Returns the number at which the messages of a transaction begin, below 2^23. After a dump was restored in another cluster, a queue can have
/// messages of a transaction with the same number, which these must not replace. With the same message number, the transaction runs again.
fn first_number() -> u64 {
    RandomState::new().hash_one(0_u8) >> 41
}

/// The numbers of a transaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    /// The number of the write transaction, or the number before which all transactions of a snapshot have ended.
    pub(super) number: u64,
    /// The counter of the catalog in the snapshot; `None` before the catalog exists.
    pub(super) changes: Option<u64>,
}

/// The used cached records, and the counter of the catalog for which they are valid.
pub(super) struct Assumed {
    pub(super) changes: u64,
    pub(super) records: Vec<(&'static TableSchema, Vec<u8>, Arc<Record>)>,
}

/// What a transaction has read on the assumption of cached records.
#[derive(Default)]
pub(super) struct AssumedReads {
    /// Indexes and aggregates, by their positions.
    pub(super) parts: Vec<(&'static TableSchema, usize)>,
    /// Whether it has read what is neither of these nor a row.
    pub(super) others: bool,
}

/// The first error of a transaction.
pub(super) struct Failure {
    pub(super) is_conflict: bool,
    pub(super) error: Error,
}

impl<'s> Session<'s> {
    /// Returns the session of a transaction that has not begun. Without a connection, it takes one for its first
    /// statement.
    pub(super) fn new(
        Server { pool, catalog, blocks }: Server<'s>,
        leased: Option<Leased>,
        writes: bool,
        has_catalog: bool,
    ) -> Result<Self> {
        let session = Self {
            pool,
            catalog,
            blocks,
            writes,
            has_catalog,
            counted: OnceCell::new(),
            start: Arc::default(),
            leased: Slot::default(),
            failure: OnceCell::new(),
            own_changes: Cell::new(0),
            streamed: Cell::new(0),
            has_one_attempt: Cell::new(false),
            written: Slot::default(),
            is_counted: Cell::new(false),
            explicit: Slot::default(),
            exclusive: OnceCell::new(),
            merged: Slot::default(),
            numbered: Cell::new(if writes { first_number() } else { 0 }),
            numbers: OnceCell::new(),
            assumed: Slot::default(),
            reads: Slot::default(),
            assumed_at: Cell::new(None),
            last_read: Cell::new(None),
            used: Slot::default(),
            pending: Slot::default(),
            has_changed: Cell::new(false),
            token: Slot::default(),
        };
        if let Some(leased) = leased {
            session.use_connection(leased)?;
        }
        Ok(session)
    }

    /// Begins the use of a connection.
    pub(super) fn use_connection(&self, leased: Leased) -> Result<Arc<Connection>> {
        let connection = leased.get()?;
        self.start.lock().connection = Some(Arc::clone(&connection));
        if !self.writes {
            self.counted.get_or_init(|| self.pool.count_reader(&self.start));
        }
        self.leased.set(Some(leased));
        Ok(connection)
    }

    /// Begins the use of a connection whose transaction has begun and has its snapshot.
    pub(super) fn use_begun(&self, leased: Leased) -> Result<()> {
        self.start.lock().has_begun = true;
        self.use_connection(leased).map(drop)
    }

    pub(super) fn has_begun(&self) -> bool {
        self.start.lock().has_begun
    }

    /// Returns the numbers, if they are known.
    pub(super) fn known_numbers(&self) -> Option<Numbers> {
        self.numbers.get().copied()
    }

    /// Makes the next round trip read the numbers.
    pub(super) fn need_numbers(&self) {
        let changes = self.catalog.changes_known();
        self.assumed_at.set(self.assumed_at.get().or(Some(changes)));
        self.assumed.with(|assumed| {
            assumed.get_or_insert(Assumed { changes, records: Vec::new() });
        });
    }

    /// Notes that a read transaction reads an index or aggregate at this position, or anything else but rows.
    pub(super) fn note_read(&self, schema: &'static TableSchema, part: Option<usize>) {
        self.last_read.set(Some(schema.name));
        if self.writes || self.known_numbers().is_some() {
            return;
        }
        self.reads.with(|reads| match part {
            Some(part) => reads.parts.push((schema, part)),
            None => reads.others = true,
        });
    }

    /// Returns the failure of the transaction.
    pub(super) fn failure(&self) -> Option<&Failure> {
        self.failure.get()
    }

    /// Lets the transaction fail, unless it has failed.
    pub(super) fn fail(&self, is_conflict: bool, error: &Error) {
        self.failure.get_or_init(|| Failure { is_conflict, error: error.again() });
        if is_conflict {
            self.count_conflict();
        }
    }

    /// Notes that the transaction writes a table.
    pub(super) fn note_written(&self, table: &'static str) {
        self.written.with(|written| {
            if !written.contains(&table) {
                written.push(table);
            }
        });
    }

    /// Counts a failed commit.
    #[cold]
    pub(super) fn count_failure(&self, failure: &CommitFailure) {
        match failure {
            CommitFailure::Conflict(_) => self.count_conflict(),
            CommitFailure::Unknown(_) => self.pool.counters.note_unknown(),
            CommitFailure::Failed(_) => {}
        }
    }

    #[cold]
    fn count_conflict(&self) {
        if !self.is_counted.replace(true) {
            self.written.with(|written| self.pool.counters.note_conflict(written));
        }
    }

    /// Lets other writers of an SQL table wait until the end of the transaction, which has not begun.
    pub(super) fn exclude_writers(&self, table: &Relation) {
        self.exclusive.get_or_init(|| table.sql.clone());
    }

    /// Waits until no other transaction that calls this function for the table is running. This transaction has not begun.
    pub(super) fn exclude_builders(&self, table: &Relation) -> Result<()> {
        let name = format!("index-table build {}", table.sql);
        let leased = self.pool.take_locked(self.leased.take(), &name)?;
        self.use_connection(leased).map(drop)
    }

    /// Returns how often this transaction has changed the catalog, or has undone such a change.
    pub(super) const fn own_changes(&self) -> u64 {
        self.own_changes.get()
    }

    /// Notes a change of the catalog by this transaction, or a rollback of changes.
    pub(super) fn note_own_change(&self) {
        self.own_changes.update(|changes| changes + 1);
    }

    /// Returns the number of earlier changes that this transaction has added to change streams.
    pub(super) fn count_streamed(&self) -> u64 {
        self.streamed.replace(self.streamed.get() + 1)
    }

    /// Returns a random number plus the number of earlier calls of this function, also in nested transactions that were rolled back.
    pub(super) fn count_numbered(&self) -> u64 {
        self.numbered.replace(self.numbered.get() + 1)
    }

    /// Adds the key of a catalog record that the transaction uses. With the next statement, the record becomes trusted.
    pub(super) fn lend(&self, key: &[u8]) {
        self.used.with(|used| used.push(key.to_vec()));
    }

    /// Returns a cached record before the counter of the snapshot is known. It is checked with the next statement.
    pub(super) fn assume(&self, schema: &'static TableSchema, key: &[u8]) -> Option<Arc<Record>> {
        if !self.has_catalog || self.known_numbers().is_some() {
            return None;
        }
        let changes = self.assumed.with(|assumed| assumed.as_ref().map(|assumed| assumed.changes));
        let changes = changes.unwrap_or_else(|| self.catalog.changes_known());
        let record = self.catalog.trusted(changes, key)?;
        // A cached state may be older than the completion of an index, so a reader reads the current state.
        let is_state = key.last() != Some(&0);
        if !self.writes && is_state && record.is_some() {
            return None;
        }
        self.assumed_at.set(self.assumed_at.get().or(Some(changes)));
        self.assumed.with(|assumed| {
            let assumed = assumed.get_or_insert(Assumed { changes, records: Vec::new() });
            assumed.records.push((schema, key.to_vec(), Arc::clone(&record)));
        });
        Some(record)
    }

    /// Notes a new row, or a row with a new key, or `None` for many rows.
    pub(super) fn note_new(&self, tables: &Tables, primary_key: Option<&[u8]>) {
        if self.pool.is_inherited() {
            return;
        }
        if primary_key.is_some_and(|key| self.blocks.note(tables, key) == Explicit::Settled) {
            return;
        }
        self.explicit.with(|explicit| {
            if !explicit.contains(&tables.schema.name) {
                explicit.push(tables.schema.name);
            }
        });
    }

    /// Returns the next number of `insert_with`; `None` if the transaction has rows that blocks of numbers don't cover.
    pub(super) fn next_number(
        &self,
        tables: &Tables,
        numbering: &Numbering<'_>,
    ) -> Result<Option<u128>> {
        self.pool.refuse_forked()?;
        if self.explicit.with(|explicit| explicit.contains(&tables.schema.name)) {
            return Ok(None);
        }
        self.blocks.next(self.pool, tables, numbering).map(Some)
    }

    /// Lets the stripes of a group be merged after the commit.
    pub(super) fn merge_later(&self, striped: &Striped, group: &[u8]) {
        let is_same = |(other, same): &Group| {
            other.relation.name == striped.relation.name && same.as_slice() == group
        };
        self.merged.with(|merged| {
            if !merged.iter().any(is_same) {
                merged.push((striped.clone(), group.to_vec()));
            }
        });
    }

    /// Ends the blocks of numbers that the committed rows of this transaction concern, and merges stripes.
    pub(super) fn after_commit(&self) {
        patience::note_commit();
        for table in self.explicit.take() {
            self.blocks.end(table);
        }
        let merged = self.merged.take();
        if !merged.is_empty() {
            stripes::merge(self.pool, &merged);
        }
    }

    /// Whether the connection has ended.
    pub(super) fn is_lost(&self) -> bool {
        let connection =
            self.leased.with(|leased| leased.as_ref().and_then(|leased| leased.get().ok()));
        connection.is_none_or(|connection| connection.is_closed())
    }

    /// Ends the use of the connection, and returns it.
    pub(super) fn release(&self) -> Option<Leased> {
        let assumed = self.assumed.take();
        // Cached records may be obsolete if the transaction has changed the catalog, or if no statement has checked
        // them.
        if !self.has_no_own_changes() || assumed.is_some_and(|it| !it.records.is_empty()) {
            self.catalog.forget();
        }
        self.start.end();
        self.leased.take()
    }

    /// Whether this transaction has not changed the catalog.
    pub(super) fn has_no_own_changes(&self) -> bool {
        self.own_changes() == 0
    }
}
