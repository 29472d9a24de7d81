//! Random writes between the batches of builds that start and stop at random, against a model.

use std::collections::BTreeMap;

use index_table::{Error, IndexState, Store};
use proptest::{prelude::*, sample::Index};

use crate::{after, assert_clean, fill, item};

#[derive(Debug, Clone)]
enum Operation {
    /// A row, and the number that its unique keys are made from.
    Insert(u32, u32),
    Put(u32, u32),
    /// Gives a row another number.
    Renumber(u32, u32),
    Move(u32, u32),
    Rename(u32),
    Delete(u32),
    /// A number of steps of a build, with this batch size in bytes.
    Build(u64, usize),
    /// Closes the store and opens it again.
    Reopen,
}

fn operation(ids: u32) -> impl Strategy<Value = Operation> {
    // Numbers above the ids are rarely in use.
    let (id, number) = (0..ids, 0..ids * 3);
    prop_oneof![
        3 => (id.clone(), number.clone()).prop_map(|(id, number)| Operation::Insert(id, number)),
        3 => (id.clone(), number.clone()).prop_map(|(id, number)| Operation::Put(id, number)),
        2 => (id.clone(), number).prop_map(|(id, number)| Operation::Renumber(id, number)),
        2 => (id.clone(), id.clone()).prop_map(|(id, to)| Operation::Move(id, to)),
        2 => id.clone().prop_map(Operation::Rename),
        3 => id.prop_map(Operation::Delete),
        2 => (1..3_u64, 1..2000_usize).prop_map(|(steps, bytes)| Operation::Build(steps, bytes)),
        1 => Just(Operation::Reopen),
    ]
}

/// The rows of the table, by primary key.
type Model = BTreeMap<u32, after::Item>;

/// Makes the same change to the table and to the model, unless the table refuses it.
fn apply(
    store: &Store,
    items: &after::ItemRepository,
    model: &mut Model,
    operation: &Operation,
) -> index_table::Result<()> {
    let rewrite = |id: u32, change: &dyn Fn(&mut after::Item)| {
        let row = store.transaction(|txn| {
            items.update(txn, id, change)?;
            Ok(())
        });
        row.map(|()| {
            model.get(&id).cloned().map(|mut row| {
                change(&mut row);
                row
            })
        })
    };
    let outcome = match *operation {
        Operation::Insert(id, number) => {
            let row = item(id, number);
            store.transaction(|txn| items.insert(txn, &row)).map(|()| Some(row))
        }
        Operation::Put(id, number) => {
            let row = item(id, number);
            store.transaction(|txn| items.put(txn, &row)).map(|()| Some(row))
        }
        Operation::Renumber(id, number) => {
            let other = item(id, number);
            rewrite(id, &|row| {
                row.code = other.code;
                row.note.clone_from(&other.note);
                row.url.clone_from(&other.url);
            })
        }
        Operation::Move(id, to) => rewrite(id, &|row| row.id = to).inspect(|row| {
            if row.is_some() {
                model.remove(&id);
            }
        }),
        Operation::Rename(id) => rewrite(id, &|row| row.name.push('x')),
        Operation::Delete(id) => {
            store.transaction(|txn| items.delete(txn, id))?;
            model.remove(&id);
            Ok(None)
        }
        Operation::Build(steps, bytes) => {
            items.build(store).batch_bytes(bytes).limit(steps).run()?;
            Ok(None)
        }
        Operation::Reopen => Ok(None),
    };
    match outcome {
        Ok(row) => model.extend(row.map(|row| (row.id, row))),
        Err(Error::DuplicateKey { .. } | Error::UniqueViolation { .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Resolves all duplicates by giving each row its own number above `base`. Each call needs another base: a row that was
/// moved still has the number of its earlier primary key, which a row that was inserted since would get.
fn repair(
    store: &Store,
    items: &after::ItemRepository,
    model: &mut Model,
    base: u32,
) -> index_table::Result<()> {
    for (id, row) in model {
        let other = item(*id, base + *id);
        let change = |row: &mut after::Item| {
            row.code = other.code;
            row.note.clone_from(&other.note);
            row.url.clone_from(&other.url);
        };
        change(row);
        store.transaction(|txn| items.update(txn, *id, change))?;
    }
    Ok(())
}

fn run(
    open: &dyn Fn() -> index_table::Result<Store>,
    numbers: &[u32],
    operations: &[Operation],
    repair_at: Index,
) -> index_table::Result<()> {
    let rows = numbers.iter().zip(0..).map(|(number, id)| item(id, *number));
    let mut model: Model = rows.clone().map(|row| (row.id, row)).collect();
    let mut store = open()?;
    fill(&store, rows)?;
    let mut items = after::ItemRepository::open_online(&store)?;
    let repair_at = repair_at.index(operations.len());
    for (position, operation) in operations.iter().enumerate() {
        if position == repair_at {
            repair(&store, &items, &mut model, 1_000_000)?;
        }
        if matches!(operation, Operation::Reopen) {
            drop((items, store));
            store = open()?;
            items = after::ItemRepository::open_online(&store)?;
        }
        apply(&store, &items, &mut model, operation)?;
        // Readable indexes match the rows at any time.
        assert_clean(&items, &store.read()?)?;
    }
    let report = items.build(&store).batch_bytes(300).run()?;
    assert!(report.is_done(), "{report}");
    if !report.is_readable() {
        let violated = |state: &IndexState| matches!(state, IndexState::Violated(_));
        assert!(report.indexes.iter().any(|index| violated(&index.state)), "{report}");
        repair(&store, &items, &mut model, 2_000_000)?;
        let report = items.build(&store).run()?;
        assert!(report.is_readable(), "{report}");
    }
    let txn = store.read()?;
    assert_clean(&items, &txn)?;
    let rows: Vec<_> = items.all(&txn).rows().collect::<Result<_, _>>()?;
    assert!(rows.iter().eq(model.values()), "{rows:?}\n{model:?}");
    let entries = items.verify(&txn).run()?.entries;
    let entries_of = |row: &after::Item| {
        let (notes, live) = (u64::from(row.note.is_some()), u64::from(row.live));
        8 + notes + live + row.tags.len() as u64
    };
    assert_eq!(entries, model.values().map(entries_of).sum::<u64>());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn indexes_match_the_rows_after_random_writes_during_builds(
        numbers in prop::collection::vec(0..60_u32, 0..40),
        operations in prop::collection::vec(operation(40), 1..60),
        repair_at: Index,
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        let options = Store::options().map_size(1 << 24).durability(index_table::Durability::None);
        let fail = |error: Error| TestCaseError::fail(error.to_string());
        run(&|| options.open(dir.path()), &numbers, &operations, repair_at).map_err(fail)?;
        crate::killing::sampled(|| {
            let killed = crate::killing::Killed::new(options.clone()).expect("a directory");
            run(&|| killed.open(), &numbers, &operations, repair_at)
        })
        .map_err(fail)?;
        #[cfg(feature = "postgres")]
        if let Some(schema) = crate::postgres::Schema::new() {
            run(&|| schema.open(), &numbers, &operations, repair_at).map_err(fail)?;
        }
        let memory = Store::in_memory();
        run(&|| Ok(memory.clone()), &numbers, &operations, repair_at).map_err(fail)?;
    }
}
