//! Moves of keys to other shards, while the store is in use. See [`placement::shards`](crate::placement::shards) for the steps
//! and the records of a move.
//!
//! | module | contents |
//! |---|---|
//! | [`copy`] | copying, verifying and switching |
//! | [`clean`] | removing the copies |
//! | [`rows`] | a copied row with its entries |
//! | [`table`] | all rows of a table without a shard key |
//! | [`entries`] | the entries of a global index |
//! | [`changed`] | rows, numbers and entries that change during the copy |
//! | [`total`] | the number of rows, for the progress |

mod changed;
mod clean;
mod compare;
mod copy;
mod entries;
mod info;
mod rows;
mod table;
mod total;

use std::{
    fmt,
    ops::RangeBounds,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

pub use info::{MoveInfo, MoveState};

use self::copy::Mover;
use super::{changes, hidden, numbers, shards::open_target};
use crate::{
    locks::MutexGuard,
    model::{
        error::{Error, Result},
        shard::{
            Boundaries, HASHED, MapKind, ShardKeyValue, ShardNumber, Span, placed_map, placed_table,
        },
    },
    placement::shards::{self, MoveId, MoveRecord, MoveStep, Moving, new_id},
    store::{OpenTable, Shards, Store, engine_of, engine_to_change, transaction},
    usage::{
        Progress,
        trace::{self, span},
    },
};

/// A move of keys to another shard. From [`Store::move_range`], [`move_slots`](Store::move_slots),
/// [`move_keys`](Store::move_keys), [`move_table`](Store::move_table) and [`resume_move`](Store::resume_move); it does nothing until
/// [`run`](Move::run).
#[must_use = "a move does nothing until `run`"]
pub struct Move<'a> {
    store: &'a Store,
    what: What,
    to: String,
    is_offline: bool,
    /// Whether only entries of a global index move, which can be built again.
    is_of_entries: bool,
    progress: Option<Box<dyn FnMut(Progress) + 'a>>,
    stop: Stop<'a>,
}

/// Whether a move has to end before its switch.
type Stop<'a> = Option<&'a dyn Fn() -> bool>;

/// The keys of a move.
enum What {
    New {
        map: String,
        key_type: String,
        spans: Vec<Option<Span>>,
    },
    /// All rows of a table without a shard key.
    Table(String),
    Begun(MoveId),
}

/// The result of a [`Move`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[non_exhaustive]
pub struct Moved {
    /// The number of rows that were copied; of a global index, the number of entries.
    pub rows: u64,
    /// The bytes of these rows with their primary keys, or of these entries with their keys.
    pub bytes: u64,
    /// The longest time for which writers of the keys waited for the switch.
    pub pause: Duration,
    /// How long the move took.
    pub duration: Duration,
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, bytes, pause, duration } = self;
        write!(f, "{rows} rows ({bytes} bytes) moved in {duration:.1?}, writers waited {pause:.1?}")
    }
}

impl Store {
    /// Moves the rows with shard keys in `range`, of all tables with this shard map, to the shard `to`, while the
    /// store is in use. To split a range, move a part of it. To merge two ranges, move one range to the shard of
    /// the other range.
    ///
    /// The rows are copied from the source shard to the target shard in small transactions, with their entries in
    /// local indexes. Rows that change in the meantime are copied again, and all copies are compared with their
    /// rows. Then one transaction of both shards gives the keys to the target, and the rows are removed from the
    /// source. Readers and writers continue. Only writers of these two shards wait while the last changed rows are
    /// copied, usually for a few milliseconds. A transaction sees each row once, because it uses the shard map of
    /// its snapshot. Cursors remain valid. A table with this map that is created during the move moves too. Meanwhile, queries of
    /// these tables are slower: each entry is compared with the shard map, and counts read all entries.
    ///
    /// Processes that have the store open for reading fail with [`Error::ReopenNeeded`] after the move has begun, switched or
    /// ended, and have to open the store again.
    ///
    /// To move all keys, give their type: `move_range::<u32>("customers", .., "south")`.
    ///
    /// If no shard has keys of the range, one commit assigns the range to the shard `to`: a range after all others, a range
    /// that was left out, or that of a detached shard, which can then not be attached again. In other cases, parts of the
    /// range that belong to no shard don't change, and neither do parts that the shard `to` has already. The numbers of
    /// `insert_with` continue after those of the detached shard.
    ///
    /// Entries of global indexes don't move with the rows. They move in the same way by the map of their index, which is named
    /// `TABLE.INDEX`: `store.move_range("customers.email", .."n", "south")`, or
    /// [`move_slots`](Store::move_slots) if the index has a hash map.
    ///
    /// An error or a killed process leaves the move unfinished. No row is lost or duplicated. See
    /// [`moves`](Store::moves) for how to continue or cancel the move.
    ///
    /// See the [`run`](Move::run) of the result for the cost and the errors.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, ShardMap, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(name = "customers", shard_by = tenant)]
    /// #[index(town)]
    /// struct Customer {
    ///     #[primary_key]
    ///     tenant: u32,
    ///     town: String,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = Store::options()
    ///     .shard("north", "north")
    ///     .shard("south", "south")
    ///     .map("customers", ShardMap::ranges().to("north", ..100u32).to("south", 100u32..))
    ///     .open(dir.path().join("shop"))?;
    /// let customers = CustomerRepository::open(&store)?;
    /// for tenant in 0..100 {
    ///     store.transaction(|txn| customers.insert(txn, &Customer { tenant, town: "Redmond".into() }))?;
    /// }
    ///
    /// let moved = store.move_range("customers", 50u32..100, "south").run()?;
    /// assert_eq!(moved.rows, 50);
    /// assert_eq!(customers.shard_of(&store, 70)?.name(), "south");
    /// assert_eq!(customers.find_by_town(&store.read()?, "Redmond").count()?, 100);
    /// # Ok(())
    /// # }
    /// ```
    pub fn move_range<K: ShardKeyValue>(
        &self,
        map: &str,
        range: impl RangeBounds<K>,
        to: &str,
    ) -> Move<'_> {
        let span = Span::of_range(&range).map(|span| span.with_first_key(&K::SHAPE));
        self.new_move(map, K::SHAPE.to_string(), vec![span], to)
    }

    /// Moves the rows in a range of the 4,096 slots of a hash map, as [`move_range`](Store::move_range) does.
    ///
    /// Cost: neighbouring primary keys have different slots, so all rows of the source shard are read three times:
    /// to copy, to compare and to remove the rows of the slots.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, ShardMap, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(name = "events", shard_by = hash(id))]
    /// struct Event {
    ///     #[primary_key]
    ///     id: u64,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = Store::options()
    ///     .shard("a", "a")
    ///     .shard("b", "b")
    ///     .map("events", ShardMap::hashed(["a"]))
    ///     .open(dir.path().join("shop"))?;
    /// let events = EventRepository::open(&store)?;
    /// for id in 0..100 {
    ///     store.transaction(|txn| events.insert(txn, &Event { id }))?;
    /// }
    /// store.move_slots("events", 0..2048, "b").run()?;
    /// assert_eq!(events.all(&store.read()?).count()?, 100);
    /// # Ok(())
    /// # }
    /// ```
    pub fn move_slots(&self, map: &str, slots: impl RangeBounds<u16>, to: &str) -> Move<'_> {
        self.new_move(map, HASHED.to_owned(), vec![Span::of_slots(&slots)], to)
    }

    /// Moves the rows with these shard keys, as [`move_range`](Store::move_range) does. Usually, `map` is a list.
    ///
    /// Each key is a move of its own, one after another. A key that belongs to no shard is assigned to the shard `to`: this is
    /// how a list without `otherwise` gets further keys.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, ShardMap, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(name = "orders", shard_by = country)]
    /// struct Order {
    ///     #[primary_key]
    ///     country: String,
    ///     #[primary_key]
    ///     number: u64,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = Store::options()
    ///     .shard("a", "a")
    ///     .shard("b", "b")
    ///     .map("orders", ShardMap::list().to("b", ["de"]).otherwise("a"))
    ///     .open(dir.path().join("shop"))?;
    /// let orders = OrderRepository::open(&store)?;
    /// store.transaction(|txn| orders.insert(txn, &Order { country: "fr".into(), number: 1 }))?;
    /// store.move_keys("orders", ["fr", "es"], "b").run()?;
    /// assert_eq!(orders.shard_of(&store, "fr")?.name(), "b");
    /// # Ok(())
    /// # }
    /// ```
    pub fn move_keys<K: ShardKeyValue>(
        &self,
        map: &str,
        keys: impl IntoIterator<Item = K>,
        to: &str,
    ) -> Move<'_> {
        let spans = keys.into_iter().map(|key| Some(Span::of_key(&key))).collect();
        self.new_move(map, K::SHAPE.to_string(), spans, to)
    }

    pub(crate) fn new_move(
        &self,
        map: &str,
        key_type: String,
        spans: Vec<Option<Span>>,
        to: &str,
    ) -> Move<'_> {
        self.move_of(What::New { map: map.to_owned(), key_type, spans }, to)
    }

    fn move_of(&self, what: What, to: &str) -> Move<'_> {
        let (is_offline, is_of_entries, to) = (false, false, to.to_owned());
        Move { store: self, what, to, is_offline, is_of_entries, progress: None, stop: None }
    }

    /// Returns the unfinished moves: a running move, and moves that were interrupted by an error or the end of a
    /// process.
    ///
    /// Until an interrupted move is [resumed](Store::resume_move) or [cancelled](Store::cancel_move),
    /// queries of its tables are slower, because they omit its copies.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub fn moves(&self) -> Result<Vec<MoveInfo>> {
        info::of(self)
    }

    /// Continues an interrupted move. `id` is from [`moves`](Store::moves).
    ///
    /// If the keys have not been switched yet, the rows are compared with their copies and only the differences are copied.
    /// Otherwise, the copies are removed from the source shard.
    pub fn resume_move(&self, id: u64) -> Move<'_> {
        self.move_of(What::Begun(id), "")
    }

    /// Cancels a move that was interrupted before the switch, and removes its copies. `id` is from
    /// [`moves`](Store::moves).
    ///
    /// Cost: each copy in the target shard is read and removed, in small transactions.
    ///
    /// # Errors
    ///
    /// [`Error::ShardRefused`]: there is no such move, it is running, or the keys have been switched, so that it
    /// can only be [resumed](Store::resume_move). Also the errors of [`Move::run`].
    pub fn cancel_move(&self, id: u64) -> Result<()> {
        let engine = engine_of(self)?;
        let _turn = turn(engine, self)?;
        let moving = begun(engine, id)?;
        if moving.record.is_switched {
            let reason =
                "the target shard has the keys already: resume the move, or move the keys back";
            return Err(refused(&format!("cancelling move {id}"), reason));
        }
        let tables = tables_of(self, engine, &moving.record)?;
        open_in(self, engine, &tables, &[moving.record.from, moving.record.to])?;
        let mut progress = |_| ();
        mover(self, engine, (moving, tables), (&mut progress, None)).end(Instant::now())
    }
}

impl<'a> Move<'a> {
    /// Refuses writes of the keys with [`Error::ShardReadOnly`] until the switch. Reads continue, and index workers still apply
    /// the messages that are queued. By default, writes continue as well, and rows that change in the meantime are copied again.
    pub const fn offline(mut self) -> Self {
        self.is_offline = true;
        self
    }

    /// Calls `progress` after each transaction, first with the number of copied rows and their bytes, and after the switch
    /// with the number of copies that were removed from the source shard. The totals are unknown.
    pub fn progress(mut self, progress: impl FnMut(Progress) + 'a) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Calls `stop` after each transaction until the switch. If it returns true, [`run`](Move::run) fails with
    /// [`Error::ShardRefused`], and the move is unfinished.
    #[doc(hidden)]
    pub const fn stop_when(mut self, stop: &'a dyn Fn() -> bool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Declares that only entries of a global index move. They can move without a journal too, because they can be built again.
    pub(crate) const fn of_entries(mut self) -> Self {
        self.is_of_entries = true;
        self
    }

    /// Moves the rows. Returns when they have been removed from the source shard.
    ///
    /// Cost: each row is read twice and written twice, with its entries in local indexes: when it is copied, and
    /// when it is removed. The transactions have up to 512 rows or 1 MiB, and other writers of the shard wait for
    /// them. Each has the cost of a commit. The primary keys of rows that change in the meantime are kept in
    /// memory, up to a million of them.
    ///
    /// One move runs at a time. A bulk load, a build of indexes, an upgrade or a backup waits for the current transaction of the
    /// move. The move then waits until this work has ended.
    ///
    /// # Errors
    ///
    /// - [`Error::ShardRefused`]: there is no such shard or shard map, or its keys have another type; the range has no keys; the
    ///   table of a [`move_table`](Store::move_table) has a shard key, is a reference table, or has references to or from another
    ///   table in its shard; the repository of a table with this map is not open; a table in one of the two shards was not opened
    ///   since the shard map manager was [rebuilt](crate::Options::rebuild), or since the store has grown; another move is
    ///   running, or is unfinished and has some of these keys.
    /// - [`Error::IndexNotReadable`]: a local index, or the moved global index, is not completely built.
    /// - [`Error::NotOffered`]: the durability of the store is not [`Journal`](crate::Durability::Journal).
    /// - [`Error::WriteInProgress`] if this thread has a write transaction; [`Error::ShardUnavailable`]; the
    ///   [errors of writing](crate::Error#common-errors).
    pub fn run(self) -> Result<Moved> {
        let Self { store, what, to, is_offline, is_of_entries, progress, stop } = self;
        span!(DEBUG, "move", table = to.as_str());
        let engine = engine_of(store)?;
        let mut progress = progress.unwrap_or_else(|| Box::new(|_| ()));
        let _turn = turn(engine, store)?;
        let (map, spans) = match what {
            What::Begun(id) => {
                let moving = begun(engine, id)?;
                let tables = tables_of(store, engine, &moving.record)?;
                open_in(store, engine, &tables, &[moving.record.from, moving.record.to])?;
                let mut steps = mover(store, engine, (moving, tables), (&mut progress, stop));
                steps.run_marked()?;
                return Ok(steps.moved);
            }
            What::New { map, key_type, spans } => {
                check_map(engine, &what_moves(&map), &map, &key_type)?;
                (map, spans)
            }
            What::Table(name) => {
                table::check(engine, &name)?;
                (placed_map(&name), vec![Some(Span { start: Vec::new(), end: None })])
            }
        };
        let what = what_moves(&map);
        let number = engine.number(&to);
        let to = number.ok_or_else(|| refused(&what, &format!("there is no shard `{to}`")))?;
        tables_with_map(store, engine, &map)?;
        let mut moved = Moved::default();
        for span in spans {
            let span = span.ok_or_else(|| refused(&what, "the range has no keys"))?;
            if has_no_shard(engine, &map, &span)? {
                moved.duration += assign(store, engine, (&map, &span), to)?;
                continue;
            }
            for record in records(engine, &map, &span, to, is_offline)? {
                if let Some(other) =
                    engine.moves().iter().find(|own| overlaps(&own.record, &record))
                {
                    let id = other.record.id;
                    let reason =
                        format!("move {id} of some of them is unfinished; resume or cancel it");
                    return Err(refused(&what, &reason));
                }
                if !is_of_entries {
                    check_journal(engine, &record)?;
                }
                let tables = tables_of(store, engine, &record)?;
                table::refuse_references(engine, &record)?;
                open_in(store, engine, &tables, &[record.from, record.to])?;
                let moving = Arc::new(Moving::new(record));
                let mut steps = mover(store, engine, (moving, tables), (&mut progress, stop));
                // After the mark, an error leaves an unfinished move.
                steps.check_states()?;
                steps.begin()?;
                steps.run_marked()?;
                moved.rows += steps.moved.rows;
                moved.bytes += steps.moved.bytes;
                moved.duration += steps.moved.duration;
                moved.pause = moved.pause.max(steps.moved.pause);
            }
        }
        Ok(moved)
    }
}

impl fmt::Debug for Move<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Move").field("to", &self.to).finish_non_exhaustive()
    }
}

impl Mover<'_> {
    /// Marks the move in both shards. From then on, changes are tracked.
    fn begin(&self) -> Result<()> {
        let (_step, _) = self.engine.step();
        let step = MoveStep::Set(Arc::clone(&self.moving));
        let attempt = || self.engine.change_move(&step, &mut |_| Ok(()));
        transaction::run(attempt, |retry| self.engine.prepare(retry))
    }

    /// Runs the move, which is marked in both shards. After an error, it is unfinished.
    fn run_marked(&mut self) -> Result<()> {
        let id = self.moving.record.id;
        self.run().inspect_err(|error| trace::stopped_move(&id, error))
    }
}

fn mover<'a>(
    store: &'a Store,
    engine: &'a Shards,
    (moving, tables): (Arc<Moving>, Vec<Arc<OpenTable>>),
    (progress, stop): (&'a mut dyn FnMut(Progress), Stop<'a>),
) -> Mover<'a> {
    let (totals, moved, started) = (Vec::new(), Moved::default(), Instant::now());
    Mover { store, engine, moving, tables: tables.into(), totals, moved, progress, stop, started }
}

fn what_moves(map: &str) -> String {
    if let Some(table) = placed_table(map) {
        return format!("the move of table `{table}`");
    }
    format!("a move of keys of shard map `{map}`")
}

fn refused(what: &str, reason: &str) -> Error {
    Error::ShardRefused { what: what.to_owned(), reason: reason.to_owned() }
}

/// Returns the turn to move.
fn turn<'e>(engine: &'e Shards, store: &Store) -> Result<MutexGuard<'e, ()>> {
    engine_to_change(store)?;
    engine
        .move_turn()
        .ok_or_else(|| refused("a move", "another move is running; wait until it has ended"))
}

fn begun(engine: &Shards, id: MoveId) -> Result<Arc<Moving>> {
    engine
        .moving(id)
        .ok_or_else(|| refused(&format!("move {id}"), "there is no such move, or it has ended"))
}

/// Checks that a shard map has keys of this type.
fn check_map(engine: &Shards, what: &str, map: &str, key_type: &str) -> Result<()> {
    let Some(found) = engine.map(map) else {
        return Err(refused(what, &table::no_map(engine, map)?));
    };
    if found.key_type == key_type {
        return Ok(());
    }
    let way_out = match found.kind {
        MapKind::Hashed => "use `move_slots`",
        MapKind::Ranges | MapKind::List => "give keys of this type",
    };
    let own = &found.key_type;
    Err(refused(what, &format!("its keys are of type `{own}`, and not `{key_type}`; {way_out}")))
}

/// Returns the tables of a move. A table without a known location could have the shard map of the move, and its rows would stay
/// in the source shard, or its copies in the target shard.
fn tables_of(
    store: &Store,
    engine: &Shards,
    MoveRecord { map, from, to, .. }: &MoveRecord,
) -> Result<Vec<Arc<OpenTable>>> {
    if !map.contains('.') && placed_table(map).is_none() {
        engine.refuse_without_location(&[*from, *to], || what_moves(map))?;
    }
    tables_with_map(store, engine, map)
}

/// Returns the tables with this shard map. All of them must be open, because the rows of all of them move.
fn tables_with_map(store: &Store, engine: &Shards, map: &str) -> Result<Vec<Arc<OpenTable>>> {
    let in_use = store.inner.tables_in_use();
    if let Some((table, _)) = map.split_once('.') {
        let has_index = |own: &&Arc<OpenTable>| {
            let routing = |it: &shards::Tables| it.routing().global_with(map).is_some();
            own.schema.name == table && own.tables.several().is_some_and(routing)
        };
        let table = in_use.iter().find(has_index).cloned().ok_or_else(|| {
            let what = what_moves(map);
            let reason = format!(
                "no repository of table `{table}` with this global index is open: open it first"
            );
            refused(&what, &reason)
        })?;
        return Ok(vec![table]);
    }
    let open = |name: &String| {
        let table = in_use.iter().find(|table| table.schema.name == name);
        table.cloned().ok_or_else(|| {
            let what = what_moves(map);
            let reason = match placed_table(map) {
                Some(_) => "open its repository first".to_owned(),
                None => {
                    format!("it also moves the rows of table `{name}`: open its repository first")
                }
            };
            refused(&what, &reason)
        })
    };
    engine.tables_with_map(map).iter().map(open).collect()
}

/// Returns the boundaries of a map. A table without a shard key gets its map with its first move.
fn boundaries_of(engine: &Shards, map: &str) -> Result<Arc<Boundaries>> {
    if let Some(boundaries) = engine.boundaries(map) {
        return Ok(boundaries);
    }
    let table = placed_table(map).ok_or_else(|| Error::internal("a map is missing"))?;
    Ok(Arc::new(Boundaries::all_in(Some(engine.place_of_table(table)))))
}

/// Whether all keys of a span belong to no shard.
fn has_no_shard(engine: &Shards, map: &str, span: &Span) -> Result<bool> {
    let boundaries = boundaries_of(engine, map)?;
    Ok(boundaries.shards_within(&span.start, span.end.as_deref()).is_empty())
}

/// Assigns keys that belong to no shard, and returns how long that took.
fn assign(
    store: &Store,
    engine: &Shards,
    (map, span): (&str, &Span),
    to: ShardNumber,
) -> Result<Duration> {
    let started = Instant::now();
    // Otherwise, the shard would get their rows, which are not there.
    hidden::remove_all(store, engine)?;
    loop {
        // Waits for work that prevents steps, without the lock.
        drop(engine.step());
        // No table is created before the commit: it would not be open in the target.
        let _opening = store.inner.lock_opening();
        let Some((_step, _)) = engine.try_step() else { continue };
        engine.refuse_without_location(&engine.current_shards(), || what_moves(map))?;
        let tables = tables_with_map(store, engine, map)?;
        open_in_shards(store, engine, &tables, &[to])?;
        for table in tables.iter().filter(|_| !map.contains('.')) {
            numbers::gather(store, engine, table, (span, to))?;
        }
        let mut body = |txn: &mut shards::Txn<'_>| {
            tables.iter().try_for_each(|table| join_stream(engine, txn, table, to))
        };
        let attempt = || engine.assign(map, (&span.start, span.end.as_deref()), to, &mut body);
        transaction::run(attempt, |retry| engine.prepare(retry))?;
        engine.keep_map(map)?;
        return Ok(started.elapsed());
    }
}

/// Gives a table in the shard `to` all consumers of its change stream. Those that were created after the table was opened there are
/// not in the shard, because it had no keys. The transaction has locked all shards.
fn join_stream(
    engine: &Shards,
    txn: &mut shards::Txn<'_>,
    table: &OpenTable,
    to: ShardNumber,
) -> Result<()> {
    let Some(tables) = table.tables.several() else { return Ok(()) };
    let Some(own) = table.in_shard(to).filter(|_| table.rows.changes.is_some()) else {
        return Ok(());
    };
    let store = engine.member(to)?.store()?;
    let missing = || Error::internal("a write transaction without a writer");
    let mut writer = txn.writer(tables).ok_or_else(missing)?;
    writer.beside(to, &mut |writer| changes::join_in(engine, table, (&store, &own), writer))
}

/// Returns the moves of the parts of a span that other shards have.
fn records(
    engine: &Shards,
    map: &str,
    span: &Span,
    to: ShardNumber,
    is_offline: bool,
) -> Result<Vec<MoveRecord>> {
    let boundaries = boundaries_of(engine, map)?;
    let begun =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut records = Vec::new();
    for (start, end, shard) in boundaries.segments() {
        let Some(from) = shard.filter(|shard| *shard != to) else { continue };
        let start = start.max(span.start.as_slice()).to_vec();
        let end = match (end, span.end.as_deref()) {
            (Some(end), Some(of_span)) => Some(end.min(of_span)),
            (end, of_span) => end.or(of_span),
        };
        let end = end.map(<[u8]>::to_vec);
        if end.as_ref().is_some_and(|end| *end <= start) {
            continue;
        }
        let (id, map, is_switched) = (new_id(), map.to_owned(), false);
        records.push(MoveRecord { id, map, start, end, from, to, is_offline, is_switched, begun });
    }
    Ok(records)
}

/// Whether two moves have common keys.
fn overlaps(one: &MoveRecord, other: &MoveRecord) -> bool {
    let is_before = |one: &MoveRecord, other: &MoveRecord| {
        one.end.as_ref().is_some_and(|end| *end <= other.start)
    };
    one.map == other.map && !is_before(one, other) && !is_before(other, one)
}

/// Checks that a commit in both shards is atomic.
fn check_journal(engine: &Shards, record: &MoveRecord) -> Result<()> {
    for shard in [record.from, record.to] {
        let opened = engine.shard(shard)?.opened()?;
        if opened.lmdb().is_some_and(|engine| !engine.has_journal()) {
            return Err(Error::NotOffered {
                what: "moving rows between shards without `Durability::Journal`, since a crash could lose rows",
            });
        }
    }
    Ok(())
}

/// Opens the tables in the shards of a move. Opening a repository does not open the table in a shard without keys of
/// the map, such as a target before its first move, or a source in which only copies are left.
fn open_in(
    store: &Store,
    engine: &Shards,
    tables: &[Arc<OpenTable>],
    shards: &[ShardNumber],
) -> Result<()> {
    let _opening = store.inner.lock_opening();
    open_in_shards(store, engine, tables, shards)
}

/// Does the same. The caller has the lock of opening tables.
fn open_in_shards(
    store: &Store,
    engine: &Shards,
    tables: &[Arc<OpenTable>],
    shards: &[ShardNumber],
) -> Result<()> {
    for table in tables {
        let Some(of_shards) = table.tables.several() else { continue };
        for &shard in shards {
            if of_shards.in_shard(shard).is_none() {
                open_target(store, engine, table, of_shards, shard)?;
            }
        }
    }
    Ok(())
}
