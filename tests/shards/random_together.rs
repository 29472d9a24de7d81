//! Random transactions of any shards of a sharded store and in one store, with reopening and kills: all results are
//! equal. The parent module defines the table, its queries and its options.

use std::{fs, path::Path};

use index_table::{Durability, Error, Result, Store, WriteTxn, report::MoveState};
use proptest::prelude::*;

use super::{Order, OrderRepository, options_of, results_of};
use crate::{
    reference::{Town, TownRepository},
    results::{QueryValues, assert_same},
    tables::{Kind, TENANTS},
};

#[derive(Debug, Clone)]
enum Operation {
    Insert(Key, Fields),
    Put(Key, Fields),
    Update(Key, Fields),
    /// Changes the key of a row. The new key may be in another shard.
    Move(Key, Key),
    Delete(Key),
    Get(Key),
    /// Counts the rows of a tenant, or of all.
    Count(Option<u8>),
    /// Writes a row of a reference table, deletes it, or reads it.
    PutTown(u8, String),
    DeleteTown(u8),
    Town(u8),
    Towns(String),
    /// Operations in a savepoint, and whether it is committed.
    Nested(Vec<Operation>, bool),
}

type Key = (u8, u16);
type Fields = (String, i8, u16);

#[derive(Debug, Clone)]
enum Step {
    /// Operations in a closure, and whether it is committed.
    Transaction(Vec<Operation>, bool),
    /// Operations in a transaction begun by `write`.
    ByHand(Vec<Operation>, bool),
    Reopen,
    /// Continues with the files that a killed process would leave.
    Kill,
    /// Moves a range of tenants, or of the keys of a global index, to another shard.
    Move(MovedRange),
    /// The same, and continues with the files that a process would leave that was killed at this point of the move.
    KillMove(MovedRange, usize),
    /// Continues an interrupted move, or cancels it.
    EndMove(bool),
    /// Rebalances a shard map.
    Rebalance(u8),
    /// Adds a shard.
    AddShard,
    /// Moves the keys of all maps away from a shard, and removes it.
    RemoveShard(u8),
}

/// Keys that move.
#[derive(Debug, Clone, Copy)]
struct MovedRange {
    one: u8,
    other: u8,
    to: u8,
    is_offline: bool,
    /// The position in [`INDEXES`]; tenants move if there is none.
    index: usize,
}

/// The global indexes, if the table has any.
const INDEXES: [&str; 9] =
    ["town", "tenant_town", "size_town", "size", "tags", "note", "placed", "spot", "noted"];

fn key() -> impl Strategy<Value = Key> {
    (0..TENANTS, 0..4_u16)
}

fn town() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["", "a", "ab", "b"]).prop_map(str::to_owned)
}

fn fields() -> impl Strategy<Value = Fields> {
    (town(), -2..3_i8, 0..6_u16)
}

/// The repositories of a store.
struct Tables {
    orders: OrderRepository,
    towns: TownRepository,
}

impl Tables {
    fn open(store: &Store) -> Result<Self> {
        let (orders, towns) = (OrderRepository::open(store)?, TownRepository::open(store)?);
        Ok(Self { orders, towns })
    }
}

fn operation() -> impl Strategy<Value = Operation> {
    let single = prop_oneof![
        6 => (key(), fields()).prop_map(|(key, fields)| Operation::Insert(key, fields)),
        4 => (key(), fields()).prop_map(|(key, fields)| Operation::Put(key, fields)),
        2 => (key(), fields()).prop_map(|(key, fields)| Operation::Update(key, fields)),
        2 => (key(), key()).prop_map(|(from, to)| Operation::Move(from, to)),
        1 => key().prop_map(Operation::Delete),
        1 => key().prop_map(Operation::Get),
        1 => prop::option::of(0..TENANTS).prop_map(Operation::Count),
        1 => (0..4_u8, town()).prop_map(|(code, name)| Operation::PutTown(code, name)),
        1 => (0..4_u8).prop_map(Operation::DeleteTown),
        2 => (0..4_u8).prop_map(Operation::Town),
        1 => town().prop_map(Operation::Towns),
    ];
    single.prop_recursive(2, 8, 4, |inner| {
        (prop::collection::vec(inner, 1..4), any::<bool>())
            .prop_map(|(operations, is_kept)| Operation::Nested(operations, is_kept))
    })
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    prop::collection::vec(operation(), 1..6)
}

fn moved_range() -> impl Strategy<Value = MovedRange> {
    (0..TENANTS, 0..TENANTS, 0..16_u8, any::<bool>(), 0..INDEXES.len() * 2).prop_map(
        |(one, other, to, is_offline, index)| MovedRange { one, other, to, is_offline, index },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let commits = prop::bool::weighted(0.9);
    prop_oneof![
        12 => (operations(), commits).prop_map(|(all, commits)| Step::Transaction(all, commits)),
        2 => (operations(), commits).prop_map(|(all, commits)| Step::ByHand(all, commits)),
        1 => Just(Step::Reopen),
        2 => Just(Step::Kill),
        3 => moved_range().prop_map(Step::Move),
        2 => (moved_range(), 0..3_usize).prop_map(|(range, at)| Step::KillMove(range, at)),
        2 => any::<bool>().prop_map(Step::EndMove),
        1 => (0..16_u8).prop_map(Step::Rebalance),
        1 => Just(Step::AddShard),
        1 => (0..16_u8).prop_map(Step::RemoveShard),
    ]
}

fn row((tenant, number): Key, (town, size, code): &Fields) -> Order {
    let (town, note, tags) = (town.clone(), format!("note {code}"), vec![town.clone()]);
    Order { tenant, number, town, size: *size, code: *code * 100 + number, note, tags }
}

/// Runs operations, and adds their results.
fn run(
    tables: &Tables,
    txn: &mut WriteTxn<'_>,
    operations: &[Operation],
    outcomes: &mut Vec<String>,
) {
    let Tables { orders, towns } = tables;
    for operation in operations {
        let outcome = match operation {
            Operation::Insert(key, fields) => shown(orders.insert(txn, &row(*key, fields))),
            Operation::Put(key, fields) => shown(orders.replace(txn, &row(*key, fields))),
            Operation::Update(key, fields) => {
                shown(orders.update(txn, key.0, key.1, |order| *order = row(*key, fields)))
            }
            Operation::Move(from, to) => shown(orders.update(txn, from.0, from.1, |order| {
                (order.tenant, order.number) = *to;
            })),
            Operation::Delete(key) => shown(orders.remove(txn, key.0, key.1)),
            Operation::Get(key) => shown(orders.get(txn, key.0, key.1)),
            Operation::Count(None) => shown(orders.all(txn).count()),
            Operation::Count(Some(tenant)) => shown(orders.find_by_tenant(txn, *tenant).count()),
            Operation::PutTown(code, name) => {
                shown(towns.replace(txn, &Town { code: *code, name: name.clone() }))
            }
            Operation::DeleteTown(code) => shown(towns.remove(txn, *code)),
            Operation::Town(code) => shown(towns.get(txn, *code)),
            Operation::Towns(name) => shown(towns.find_by_name(txn, name).count()),
            Operation::Nested(operations, is_kept) => shown(txn.nested(|txn| {
                run(tables, txn, operations, outcomes);
                if *is_kept { Ok(()) } else { Err(Error::WriteInProgress) }
            })),
        };
        outcomes.push(outcome);
    }
}

fn shown<T: std::fmt::Debug>(outcome: Result<T>) -> String {
    match outcome {
        Ok(value) => format!("{value:?}"),
        Err(error) => error.to_string(),
    }
}

/// Runs a step, and returns the results of its operations.
fn take(store: &Store, tables: &Tables, step: &Step) -> Vec<String> {
    let mut outcomes = Vec::new();
    match step {
        Step::Transaction(operations, commits) => {
            let ended = store.transaction(|txn| {
                outcomes.clear();
                run(tables, txn, operations, &mut outcomes);
                if *commits { Ok(()) } else { Err(Error::WriteInProgress) }
            });
            outcomes.push(shown(ended));
        }
        Step::ByHand(operations, commits) => {
            let mut txn = store.write().expect("a transaction");
            run(tables, &mut txn, operations, &mut outcomes);
            if *commits {
                outcomes.push(shown(txn.commit()));
            }
        }
        Step::Reopen
        | Step::Kill
        | Step::Move(_)
        | Step::KillMove(..)
        | Step::EndMove(_)
        | Step::Rebalance(_)
        | Step::AddShard
        | Step::RemoveShard(_) => {}
    }
    outcomes
}

/// Moves tenants, or keys of a global index. Calls `at` with the number of each report of progress.
fn move_keys(
    store: &Store,
    kind: Kind,
    range: MovedRange,
    mut at: impl FnMut(usize),
) -> Result<()> {
    let MovedRange { one, other, to, is_offline, index } = range;
    let ids = store.shard_ids();
    let to = ids[usize::from(to) % ids.len()].name();
    let (start, end) = (one.min(other), one.max(other));
    let mut number = 0;
    let mut run = |moved: index_table::Move<'_>| {
        let moved = moved.progress(|_| {
            at(number);
            number += 1;
        });
        let ended = if is_offline { moved.offline().run() } else { moved.run() };
        ended.map(drop)
    };
    let ended = match INDEXES.get(index) {
        None if kind == Kind::List => run(store.move_keys("tenants", [one, other], to)),
        None => run(store.move_range("tenants", start..=end, to)),
        Some(index) => {
            let map = format!("orders.{index}");
            let slots = u16::from(start) * 128..=u16::from(end) * 128;
            match run(store.move_slots(&map, slots, to)) {
                // There is no such global index, or its map has ranges or a list.
                Err(Error::ShardRefused { .. }) => match *index {
                    "town" => run(store.move_range(&map, "a".."b", to)),
                    "size_town" => run(store.move_range(&map, (start.cast_signed() - 2).., to)),
                    "tenant_town" => run(store.move_range(
                        &map,
                        (start, "a".to_owned())..(end, String::new()),
                        to,
                    )),
                    "tags" => run(store.move_keys(&map, ["a", "b"], to)),
                    "spot" => {
                        run(store.move_range(&map, u16::from(start)..u16::from(end) * 20, to))
                    }
                    _ => Ok(()),
                },
                ended => ended,
            }
        }
    };
    match ended {
        // An interrupted move has some of these keys, or there is no such global index or range.
        Err(Error::ShardRefused { .. }) if index < INDEXES.len() || !store.moves()?.is_empty() => {
            Ok(())
        }
        ended => ended,
    }
}

/// Returns the names of the shard maps in use.
fn maps(store: &Store) -> Vec<String> {
    let of_indexes = INDEXES.iter().map(|index| format!("orders.{index}"));
    let all = std::iter::once("tenants".to_owned()).chain(of_indexes);
    all.filter(|map| store.ranges(map).is_ok()).collect()
}

/// Rebalances a map, adds a shard or removes one. An unfinished move can prevent that.
fn change_shards(store: &Store, step: &Step, number: usize) -> Result<()> {
    let maps = maps(store);
    let rebalance =
        |map: &String, onto: &[String]| store.rebalance(map).onto(onto).plan()?.run().map(drop);
    let names = || store.shard_ids().iter().map(|it| it.name().to_owned()).collect::<Vec<_>>();
    let changed = match step {
        Step::Rebalance(map) => rebalance(&maps[usize::from(*map) % maps.len()], &names()),
        Step::AddShard if names().len() < 8 => {
            let name = format!("n{number}");
            store.add_shard(&name, &name).map(drop)
        }
        Step::RemoveShard(shard) if names().len() > 1 => {
            let mut onto = names();
            let removed = onto.remove(usize::from(*shard) % onto.len());
            let emptied = maps.iter().try_for_each(|map| rebalance(map, &onto));
            emptied.and_then(|()| store.remove_shard(&removed))
        }
        _ => Ok(()),
    };
    match changed {
        Err(Error::ShardRefused { .. }) if !store.moves()?.is_empty() => Ok(()),
        changed => changed,
    }
}

/// Continues the interrupted moves, or cancels the moves that have not switched.
fn end_moves(store: &Store, resumes: bool) -> Result<()> {
    for begun in store.moves()? {
        if resumes || begun.state == MoveState::CleaningUp {
            store.resume_move(begun.id).run()?;
        } else {
            store.cancel_move(begun.id)?;
        }
    }
    assert_eq!(store.moves()?, []);
    Ok(())
}

/// Ends a move that doesn't let its rows be written.
fn end_offline(store: &Store) -> Result<()> {
    if store.moves()?.iter().any(|begun| begun.offline) { end_moves(store, true) } else { Ok(()) }
}

/// Copies the files except LMDB's lock files.
pub(crate) fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else if entry.file_name() != "lock.mdb" {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

fn look(one: (&Store, &Tables), many: (&Store, &Tables), what: &str) -> Result<()> {
    let values = QueryValues {
        tenant: 3,
        other: 17,
        town: "a".to_owned(),
        size: 0,
        code: 102,
        tag: "b".to_owned(),
        limit: 3,
    };
    let (one_txn, many_txn) = (one.0.read()?, many.0.read()?);
    let expected = results_of(&one.1.orders, &one_txn, &values);
    assert_same(&expected, &results_of(&many.1.orders, &many_txn, &values), what);
    let report = many.1.orders.verify(&many_txn).run()?;
    assert!(report.is_clean(), "{what}: {report:?}");
    let towns = one.1.towns.all(&one_txn).rows().collect::<Result<Vec<_>>>()?;
    for shard in many.0.shard_ids() {
        let txn = many.0.read_on(&shard)?;
        assert_eq!(many.1.towns.all(&txn).rows().collect::<Result<Vec<_>>>()?, towns, "{what}");
        assert!(many.1.towns.verify(&txn).run()?.is_clean());
    }
    Ok(())
}

fn compare(kind: Kind, shards: u8, steps: &[Step]) -> Result<()> {
    let what = format!("{kind:?} over {shards} shards");
    let dir = tempfile::tempdir().expect("a directory");
    let mut path = dir.path().join("0");
    let one = Store::in_memory();
    let orders = Tables::open(&one)?;
    let mut many = options_of(kind, shards).durability(Durability::Journal).open(&path)?;
    let mut of_many = Tables::open(&many)?;
    for (number, step) in (1..).zip(steps) {
        match step {
            Step::Move(range) => move_keys(&many, kind, *range, |_| ())?,
            Step::KillMove(range, at) => {
                let next = dir.path().join(format!("{number}"));
                move_keys(&many, kind, *range, |report| {
                    if report == *at {
                        copy(&path, &next).expect("copied");
                    }
                })?;
                if next.exists() {
                    path = next;
                    drop((many, of_many));
                    many = Store::open(&path)?;
                    of_many = Tables::open(&many)?;
                    look((&one, &orders), (&many, &of_many), &what)?;
                    end_offline(&many)?;
                }
            }
            Step::EndMove(resumes) => end_moves(&many, *resumes)?,
            step => change_shards(&many, step, number)?,
        }
        assert_eq!(take(&many, &of_many, step), take(&one, &orders, step), "{what}: {step:?}");
        let is_killed = matches!(step, Step::Kill);
        if is_killed || matches!(step, Step::Reopen) {
            if is_killed {
                let next = dir.path().join(format!("{number}"));
                copy(&path, &next).expect("copied");
                path = next;
            }
            drop((many, of_many));
            many = Store::open(&path)?;
            of_many = Tables::open(&many)?;
            look((&one, &orders), (&many, &of_many), &what)?;
        }
    }
    look((&one, &orders), (&many, &of_many), &what)
}

fn in_memory(kind: Kind, shards: u8, steps: &[Step]) -> Result<()> {
    let what = format!("{kind:?} over {shards} shards in memory");
    let (one, many) = (Store::in_memory(), options_of(kind, shards).in_memory()?);
    let (orders, of_many) = (Tables::open(&one)?, Tables::open(&many)?);
    for (number, step) in (1..).zip(steps) {
        match step {
            Step::Move(range) | Step::KillMove(range, _) => {
                move_keys(&many, kind, *range, |_| ())?;
            }
            step => change_shards(&many, step, number)?,
        }
        assert_eq!(take(&many, &of_many, step), take(&one, &orders, step), "{what}: {step:?}");
    }
    look((&one, &orders), (&many, &of_many), &what)
}

const KINDS: [Kind; 2] = [Kind::Ranges, Kind::List];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn transactions_across_shards_in_memory_equal_transactions_of_one_store(
        steps in prop::collection::vec(step(), 0..40),
        kind in prop::sample::select(KINDS.to_vec()),
        shards in prop::sample::select(vec![1_u8, 2, 5, 16]),
    ) {
        in_memory(kind, shards, &steps).expect("no error");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn transactions_across_shards_on_disk_equal_transactions_of_one_store(
        steps in prop::collection::vec(step(), 0..30),
        kind in prop::sample::select(KINDS.to_vec()),
        shards in prop::sample::select(vec![2_u8, 5]),
    ) {
        compare(kind, shards, &steps).expect("no error");
    }
}
