//! The contents and the load of the shards, and of the ranges of a shard map.

use std::fmt;

use serde::Serialize;

use crate::{
    engine::{Cursor as _, Query, Read as _, Tables},
    model::{
        KeyRange,
        error::{Error, Result},
        schema::Source,
        shard::KeyRequests,
    },
    store::{ShardId, Store, engine_of},
    usage::share,
};

/// A shard of a store, with its contents and its load. From [`Store::shards`].
///
/// `Display` prints one line.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ShardInfo {
    /// The name of the shard.
    pub name: String,
    /// Whether the shard is available.
    pub state: ShardStatus,
    /// The number of rows of all tables in use, with the shard's copies of reference tables.
    pub rows: u64,
    /// The bytes of the pages of these rows and of the shard's index entries; 0 for a store in memory.
    pub bytes: u64,
    /// The number of read transactions that have read the shard and ended, since this process opened the store.
    pub reads: u64,
    /// The number of committed transactions that have changed the shard, since this process opened the store.
    pub writes: u64,
    /// Its share of the rows of all shards, from 0 to 1. All shares are 0 if the total is 0.
    pub row_share: f64,
    /// Its share of the bytes of all shards, from 0 to 1.
    pub byte_share: f64,
    /// Its share of the reads of all shards, from 0 to 1.
    pub read_share: f64,
    /// Its share of the writes of all shards, from 0 to 1.
    pub write_share: f64,
}

/// Whether a shard is available; see [`ShardInfo`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum ShardStatus {
    /// The shard is open.
    Available,
    /// The shard is not open: queries that need it fail with
    /// [`Error::ShardUnavailable`](crate::Error::ShardUnavailable).
    Unavailable {
        /// The reason why it is not open.
        reason: String,
    },
}

/// A range of a shard map: neighbouring shard keys that are in the same shard. From [`Store::ranges`].
///
/// `Display` prints one line.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[non_exhaustive]
pub struct RangeInfo {
    /// The first shard key, as text; in a hash map, the first slot. `None`: the range has no lower end.
    pub start: Option<String>,
    /// The first shard key after the range, as text; in a hash map, the first slot. `None`: the range has no upper end.
    pub end: Option<String>,
    /// The name of the shard.
    pub shard: String,
    /// The number of rows of all tables in use with this map; of a global index, the number of its entries.
    pub rows: u64,
    /// The bytes of these rows with their primary keys, without their index entries; of a global index, the bytes of its
    /// entries with their keys.
    pub bytes: u64,
    /// The number of reads of its keys in this process, estimated from samples: the rows that were looked up by their keys,
    /// and the queries that give the shard key. 0 for a global index. Old requests have less weight than new requests.
    pub reads: u64,
    /// The number of writes of its rows, estimated in the same way.
    pub writes: u64,
    /// Its share of the rows of all ranges of the map, from 0 to 1. All shares are 0 if the total is 0.
    pub row_share: f64,
    /// Its share of the bytes of all ranges of the map, from 0 to 1.
    pub byte_share: f64,
    /// Its share of the reads of all ranges of the map, from 0 to 1.
    pub read_share: f64,
    /// Its share of the writes of all ranges of the map, from 0 to 1.
    pub write_share: f64,
}

impl Store {
    /// Returns all shards, in the order in which they were declared, each with its rows, its bytes and its load.
    ///
    /// Only tables with a repository in use are counted. Each shard is read in a transaction of its own, which the next call
    /// counts among its reads.
    ///
    /// Cost: the cost of [`sizes_on`](Store::sizes_on) for each shard.
    ///
    /// # Errors
    ///
    /// The errors of [`sizes_on`](Store::sizes_on). A shard that is not available causes no error, and is listed
    /// without rows.
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
    /// for shard in store.shards()? {
    ///     println!("{shard}");
    /// }
    /// let rows: Vec<u64> = store.shards()?.iter().map(|shard| shard.rows).collect();
    /// assert_eq!(rows, [0, 1]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn shards(&self) -> Result<Vec<ShardInfo>> {
        let engine = engine_of(self)?;
        let info = |shard: &ShardId| {
            let own = engine.shard(self.number_of(shard)?)?;
            let (reads, writes) = own.requests();
            let state = match own.opened() {
                Err(Error::ShardUnavailable { reason, .. }) => ShardStatus::Unavailable { reason },
                Err(error) => return Err(error),
                Ok(_) => ShardStatus::Available,
            };
            let (mut rows, mut bytes) = (0, 0);
            if state == ShardStatus::Available {
                for table in self.sizes_on(shard)? {
                    rows += table.rows;
                    bytes += table.bytes;
                    bytes += table.indexes.iter().map(|index| index.bytes).sum::<u64>();
                }
            }
            let name = shard.name().to_owned();
            let [row_share, byte_share, read_share, write_share] = [0.0; 4];
            Ok(ShardInfo {
                name,
                state,
                rows,
                bytes,
                reads,
                writes,
                row_share,
                byte_share,
                read_share,
                write_share,
            })
        };
        let mut shards = self.shard_ids().iter().map(info).collect::<Result<Vec<_>>>()?;
        let [rows, bytes] = totals(&shards, |shard| [shard.rows, shard.bytes]);
        let [reads, writes] = totals(&shards, |shard| [shard.reads, shard.writes]);
        for shard in &mut shards {
            shard.row_share = share(shard.rows, rows);
            shard.byte_share = share(shard.bytes, bytes);
            shard.read_share = share(shard.reads, reads);
            shard.write_share = share(shard.writes, writes);
        }
        Ok(shards)
    }

    /// Returns the ranges of a shard map in the order of their keys, each with its shard, its rows and its bytes. In a list
    /// map, each listed key is a range, unless its neighbour is in the same shard. In a hash map, the ranges are ranges
    /// of slots. Keys that belong to no shard are not listed.
    ///
    /// Only tables with a repository in use are counted. They are read in one snapshot of all shards. The map of a global
    /// index is named `TABLE.INDEX`; its ranges have entries.
    ///
    /// Cost: all rows of the tables with this map are read, or all entries of the global index.
    ///
    /// # Errors
    ///
    /// [`Error::ShardRefused`](crate::Error::ShardRefused): the store has no such map, or no table with the map is in use. [`Error::ShardUnavailable`](crate::Error::ShardUnavailable), and the
    /// errors of [`read`](crate::Store::read).
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
    /// let ranges = store.ranges("orders")?;
    /// assert_eq!(ranges[1].start.as_deref(), Some("100"));
    /// assert_eq!((ranges[1].shard.as_str(), ranges[1].rows), ("south", 1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn ranges(&self, map: &str) -> Result<Vec<RangeInfo>> {
        let (ranges, _) = self.ranges_until(map, &mut || false)?;
        Ok(ranges.into_iter().map(|(range, _)| range).collect())
    }

    /// Returns the ranges of a shard map, each with whether a part of it is being moved, and whether all rows were counted:
    /// counting ends when `is_over` returns true. It is called before each table, and after some rows. If it always returns
    /// true, no shard is read.
    ///
    /// # Errors
    ///
    /// The errors of [`ranges`](Store::ranges).
    #[doc(hidden)]
    pub fn ranges_until(
        &self,
        map: &str,
        is_over: &mut dyn FnMut() -> bool,
    ) -> Result<(Vec<(RangeInfo, bool)>, bool)> {
        let engine = engine_of(self)?;
        let refused = |reason: &str| Error::ShardRefused {
            what: format!("shard map `{map}`"),
            reason: reason.to_owned(),
        };
        let boundaries =
            engine.boundaries(map).ok_or_else(|| refused("the store has no such map"))?;
        let tables = self.inner.tables_in_use();
        let own: Vec<_> = tables
            .iter()
            .filter_map(|table| {
                let Tables::Sharded(tables) = &table.tables else { return None };
                let routing = tables.routing();
                let source = routing.source_with(map)?;
                Some((table, routing, source))
            })
            .collect();
        let Some((_, routing, _)) = own.first() else {
            return Err(refused("no table with this map is in use; open a repository"));
        };
        let shown = |key: &[u8]| routing.show_boundary_of(map, key);
        let mut ranges = Vec::new();
        for (start, end, shard) in boundaries.segments() {
            let Some(shard) = shard else {
                ranges.push(None);
                continue;
            };
            let moves = engine.moves();
            let is_moving = moves.iter().map(|moving| &moving.record).any(|record| {
                let is_before = end.is_some_and(|end| end <= record.start.as_slice());
                let is_after = record.end.as_deref().is_some_and(|end| end <= start);
                record.map == map && record.owner() == shard && !is_before && !is_after
            });
            let start = if start.is_empty() { None } else { shown(start) };
            let end = end.and_then(shown);
            let shard = engine.shard(shard)?.name().to_string();
            let range = RangeInfo { start, end, shard, ..RangeInfo::default() };
            ranges.push(Some((range, is_moving)));
        }
        let txn = self.read()?;
        let (mut read, mut is_cut) = (0_u64, false);
        'tables: for (table, routing, source) in &own {
            if is_over() {
                is_cut = true;
                break;
            }
            let all = Query::new(*source, KeyRange::ALL);
            let mut rows = txn.reader_of(table, *source)?.cursor(all)?;
            while rows.advance()? {
                read += 1;
                if read.is_multiple_of(BETWEEN) && is_over() {
                    is_cut = true;
                    break 'tables;
                }
                let entry = rows.entry();
                let segment = match source {
                    Source::Facts => routing.segment_of(entry.primary_key),
                    Source::Index(index) => {
                        routing.global(*index).and_then(|global| global.segment_of(entry.key))
                    }
                };
                if let Some(Some((range, _))) = segment.and_then(|segment| ranges.get_mut(segment))
                {
                    let bytes = entry.key.len() + entry.primary_key.len() + entry.data.len();
                    range.rows += 1;
                    range.bytes += bytes as u64;
                }
            }
        }
        for KeyRequests { key, reads, writes, .. } in engine.load_of(map).keys() {
            let segment = boundaries.segment_of(&routing.map_key_of(&key));
            if let Some(Some((range, _))) = segment.and_then(|segment| ranges.get_mut(segment)) {
                range.reads += reads;
                range.writes += writes;
            }
        }
        let mut ranges: Vec<(RangeInfo, bool)> = ranges.into_iter().flatten().collect();
        let [rows, bytes] = totals(&ranges, |(range, _)| [range.rows, range.bytes]);
        let [reads, writes] = totals(&ranges, |(range, _)| [range.reads, range.writes]);
        for (range, _) in &mut ranges {
            range.read_share = share(range.reads, reads);
            range.write_share = share(range.writes, writes);
            range.row_share = share(range.rows, rows);
            range.byte_share = share(range.bytes, bytes);
        }
        Ok((ranges, !is_cut))
    }
}

/// The number of rows between two calls of a function that can end a count.
const BETWEEN: u64 = 1024;

/// Adds up two figures of all items.
fn totals<T>(items: &[T], figures: impl Fn(&T) -> [u64; 2]) -> [u64; 2] {
    items.iter().map(figures).fold([0, 0], |[a, b], [c, d]| [a + c, b + d])
}

impl fmt::Display for ShardStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Available => f.write_str("available"),
            Self::Unavailable { reason } => write!(f, "not available: {reason}"),
        }
    }
}

impl fmt::Display for ShardInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, state, rows, bytes, reads, writes, .. } = self;
        write!(
            f,
            "shard `{name}`, {state}: {rows} rows, {bytes} bytes, {reads} reads, {writes} writes"
        )
    }
}

impl fmt::Display for RangeInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { start, end, shard, rows, bytes, reads, writes, .. } = self;
        let (start, end) = (start.as_deref().unwrap_or(""), end.as_deref().unwrap_or(""));
        write!(
            f,
            "{start}..{end} in `{shard}`: {rows} rows, {bytes} bytes, {reads} reads, {writes} writes"
        )
    }
}
