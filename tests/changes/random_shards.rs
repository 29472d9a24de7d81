//! Random operations in a sharded store, with moves, reopening, kills and consumers: each consumer gets the committed
//! changes of each key once, in their order.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use index_table::{
    ChangeBatch,
    ChangeKind::{self, Deleted, Inserted, Updated},
    ChangeWorker, Durability, Error, IndexTable, Result, ShardMap, Store, WriteTxn,
    report::MoveState,
};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "items", shard_by = tenant, changes)]
#[index(amount)]
struct Item {
    #[primary_key]
    tenant: u8,
    #[primary_key]
    id: u8,
    amount: i64,
}

type Key = (u8, u8);

#[derive(Debug, Clone)]
enum Write {
    Put(Key, i64),
    /// Gives a row another primary key, which may be in another shard.
    Rename(Key, Key),
    Delete(Key),
    Load(Vec<Key>, i64),
}

#[derive(Debug, Clone)]
enum Step {
    /// Writes in one transaction, which is committed or not.
    Commit(Vec<Write>, bool),
    /// Loads rows in a transaction of each shard.
    Load(Vec<Key>, i64),
    /// Moves the tenants between two tenants to a shard.
    Move(u8, u8, u8, bool),
    /// The same, and continues with the files of a process that was killed at this point of the move.
    KillMove(u8, u8, u8, usize),
    EndMove(bool),
    /// A consumer takes a batch of up to this number of changes, and commits it or not.
    Consume(usize, usize, bool),
    /// A worker of the third consumer takes a batch, and commits it or not.
    Work(usize, usize, bool),
    /// The third consumer has other workers, after their leases or before.
    Leave,
    Reopen,
    /// Continues with the files that a killed process would leave.
    Kill,
}

const TENANTS: u8 = 12;

fn key() -> impl Strategy<Value = Key> {
    (0..TENANTS, 0..2_u8)
}

fn write() -> impl Strategy<Value = Write> {
    let amount = || 0..4_i64;
    prop_oneof![
        6 => (key(), amount()).prop_map(|(key, amount)| Write::Put(key, amount)),
        2 => (key(), key()).prop_map(|(from, to)| Write::Rename(from, to)),
        2 => key().prop_map(Write::Delete),
        1 => (prop::collection::vec(key(), 0..5), amount())
            .prop_map(|(keys, amount)| Write::Load(keys, amount)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let writes = prop::collection::vec(write(), 1..6);
    let (tenant, shard) = (|| 0..TENANTS, || 0..3_u8);
    prop_oneof![
        8 => (writes, prop::bool::weighted(0.9)).prop_map(|(all, keep)| Step::Commit(all, keep)),
        1 => (prop::collection::vec(key(), 0..8), 0..4_i64)
            .prop_map(|(keys, amount)| Step::Load(keys, amount)),
        3 => (tenant(), tenant(), shard(), any::<bool>())
            .prop_map(|(one, other, to, offline)| Step::Move(one, other, to, offline)),
        1 => (tenant(), tenant(), shard(), 0..3_usize)
            .prop_map(|(one, other, to, at)| Step::KillMove(one, other, to, at)),
        1 => any::<bool>().prop_map(Step::EndMove),
        4 => (0..2_usize, 0..9_usize, prop::bool::weighted(0.7))
            .prop_map(|(who, limit, commit)| Step::Consume(who, limit, commit)),
        4 => (0..2_usize, 1..9_usize, prop::bool::weighted(0.7))
            .prop_map(|(who, limit, commit)| Step::Work(who, limit, commit)),
        1 => Just(Step::Leave),
        1 => Just(Step::Reopen),
        1 => Just(Step::Kill),
    ]
}

type Seen = (ChangeKind, i64);

/// The rows, and the committed changes of each key.
#[derive(Clone, Default)]
struct Model {
    rows: BTreeMap<Key, i64>,
    log: BTreeMap<Key, Vec<Seen>>,
}

impl Model {
    fn set(&mut self, key: Key, amount: i64) {
        let kind = match self.rows.insert(key, amount) {
            Some(old) if old == amount => return,
            Some(_) => Updated,
            None => Inserted,
        };
        self.log.entry(key).or_default().push((kind, amount));
    }

    fn remove(&mut self, key: Key) -> Option<i64> {
        let old = self.rows.remove(&key)?;
        self.log.entry(key).or_default().push((Deleted, old));
        Some(old)
    }

    fn apply(&mut self, write: &Write) {
        match *write {
            Write::Put(key, amount) => self.set(key, amount),
            Write::Rename(from, to) => {
                if from != to
                    && !self.rows.contains_key(&to)
                    && let Some(old) = self.remove(from)
                {
                    self.set(to, old);
                }
            }
            Write::Delete(key) => drop(self.remove(key)),
            Write::Load(ref keys, amount) => {
                for key in keys {
                    self.set(*key, amount);
                }
            }
        }
    }
}

fn item((tenant, id): Key, amount: i64) -> Item {
    Item { tenant, id, amount }
}

fn apply(items: &ItemRepository, txn: &mut WriteTxn<'_>, write: &Write) -> Result<()> {
    match *write {
        Write::Put(key, amount) => items.put(txn, &item(key, amount)),
        Write::Rename(from, to) => {
            let renamed = items.update(txn, from.0, from.1, |row| (row.tenant, row.id) = to);
            match renamed {
                Err(Error::DuplicateKey { .. }) => Ok(()),
                renamed => renamed.map(drop),
            }
        }
        Write::Delete((tenant, id)) => items.delete(txn, tenant, id).map(drop),
        Write::Load(ref keys, amount) => {
            let rows = keys.iter().map(|key| item(*key, amount));
            let load = items.bulk_load_in(txn, rows);
            load.on_duplicate(index_table::OnDuplicate::Replace).run().map(drop)
        }
    }
}

/// The number of changes of each key that a consumer has committed.
#[derive(Default)]
struct Position(BTreeMap<Key, usize>);

impl Position {
    /// Checks that these are the next changes of each key.
    fn check(&mut self, model: &Model, batch: &ChangeBatch<Item>, is_committed: bool) {
        let mut next = self.0.clone();
        for change in batch {
            assert_eq!(change.key, (change.row.tenant, change.row.id));
            let at = next.entry(change.key).or_default();
            let expected = model.log.get(&change.key).and_then(|log| log.get(*at));
            assert_eq!(Some(&(change.kind, change.row.amount)), expected, "key {:?}", change.key);
            *at += 1;
        }
        if is_committed {
            self.0 = next;
        }
    }
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else if entry.file_name() != "lock.mdb" {
            std::fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

fn move_tenants(
    store: &Store,
    (one, other, to): (u8, u8, u8),
    is_offline: bool,
    mut at: impl FnMut(usize),
) -> Result<()> {
    let (to, mut number) = (["a", "b", "c"][usize::from(to)], 0);
    let moved = store.move_range("items", one.min(other)..=one.max(other), to).progress(|_| {
        at(number);
        number += 1;
    });
    match if is_offline { moved.offline().run() } else { moved.run() } {
        // An interrupted move has some of these tenants.
        Err(Error::ShardRefused { .. }) if !store.moves()?.is_empty() => Ok(()),
        ended => ended.map(drop),
    }
}

fn end_moves(store: &Store, resumes: bool) -> Result<()> {
    for begun in store.moves()? {
        if resumes || begun.state == MoveState::CleaningUp {
            store.resume_move(begun.id).run()?;
        } else {
            store.cancel_move(begun.id)?;
        }
    }
    Ok(())
}

const LONG: Duration = Duration::from_hours(1);

/// A store with its model and its consumers.
struct Run {
    directory: tempfile::TempDir,
    path: PathBuf,
    store: Store,
    items: ItemRepository,
    model: Model,
    positions: [Position; 2],
    of_workers: Position,
    workers: Vec<ChangeWorker<Item>>,
}

fn workers(store: &Store, items: &ItemRepository) -> Result<Vec<ChangeWorker<Item>>> {
    (0..2).map(|_| Ok(items.changes(store, "shared")?.share(LONG))).collect()
}

impl Run {
    fn begin() -> Result<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("0");
        let store = Store::options()
            .shard("a", "a")
            .shard("b", "b")
            .shard("c", "c")
            .map("items", ShardMap::ranges().to("a", ..6_u8).to("b", 6_u8..))
            .durability(Durability::Journal)
            .open(&path)?;
        let items = ItemRepository::open(&store)?;
        let workers = workers(&store, &items)?;
        let (model, positions, of_workers) = Default::default();
        Ok(Self { directory, path, store, items, model, positions, of_workers, workers })
    }

    /// Takes a step. Returns the directory with which the next step continues, if it has to be opened.
    fn take(&mut self, number: usize, step: &Step) -> Result<Option<PathBuf>> {
        let Self { store, items, model, .. } = self;
        match step {
            Step::Commit(writes, keep) => {
                let ended = store.transaction(|txn| {
                    writes.iter().try_for_each(|write| apply(items, txn, write))?;
                    if *keep { Ok(()) } else { Err(Error::WriteInProgress) }
                });
                if *keep {
                    ended?;
                    for write in writes {
                        model.apply(write);
                    }
                }
            }
            Step::Load(keys, amount) => {
                let load = items.bulk_load(store, keys.iter().map(|key| item(*key, *amount)));
                load.on_duplicate(index_table::OnDuplicate::Replace).run()?;
                model.apply(&Write::Load(keys.clone(), *amount));
            }
            Step::Move(one, other, to, offline) => {
                move_tenants(store, (*one, *other, *to), *offline, |_| ())?;
            }
            Step::KillMove(one, other, to, at) => {
                let files = self.directory.path().join(number.to_string());
                move_tenants(store, (*one, *other, *to), false, |report| {
                    if report == *at {
                        copy(&self.path, &files).expect("copied");
                    }
                })?;
                return Ok(files.exists().then_some(files));
            }
            Step::EndMove(resumes) => end_moves(store, *resumes)?,
            Step::Consume(..) | Step::Work(..) | Step::Leave => self.consume(step)?,
            Step::Reopen => {
                self.workers.drain(..).try_for_each(ChangeWorker::leave)?;
                return Ok(Some(self.path.clone()));
            }
            Step::Kill => {
                let files = self.directory.path().join(number.to_string());
                copy(&self.path, &files).expect("copied");
                return Ok(Some(files));
            }
        }
        Ok(None)
    }

    fn consume(&mut self, step: &Step) -> Result<()> {
        let Self { store, items, model, .. } = self;
        let (batch, position, commit) = match step {
            Step::Consume(who, limit, commit) => {
                let batch = items.changes(store, ["one", "two"][*who])?.next_batch(*limit)?;
                (batch, &mut self.positions[*who], *commit)
            }
            Step::Work(who, limit, commit) => {
                (self.workers[*who].next_batch(*limit)?, &mut self.of_workers, *commit)
            }
            _ => {
                self.workers.drain(..).try_for_each(ChangeWorker::leave)?;
                self.workers = workers(store, items)?;
                match items.changes(store, "shared")?.next_batch(5) {
                    // A killed worker has a lease for an hour.
                    Err(Error::ConsumerShared { .. }) => return Ok(()),
                    batch => (batch?, &mut self.of_workers, true),
                }
            }
        };
        position.check(model, &batch, commit);
        if commit { batch.commit(store) } else { Ok(()) }
    }

    fn open(self, path: PathBuf) -> Result<Self> {
        let Self { directory, store, items, model, positions, of_workers, workers: old, .. } = self;
        drop((old, items, store));
        let store = Store::open(&path)?;
        let items = ItemRepository::open(&store)?;
        let workers = workers(&store, &items)?;
        Ok(Self { directory, path, store, items, model, positions, of_workers, workers })
    }

    fn end(self) -> Result<()> {
        let Self { store, items, model, mut positions, .. } = self;
        let left = model.log.iter().map(|(key, log)| (*key, log.len()));
        let left: BTreeMap<Key, usize> = left.collect();
        for (name, position) in ["one", "two"].iter().zip(&mut positions) {
            let mut changes = items.changes(&store, name)?;
            loop {
                let batch = changes.next_batch(7)?;
                position.check(&model, &batch, true);
                if batch.is_empty() {
                    break;
                }
                batch.commit(&store)?;
            }
            assert_eq!(changes.lag()?.changes, 0);
            assert_eq!(position.0, left, "the drained consumer {name}");
        }
        let mut rows: BTreeMap<Key, i64> = BTreeMap::new();
        for row in items.all(&store.read()?).rows() {
            let row = row?;
            rows.insert((row.tenant, row.id), row.amount);
        }
        assert_eq!(rows, model.rows);
        assert!(store.verify()?.is_clean());
        Ok(())
    }
}

fn run(steps: &[Step]) -> Result<()> {
    let mut run = Run::begin()?;
    for (number, step) in (1..).zip(steps) {
        if let Some(path) = run.take(number, step)? {
            run = run.open(path)?;
        }
    }
    run.end()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn the_changes_of_each_key_come_once_and_in_order(steps in prop::collection::vec(step(), 0..40)) {
        run(&steps)?;
    }
}
