//! Building indexes: all at once while a table is opened, or in batches while it is in use.

mod batch;
mod duplicates;
mod rows;
mod shards;

use std::{collections::BTreeMap, fmt, time::Instant};

use serde::Serialize;

use batch::{BuildBatch, BuildOptions, Chosen, NotBuilt, build_batch};
pub(crate) use batch::{at_once, declare, empty, leave_to_others, renew_all, restart};
pub(crate) use rows::rewrite;

use crate::{
    engine::is_checked,
    model::{error::Result, index_state::IndexState, row_vtable::TableRows, schema::TableSchema},
    placement::shards::Locks,
    store::{OpenTable, Store, WriteTxn},
    upkeep::rollout,
    usage::{Progress, trace::span},
};

/// The default size of a batch, in bytes of rows. Writers wait until a batch ends. Each batch rewrites the pages
/// that it changes, so smaller batches take longer: with a quarter of this size, a build takes 1.5 times as
/// long.
const BATCH_BYTES: usize = 4 << 20;

/// The number of conflicts of a batch with other writers, after which they wait for the batch.
pub(super) const ATTEMPTS: u32 = 3;

/// The memory for sorting entries, in bytes. Further entries are sorted in temporary files.
pub(crate) const MEMORY: usize = 64 << 20;

/// Builds the indexes and aggregates of a table that are not readable yet. From the `build` of a repository; it
/// does nothing until [`run`](Build::run).
///
/// `open_online` only declares the indexes of a table. Each batch of a build reads rows up to a number of
/// bytes, adds their entries and records the position, in one transaction. Other writers continue between the
/// batches, and maintain the indexes as soon as they are declared. If a build ends early, because of its
/// [`limit`](Build::limit) or because its process is killed, the next build continues. Two concurrent builds
/// share the work.
///
/// Rows with the same key in a unique index don't end a build. The index gets the entries of all these rows and
/// becomes [violated](IndexState::Violated): it is maintained, and scans read it like an index that isn't
/// unique. Change or delete the rows that the report and [`Store::catalog`] list, and run another build. It
/// checks the index for duplicates, without reading the rows again. If there are none, the index becomes
/// readable.
///
/// An aggregate under construction has the totals of the rows up to the position. Writers change the totals of these rows
/// only, and the build counts the others.
///
/// In a store with shards, the shards are built at the same time, with one progress. The batch limit
/// holds for each shard. An index is readable when it is readable in all shards. Then the global indexes are built from
/// the rows of all shards. A batch of this build is a transaction of all shards, and the batch limit holds again. The
/// progress counts a row once for local and once for global indexes. A reference table is built in all copies in the same
/// transactions. Until an index is readable in all shards, its queries fail with `IndexNotReadable`, except those in a transaction
/// of one shard ([`read_on`](crate::Store::read_on)) in which a local index is complete. A local unique index is violated in the
/// shards that have duplicates only; the other shards still refuse duplicate keys. If the table is opened instead of built again,
/// global indexes are built from the start, in one transaction.
///
/// Pages are not checked: a damaged page can end the process. The command `build` checks each page of the table before its first batch.
///
/// Cost: each row is read once, and its entries are written in sorted order. The entries of a batch are in
/// memory. For a violated index, each entry is read.
///
/// # Examples
///
/// ```
/// use index_table::{Error, IndexState, IndexTable, Store};
/// use serde::{Deserialize, Serialize};
///
/// mod before {
/// #   use super::*;
///     #[derive(Serialize, Deserialize, IndexTable)]
///     pub struct Person {
///         #[primary_key]
///         pub id: u32,
///         pub town: String,
///     }
/// }
///
/// #[derive(Serialize, Deserialize, IndexTable)]
/// #[index(town)]
/// struct Person {
///     #[primary_key]
///     id: u32,
///     town: String,
/// }
///
/// # fn main() -> index_table::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = Store::open(dir.path())?;
/// let people = before::PersonRepository::open(&store)?;
/// store.transaction(|txn| {
///     (0..100).try_for_each(|id| people.insert(txn, &before::Person { id, town: "Rome".into() }))
/// })?;
/// drop(people);
///
/// let people = PersonRepository::open_online(&store)?;
/// let refused = people.find_by_town(&store.read()?, "Rome").count();
/// assert!(matches!(refused, Err(Error::IndexNotReadable { index: "town", .. })));
/// let report = people.build(&store).progress(|progress| println!("{progress}")).run()?;
/// assert_eq!((report.rows, &report.indexes[0].state), (100, &IndexState::Readable));
/// assert_eq!(people.find_by_town(&store.read()?, "Rome").count()?, 100);
/// # Ok(())
/// # }
/// ```
#[must_use = "a build does nothing until `run`"]
pub struct Build<'t> {
    store: &'t Store,
    table: &'t OpenTable,
    rows: &'t TableRows,
    options: BuildOptions,
    limit: Option<u64>,
    /// Called before each batch, by several threads.
    stop: Option<&'t (dyn Fn() -> bool + Sync + 't)>,
    progress: Option<Box<dyn FnMut(Progress) + 't>>,
}

/// The result of a build. From [`Build::run`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BuildReport {
    /// The table.
    pub table: &'static str,
    /// The indexes that were not readable when the build started.
    pub indexes: Vec<BuiltIndex>,
    /// The number of rows that the build has read.
    pub rows: u64,
    /// The number of batches.
    pub steps: u64,
}

/// An index that was built; see [`BuildReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BuiltIndex {
    /// The name of the index.
    pub name: &'static str,
    /// The state of the index after the build.
    pub state: IndexState,
}

impl BuildReport {
    /// Returns the report of a build that has built nothing.
    fn of_nothing(rows: &TableRows) -> Self {
        Self { table: rows.schema.name, indexes: Vec::new(), rows: 0, steps: 0 }
    }

    /// Whether the build is complete: no index is under construction.
    #[must_use]
    pub fn is_done(&self) -> bool {
        !self.indexes.iter().any(|index| matches!(index.state, IndexState::Building { .. }))
    }

    /// Whether all indexes are readable.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.indexes.iter().all(|index| index.state == IndexState::Readable)
    }
}

impl fmt::Display for BuildReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, indexes, rows, steps } = self;
        writeln!(f, "table `{table}`: {rows} rows in {steps} batches")?;
        indexes
            .iter()
            .try_for_each(|BuiltIndex { name, state }| writeln!(f, "  index `{name}`: {state}"))
    }
}

impl<'t> Build<'t> {
    pub(crate) fn new(store: &'t Store, table: &'t OpenTable) -> Self {
        let options = BuildOptions {
            retry: true,
            exclusive: false,
            bytes: BATCH_BYTES,
            memory: MEMORY,
            chosen: Chosen::All,
            refuses_earlier: false,
            renews: true,
            checks: is_checked(),
        };
        let rows = &table.rows;
        Self { store, table, rows, options, limit: None, stop: None, progress: None }
    }

    /// Calls `stop` before each batch. If it returns true, the build ends, and the next one continues.
    #[doc(hidden)]
    pub const fn stop_when(mut self, stop: &'t (dyn Fn() -> bool + Sync + 't)) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Leaves out the indexes at these positions.
    pub(super) const fn without(mut self, indexes: &'static [usize]) -> Self {
        self.options.chosen = Chosen::Without(indexes);
        self
    }

    /// Sets whether the build can write rows again. Otherwise, it ends at a row that lacks a field.
    pub(super) const fn renewing(mut self, renews: bool) -> Self {
        self.options.renews = renews;
        self
    }

    /// Sets the size of a batch, in bytes of rows. A batch has at least one row. Default: 4 MiB. With a smaller
    /// value, other writers wait for less time, and the build takes longer.
    pub const fn batch_bytes(mut self, bytes: usize) -> Self {
        self.options.bytes = bytes;
        self
    }

    /// Ends after this many batches.
    pub const fn limit(mut self, steps: u64) -> Self {
        self.limit = Some(steps);
        self
    }

    /// Builds the indexes in one transaction, starting with the first row. All entries are sorted, in temporary
    /// files if they exceed 64 MiB, and written into empty indexes with full pages. This takes less time than
    /// batches, but other writers wait until the build ends.
    pub const fn exclusive(mut self) -> Self {
        self.options.exclusive = true;
        self
    }

    /// Builds [announced](IndexState::Announced) indexes although clients of an earlier release have the table open. From now on,
    /// their writes to the table fail with [`Error::SchemaMismatch`](crate::Error::SchemaMismatch), which names the index.
    pub const fn refuse_earlier_releases(mut self) -> Self {
        self.options.refuses_earlier = true;
        self
    }

    /// Calls `progress` after each batch, with the number of rows so far. If several indexes are built, this is the
    /// progress of the least advanced index.
    pub fn progress(mut self, progress: impl FnMut(Progress) + 't) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Builds the indexes, up to the [`limit`](Build::limit).
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) for a row that can't be decoded, and
    /// [`Error::KeyTooLong`](crate::Error::KeyTooLong) for a row with a key that is too long for an index.
    /// Earlier batches remain, and another build continues after them.
    /// [`Error::SchemaMismatch`](crate::Error::SchemaMismatch) if another process has opened the table with
    /// another declaration. [`Error::ShardUnavailable`](crate::Error::ShardUnavailable). The errors of
    /// [`Store::transaction`].
    pub fn run(self) -> Result<BuildReport> {
        let schema = self.rows.schema;
        self.try_run().map_err(|failure| failure.error(schema))
    }

    /// Builds the indexes of one shard. `None` if a row has to be written again first, in all shards at once.
    pub(super) fn run_in_shard(self) -> Result<Option<BuildReport>> {
        match self.try_run() {
            Ok(report) => Ok(Some(report)),
            Err(NotBuilt::NeedsAllShards) => Ok(None),
            Err(NotBuilt::Other(error)) => Err(error),
        }
    }

    fn try_run(self) -> Result<BuildReport, NotBuilt> {
        span!(DEBUG, "build", table = self.rows.schema.name);
        if let Some(tables) = self.table.tables.several() {
            return shards::run(self, tables);
        }
        rollout::rely(self.store, self.table, self.options.refuses_earlier)?;
        self.run_batches(|store, _| store.begin_write())
    }

    /// Builds the indexes, each batch in a transaction that `begin` begins. `begin` gets the shards that an earlier run of
    /// the batch has needed.
    fn run_batches<'s>(
        mut self,
        begin: impl Fn(&'s Store, &Locks) -> Result<WriteTxn<'s>>,
    ) -> Result<BuildReport, NotBuilt>
    where
        't: 's,
    {
        let store: &'s Store = self.store;
        let mut report = Collected::default();
        let mut pace: Option<Pace> = None;
        while self.limit.is_none_or(|limit| report.steps < limit)
            && self.stop.is_none_or(|stop| !stop())
        {
            if report.steps > 0 {
                store.inner.let_others_write();
            }
            let options = BuildOptions { retry: report.steps == 0, ..self.options };
            let (mut attempts, opened) = (0, store.inner.opened());
            let batch = store.run_transaction(
                |locks| begin(store, locks),
                |txn| {
                    attempts += 1;
                    // A batch can take longer than any response of a server.
                    txn.exclude_builders(self.table)?;
                    if attempts > ATTEMPTS {
                        txn.exclude_writers(self.table);
                    }
                    let (mut writer, _, written) = txn.writer(self.table)?;
                    if options.checks && options.retry {
                        writer.check_pages()?;
                    }
                    build_batch(self.rows, self.table, &mut writer, written, options)
                },
            )?;
            for (index, state) in &batch.states {
                if state.is_none() {
                    self.table.became_readable_in(*index, opened);
                }
            }
            if batch.indexes.is_empty() {
                report.add(batch);
                break;
            }
            if let Some(progress) = &mut self.progress {
                let pace =
                    pace.get_or_insert_with(|| Pace::new(batch.done.saturating_sub(batch.rows)));
                progress(pace.progress(&batch));
            }
            report.add(batch);
        }
        Ok(report.report(self.rows.schema))
    }
}

/// The start of this run, for its speed. The build may have been started by an earlier run.
struct Pace {
    started: Instant,
    rows_before: u64,
}

impl Pace {
    fn new(rows_before: u64) -> Self {
        Self { started: Instant::now(), rows_before }
    }

    fn progress(&self, batch: &BuildBatch) -> Progress {
        let progress = Progress::new("rows", batch.done, Some(batch.of), self.started);
        progress.since(self.rows_before, self.started)
    }
}

/// The result of the batches of a run.
#[derive(Default)]
struct Collected {
    states: BTreeMap<usize, IndexState>,
    rows: u64,
    steps: u64,
}

impl Collected {
    fn add(&mut self, batch: BuildBatch) {
        // Another build has finished the indexes that no longer appear.
        self.states.values_mut().for_each(|state| *state = IndexState::Readable);
        for (index, state) in batch.states {
            self.states.insert(index, state.map_or(IndexState::Readable, IndexState::from));
        }
        self.rows += batch.rows;
        self.steps += u64::from(!batch.indexes.is_empty());
    }

    fn report(self, schema: &TableSchema) -> BuildReport {
        let Self { states, rows, steps } = self;
        let indexes = states
            .into_iter()
            .filter_map(|(index, state)| Some(BuiltIndex { name: schema.name_at(index)?, state }));
        BuildReport { table: schema.name, indexes: indexes.collect(), rows, steps }
    }
}

impl fmt::Debug for Build<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Build").field("table", &self.rows.schema.name).finish_non_exhaustive()
    }
}
