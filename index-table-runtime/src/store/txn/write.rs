//! Write transactions.

mod each;

use std::{
    fmt,
    ops::Deref,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
};

use super::ReadTxn;
use crate::{
    engine::{CommitFailure, ReadRecords as _, Retry},
    model::{
        error::{Error, Result},
        lists::{Contradicted, LISTS},
    },
    placement::{
        Writer,
        shards::{self, Locks},
    },
    store::{Inner, OpenTable, Store, WriterGuard},
    usage::{TableCounters, Tally, begin_commit, trace::span},
    write::{
        Scratch, Written, WrittenTables,
        maintenance::MaintenancePlan,
        queue::{self, IndexToken},
        watch::{self, Watched},
    },
};

/// The write transaction. From [`Store::write`](crate::Store::write).
///
/// It reads its own writes: a `&WriteTxn` can be used as a `&ReadTxn`. If it is dropped without
/// [`commit`](WriteTxn::commit), nothing changes. If it has changed rows, it may be a mistake: it is counted by
/// [`Usage::uncommitted`](crate::Usage::uncommitted), and is an event of the level `WARN` with the feature `tracing`. A closure of
/// [`Store::transaction`](crate::Store::transaction) that returns an error gives up its changes without this.
///
/// It can't be sent to another thread:
///
/// ```compile_fail,E0277
/// fn sent<T: Send>() {}
/// sent::<index_table::WriteTxn<'_>>();
/// ```
pub struct WriteTxn<'s> {
    /// The guard. It precedes the transaction, so that it is dropped first: as soon as another thread writes, the
    /// guard's record belongs to that thread.
    guard: WriteGuard<'s>,
    /// The tables whose records have been compared, with the writes to them. They precede the transaction: when other processes can
    /// write, this one no longer reads by claims.
    written: WrittenTables,
    read: ReadTxn<'s>,
    /// The written tables of the outer transaction.
    outer: &'s [Written],
    /// The table whose full queue refused a write in a [nested](WriteTxn::nested) transaction.
    refused: Option<&'static str>,
}

/// The state of a write transaction.
enum WriteGuard<'s> {
    /// The store's turn to write.
    Turn(WriterGuard<'s>),
    /// The buffers of the outer transaction.
    Outer(&'s Inner, &'s mut Scratch),
    /// The store of a transaction that commits each operation as its own transaction.
    Each(&'s Store, Box<Scratch>),
}

impl<'s> WriteGuard<'s> {
    fn store(&self) -> &'s Inner {
        match self {
            Self::Turn(guard) => guard.store(),
            Self::Outer(store, _) => store,
            Self::Each(store, _) => &store.inner,
        }
    }

    /// Refuses an operation that can't be a transaction of its own.
    #[cold]
    fn refuse_each(&self) -> Result<()> {
        let Self::Each(..) = self else { return Ok(()) };
        let what = "this operation in an autocommit transaction; use `Store::transaction`";
        Err(Error::NotOffered { what })
    }

    fn scratch(&mut self) -> &mut Scratch {
        match self {
            Self::Turn(guard) => guard.scratch(),
            Self::Outer(_, scratch) => scratch,
            Self::Each(_, scratch) => scratch,
        }
    }
}

impl<'s> WriteTxn<'s> {
    pub(crate) fn new(read: ReadTxn<'s>, guard: WriterGuard<'s>) -> Self {
        Self::with(WriteGuard::Turn(guard), read, &[])
    }

    /// Lets a transaction without a closure report its changes if it is dropped without a commit.
    pub(in crate::store) fn reporting_loss(mut self) -> Self {
        self.written.report_loss();
        self.read.engine.has_one_attempt();
        self
    }

    /// Creates a transaction that commits each operation as its own transaction.
    pub(in crate::store) fn each_of(store: &'s Store) -> Result<Self> {
        Ok(Self::with(WriteGuard::Each(store, Box::default()), store.read_later()?, &[]))
    }

    /// Whether each operation is committed as its own transaction.
    pub(crate) const fn is_autocommit(&self) -> bool {
        matches!(self.guard, WriteGuard::Each(..))
    }

    /// Runs an operation that writes: in this transaction, or with autocommit in a transaction of its own, which may run again.
    #[inline]
    pub(crate) fn operate<T>(
        &mut self,
        mut operation: impl FnMut(&mut WriteTxn<'_>) -> Result<T>,
    ) -> Result<T> {
        if self.is_autocommit() {
            return self.each(operation);
        }
        operation(self)
    }

    /// Runs an operation as [`operate`](WriteTxn::operate) does. It can be called once.
    ///
    /// # Errors
    ///
    /// With autocommit, [`Error::TransactionFailed`] if the operation has to run again.
    #[inline]
    pub(crate) fn operate_once<T, E: From<Error>>(
        &mut self,
        operation: impl FnOnce(&mut WriteTxn<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        if self.is_autocommit() {
            return self.each_once(operation);
        }
        operation(self)
    }

    fn with(guard: WriteGuard<'s>, read: ReadTxn<'s>, outer: &'s [Written]) -> Self {
        Self { guard, read, written: WrittenTables::new(), outer, refused: None }
    }

    /// Runs `body` in a nested transaction, a savepoint. If `body` returns an error, its writes are undone, and this
    /// transaction can continue.
    ///
    /// Cost: LMDB copies the list of the pages that this transaction has written so far, and copies each of these
    /// pages if `body` changes it. On a store with shards, this is done in each shard that `body` uses.
    /// In a closure of [`Store::transaction`](crate::Store::transaction), the first use of a shard inside a nested
    /// transaction makes the closure run again, unless it is the first shard that the closure uses.
    ///
    /// # Errors
    ///
    /// The errors of `body`; [`Error::MapFull`], [`Error::TransactionTooLarge`] and [`Error::Engine`] when
    /// the nested transaction begins or ends.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{Error, IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// struct Seat {
    ///     #[primary_key]
    ///     number: u32,
    ///     guest: String,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// let seats = SeatRepository::open(&store)?;
    /// let seat = |number, guest: &str| Seat { number, guest: guest.to_owned() };
    /// store.transaction(|txn| {
    ///     seats.insert(txn, &seat(2, "Ann"))?;
    ///     // Both or none.
    ///     let together = txn.nested(|txn| {
    ///         seats.insert(txn, &seat(1, "Bob"))?;
    ///         seats.insert(txn, &seat(2, "Eve"))
    ///     });
    ///     assert!(matches!(together, Err(Error::DuplicateKey { .. })));
    ///     seats.insert(txn, &seat(3, "Bob"))
    /// })?;
    /// assert_eq!(seats.all(&store.read()?).keys().collect::<Result<Vec<_>, _>>()?, [2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn nested<T, E: From<Error>>(
        &mut self,
        body: impl FnOnce(&mut WriteTxn<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        if self.is_autocommit() {
            return self.each_once(body);
        }
        let mut outcome = None;
        let mut refused = None;
        let ended = self.nested_if(|txn| {
            let result = body(txn);
            refused = txn.refused();
            outcome.insert(result).is_ok()
        });
        self.refused = self.refused.or(refused);
        match (ended, outcome) {
            (Ok(()), Some(outcome)) | (Err(_), Some(outcome @ Err(_))) => outcome,
            (Err(error), _) => Err(error.into()),
            (Ok(()), None) => Err(Error::internal("a nested transaction did not run").into()),
        }
    }

    /// Runs `body` in a nested transaction, whose writes are kept if `body` returns `true`.
    ///
    /// # Errors
    ///
    /// The errors of the nested transaction. The outer transaction can continue without it.
    pub(crate) fn nested_if(&mut self, body: impl FnOnce(&mut WriteTxn<'_>) -> bool) -> Result<()> {
        if self.read.engine.several().is_some_and(shards::Txn::is_unbound) {
            return self.nested_before_a_shard(body);
        }
        let Self { guard, read, written, .. } = self;
        written.iter().try_for_each(Written::refuse_unfinished)?;
        let (store, opened, inner) = (read.store, read.opened, guard.store());
        let total = &read.session.total;
        let engine = read
            .engine
            .nested()
            .ok_or_else(|| Error::internal("a nested transaction in a read transaction"))??;
        let more = {
            let read = ReadTxn::new(engine, store, opened);
            let mut inner =
                WriteTxn::with(WriteGuard::Outer(inner, guard.scratch()), read, written);
            let keeps = body(&mut inner);
            let WriteTxn { read, written, .. } = inner;
            let more = written.take();
            total.add(read.session.total.get());
            if !keeps {
                return Ok(());
            }
            more.iter().try_for_each(Written::refuse_unfinished)?;
            read.engine.commit(|| ())?;
            more
        };
        for more in more {
            match written.iter_mut().find(|written| written.opened == more.opened) {
                Some(written) => written.add(more),
                None => written.push(more),
            }
        }
        Ok(())
    }

    /// [`nested_if`](WriteTxn::nested_if) in a transaction that has locked no shard yet. Such a transaction has read and
    /// written nothing. So if `body` fails, the transaction is started again with the locks of the shards that `body`
    /// used.
    fn nested_before_a_shard(
        &mut self,
        body: impl FnOnce(&mut WriteTxn<'_>) -> bool,
    ) -> Result<()> {
        let kept = body(self);
        let unfinished = self.written.iter().try_for_each(Written::refuse_unfinished);
        if kept && unfinished.is_ok() {
            return Ok(());
        }
        self.written.clear();
        if let Some(txn) = self.read.engine.several_mut()
            && !txn.is_unbound()
        {
            txn.run_again();
        }
        if kept { unfinished } else { Ok(()) }
    }

    /// Records the shards that the next run of the closure must lock first, if this run reached them in another order.
    pub(in crate::store) fn note_locks(&self, locks: &mut Locks) {
        if let Some(used) = self.read.engine.several().and_then(shards::Txn::next_locks) {
            locks.next(used);
        }
    }

    /// Makes all writes of the transaction visible at once, and durable according to the store's
    /// [`Durability`](crate::Durability).
    ///
    /// In a sharded store, the writes are committed in all shards or in none. With
    /// [`Durability::Relaxed`](crate::Durability::Relaxed), each shard is committed by itself: a crash of the machine, or an
    /// error of the disk ([`Error::CommitUnknown`]), can leave the writes in some shards only.
    ///
    /// Cost, for any number of rows and shards: two syncs with full durability, one sync with a journal. With `Relaxed`, one
    /// sync for each shard.
    ///
    /// # Errors
    ///
    /// [`Error::MapFull`], [`Error::DiskFull`], [`Error::Io`], [`Error::Engine`], [`Error::TransactionTooLarge`],
    /// [`Error::TransactionFailed`], [`Error::ReopenNeeded`]. After these errors, nothing has changed.
    ///
    /// [`Error::CommitUnknown`], with [`Durability::Journal`](crate::Durability::Journal): whether the commit was
    /// applied is known when the store has been opened again.
    pub fn commit(self) -> Result<()> {
        self.try_commit().map_err(Error::from)
    }

    /// Fails if rows of the transaction may be of lists that were lost.
    fn refuse_lost_lists(written: &[Written]) -> Result<(), CommitFailure> {
        let Some(lost) = written.iter().find(|written| written.lineage.is_lost()) else {
            return Ok(());
        };
        let table = lost.shared.usage.schema.name;
        Err(CommitFailure::Conflict(Contradicted::error(table)))
    }

    /// [`commit`](WriteTxn::commit), with an error that states whether the commit may have been applied.
    pub(crate) fn try_commit(self) -> Result<(), CommitFailure> {
        let outcomes = &self.guard.store().outcomes;
        self.commit_once().inspect_err(|failure| outcomes.failed(failure))
    }

    fn commit_once(mut self) -> Result<(), CommitFailure> {
        span!(DEBUG, "commit");
        self.written.end();
        if self.is_autocommit() {
            return Ok(());
        }
        let unfinished = self.written.iter().try_for_each(Written::refuse_unfinished);
        unfinished.map_err(CommitFailure::Failed)?;
        Self::refuse_lost_lists(&self.written)?;
        let Self { guard, read, mut written, .. } = self;
        let store = guard.store();
        drop(guard);
        let (stamp, mut wakers) = (read.engine.final_stamp(), Vec::new());
        let number = read.engine.final_number();
        let begun = begin_commit(stamp.number());
        for written in written.iter_mut() {
            written.lineage.end();
        }
        // The events are delivered while no other thread can commit, so that they are in the order of the commits.
        read.engine.commit(|| {
            for Written { tally, watched, shared, .. } in written.iter_mut() {
                watched.deliver(&shared.watchers, &number, tally.row_count(), &mut wakers);
            }
        })?;
        if written.iter().any(Written::has_left) {
            store.signals.notify();
        }
        store.outcomes.committed();
        if written.iter().any(|Written { tally, .. }| tally.row_count() > 0) {
            store.outcomes.has_rows();
            store.commits_seen.notify_waiting();
            store.requests.write();
            if begun != 0 {
                store.commits.end(begun);
            }
        }
        for Written { tally, shared, .. } in written.iter() {
            shared.usage.add(tally);
            // A transaction without changes is not a commit, and another transaction gets the number.
            if tally.row_count() > 0 {
                shared.as_declared.fetch_max(stamp.number(), Ordering::Relaxed);
            }
        }
        if !wakers.is_empty() {
            watch::wake(wakers);
        }
        Ok(())
    }

    /// Commits like [`commit`](WriteTxn::commit), and returns the [`token`](WriteTxn::token).
    ///
    /// # Errors
    ///
    /// The errors of [`commit`](WriteTxn::commit).
    pub fn commit_with_token(self) -> Result<IndexToken> {
        let token = self.token();
        self.commit().map(|()| token)
    }

    /// Returns a token for the writes of this transaction so far and of all earlier transactions. After the commit,
    /// the `wait_for` of a repository waits until the eventual indexes contain these writes. In a sharded store, the token
    /// covers the earlier transactions of each shard in which this transaction has written to the table. On a PostgreSQL
    /// server, the token covers only this transaction, because others run at the same time.
    #[must_use]
    pub fn token(&self) -> IndexToken {
        let tables = self
            .written
            .iter()
            .map(|written| (written.shared.usage.schema.name.to_owned(), written.token()));
        IndexToken::new(tables)
    }

    /// Returns the engine's reason to run the closure again.
    pub(in crate::store) fn retry(&self) -> Option<Retry> {
        self.read.engine.retry()
    }

    /// Returns the table whose full queue refused a write.
    pub(crate) fn refused(&self) -> Option<&'static str> {
        let refused = self.written.iter().find(|written| {
            written
                .plan
                .as_ref()
                .and_then(MaintenancePlan::later)
                .is_some_and(|later| later.refused)
        });
        self.refused.or_else(|| refused.map(|written| written.shared.usage.schema.name))
    }

    /// Returns the [`Inner::id`](crate::store::Inner::id) of the transaction's store.
    pub(crate) fn store(&self) -> u64 {
        self.read.store
    }

    /// Returns the table with these counters.
    ///
    /// # Errors
    ///
    /// [`Error::WrongStore`] if no repository of this store has them.
    pub(crate) fn table_of(&self, usage: &Arc<TableCounters>) -> Result<Arc<OpenTable>> {
        let wrong_store = || Error::WrongStore { table: usage.schema.name };
        self.guard.store().table_of(usage).ok_or_else(wrong_store)
    }

    /// Returns the table with this name if this process has it in use.
    pub(crate) fn table(&self, name: &str) -> Option<Arc<OpenTable>> {
        self.guard.store().table(name)
    }

    /// See [`Inner::is_current`](crate::store::Inner::is_current).
    #[cfg(feature = "json")]
    pub(crate) fn is_current(&self, table: &OpenTable) -> bool {
        self.guard.store().is_current(table)
    }

    /// Returns the default directory of temporary files.
    pub(crate) fn directory(&self) -> PathBuf {
        self.read.engine.directory()
    }

    /// Lets other writers of a table wait until the end of this transaction; see [`Txn::exclude_writers`].
    pub(crate) fn exclude_writers(&self, table: &OpenTable) {
        self.read.engine.exclude_writers(&table.tables);
    }

    /// Lets other builds of indexes of a table wait until the end of this transaction; see [`Txn::exclude_builders`].
    pub(crate) fn exclude_builders(&self, table: &OpenTable) -> Result<()> {
        self.read.engine.exclude_builders(&table.tables)
    }

    /// [`writer`](WriteTxn::writer), for writing one row.
    #[inline]
    pub(crate) fn row_writer<'t>(
        &'t mut self,
        table: &'t OpenTable,
    ) -> Result<(Writer<'t, 's>, &'t mut Scratch, &'t mut Written)> {
        let (writer, scratch, written) = self.write_in(table)?;
        if let Some(plan) = &mut written.plan {
            plan.begin(false);
        }
        Ok((writer, scratch, written))
    }

    /// Empties the damaged queues of a table, and returns the damage of each queue. A sharded table has a queue in each
    /// shard. This runs before the messages are counted.
    pub(crate) fn repair_queues(&mut self, table: &OpenTable) -> Result<Vec<Option<String>>> {
        self.read.check(table)?;
        self.guard.refuse_each()?;
        let wrong_store = || Error::WrongStore { table: table.schema.name };
        let mut writer = self.read.engine.writer(&table.tables).ok_or_else(wrong_store)?;
        writer.check_pages()?;
        check_record(&writer, table)?;
        let Some(sharded) = writer.several() else {
            return Ok(vec![queue::repair(table.schema, &mut writer)?]);
        };
        let mut damages = Vec::new();
        for shard in sharded.parts() {
            sharded.part(shard, &mut |writer| {
                damages.push(queue::repair(table.schema, writer)?);
                Ok(())
            })?;
        }
        Ok(damages)
    }

    pub(crate) fn writer<'t>(
        &'t mut self,
        table: &'t OpenTable,
    ) -> Result<(Writer<'t, 's>, &'t mut Scratch, &'t mut Written)> {
        self.write_in(table)
    }

    /// [`writer`](WriteTxn::writer), which is inlined where each row calls it.
    #[inline]
    fn write_in<'t>(
        &'t mut self,
        table: &'t OpenTable,
    ) -> Result<(Writer<'t, 's>, &'t mut Scratch, &'t mut Written)> {
        let Self { guard, read, written, outer, .. } = self;
        read.check(table)?;
        let wrong_store = || Error::WrongStore { table: table.schema.name };
        let Some(writer) = read.engine.writer(&table.tables) else {
            guard.refuse_each()?;
            return Err(wrong_store());
        };
        let known = written.iter().position(|written| written.opened == table.opened);
        if known.is_none() {
            let is_first = outer.iter().all(|written| written.opened != table.opened);
            let checks =
                is_first && (!table.is_as_declared(read.snapshot) || table.rows.lists.has_claims());
            if checks {
                check_record(&writer, table)?;
            }
            first_write(&writer, table, read.opened, written)?;
        }
        let at = known.unwrap_or(written.len() - 1);
        Ok((writer, guard.scratch(), written.get_mut(at).ok_or_else(wrong_store)?))
    }
}

/// Adds a table to those that a transaction writes. It is not inlined, because a transaction can write many rows.
#[inline(never)]
fn first_write(
    writer: &Writer<'_, '_>,
    table: &OpenTable,
    began: u64,
    written: &mut WrittenTables,
) -> Result<()> {
    let lineage = table.rows.lists.begin();
    let shared = Arc::clone(&table.shared);
    let tally = Tally::new(table.schema);
    let plan = table.maintenance_plan(writer.reader(), began)?;
    let (watched, unfinished) = (Watched::new(&shared.watchers), false);
    let opened = table.opened;
    written.push(Written { opened, tally, plan, watched, unfinished, shared, lineage });
    Ok(())
}

/// Checks that this process maintains everything on which the table's record relies. Another process may have opened the table with
/// another declaration.
fn check_record(writer: &Writer<'_, '_>, table: &OpenTable) -> Result<()> {
    let is_sharded = table.tables.several().is_some();
    // One process writes a sharded store. It may have opened the table with its struct since it was opened without.
    if is_sharded && table.rows.has_rows() {
        return Ok(());
    }
    let reader = writer.reader();
    let record = reader.record("")?.ok_or_else(|| table.declared_otherwise())?;
    if record != table.record {
        table.refuse_unmaintained(reader, record)?;
    }
    if is_sharded {
        return Ok(());
    }
    if let Some(record) = reader.record(LISTS)? {
        table.rows.lists.see(record)?;
    }
    Ok(())
}

impl<'s> Deref for WriteTxn<'s> {
    type Target = ReadTxn<'s>;

    fn deref(&self) -> &ReadTxn<'s> {
        &self.read
    }
}

impl fmt::Debug for WriteTxn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteTxn").field("store", &self.read.store).finish_non_exhaustive()
    }
}
