//! The methods of a store that concern all tables with a repository in use.

use std::{fmt, sync::Arc};

use serde::Serialize;

use super::sizes::{self, Counting};
use crate::{
    model::error::{Error, Result},
    store::{OpenTable, ReadTxn, ShardId, Store},
    upkeep::{
        upgrade::{Upgrade, Upgraded},
        verify::{Verify, VerifyReport},
    },
    usage::Usage,
};

/// The size of a table. From [`Store::sizes`] and [`Store::estimated_sizes`].
///
/// `Display` prints a line for the table, and a line for each index and each aggregate, with `≈` before an estimate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TableSize {
    /// The name of the table.
    pub table: &'static str,
    /// The number of rows.
    pub rows: u64,
    /// Whether the number of rows is exact. [`Store::estimated_sizes`] estimates it while keys move to another shard.
    pub rows_exact: bool,
    /// The bytes of the pages of the rows; 0 for a store in memory.
    pub bytes: u64,
    /// The sizes of the indexes, in the order of their declaration.
    pub indexes: Vec<IndexSize>,
    /// The sizes of the aggregates, in the order of their declaration.
    pub aggregates: Vec<AggregateSize>,
    /// The bytes of the pages of the change stream; 0 without one, and for a store in memory.
    pub change_bytes: u64,
}

/// The size of an index; see [`TableSize`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct IndexSize {
    /// The name of the index.
    pub name: &'static str,
    /// The number of entries.
    pub entries: u64,
    /// Whether the number of entries is exact. [`Store::estimated_sizes`] estimates it for some indexes.
    pub entries_exact: bool,
    /// The bytes of the pages of the entries; 0 for a store in memory.
    pub bytes: u64,
}

/// The size of an aggregate; see [`TableSize`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AggregateSize {
    /// The name of the aggregate.
    pub name: &'static str,
    /// The number of groups. In a sharded store, a group is counted in each shard that has rows of it.
    pub groups: u64,
    /// The bytes of the pages of the totals; 0 for a store in memory.
    pub bytes: u64,
}

/// The verification of the tables of a store. From [`Store::verify`].
///
/// `Display` prints the report of each table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StoreReport {
    /// The reports of the tables, by name.
    pub tables: Vec<VerifyReport>,
}

impl TableSize {
    /// Returns the bytes of the rows, the indexes, the aggregates and the change stream.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        let indexes = self.indexes.iter().map(|index| index.bytes);
        self.bytes
            + self.change_bytes
            + indexes.chain(self.aggregates.iter().map(|aggregate| aggregate.bytes)).sum::<u64>()
    }
}

impl StoreReport {
    pub(super) const fn new(tables: Vec<VerifyReport>) -> Self {
        Self { tables }
    }

    /// Returns the first finding in words, with the number of all.
    pub(super) fn finding(&self) -> Option<String> {
        let first = self.tables.iter().find_map(|report| report.findings.first())?;
        let all: usize = self.tables.iter().map(|report| report.findings.len()).sum();
        Some(format!("{all} findings; the first: {first}"))
    }

    /// Whether there are no findings in any table.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.tables.iter().all(VerifyReport::is_clean)
    }
}

/// Methods for all tables with a repository in use, in one snapshot of the store. Tables without a repository
/// in this process are not included, since only the type of their rows defines the contents of their indexes.
impl Store {
    /// Verifies all tables that are in use, in one snapshot. Calls the `verify` of each repository. To verify
    /// the tables in the background, use [`scrub`](Store::scrub).
    ///
    /// Cost: the sum over the tables.
    ///
    /// # Errors
    ///
    /// The errors of [`read`](Store::read) and of [`Verify::run`]. The findings are in the report.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
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
    /// let people = PersonRepository::open(&store)?;
    /// store.transaction(|txn| people.insert(txn, &Person { id: 1, town: "Oslo".into() }))?;
    ///
    /// assert!(store.verify()?.is_clean());
    /// let sizes = store.sizes()?;
    /// let [person] = sizes.as_slice() else { panic!("one table") };
    /// assert_eq!((person.rows, person.indexes[0].entries), (1, 1));
    /// println!("{person}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn verify(&self) -> Result<StoreReport> {
        let outcome = self.verify_in(&self.read()?);
        self.inner.inspections.note("verify", &outcome, StoreReport::finding);
        outcome
    }

    fn verify_in(&self, txn: &ReadTxn<'_>) -> Result<StoreReport> {
        let tables = self.inner.tables_in_use();
        let mut reports = Vec::with_capacity(tables.len());
        for table in &tables {
            reports.push(Verify::of(table, txn).run()?);
        }
        Ok(StoreReport { tables: reports })
    }

    /// Returns the usage of all tables that are in use, by name: the `usage` of each repository.
    ///
    /// Cost: a few counters for each index are read.
    #[must_use]
    pub fn usage(&self) -> Vec<Usage> {
        let tables = self.inner.tables_in_use();
        tables.iter().map(|table| Usage::of(&table.shared.usage)).collect()
    }

    /// Rewrites the rows of older versions, and of structs with other fields, in all tables that are in use. Calls the
    /// `upgrade` of each repository, and returns the sums.
    ///
    /// Cost: all rows are read once.
    ///
    /// # Errors
    ///
    /// The errors of [`Upgrade::run`]. The tables before the failed table are upgraded.
    pub fn upgrade(&self) -> Result<Upgraded> {
        self.inner.engines.refuse_forked()?;
        let mut sum = Upgraded::default();
        for table in self.inner.tables_in_use() {
            sum.add(Upgrade::new(self, &table).run()?);
        }
        Ok(sum)
    }

    /// Returns the numbers of rows, entries and groups of all tables that are in use, and their bytes in the file,
    /// by name. All numbers are exact. [`estimated_sizes`](Store::estimated_sizes) reads fewer pages.
    ///
    /// Bytes are counted as whole pages. Free pages of the file ([`data_files`](Store::data_files) has them), the catalog and the queues of
    /// eventual indexes are not counted. The rows of a reference table are counted once, and the bytes of all of its
    /// copies. While keys move to another shard, their rows and entries are counted once, and the bytes of both shards.
    ///
    /// Cost: the same as [`Scan::count`](crate::Scan::count) for each index. While keys move, all rows and entries of the table are read.
    ///
    /// # Errors
    ///
    /// The errors of [`read`](Store::read).
    pub fn sizes(&self) -> Result<Vec<TableSize>> {
        self.sizes_in(&self.read()?, Counting::Exact)
    }

    /// Returns the sizes of [`sizes`](Store::sizes) from a limited number of pages, for overviews and monitoring.
    ///
    /// The engine counts rows, groups, and the entries of most indexes, and these numbers are exact. The
    /// others are estimated, and [`entries_exact`](IndexSize::entries_exact) is false for them:
    ///
    /// - the entries of an index that packs several primary keys into a block: a normalized index with primary keys
    ///   of a fixed size, also if it is filtered or has several entries of a row. The estimate is from leaves at about equal distances in the
    ///   order of the keys. It is rarely wrong by more than a factor of 1.5, even if a few keys have most of the rows. An
    ///   index of a few pages is counted.
    /// - while keys move to another shard, the rows and entries of their table, which are counted once.
    ///   [`rows_exact`](TableSize::rows_exact) is false unless the table has a few pages.
    ///
    /// All numbers are exact in memory and on a server, at the cost of [`sizes`](Store::sizes), and if the file can't be
    /// sampled at the moment, because its first pages are being written.
    ///
    /// Cost: at most about 500 pages for any number of rows. If the store has more than 15 packed indexes, about 20 pages for
    /// each of them; in a sharded store, for each of them in each shard.
    ///
    /// # Errors
    ///
    /// The errors of [`read`](Store::read).
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[index(town)]
    /// struct Person {
    ///     #[primary_key]
    ///     id: u64,
    ///     town: u32,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// let people = PersonRepository::open(&store)?;
    /// people.bulk_load(&store, (0..100_000).map(|id| Person { id, town: id as u32 / 2 })).run()?;
    ///
    /// let sizes = store.estimated_sizes()?;
    /// assert_eq!((sizes[0].rows, sizes[0].rows_exact), (100_000, true));
    /// let town = &sizes[0].indexes[0];
    /// assert!(!town.entries_exact && (80_000..120_000).contains(&town.entries));
    /// # Ok(())
    /// # }
    /// ```
    pub fn estimated_sizes(&self) -> Result<Vec<TableSize>> {
        self.sizes_in(&self.read()?, Counting::Estimated)
    }

    fn sizes_in(&self, txn: &ReadTxn<'_>, counting: Counting) -> Result<Vec<TableSize>> {
        sizes::measure(&self.inner.tables_in_use(), txn, counting, &mut Err)
    }

    /// Returns the sizes of [`estimated_sizes`](Store::estimated_sizes) that can be read, and the errors of the parts that are left out
    /// because a page is damaged. Pages are checked before they are read.
    ///
    /// # Errors
    ///
    /// The errors of [`read`](Store::read), other than damage of a table.
    #[doc(hidden)]
    pub fn readable_sizes(&self) -> Result<(Vec<TableSize>, Vec<Error>)> {
        let txn = self.read()?;
        txn.check_pages()?;
        let mut damage = Vec::new();
        let mut failed = |error| match error {
            Error::Corrupt { .. } | Error::DamagedFile { .. } => {
                damage.push(error);
                Ok(())
            }
            error => Err(error),
        };
        let tables = self.inner.tables_in_use();
        let sizes = sizes::measure(&tables, &txn, Counting::Estimated, &mut failed)?;
        Ok((sizes, damage))
    }

    pub(super) fn sizes_of(tables: &[Arc<OpenTable>], txn: &ReadTxn<'_>) -> Result<Vec<TableSize>> {
        sizes::measure(tables, txn, Counting::Exact, &mut Err)
    }

    /// Counts the rows of all tables in one shard. Returns their number, and their bytes with those of their entries.
    pub(super) fn rows_and_bytes_on(&self, shard: &ShardId) -> Result<[u64; 2]> {
        sizes::rows_and_bytes(&self.inner.tables_in_use(), &self.read_on(shard)?)
    }
}

impl Store {
    /// Verifies the parts of all tables in one shard, like [`verify`](Store::verify) for all shards.
    ///
    /// Cost: the sum over the tables.
    ///
    /// # Errors
    ///
    /// The errors of [`read_on`](Store::read_on) and of [`Verify::run`]. The findings are in the
    /// report.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, ShardMap, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(name = "orders", shard_by = tenant)]
    /// struct Order {
    ///     #[primary_key]
    ///     tenant: u32,
    ///     #[primary_key]
    ///     number: u64,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = Store::options()
    ///     .shard("north", "north")
    ///     .shard("south", "south")
    ///     .map("orders", ShardMap::ranges().to("north", ..100u32).to("south", 100u32..))
    ///     .open(dir.path().join("shop"))?;
    /// let orders = OrderRepository::open(&store)?;
    /// store.transaction(|txn| orders.insert(txn, &Order { tenant: 107, number: 1 }))?;
    ///
    /// let shard = store.shard("south")?;
    /// let report = store.verify_on(&shard)?;
    /// assert!(report.is_clean(), "{report}");
    /// assert_eq!((report.tables[0].rows, store.sizes_on(&shard)?[0].rows), (1, 1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn verify_on(&self, shard: &ShardId) -> Result<StoreReport> {
        self.verify_in(&self.read_on(shard)?)
    }

    /// Returns the sizes of the parts of all tables in one shard, like [`sizes`](Store::sizes) for all
    /// shards. While keys move to another shard, both shards have their rows, and each counts them.
    ///
    /// Cost: the same as [`Scan::count`](crate::Scan::count) for each index.
    ///
    /// # Errors
    ///
    /// The errors of [`read_on`](Store::read_on).
    pub fn sizes_on(&self, shard: &ShardId) -> Result<Vec<TableSize>> {
        self.sizes_in(&self.read_on(shard)?, Counting::Exact)
    }
}

impl fmt::Display for TableSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, rows, rows_exact, bytes, indexes, aggregates, change_bytes } = self;
        writeln!(f, "table `{table}`: {}{rows} rows, {bytes} bytes", about(*rows_exact))?;
        for IndexSize { name, entries, entries_exact, bytes } in indexes {
            let about = about(*entries_exact);
            writeln!(f, "  index `{name}`: {about}{entries} entries, {bytes} bytes")?;
        }
        aggregates.iter().try_for_each(|AggregateSize { name, groups, bytes }| {
            writeln!(f, "  aggregate `{name}`: {groups} groups, {bytes} bytes")
        })?;
        if *change_bytes > 0 {
            writeln!(f, "  changes: {change_bytes} bytes")?;
        }
        Ok(())
    }
}

/// Returns the mark of an estimate.
const fn about(is_exact: bool) -> &'static str {
    if is_exact { "" } else { "≈" }
}

impl fmt::Display for StoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tables.iter().try_for_each(|report| writeln!(f, "{report}"))
    }
}
