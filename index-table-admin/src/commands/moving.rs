//! Moves of keys between shards.

use std::{collections::BTreeSet, path::PathBuf};

use clap::{Args, ValueEnum};
use index_table::{
    __private::admin::{KeyBuf, KeyShape, MapKeys},
    Progress, Store,
    report::{MoveInfo, MoveState, Moved, RebalancePlan},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::shards::boundary_of;
use crate::{
    cli::Written,
    failure::Failure,
    interrupt::on_ctrl_c,
    names::unknown,
    open::Opened,
    output::Output,
    progress::Bar,
    server::shown,
    typed::{Declared, Typed},
    value,
};

const CONTINUES: &str = "no row is lost, and the same command continues the move";

/// A shard map with all tables of the program open, so that their rows can move.
pub(crate) struct Open {
    opened: Opened,
    /// The tables are in use until this value is dropped.
    _tables: Vec<Box<dyn Typed>>,
}

impl Open {
    fn new(opened: Opened, declared: &[Declared]) -> Result<Self, Failure> {
        opened.shards()?;
        Self::of_any(opened, declared)
    }

    /// Also opens a store with one data file.
    fn of_any(opened: Opened, declared: &[Declared]) -> Result<Self, Failure> {
        let catalog = opened.catalog()?;
        let exists = |table: &&Declared| catalog.tables.iter().any(|own| own.name == table.name);
        let tables = declared.iter().filter(exists).map(|table| {
            if opened.store.is_read_only() {
                table.open_online(&opened.store)
            } else {
                table.open(&opened.store)
            }
        });
        Ok(Self { _tables: tables.collect::<Result<_, _>>()?, opened })
    }

    /// Opens the tables in a store that a service has open. Its other repositories are in use already.
    pub(crate) fn in_service(store: &Store, declared: &[Declared]) -> Result<Self, Failure> {
        let opened = Opened { store: store.clone() };
        let catalog = opened.catalog()?;
        let exists = |table: &&Declared| catalog.tables.iter().any(|own| own.name == table.name);
        let tables = declared.iter().filter(exists).map(|table| table.open_online(store));
        Ok(Self { _tables: tables.collect::<Result<_, _>>()?, opened })
    }

    fn to_write(out: &Output, store: &Written, declared: &[Declared]) -> Result<Self, Failure> {
        Self::new(Self::opened(out, store)?, declared)
    }

    fn any_to_write(out: &Output, store: &Written, declared: &[Declared]) -> Result<Self, Failure> {
        Self::of_any(Self::opened(out, store)?, declared)
    }

    /// A dry run opens the store for reading.
    fn opened(out: &Output, store: &Written) -> Result<Opened, Failure> {
        if store.dry_run { Opened::to_read(out, &store.dir) } else { Opened::to_write(out, store) }
    }

    fn store(&self) -> Result<&Store, Failure> {
        self.opened.shards()
    }

    /// Whether there is nothing to move, because all keys are in the only shard.
    fn is_done(&self, to: &str) -> Result<bool, Failure> {
        let store = &self.opened.store;
        if store.has_shards() {
            return Ok(false);
        }
        if store.shard_ids().iter().any(|own| own.name() == to) {
            return Ok(true);
        }
        let reason = match store.directory() {
            Some(_) => {
                "the store has one data file, the shard `main`; `add-shard` adds another one"
            }
            None => "a store on a server has one shard, `main`",
        };
        Err(Failure::not_found(format!("there is no shard `{to}`: {reason}")))
    }

    /// Returns the keys of a map.
    fn keys(&self, map: &str) -> Result<MapKeys, Failure> {
        let (store, names) = (&self.opened.store, self.opened.store.map_names());
        if store.has_shards() && !names.iter().any(|own| own == map) {
            return Err(unknown("shard map", map, names.iter().map(String::as_str)));
        }
        store.keys_of_map(map).ok_or_else(|| {
            Failure::not_found(format!("no table of this program has the shard map `{map}`"))
        })
    }

    fn check_shard(&self, shard: &str) -> Result<(), Failure> {
        let shards = self.store()?.shard_ids();
        if shards.iter().any(|own| own.name() == shard) {
            return Ok(());
        }
        Err(unknown("shard", shard, shards.iter().map(index_table::ShardId::name)))
    }
}

/// A move of keys to another shard.
#[derive(Debug, Args)]
pub(crate) struct Move {
    #[command(flatten)]
    dir: Written,
    #[command(flatten)]
    keys: MoveKeys,
}

/// The keys of a move, and their new shard.
#[derive(Debug, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MoveKeys {
    /// The shard map.
    map: String,
    /// The keys: `A..B` without B, `A..`, `..B` or one key. A shard key of several fields is written as `(A, B)`; the keys
    /// of a hash map are slots from 0 to 4095.
    #[arg(allow_hyphen_values = true)]
    keys: String,
    /// The shard that gets the keys.
    to: String,
    /// Refuse writes of the keys until the shard has them.
    #[arg(long)]
    #[serde(default)]
    offline: bool,
}

impl Move {
    pub(crate) fn run(&self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        let open = Open::any_to_write(out, &self.dir, declared)?;
        self.keys.run(out, &open, self.dir.dry_run)
    }
}

impl MoveKeys {
    pub(crate) fn run(&self, out: &Output, open: &Open, is_dry: bool) -> Result<(), Failure> {
        let is_done = open.is_done(&self.to)?;
        let keys = open.keys(&self.map)?;
        let span = span(&keys, &self.keys)?;
        if is_done {
            return show(out, &Moved::default());
        }
        open.check_shard(&self.to)?;
        if is_dry {
            let Self { map, keys, to, .. } = self;
            return Ok(out.would(&format!("move the keys {keys} of shard map `{map}` to `{to}`"))?);
        }
        run(out, open, (&self.map, span, &self.to), self.offline)
    }
}

/// A move of all rows of a table without a shard key.
#[derive(Debug, Args)]
pub(crate) struct MoveTable {
    #[command(flatten)]
    dir: Written,
    #[command(flatten)]
    table: MovedTable,
}

/// A table that moves, and its new shard.
#[derive(Debug, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MovedTable {
    /// The table.
    table: String,
    /// The shard that gets its rows.
    to: String,
    /// Refuse writes of the rows until the shard has them.
    #[arg(long)]
    #[serde(default)]
    offline: bool,
}

impl MoveTable {
    pub(crate) fn run(&self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        let open = Open::any_to_write(out, &self.dir, declared)?;
        self.table.run(out, &open, self.dir.dry_run)
    }
}

impl MovedTable {
    pub(crate) fn run(&self, out: &Output, open: &Open, is_dry: bool) -> Result<(), Failure> {
        let (table, to) = (self.table.as_str(), self.to.as_str());
        let catalog = open.opened.catalog()?;
        if catalog.tables.iter().all(|own| own.name != table) {
            return Err(unknown(
                "table",
                table,
                catalog.tables.iter().map(|own| own.name.as_str()),
            ));
        }
        if open.is_done(to)? {
            return show(out, &Moved::default());
        }
        open.check_shard(to)?;
        if is_dry {
            return Ok(out.would(&format!("move table `{table}` to `{to}`"))?);
        }
        let store = open.store()?;
        on_ctrl_c(out, CONTINUES, || ());
        let is_own = |own: &MoveInfo| own.is_table && own.map == table && own.to == to;
        let undo = Undo::new(store, &is_own)?;
        let all = continued(out, store, &is_own)?;
        finish(out, (all, undo), store.move_table(table, to), self.offline)
    }
}

/// A shard that is added.
#[derive(Debug, Args)]
pub(crate) struct AddShard {
    #[command(flatten)]
    dir: Written,
    #[command(flatten)]
    shard: AddedShard,
}

/// A further shard.
#[derive(Debug, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddedShard {
    /// The name of the shard.
    name: String,
    /// Its directory, relative to that of the store, or absolute.
    pub(crate) directory: PathBuf,
}

impl AddShard {
    pub(crate) fn run(&self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        let open = Open::any_to_write(out, &self.dir, declared)?;
        self.shard.run(out, &open, self.dir.dry_run)
    }
}

impl AddedShard {
    pub(crate) fn run(&self, out: &Output, open: &Open, is_dry: bool) -> Result<(), Failure> {
        let name = self.name.as_str();
        if is_dry {
            let place = shown(&self.directory);
            return Ok(out.would(&format!("add shard `{name}` in `{place}`"))?);
        }
        open.opened.store.add_shard(name, &self.directory)?;
        let directory = shown(&self.directory);
        let value = json!({ "shard": name, "directory": directory });
        Ok(out.put(&value, |text| {
            writeln!(text, "added shard `{name}` in `{directory}`; nothing has moved to it yet")
        })?)
    }
}

/// A split of a range.
#[derive(Debug, Args)]
pub(crate) struct Split {
    #[command(flatten)]
    dir: Written,
    #[command(flatten)]
    range: SplitRange,
}

/// A range that is split, and the shard of its upper part.
#[derive(Debug, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SplitRange {
    /// The shard map.
    map: String,
    /// The first key that moves. The range that has this key is split before it.
    #[arg(allow_hyphen_values = true)]
    at: String,
    /// The shard that gets the keys from there to the end of the range.
    to: String,
    /// Refuse writes of the keys until the shard has them.
    #[arg(long)]
    #[serde(default)]
    offline: bool,
}

impl Split {
    pub(crate) fn run(&self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        let open = Open::to_write(out, &self.dir, declared)?;
        self.range.run(out, &open, self.dir.dry_run)
    }
}

impl SplitRange {
    pub(crate) fn run(&self, out: &Output, open: &Open, is_dry: bool) -> Result<(), Failure> {
        let keys = open.keys(&self.map)?;
        open.check_shard(&self.to)?;
        let start = key(&keys, &self.at)?;
        let end = open.store()?.end_of_range(&self.map, &start).ok_or_else(|| {
            Failure::not_found(format!(
                "no range of shard map `{}` has the key {}",
                self.map, self.at
            ))
        })?;
        if is_dry {
            let Self { map, at, to, .. } = self;
            let what =
                format!("split shard map `{map}` at {at}, and move the upper part to `{to}`");
            return Ok(out.would(&what)?);
        }
        run(out, open, (&self.map, (start, end), &self.to), self.offline)
    }
}

/// An encoded range.
type Encoded = (Vec<u8>, Option<Vec<u8>>);

/// Continues unfinished moves of the map to the shard, and then moves the keys.
fn run(
    out: &Output,
    open: &Open,
    (map, span, to): (&str, Encoded, &str),
    offline: bool,
) -> Result<(), Failure> {
    let store = open.store()?;
    on_ctrl_c(out, CONTINUES, || ());
    let is_own = |own: &MoveInfo| !own.is_table && own.map == map && own.to == to;
    let undo = Undo::new(store, &is_own)?;
    let all = continued(out, store, &is_own)?;
    finish(out, (all, undo), store.move_encoded(map, span, to), offline)
}

/// Removes the copies of the move of a cancelled job. The unfinished moves from before the job stay unfinished.
struct Undo<'s> {
    store: &'s Store,
    is_own: &'s dyn Fn(&MoveInfo) -> bool,
    earlier: BTreeSet<u64>,
}

impl<'s> Undo<'s> {
    fn new(store: &'s Store, is_own: &'s dyn Fn(&MoveInfo) -> bool) -> Result<Self, Failure> {
        let earlier = store.moves()?.iter().map(|own| own.id).collect();
        Ok(Self { store, is_own, earlier })
    }

    /// Returns the result of a move, after which an operator may have cancelled the job.
    fn after(&self, out: &Output, moved: index_table::Result<Moved>) -> Result<Moved, Failure> {
        let Err(error) = &moved else { return Ok(moved?) };
        if !out.is_stopping() {
            return Ok(moved?);
        }
        let mut left = Vec::new();
        for own in self.store.moves()?.iter().filter(|own| (self.is_own)(own)) {
            let is_undone = out.is_cancelled()
                && own.state != MoveState::CleaningUp
                && !self.earlier.contains(&own.id);
            if is_undone {
                self.store.cancel_move(own.id)?;
                continue;
            }
            left.push(own.id.to_string());
        }
        if left.is_empty() && out.is_cancelled() {
            return Err(Failure::other(
                "the move was cancelled, and the copies of keys that had not moved were removed",
            ));
        }
        let left = left.join(", ");
        Err(Failure::other(format!(
            "{error}; unfinished moves: {left}; `resume-move` continues each, and `cancel-move` ends it"
        )))
    }
}

/// Continues unfinished moves.
fn continued(
    out: &Output,
    store: &Store,
    is_own: &dyn Fn(&MoveInfo) -> bool,
) -> Result<Moved, Failure> {
    let mut all = Moved::default();
    for own in store.moves()?.iter().filter(|own| is_own(own)) {
        out.note(&format!("move {} is continued first", own.id));
        add(&mut all, resumed(out, store, own.id)?);
    }
    Ok(all)
}

fn resumed(out: &Output, store: &Store, id: u64) -> Result<Moved, Failure> {
    let (bar, stop) = (Bar::of(out), || out.is_stopping());
    let moving = store.resume_move(id).progress(|at: Progress| bar.show(at));
    Ok(moving.stop_when(&stop).run()?)
}

/// Runs a move, and shows it with those that were continued.
fn finish(
    out: &Output,
    (mut all, undo): (Moved, Undo<'_>),
    moving: index_table::Move<'_>,
    offline: bool,
) -> Result<(), Failure> {
    let (bar, stop) = (Bar::of(out), || out.is_stopping());
    let moving = moving.progress(|at: Progress| bar.show(at)).stop_when(&stop);
    let moved = if offline { moving.offline().run() } else { moving.run() };
    add(&mut all, undo.after(out, moved)?);
    drop(bar);
    show(out, &all)
}

fn add(all: &mut Moved, moved: Moved) {
    all.rows += moved.rows;
    all.bytes += moved.bytes;
    all.duration += moved.duration;
    all.pause = all.pause.max(moved.pause);
}

fn show(out: &Output, moved: &Moved) -> Result<(), Failure> {
    let value = json!({
        "rows": moved.rows,
        "bytes": moved.bytes,
        "pause_seconds": moved.pause.as_secs_f64(),
        "seconds": moved.duration.as_secs_f64(),
    });
    Ok(out.put(&value, |text| writeln!(text, "{moved}"))?)
}

/// Reads a range of keys.
fn span(keys: &MapKeys, text: &str) -> Result<Encoded, Failure> {
    let Some((from, to)) = text.split_once("..") else {
        let start = key(keys, text)?;
        let mut end = value::after(&start);
        if let Some(end) = &mut end {
            // The number after 255 has as many bytes as 255.
            end.resize(start.len(), 0);
        }
        return Ok((start, end));
    };
    let bound = |text: &str| {
        let text = text.trim();
        (!text.is_empty()).then(|| key(keys, text)).transpose()
    };
    let (start, end) = (bound(from)?.unwrap_or_default(), bound(to)?);
    if end.as_ref().is_some_and(|end| *end <= start) {
        return Err(Failure::arguments(format!("the range `{text}` has no keys")));
    }
    Ok((start, end))
}

/// Encodes a key of a map.
fn key(keys: &MapKeys, text: &str) -> Result<Vec<u8>, Failure> {
    if keys.is_hashed {
        let slot: u16 = text.parse().ok().filter(|slot| *slot < 4096).ok_or_else(|| {
            Failure::arguments(format!(
                "`{text}` is not a slot from 0 to 4095; the keys of a hash map are slots"
            ))
        })?;
        // The first slot begins with the empty key.
        return Ok(if slot == 0 { Vec::new() } else { slot.to_be_bytes().to_vec() });
    }
    let values = match keys.fields.as_slice() {
        [_] => vec![text.to_owned()],
        _ => value::parts(text).map_err(Failure::arguments)?,
    };
    let mut key = KeyBuf::new();
    value::encode(&keys.fields, &values, &mut key).map_err(Failure::arguments)?;
    let mut key = key.as_bytes().to_vec();
    // `a\0` is the boundary after all keys with the text `a`, which is shorter in the map.
    let last = values.len().checked_sub(1).and_then(|last| keys.fields.get(last));
    if last.is_some_and(|field| matches!(field.shape, KeyShape::Text)) && key.ends_with(&[1, 1, 0])
    {
        key.truncate(key.len() - 2);
    }
    Ok(key)
}

/// An unfinished move.
#[derive(Debug, Args)]
pub(crate) struct Unfinished {
    #[command(flatten)]
    dir: Written,
    #[command(flatten)]
    own: UnfinishedId,
}

/// The number of an unfinished move.
#[derive(Debug, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UnfinishedId {
    /// The number of the move, from `moves`.
    #[serde(with = "exact")]
    id: u64,
}

/// The number of a move as a text, which is exact in all programs.
mod exact {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    pub(super) fn serialize<S: Serializer>(id: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(id)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(|_| D::Error::custom(format!("`{text}` is not the number of a move")))
    }
}

impl Unfinished {
    pub(crate) fn resume(&self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        let open = Open::to_write(out, &self.dir, declared)?;
        self.own.resume(out, &open, self.dir.dry_run)
    }

    pub(crate) fn cancel(&self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        let open = Open::to_write(out, &self.dir, declared)?;
        self.own.cancel(out, &open, self.dir.dry_run)
    }
}

impl UnfinishedId {
    fn find(&self, store: &Store) -> Result<MoveInfo, Failure> {
        let moves = store.moves()?;
        let ids: BTreeSet<_> = moves.iter().map(|own| own.id.to_string()).collect();
        let own = moves.into_iter().find(|own| own.id == self.id);
        own.ok_or_else(|| {
            unknown("unfinished move", &self.id.to_string(), ids.iter().map(String::as_str))
        })
    }

    pub(crate) fn resume(&self, out: &Output, open: &Open, is_dry: bool) -> Result<(), Failure> {
        let store = open.store()?;
        let own = self.find(store)?;
        if is_dry {
            return Ok(out.would(&format!("continue move {} to `{}`", own.id, own.to))?);
        }
        on_ctrl_c(out, CONTINUES, || ());
        show(out, &resumed(out, store, self.id)?)
    }

    pub(crate) fn cancel(&self, out: &Output, open: &Open, is_dry: bool) -> Result<(), Failure> {
        let (store, id) = (open.store()?, self.id);
        if self.find(store)?.state == MoveState::CleaningUp {
            return Err(Failure::other(format!(
                "shard `{}` has the keys of move {id} already; finish it with `resume-move`, and move the keys back",
                self.find(store)?.to
            )));
        }
        if is_dry {
            return Ok(out.would(&format!("cancel move {id}"))?);
        }
        store.cancel_move(id)?;
        Ok(out.put(&json!({ "cancelled": id.to_string() }), |text| {
            writeln!(text, "cancelled move {id}")
        })?)
    }
}

/// The load of a shard.
#[derive(Debug, Clone, Copy, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Load {
    /// The number of rows.
    #[default]
    Rows,
    /// The bytes of the rows.
    Bytes,
}

/// Moves that give all shards about the same load.
#[derive(Debug, Args)]
pub(crate) struct Rebalance {
    #[command(flatten)]
    dir: Written,
    #[command(flatten)]
    map: RebalancedMap,
}

/// A shard map whose load is distributed.
#[derive(Debug, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RebalancedMap {
    /// The shard map.
    map: String,
    /// The load to distribute.
    #[arg(long, value_enum, default_value_t = Load::Rows)]
    #[serde(default)]
    by: Load,
    /// A shard that gets keys; may be repeated. All keys of other shards move to these. Default: all shards, except those
    /// with placed tables only.
    #[arg(long, value_name = "SHARD")]
    #[serde(default)]
    onto: Vec<String>,
    /// The percentage by which a shard may exceed the average.
    #[arg(long, value_name = "PERCENT", default_value_t = TOLERANCE)]
    #[serde(default = "tolerance")]
    tolerance: u32,
}

const TOLERANCE: u32 = 10;

const fn tolerance() -> u32 {
    TOLERANCE
}

impl Rebalance {
    pub(crate) fn run(&self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        let open = Open::to_write(out, &self.dir, declared)?;
        self.map.run(out, &open, self.dir.dry_run)
    }
}

impl RebalancedMap {
    pub(crate) fn run(&self, out: &Output, open: &Open, is_dry: bool) -> Result<(), Failure> {
        open.keys(&self.map)?;
        self.onto.iter().try_for_each(|shard| open.check_shard(shard))?;
        let store = open.store()?;
        let is_own = |own: &MoveInfo| own.map == self.map;
        let undo = Undo::new(store, &is_own)?;
        if !is_dry {
            on_ctrl_c(out, CONTINUES, || ());
            continued(out, store, &is_own)?;
        }
        let mut rebalance = store.rebalance(&self.map).tolerance(self.tolerance);
        rebalance = match self.by {
            Load::Rows => rebalance.by_rows(),
            Load::Bytes => rebalance.by_bytes(),
        };
        if !self.onto.is_empty() {
            rebalance = rebalance.onto(self.onto.iter().map(String::as_str));
        }
        let plan = rebalance.plan()?;
        let moved = if is_dry { None } else { Some(moved(out, &undo, &plan)?) };
        let mut value = plan_json(store, &self.map, &plan);
        if let (Some(moved), Value::Object(fields)) = (&moved, &mut value) {
            fields.insert("moved_rows".to_owned(), moved.rows.into());
            fields.insert("seconds".to_owned(), moved.duration.as_secs_f64().into());
        }
        Ok(out.put(&value, |text| {
            writeln!(text, "{}", value::printable_lines(&plan.to_string()))?;
            moved.map_or(Ok(()), |moved| writeln!(text, "{moved}"))
        })?)
    }
}

/// Runs the moves of a plan. The complete moves of a cancelled job stay.
fn moved(out: &Output, undo: &Undo<'_>, plan: &RebalancePlan<'_>) -> Result<Moved, Failure> {
    let (bar, stop) = (Bar::of(out), || out.is_stopping());
    undo.after(out, plan.run_with(|_| true, &mut |at| bar.show(at), &stop))
}

fn plan_json(store: &Store, map: &str, plan: &RebalancePlan<'_>) -> Value {
    let boundary = boundary_of(store, map);
    let moves = plan.moves().iter().map(|own| {
        json!({
            "start": own.start.clone().map(&boundary),
            "end": own.end.clone().map(&boundary),
            "source": own.from,
            "target": own.to,
            "rows": own.rows,
            "bytes": own.bytes,
        })
    });
    let shards = plan
        .shards()
        .iter()
        .map(|own| json!({ "shard": own.shard, "before": own.before, "after": own.after }));
    json!({
        "map": map,
        "moves": moves.collect::<Vec<_>>(),
        "shards": shards.collect::<Vec<_>>(),
    })
}
