//! Random writes and random steps of workers, compared with a model.

use std::collections::BTreeMap;

use index_table::{Error, IndexWorker, OnDuplicate, Store, WhenFull};
use proptest::prelude::*;

use crate::{Item, ItemRepository, TOWNS, assert_clean, assert_drained, item};

#[derive(Debug, Clone)]
enum Operation {
    /// Several changes in one transaction; `true`: the transaction is committed.
    Transaction(Vec<Change>, bool),
    /// Loads rows that replace existing rows.
    Load(Vec<(u32, u32)>),
    Drain(u64),
    Start,
    Stop,
    /// Closes the store and opens it again.
    Reopen,
}

#[derive(Debug, Clone)]
enum Change {
    Insert(u32, u32),
    Put(u32, u32),
    /// Changes included fields only.
    Recode(u32),
    Move(u32, u32),
    Delete(u32),
}

fn change(ids: u32) -> impl Strategy<Value = Change> {
    let (id, content) = (0..ids, 0..60_u32);
    prop_oneof![
        2 => (id.clone(), content.clone()).prop_map(|(id, content)| Change::Insert(id, content)),
        4 => (id.clone(), content).prop_map(|(id, content)| Change::Put(id, content)),
        2 => id.clone().prop_map(Change::Recode),
        2 => (id.clone(), id.clone()).prop_map(|(id, to)| Change::Move(id, to)),
        2 => id.prop_map(Change::Delete),
    ]
}

fn operation(ids: u32) -> impl Strategy<Value = Operation> {
    let changes = prop::collection::vec(change(ids), 1..6);
    let rows = prop::collection::vec((0..ids, 0..60_u32), 1..10);
    prop_oneof![
        8 => (changes, any::<bool>()).prop_map(|(it, keep)| Operation::Transaction(it, keep)),
        1 => rows.prop_map(Operation::Load),
        3 => (1..8_u64).prop_map(Operation::Drain),
        1 => Just(Operation::Start),
        1 => Just(Operation::Stop),
        1 => Just(Operation::Reopen),
    ]
}

type Model = BTreeMap<u32, Item>;

/// Makes the same change in a transaction and to the model.
fn apply(
    items: &ItemRepository,
    txn: &mut index_table::WriteTxn<'_>,
    model: &mut Model,
    change: &Change,
) -> index_table::Result<()> {
    let mut rewrite = |id: u32, change: &dyn Fn(&mut Item)| match items.update(txn, id, change) {
        Ok(found) => {
            let row = model.remove(&id);
            assert_eq!(found, row.is_some());
            if let Some(mut row) = row {
                change(&mut row);
                model.insert(row.id, row);
            }
            Ok(())
        }
        Err(Error::DuplicateKey { .. }) => Ok(()),
        Err(error) => Err(error),
    };
    match *change {
        Change::Insert(id, content) => match items.insert(txn, &item(id, content)) {
            Ok(()) => assert!(model.insert(id, item(id, content)).is_none()),
            Err(Error::DuplicateKey { .. }) => assert!(model.contains_key(&id)),
            Err(error) => return Err(error),
        },
        Change::Put(id, content) => {
            items.put(txn, &item(id, content))?;
            model.insert(id, item(id, content));
        }
        Change::Recode(id) => rewrite(id, &|row| row.code += 1)?,
        Change::Move(id, to) => rewrite(id, &|row| (row.id, row.number) = (to, to))?,
        Change::Delete(id) => {
            let deleted = items.delete(txn, id)?;
            assert_eq!(deleted, model.remove(&id).is_some());
        }
    }
    Ok(())
}

/// Checks the queries that are valid with any pending messages.
fn assert_possible(
    store: &Store,
    items: &ItemRepository,
    model: &Model,
) -> index_table::Result<()> {
    let txn = store.read()?;
    assert_clean(items, &txn)?;
    for town in TOWNS {
        for row in items.find_by_town_name(&txn, town, "Li").verified().rows() {
            let row = row?;
            assert_eq!(model.get(&row.id), Some(&row));
            assert_eq!((row.town.as_str(), row.name.as_str()), (town, "Li"));
        }
    }
    for row in items.find_by_url(&txn, "https://example.com/1").verified().rows() {
        let row = row?;
        assert_eq!(row.url, "https://example.com/1");
        assert_eq!(model.get(&row.id), Some(&row));
    }
    Ok(())
}

fn run(
    open: &dyn Fn() -> index_table::Result<Store>,
    operations: &[Operation],
) -> index_table::Result<()> {
    let mut model = Model::new();
    let mut store = open()?;
    let mut items = ItemRepository::open(&store)?;
    let mut worker: Option<IndexWorker> = None;
    for operation in operations {
        match operation {
            Operation::Transaction(changes, keep) => {
                let mut txn = store.write()?;
                let mut after = model.clone();
                for change in changes {
                    apply(&items, &mut txn, &mut after, change)?;
                }
                if *keep {
                    txn.commit()?;
                    model = after;
                }
            }
            Operation::Load(rows) => {
                let rows = rows.iter().map(|(id, content)| item(*id, *content));
                items.bulk_load(&store, rows.clone()).on_duplicate(OnDuplicate::Replace).run()?;
                model.extend(rows.map(|row| (row.id, row)));
            }
            Operation::Drain(messages) => {
                let before = items.lag(&store.read()?)?.messages;
                let drained = items.drain(&store, *messages)?;
                if worker.is_none() {
                    assert_eq!(drained.applied, before.min(*messages));
                    assert_eq!(drained.left, before - drained.applied);
                }
            }
            Operation::Start => worker = Some(store.start_index_worker()?),
            Operation::Stop => worker = None,
            Operation::Reopen => {
                worker = None;
                drop((items, store));
                store = open()?;
                items = ItemRepository::open(&store)?;
            }
        }
        assert_possible(&store, &items, &model)?;
    }
    drop(worker);
    items.drain(&store, u64::MAX)?;
    assert_drained(&items, &store)?;
    let txn = store.read()?;
    let rows: Vec<_> = items.all(&txn).rows().collect::<Result<_, _>>()?;
    assert!(rows.iter().eq(model.values()), "{rows:?}\n{model:?}");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn eventual_indexes_converge_after_random_writes(
        operations in prop::collection::vec(operation(20), 1..40),
        bound in prop_oneof![Just(u64::MAX), 1..10_u64],
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        let options = Store::options()
            .map_size(1 << 24)
            .index_queue(bound, WhenFull::ApplyInLine)
            .durability(index_table::Durability::None);
        let fail = |error: Error| TestCaseError::fail(error.to_string());
        run(&|| options.open(dir.path()), &operations).map_err(fail)?;
        crate::killing::sampled(|| {
            let killed = crate::killing::Killed::new(options.clone()).expect("a directory");
            run(&|| killed.open(), &operations)
        })
        .map_err(fail)?;
        #[cfg(feature = "postgres")]
        if let Some(schema) = crate::postgres::Schema::new() {
            let options = schema.options().index_queue(bound, WhenFull::ApplyInLine);
            run(&|| schema.open_with(&options), &operations).map_err(fail)?;
        }
        let memory = Store::in_memory();
        run(&|| Ok(memory.clone()), &operations).map_err(fail)?;
    }
}
