//! The shard keys with the most requests, and the shards with more than their share of the load.

use std::fmt;

use serde::Serialize;

#[cfg(doc)]
use super::Rebalance;
use super::{Cell, Unit, measure};
use crate::{
    model::{
        error::{Error, Result},
        shard::KeyRequests,
    },
    placement::shards::Engine,
    store::{Store, engine_of},
    upkeep::analyze::share,
};

/// The minimum number of rows or requests for which there is advice.
const LEAST: u64 = 100;

/// The number of requests for which a sample stands, weighted by this number.
const SAMPLE: u64 = 21;

/// The percentage by which the load of a shard may exceed the average.
const TOLERANCE: u64 = 10;

/// A shard key with many requests. From [`Store::hot_keys`].
///
/// `Display` prints one line.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HotKey {
    /// The shard key, as text.
    pub key: String,
    /// The name of its shard; `None` if the map gives the key to no shard.
    pub shard: Option<String>,
    /// The number of reads: the rows that were looked up by their keys, and the queries that give the shard key.
    pub reads: u64,
    /// The number of writes of rows.
    pub writes: u64,
    /// The number of these requests that may belong to other keys.
    pub error: u64,
    /// Its share of the requests of all keys of the map, without `error`, from 0 to 1.
    pub share: f64,
}

/// A shard with more than its share of the load. From [`Store::shard_advice`].
///
/// `Display` prints one line.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ShardAdvice {
    /// The shard map.
    pub map: String,
    /// The name of the shard.
    pub shard: String,
    /// The unit of load: `"rows"`, `"bytes"` or `"requests"`.
    pub unit: &'static str,
    /// Its share of the load of all shards, from 0 to 1.
    pub share: f64,
    /// The share of each shard if all shards had the same load.
    pub even_share: f64,
    /// The shard key as text, and its share, if this key alone has more than the share of a shard. Then no split helps:
    /// the table needs a longer shard key to divide the rows of this key.
    pub key: Option<(String, f64)>,
}

impl Store {
    /// Returns the shard keys of a map with the most requests in this process, at most `most` of them, in descending
    /// order of requests. The keys of a hash map are shard keys too, not slots.
    ///
    /// About one in 16 requests is sampled, and 512 keys are counted. So the figures are estimates, and each key has
    /// the greatest possible [error](HotKey::error). After 16 million requests, all counts are halved.
    ///
    /// # Errors
    ///
    /// [`Error::ShardRefused`] if the store has no such map, no table with the map is in use, or the map belongs to a
    /// global index.
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
    ///     .map("orders", ShardMap::ranges().to("north", 0u32..))
    ///     .open(dir.path().join("shop"))?;
    /// let orders = OrderRepository::open(&store)?;
    /// for number in 0..1000 {
    ///     let tenant = if number % 4 == 0 { number as u32 } else { 7 };
    ///     store.transaction(|txn| orders.put(txn, &Order { tenant, number }))?;
    /// }
    /// let hottest = store.hot_keys("orders", 10)?.remove(0);
    /// println!("{hottest}"); // 7 in `north`: 0 reads, 752 writes, 75 % of all requests
    /// assert_eq!(hottest.key, "7");
    /// # Ok(())
    /// # }
    /// ```
    pub fn hot_keys(&self, map: &str, most: usize) -> Result<Vec<HotKey>> {
        let engine = engine_of(self)?;
        let refused = |reason: &str| Error::ShardRefused {
            what: format!("shard map `{map}`"),
            reason: reason.to_owned(),
        };
        let Some(found) = engine.map(map) else { return Err(refused(&engine.no_map()?)) };
        let tables = self.inner.tables_in_use();
        let routing = tables.iter().find_map(|table| {
            let tables = table.tables.several()?;
            Some(tables.routing()).filter(|it| it.is_split() && it.map() == map)
        });
        let routing =
            routing.ok_or_else(|| refused("no table whose rows have this map is in use"))?;
        let keys = engine.load_of(map).keys();
        let total = keys.iter().map(KeyRequests::total).sum();
        let hot = keys.iter().filter(|key| key.certain() > 0).take(most);
        let shown = |key: &KeyRequests| {
            let shard = found.boundaries.shard_of(&routing.map_key_of(&key.key));
            let shard = shard.map(|shard| engine.shard(shard)).transpose()?;
            Ok(HotKey {
                key: routing.show_shard_key(&key.key),
                shard: shard.map(|shard| shard.name().to_string()),
                reads: key.reads,
                writes: key.writes,
                error: key.error,
                share: share(key.certain(), total),
            })
        };
        hot.map(shown).collect()
    }

    /// Returns the shards that have more than their share of a map's rows, bytes or requests: over 10 % more than the
    /// average. The advice states whether [`rebalance`](Store::rebalance) can divide the load, or whether a
    /// single shard key is the reason. There is no advice for fewer than 100 rows or requests, and none if the number of
    /// sampled requests is too small to show the difference.
    ///
    /// Cost: as of [`plan`](Rebalance::plan). With more than 65,536 rows, the shares are estimates from samples.
    ///
    /// # Errors
    ///
    /// The errors of [`plan`](Rebalance::plan).
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
    /// store.transaction(|txn| {
    ///     (0..300).try_for_each(|number| orders.insert(txn, &Order { tenant: 7, number }))
    /// })?;
    /// let advice = store.shard_advice("orders")?;
    /// println!("{}", advice[0]);
    /// // shard `north` has 100 % of the rows of shard map `orders`, and an even share is 50 %: the shard key 7 alone has
    /// // 100 %, so no split helps; only a longer shard key, with a further field, can divide its rows
    /// assert_eq!(advice[0].key.as_ref().map(|(key, _)| key.as_str()), Some("7"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn shard_advice(&self, map: &str) -> Result<Vec<ShardAdvice>> {
        let engine = engine_of(self)?;
        let refused = |reason: String| Error::ShardRefused {
            what: format!("advice on shard map `{map}`"),
            reason,
        };
        let targets = self.rebalance(map).targets(engine, &refused)?;
        let measured = measure::cells(self, engine, map, (Unit::Rows, false), &refused)?;
        let count = targets.iter().filter(|target| target.is_target).count() as u64;
        // A slot has several keys, but requests are counted for each key.
        let is_hashed = measured.key_type == crate::model::shard::HASHED;
        let hottest =
            if is_hashed { self.hot_keys(map, 1).unwrap_or_default() } else { Vec::new() };
        let mut advice = Vec::new();
        for unit in [Unit::Rows, Unit::Bytes, Unit::Requests] {
            let of_cell = |cell: &Cell| match unit {
                Unit::Rows => cell.rows,
                Unit::Bytes => cell.bytes,
                Unit::Requests => cell.requests.iter().sum(),
            };
            let total: u64 = measured.cells.iter().map(of_cell).sum();
            let least = if unit == Unit::Bytes { 1 } else { LEAST };
            let rows: u64 = measured.cells.iter().map(|cell| cell.rows).sum();
            if total < least || rows < LEAST && unit != Unit::Requests {
                continue;
            }
            let even = total.div_ceil(count.max(1));
            let most = even + even * TOLERANCE / 100;
            for (at, _) in targets.iter().enumerate() {
                let own = || measured.cells.iter().filter(|cell| cell.owner == at);
                let load: u64 = own().map(of_cell).sum();
                // Requests are sampled: three times the standard deviation of the estimate.
                let error = if unit == Unit::Requests {
                    3 * SAMPLE.saturating_mul(load).isqrt()
                } else {
                    0
                };
                if load <= most + error {
                    continue;
                }
                let single = own().filter(|cell| cell.is_single).max_by_key(|cell| of_cell(cell));
                let single = single.filter(|cell| of_cell(cell) > most);
                let shown = |cell: &Cell| ((measured.show)(&cell.key), share(of_cell(cell), total));
                let name = name_of(engine, at)?;
                let hot = hottest.first().filter(|hot| {
                    unit == Unit::Requests
                        && hot.shard.as_ref() == Some(&name)
                        && hot.share > share(most, total)
                });
                let key = single.map(shown).or_else(|| hot.map(|it| (it.key.clone(), it.share)));
                advice.push(ShardAdvice {
                    map: map.to_owned(),
                    shard: name,
                    unit: unit.name(),
                    share: share(load, total),
                    even_share: share(even, total),
                    key,
                });
            }
        }
        Ok(advice)
    }
}

fn name_of(engine: &Engine, at: usize) -> Result<String> {
    let number = u32::try_from(at).unwrap_or(u32::MAX);
    Ok(engine.shard(number)?.name().to_string())
}

/// Returns a share in percent.
fn percent(share: f64) -> f64 {
    share * 100.0
}

impl fmt::Display for HotKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, shard, reads, writes, share, .. } = self;
        match shard {
            Some(shard) => write!(f, "{key} in `{shard}`")?,
            None => write!(f, "{key} in no shard")?,
        }
        let share = percent(*share);
        write!(f, ": {reads} reads, {writes} writes, {share:.0} % of all requests")
    }
}

impl fmt::Display for ShardAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { map, shard, unit, share, even_share, key } = self;
        let (share, even) = (percent(*share), percent(*even_share));
        write!(
            f,
            "shard `{shard}` has {share:.0} % of the {unit} of shard map `{map}`, and an even share is {even:.0} %: "
        )?;
        match key {
            Some((key, share)) => write!(
                f,
                "the shard key {key} alone has {:.0} %, so no split helps; only a longer shard key, with a further field, \
                 can divide its rows",
                percent(*share)
            ),
            None => write!(f, "`rebalance(\"{map}\").by_{unit}()` plans moves to other shards"),
        }
    }
}
