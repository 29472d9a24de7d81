//! Building indexes: all at once while a table is opened, or step by step while it is in use.

mod batch;
mod duplicates;
mod rows;

use std::{
    collections::BTreeMap,
    fmt, thread,
    time::{Duration, Instant},
};

use serde::Serialize;

use batch::{BuildBatch, BuildOptions, build_batch};
pub(crate) use batch::{at_once, declare, restart};

use crate::{
    model::{
        error::Result,
        row_vtable::RowVtable,
        schema::{IndexState, TableSchema},
    },
    store::{OpenTable, Store},
    usage::{Progress, trace::span},
};

/// Rows that are read in a step, in bytes. Writers wait for a step, and each one writes the pages of
/// an index anew that it comes to: a quarter of this takes half as long again altogether.
const BATCH_BYTES: usize = 4 << 20;

/// What entries are sorted in, in bytes, before files are used.
pub(crate) const MEMORY: usize = 64 << 20;

/// How long writers that wait are let go first between two steps.
const PAUSE: Duration = Duration::from_millis(1);

/// Builds the indexes of a table that are not readable yet. From the `build` of a repository; it
/// does nothing until [`run`](Build::run).
///
/// `open_online` declares the indexes of a table and leaves them to this. Each step reads rows up
/// to a number of bytes, adds their entries and records how far it is, all in a transaction of
/// its own. Other writers go on between the steps and keep the indexes up from the first. A build
/// that ends early, because its process is killed or by [`limit`](Build::limit), is continued by
/// the next one; two at the same time help one another.
///
/// Rows with the same key in a unique index don't end a build. The index gets the entries of all of them and is
/// [violated](IndexState::Violated) then: scans read it like an index that isn't unique, and it is maintained.
/// Change or delete the rows that the report and [`Store::catalog`] list, and run another build. It looks for
/// duplicates in the index, without reading the rows again, and makes the index readable if there are none.
///
/// Cost: a look at each row, and for each of its entries a write in sorted order; memory for the
/// entries of a batch. For a violated index, a step for each of its entries.
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
    rows: &'static RowVtable,
    options: BuildOptions,
    limit: Option<u64>,
    progress: Option<Box<dyn FnMut(Progress) + 't>>,
}

/// What a build has come to. From [`Build::run`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BuildReport {
    /// The table.
    pub table: &'static str,
    /// The indexes that were not readable when it began.
    pub indexes: Vec<BuiltIndex>,
    /// How many rows it has read.
    pub rows: u64,
    /// In how many steps.
    pub steps: u64,
}

/// An index that was built; see [`BuildReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BuiltIndex {
    /// Its name.
    pub name: &'static str,
    /// What has become of it.
    pub state: IndexState,
}

impl BuildReport {
    /// Whether nothing is left to do: each index is readable, or violated.
    #[must_use]
    pub fn is_done(&self) -> bool {
        !self.indexes.iter().any(|index| matches!(index.state, IndexState::Building { .. }))
    }

    /// Whether all indexes can be asked.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.indexes.iter().all(|index| index.state == IndexState::Readable)
    }
}

impl fmt::Display for BuildReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, indexes, rows, steps } = self;
        writeln!(f, "table `{table}`: {rows} rows in {steps} steps")?;
        indexes
            .iter()
            .try_for_each(|BuiltIndex { name, state }| writeln!(f, "  index `{name}`: {state}"))
    }
}

impl<'t> Build<'t> {
    pub(crate) fn new(store: &'t Store, table: &'t OpenTable, rows: &'static RowVtable) -> Self {
        let options =
            BuildOptions { retry: true, exclusive: false, bytes: BATCH_BYTES, memory: MEMORY };
        Self { store, table, rows, options, limit: None, progress: None }
    }

    /// The bytes of the rows that a step reads; one row at least. Default: 4 MiB. The less it is,
    /// the shorter other writers wait, and the longer it takes altogether.
    pub const fn batch_bytes(mut self, bytes: usize) -> Self {
        self.options.bytes = bytes;
        self
    }

    /// Ends after this many steps, for who has something else to do in between.
    pub const fn limit(mut self, steps: u64) -> Self {
        self.limit = Some(steps);
        self
    }

    /// All in one transaction, from the first row on, for a table that nobody writes to meanwhile:
    /// all entries are sorted, with files in the temporary directory above 64 MiB, and written into
    /// an empty index, whose pages are full then. It takes less time, and other writers wait
    /// throughout.
    pub const fn exclusive(mut self) -> Self {
        self.options.exclusive = true;
        self
    }

    /// Calls `progress` after each step, with the rows so far. If several indexes are built, these are the rows of
    /// the index that is furthest behind.
    pub fn progress(mut self, progress: impl FnMut(Progress) + 't) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Builds what is to be built, or as much as the [`limit`](Build::limit) says.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) for a row that can't be decoded and
    /// [`Error::KeyTooLong`](crate::Error::KeyTooLong) for one that can't be in an index: what was
    /// done before this step remains, and another build continues there. What
    /// [`Store::transaction`] does; [`Error::SchemaMismatch`](crate::Error::SchemaMismatch) when
    /// another process has opened the table with another declaration.
    pub fn run(mut self) -> Result<BuildReport> {
        span!(DEBUG, "build", table = self.rows.schema.name);
        let mut report = Collected::default();
        let mut pace: Option<Pace> = None;
        while self.limit.is_none_or(|limit| report.steps < limit) {
            if report.steps > 0 {
                // A lock that is taken again at once goes to nobody else.
                thread::sleep(PAUSE);
            }
            let options = BuildOptions { retry: report.steps == 0, ..self.options };
            let batch = self.store.transaction(|txn| {
                let (mut writer, ..) = txn.writer(self.table)?;
                build_batch(self.rows, self.table, &mut writer, options)
            })?;
            for (index, state) in &batch.states {
                if state.is_none() {
                    self.table.became_readable(*index);
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

/// The speed of one run, which may have begun in the middle.
struct Pace {
    begun: Instant,
    before: u64,
}

impl Pace {
    fn new(before: u64) -> Self {
        Self { begun: Instant::now(), before }
    }

    fn progress(&self, batch: &BuildBatch) -> Progress {
        let progress = Progress::new("rows", batch.done, Some(batch.of), self.begun);
        progress.since(self.before, self.begun)
    }
}

/// What the steps of a run have come to.
#[derive(Default)]
struct Collected {
    states: BTreeMap<usize, IndexState>,
    rows: u64,
    steps: u64,
}

impl Collected {
    fn add(&mut self, batch: BuildBatch) {
        // What is not mentioned any more, another build has done.
        self.states.values_mut().for_each(|state| *state = IndexState::Readable);
        for (index, state) in batch.states {
            self.states.insert(index, state.map_or(IndexState::Readable, IndexState::of));
        }
        self.rows += batch.rows;
        self.steps += u64::from(!batch.indexes.is_empty());
    }

    fn report(self, schema: &TableSchema) -> BuildReport {
        let Self { states, rows, steps } = self;
        let indexes = states.into_iter().filter_map(|(index, state)| {
            Some(BuiltIndex { name: schema.indexes.get(index)?.name, state })
        });
        BuildReport { table: schema.name, indexes: indexes.collect(), rows, steps }
    }
}

impl fmt::Debug for Build<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Build").field("table", &self.rows.schema.name).finish_non_exhaustive()
    }
}
