//! The contents and the load of the ranges of a shard map.

use std::fmt;

use serde::Serialize;

use super::shards::totals;
use crate::{
    engine::{Cursor as _, Query, Read as _},
    model::{
        KeyRange,
        error::{Error, Result},
        schema::Source,
        shard::{Boundaries, KeyRequests, Routing, ShardNumber},
    },
    placement::shards::CurrentRouting,
    store::{OpenTable, Shards, Store, shard_id, shards_of},
    upkeep::analyze::share,
};

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
    /// Returns the ranges of a shard map in the order of their keys, each with its shard, its rows and its bytes. In a store with
    /// one shard, there is one range. In a list map, each listed key is a range, unless its neighbour is in the same shard. In a hash map, the ranges are ranges
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
        let refused = |reason: &str| Error::ShardRefused {
            what: format!("shard map `{map}`"),
            reason: reason.to_owned(),
        };
        let shards = match shards_of(self)? {
            None => None,
            Some(engine) => {
                let Some(boundaries) = engine.boundaries(map) else {
                    return Err(refused(&engine.no_map()?));
                };
                Some((engine, boundaries))
            }
        };
        let in_use = self.inner.tables_in_use();
        let own: Vec<_> = in_use.iter().filter_map(|table| Own::of(table, map)).collect();
        let Some(Own { routing, .. }) = own.first() else {
            return Err(refused("no table with this map is in use; open a repository"));
        };
        let mut ranges = match (&shards, routing) {
            (Some((engine, boundaries)), Some(routing)) => {
                declared(engine, routing, (map, boundaries))?
            }
            _ => vec![Some((self.only_range(&own)?, false))],
        };
        let is_cut = self.count_rows(&own, &mut ranges, is_over)?;
        if let (Some((engine, boundaries)), Some(routing)) = (&shards, routing) {
            for KeyRequests { key, reads, writes, .. } in engine.load_of(map).keys() {
                let segment = boundaries.segment_of(&routing.map_key_of(&key));
                if let Some(Some((range, _))) = segment.and_then(|segment| ranges.get_mut(segment))
                {
                    range.reads += reads;
                    range.writes += writes;
                }
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

    /// Returns the range of a store with one shard.
    fn only_range(&self, own: &[Own<'_>]) -> Result<RangeInfo> {
        let shard = shard_id(self, 0)?.name().to_owned();
        let mut range = RangeInfo { shard, ..RangeInfo::default() };
        for Own { table, .. } in own.iter().filter(|own| own.source == Source::Facts) {
            let usage = &table.shared.usage;
            let reads = std::iter::once(&usage.facts).chain(&usage.indexes);
            range.reads += reads.map(|counters| counters.get()[0]).sum::<u64>();
            range.writes += usage.all_writes();
        }
        Ok(range)
    }

    /// Adds the rows or entries of the tables to their ranges. Returns whether `is_over` has ended it.
    fn count_rows(
        &self,
        own: &[Own<'_>],
        ranges: &mut [Option<(RangeInfo, bool)>],
        is_over: &mut dyn FnMut() -> bool,
    ) -> Result<bool> {
        let (txn, mut read) = (self.read()?, 0_u64);
        for Own { table, source, routing } in own {
            if is_over() {
                return Ok(true);
            }
            let all = Query::new(*source, KeyRange::ALL);
            let mut rows = txn.reader_of(table, *source)?.cursor(all)?;
            while rows.advance()? {
                read += 1;
                if read.is_multiple_of(BETWEEN) && is_over() {
                    return Ok(true);
                }
                let entry = rows.entry();
                let segment = match (routing, source) {
                    (None, _) => Some(0),
                    (Some(routing), Source::Facts) => routing.segment_of(entry.primary_key),
                    (Some(routing), Source::Index(index)) => {
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
        Ok(false)
    }
}

/// A table whose rows, or the entries of one of its global indexes, have a shard map.
struct Own<'t> {
    table: &'t OpenTable,
    source: Source,
    /// `None` in a store with one shard.
    routing: Option<CurrentRouting<'t>>,
}

impl<'t> Own<'t> {
    fn of(table: &'t OpenTable, map: &str) -> Option<Self> {
        let routing = table.tables.routing();
        let source = match &routing {
            Some(routing) => routing.source_with(map),
            None => table.rows.distribution.source_with(table.schema, map),
        };
        Some(Self { table, source: source?, routing })
    }
}

/// Returns the ranges of a map, each with whether a part of it is being moved; `None` for keys that belong to no shard.
fn declared(
    engine: &Shards,
    routing: &Routing,
    (map, boundaries): (&str, &Boundaries),
) -> Result<Vec<Option<(RangeInfo, bool)>>> {
    let shown = |key: &[u8]| routing.show_boundary_of(map, key);
    let range = |(start, end, shard): (&[u8], Option<&[u8]>, Option<ShardNumber>)| {
        let Some(shard) = shard else { return Ok(None) };
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
        Ok(Some((range, is_moving)))
    };
    boundaries.segments().map(range).collect()
}

/// The number of rows between two calls of a function that can end a count.
const BETWEEN: u64 = 1024;

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
