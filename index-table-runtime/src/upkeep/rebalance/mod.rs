//! Rebalancing: planning moves that give all shards about the same load, and running the plan.
//!
//! | module | contents |
//! |---|---|
//! | [`advice`] | the shards with more than their share, and the reason |
//! | [`measure`] | the weights of neighbouring shard keys, in bounded memory |
//! | [`plan`] | the heuristic, a function of weights and shards |

mod advice;
mod measure;
mod plan;
mod show;
#[cfg(test)]
mod tests;

use std::ops::RangeBounds;

use serde::Serialize;

pub use self::advice::{HotKey, ShardAdvice};
use self::plan::{Cell, Outcome, Target};
use crate::{
    model::{
        error::{Error, Result},
        shard::{ShardKeyValue, ShardNumber, Span},
    },
    store::{Shards, Store, engine_of},
    upkeep::moves::Moved,
    usage::Progress,
};

/// The options of a plan to rebalance the shards of a shard map. From [`Store::rebalance`].
#[derive(Clone)]
#[must_use = "nothing is planned until `plan`"]
pub struct Rebalance<'s> {
    store: &'s Store,
    map: String,
    unit: Unit,
    tolerance: u32,
    onto: Option<Vec<String>>,
    capacities: Vec<(String, u64)>,
    pins: Vec<Option<Span>>,
    exact: bool,
}

/// The unit of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum Unit {
    Rows,
    Bytes,
    Requests,
}

/// A move of a [`RebalancePlan`].
///
/// `Display` prints one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PlannedMove {
    /// The first shard key, as text; in a hash map, the first slot. `None`: the range has no lower end.
    pub start: Option<String>,
    /// The first shard key after the range, as text; in a hash map, the first slot. `None`: the range has no upper end.
    pub end: Option<String>,
    /// The shard that has the keys.
    pub from: String,
    /// The shard to which the keys move.
    pub to: String,
    /// The number of rows of all tables with the map; an estimate if the plan was made from samples.
    pub rows: u64,
    /// The bytes of these rows with their primary keys; an estimate if the plan was made from samples.
    pub bytes: u64,
    #[serde(skip)]
    span: PlannedSpan,
}

/// The encoded keys of a planned move.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct PlannedSpan {
    start: Vec<u8>,
    end: Option<Vec<u8>>,
}

/// The load of a shard before and after a [`RebalancePlan`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PlannedShard {
    /// The name of the shard.
    pub shard: String,
    /// Its load now, in the unit of the plan.
    pub before: u64,
    /// Its load after all moves.
    pub after: u64,
    /// Whether its load exceeds the tolerance even after all moves, because no further move makes the loads more
    /// even.
    pub is_over: bool,
    /// If the load exceeds the tolerance and a single shard key has most of it: this shard key as text, and its
    /// load. To split its rows, the table needs a longer shard key.
    pub heaviest: Option<(String, u64)>,
}

/// The moves that give all shards about the same load. From [`Rebalance::plan`].
///
/// `Display` prints the loads, the moves, and the least load that has to move to meet the tolerance.
#[derive(Clone)]
#[must_use = "nothing moves until `run`"]
pub struct RebalancePlan<'s> {
    store: &'s Store,
    map: String,
    key_type: String,
    unit: Unit,
    tolerance: u32,
    moves: Vec<PlannedMove>,
    shards: Vec<PlannedShard>,
    /// The load that moves, and the least load that has to move to meet the tolerance.
    weight: u64,
    least: u64,
    /// The number of rows that were read, if the plan was made from samples.
    sampled: Option<u64>,
}

impl Store {
    /// Plans moves of a shard map's keys that give all shards about the same load: [`by_rows`](Rebalance::by_rows) or
    /// [`by_bytes`](Rebalance::by_bytes), for example after [`add_shard`](Store::add_shard).
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
    /// store.transaction(|txn| {
    ///     (0..100).try_for_each(|tenant| orders.insert(txn, &Order { tenant, number: 1 }))
    /// })?;
    ///
    /// store.add_shard("south", "south")?;
    /// let plan = store.rebalance("orders").by_rows().plan()?;
    /// println!("{plan}");
    /// // shard map `orders`, rows within 10 %:
    /// //   shard `north`: 100, then 50
    /// //   shard `south`: 0, then 50
    /// // moves: 1, with 50 rows; the tolerance requires at least 45:
    /// //   50.. from `north` to `south`: 50 rows, 800 bytes
    /// assert_eq!(plan.moves().len(), 1);
    /// plan.run()?;
    /// let rows: Vec<u64> = store.shards()?.iter().map(|shard| shard.rows).collect();
    /// assert_eq!(rows, [50, 50]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn rebalance(&self, map: &str) -> Rebalance<'_> {
        let (map, onto, capacities, pins) = (map.to_owned(), None, Vec::new(), Vec::new());
        let (store, unit, tolerance, exact) = (self, Unit::Rows, 10, false);
        Rebalance { store, map, unit, tolerance, onto, capacities, pins, exact }
    }
}

impl<'s> Rebalance<'s> {
    /// The load of a shard is its number of rows. This is the default.
    pub const fn by_rows(mut self) -> Self {
        self.unit = Unit::Rows;
        self
    }

    /// The load of a shard is the bytes of its rows with their primary keys, without index entries.
    pub const fn by_bytes(mut self) -> Self {
        self.unit = Unit::Bytes;
        self
    }

    /// The load of a shard is the number of requests of its keys in this process: the rows that were written or looked
    /// up by their keys, and the queries that give the shard key. They are sampled, and old requests have less weight
    /// than new requests. See [`hot_keys`](Store::hot_keys). Requests of a global index are not sampled: for its
    /// map, the load of a shard is the number of its read transactions and changes, in proportion to its entries.
    pub const fn by_requests(mut self) -> Self {
        self.unit = Unit::Requests;
        self
    }

    /// Sets the percentage by which the load of a shard may exceed the average. Default: 10.
    pub const fn tolerance(mut self, percent: u32) -> Self {
        self.tolerance = percent;
        self
    }

    /// Distributes the keys over these shards. All keys of other shards move to them. The default is all shards, except
    /// shards in which only tables are [placed](crate::Options::place).
    pub fn onto<S: Into<String>>(mut self, shards: impl IntoIterator<Item = S>) -> Self {
        self.onto = Some(shards.into_iter().map(Into::into).collect());
        self
    }

    /// Limits the bytes of the rows with this map in a shard. A shard that already has more gets no further keys.
    pub fn capacity(mut self, shard: impl Into<String>, bytes: u64) -> Self {
        self.capacities.push((shard.into(), bytes));
        self
    }

    /// Excludes the keys in this range from the moves.
    pub fn pin<K: ShardKeyValue>(mut self, range: impl RangeBounds<K>) -> Self {
        self.pins.push(Span::of_range(&range).map(|span| span.with_first_key(&K::SHAPE)));
        self
    }

    /// Reads all rows for the plan, however many there are. By default, a plan for more than 65,536 rows is made from
    /// samples; see [`plan`](Rebalance::plan).
    pub const fn exact(mut self) -> Self {
        self.exact = true;
        self
    }

    /// Plans the moves. Nothing moves until [`run`](RebalancePlan::run).
    ///
    /// Ranges are split at existing shard keys. Tables with the same map move together.
    ///
    /// Cost: up to 65,536 rows are all read in one snapshot. If the tables with this map have more rows, the rows on a
    /// sample of LMDB's pages are read: of each table, the rows on about 1024 pages, and at least on 64 pages of each
    /// shard, at equal distances. So the cost does not grow with the rows. At most about 100,000 shard keys are kept in
    /// memory. If there are more, neighbouring keys are planned together.
    ///
    /// The number of rows in a shard is always exact, because LMDB maintains it. The rows of a planned move and the bytes
    /// are estimates if they are sampled. A page of the sample stands for 1/n of its shard, where n is the number of pages
    /// that are read in it, and the number of rows varies by about a third from page to page. So the typical error of the
    /// rows in a move is 1/(3√n) of the rows in the shard: 1 % for 1024 pages, and 4 % for 64 pages. While rows of the map
    /// are moving, all rows are read. [`exact`](Rebalance::exact) always reads all rows.
    ///
    /// # Errors
    ///
    /// [`Error::ShardRefused`]: there is no such map or shard, the repository of a table with the map is not open, or no
    /// shard remains as a target. [`Error::ShardUnavailable`], and the errors of
    /// [`read`](crate::Store::read).
    pub fn plan(&self) -> Result<RebalancePlan<'s>> {
        let engine = engine_of(self.store)?;
        let refused = |reason: String| Error::ShardRefused {
            what: format!("rebalancing shard map `{}`", self.map),
            reason,
        };
        let measured =
            measure::cells(self.store, engine, &self.map, (self.unit, self.exact), &refused)?;
        let measure::Measured { mut cells, show, key_type, sampled } = measured;
        for cell in &mut cells {
            let is_inside = |pin: &Span| {
                let is_before = pin.end.as_ref().is_some_and(|end| *end <= cell.start);
                let is_after = cell.end.as_ref().is_some_and(|end| *end <= pin.start);
                !is_before && !is_after
            };
            cell.is_pinned = self.pins.iter().flatten().any(is_inside);
        }
        let names: Vec<_> = engine.shards().map(|(_, shard)| shard.name().to_string()).collect();
        let targets = self.targets(engine, &refused)?;
        let outcome = plan::plan(&cells, &targets, self.tolerance);
        let name = |at: usize| names.get(at).cloned().unwrap_or_default();
        let text = |key: &[u8]| (!key.is_empty()).then(|| show(key));
        let (mut moves, mut weight): (Vec<PlannedMove>, u64) = Default::default();
        for (cell, to) in cells.iter().zip(&outcome.owners) {
            if cell.owner == *to {
                continue;
            }
            weight += cell.weight;
            let (from, to, end) = (name(cell.owner), name(*to), cell.end.as_deref().map(&show));
            match moves.last_mut() {
                Some(last)
                    if last.span.end.as_ref() == Some(&cell.start)
                        && (&last.from, &last.to) == (&from, &to) =>
                {
                    last.rows += cell.rows;
                    last.bytes += cell.bytes;
                    last.end = end;
                    last.span.end.clone_from(&cell.end);
                }
                _ => {
                    let span = PlannedSpan { start: cell.start.clone(), end: cell.end.clone() };
                    let (rows, bytes) = (cell.rows, cell.bytes);
                    let start = text(&cell.start);
                    moves.push(PlannedMove { start, end, from, to, rows, bytes, span });
                }
            }
        }
        let shards = shards(&cells, &targets, &outcome, &name, &show);
        let (store, map, unit) = (self.store, self.map.clone(), self.unit);
        let (tolerance, least) = (self.tolerance, outcome.least);
        Ok(RebalancePlan {
            store,
            map,
            key_type,
            unit,
            tolerance,
            moves,
            shards,
            weight,
            least,
            sampled,
        })
    }

    /// Returns the shards, by their numbers.
    fn targets(&self, engine: &Shards, refused: &dyn Fn(String) -> Error) -> Result<Vec<Target>> {
        let number = |name: &String| {
            engine.number(name).ok_or_else(|| refused(format!("there is no shard `{name}`")))
        };
        let onto = self.onto.iter().flatten().map(number).collect::<Result<Vec<ShardNumber>>>()?;
        let mut targets: Vec<_> = engine
            .shards()
            .map(|(at, shard)| {
                let is_chosen = match &self.onto {
                    Some(_) => onto.contains(&at),
                    None => !engine.has_only_placed(at),
                };
                Target { is_target: is_chosen && !shard.is_gone(), capacity: None }
            })
            .collect();
        for (name, bytes) in &self.capacities {
            let number = number(name)? as usize;
            if let Some(target) = targets.get_mut(number) {
                target.capacity = Some(*bytes);
            }
        }
        if targets.iter().all(|target| !target.is_target) {
            return Err(refused("no shard remains as a target".to_owned()));
        }
        Ok(targets)
    }
}

/// Returns the loads of the shards that have cells or could get cells.
fn shards(
    cells: &[Cell],
    targets: &[Target],
    outcome: &Outcome,
    name: &dyn Fn(usize) -> String,
    show: &dyn Fn(&[u8]) -> String,
) -> Vec<PlannedShard> {
    let loads = outcome.before.iter().zip(&outcome.after).zip(targets).enumerate();
    let listed = loads
        .filter(|(_, ((before, after), target))| target.is_target || **before > 0 || **after > 0);
    let shard = |(at, ((before, after), target)): (usize, ((&u64, &u64), &Target))| {
        let is_over = *after > if target.is_target { outcome.most } else { 0 };
        let own = cells.iter().zip(&outcome.owners).filter(|(_, owner)| **owner == at);
        let heaviest = own.map(|(cell, _)| cell).max_by_key(|cell| cell.weight);
        let alone = heaviest.filter(|cell| {
            is_over && cell.is_single && cell.weight > outcome.most.saturating_sub(outcome.most / 2)
        });
        PlannedShard {
            shard: name(at),
            before: *before,
            after: *after,
            is_over,
            heaviest: alone.map(|cell| (show(&cell.key), cell.weight)),
        }
    };
    listed.map(shard).collect()
}

impl RebalancePlan<'_> {
    /// Returns the moves, in the order in which they are run.
    #[must_use]
    pub fn moves(&self) -> &[PlannedMove] {
        &self.moves
    }

    /// Returns the loads of the shards before and after the moves.
    #[must_use]
    pub fn shards(&self) -> &[PlannedShard] {
        &self.shards
    }

    /// Returns the number of rows that were read, if the plan was made from samples; `None` if all rows were read.
    #[must_use]
    pub const fn sampled_rows(&self) -> Option<u64> {
        self.sampled
    }

    /// Runs the moves online, one after another. Returns the number of moved rows.
    ///
    /// Cost: the cost of [`Move::run`](crate::Move::run) for each move. If rows were written after the plan was made,
    /// they move with their keys as well.
    ///
    /// # Errors
    ///
    /// The errors of [`Move::run`](crate::Move::run). The earlier moves are complete, and
    /// [`moves`](Store::moves) lists the interrupted move.
    pub fn run(&self) -> Result<Moved> {
        self.run_while(|_| true)
    }

    /// Runs the moves as [`run`](RebalancePlan::run) does. Calls `go_on` before each move, and stops if it returns false.
    ///
    /// # Errors
    ///
    /// The errors of [`run`](RebalancePlan::run).
    pub fn run_while(&self, go_on: impl FnMut(&PlannedMove) -> bool) -> Result<Moved> {
        self.run_with(go_on, &mut |_| (), &|| false)
    }

    /// Runs the moves as [`run_while`](RebalancePlan::run_while) does, and calls `progress` as
    /// [`Move::progress`](crate::Move::progress) does, and `stop` as `Move::stop_when`, for each move.
    ///
    /// # Errors
    ///
    /// The errors of [`run`](RebalancePlan::run).
    #[doc(hidden)]
    pub fn run_with(
        &self,
        mut go_on: impl FnMut(&PlannedMove) -> bool,
        progress: &mut dyn FnMut(Progress),
        stop: &dyn Fn() -> bool,
    ) -> Result<Moved> {
        let mut moved = Moved::default();
        for planned in &self.moves {
            if !go_on(planned) {
                break;
            }
            let PlannedSpan { start, end } = planned.span.clone();
            let spans = vec![Some(Span { start, end })];
            let moving = self.store.new_move(&self.map, self.key_type.clone(), spans, &planned.to);
            let of_one = moving.progress(&mut *progress).stop_when(stop).run()?;
            moved.rows += of_one.rows;
            moved.bytes += of_one.bytes;
            moved.duration += of_one.duration;
            moved.pause = moved.pause.max(of_one.pause);
        }
        Ok(moved)
    }
}

impl Unit {
    const fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Bytes => "bytes",
            Self::Requests => "requests",
        }
    }
}
