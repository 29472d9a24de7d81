//! Random operations on rows of three versions, with upgrades at any time, compared with a model.

use std::collections::BTreeMap;

use index_table::{Error, Store};
use proptest::prelude::*;

use crate::{
    Customer, CustomerRepository, Customers1, Customers2, customer, customer1, customer2, store,
};

#[derive(Debug, Clone)]
enum Operation {
    Insert(u32),
    Put(u32),
    /// Writes the stored row unchanged.
    PutAgain(u32),
    /// Replaces a row by [`changed`].
    Update(u32, u32),
    /// Updates a row without changing it.
    Touch(u32),
    Delete(u32),
    Upgrade,
    /// Closes and opens the store.
    Reopen,
}

const IDS: u32 = 24;

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => (0..IDS).prop_map(Operation::Insert),
        3 => (0..IDS).prop_map(Operation::Put),
        3 => (0..IDS).prop_map(Operation::PutAgain),
        3 => (0..IDS, 0..IDS).prop_map(|(id, template)| Operation::Update(id, template)),
        2 => (0..IDS).prop_map(Operation::Touch),
        3 => (0..IDS).prop_map(Operation::Delete),
        1 => Just(Operation::Upgrade),
        1 => Just(Operation::Reopen),
    ]
}

/// Returns a row with this id and the unique fields of its customer. The other fields are those of the
/// customer `template`.
fn changed(id: u32, template: u32) -> Customer {
    let Customer { email, url, .. } = customer(id, 3);
    Customer { id, email, url, nick: None, ..customer(template, 3) }
}

type Model = BTreeMap<u32, Customer>;

/// Writes rows of the first and the second version.
fn begin(store: &Store, first: &[u32], second: &[u32]) -> index_table::Result<Model> {
    let mut model = Model::new();
    let customers = Customers1::open(store)?;
    store.transaction(|txn| first.iter().try_for_each(|&id| customers.put(txn, &customer1(id))))?;
    drop(customers);
    model.extend(first.iter().map(|&id| (id, customer(id, 1))));
    let customers = Customers2::open(store)?;
    store
        .transaction(|txn| second.iter().try_for_each(|&id| customers.put(txn, &customer2(id))))?;
    model.extend(second.iter().map(|&id| (id, customer(id, 2))));
    Ok(model)
}

fn run(
    store: &Store,
    customers: &CustomerRepository,
    model: &mut Model,
    operation: &Operation,
) -> index_table::Result<()> {
    let mut txn = store.write()?;
    match *operation {
        Operation::Insert(id) => match customers.insert(&mut txn, &customer(id, 3)) {
            Err(Error::DuplicateKey { .. }) => assert!(model.contains_key(&id)),
            inserted => {
                inserted?;
                assert!(model.insert(id, customer(id, 3)).is_none());
            }
        },
        Operation::Put(id) => {
            customers.put(&mut txn, &customer(id, 3))?;
            model.insert(id, customer(id, 3));
        }
        Operation::PutAgain(id) => {
            if let Some(row) = model.get(&id) {
                customers.put(&mut txn, row)?;
            }
        }
        Operation::Update(id, template) => {
            let exists = customers.update(&mut txn, id, |row| *row = changed(id, template))?;
            assert_eq!(exists, model.contains_key(&id));
            if exists {
                model.insert(id, changed(id, template));
            }
        }
        Operation::Touch(id) => {
            assert_eq!(customers.update(&mut txn, id, |_| {})?, model.contains_key(&id));
        }
        Operation::Delete(id) => {
            assert_eq!(customers.delete(&mut txn, id)?, model.remove(&id).is_some());
        }
        Operation::Upgrade => {
            drop(txn);
            customers.upgrade(store).batch_bytes(300).run()?;
            return Ok(());
        }
        Operation::Reopen => {}
    }
    txn.commit()
}

fn check(customers: &CustomerRepository, store: &Store, model: &Model) -> index_table::Result<()> {
    let txn = store.read()?;
    let rows = customers.all(&txn).rows().collect::<Result<Vec<_>, _>>()?;
    assert!(rows.iter().eq(model.values()));
    let views = customers.all(&txn).views().collect::<Result<Vec<_>, _>>()?;
    assert!(views.iter().map(|view| view.email).eq(rows.iter().map(|row| row.email.as_str())));
    for entry in customers.by_last_name(&txn).entries() {
        let entry = entry?;
        assert_eq!(entry.url, model[&entry.id].url);
    }
    let report = customers.verify(&txn).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

fn try_all(
    open: &dyn Fn() -> index_table::Result<Store>,
    (first, second): (&[u32], &[u32]),
    operations: &[Operation],
) -> index_table::Result<()> {
    let mut store = open()?;
    let mut model = begin(&store, first, second)?;
    let mut customers = CustomerRepository::open(&store)?;
    for operation in operations {
        if matches!(operation, Operation::Reopen) {
            drop((customers, store));
            store = open()?;
            customers = CustomerRepository::open(&store)?;
        }
        run(&store, &customers, &mut model, operation)?;
        check(&customers, &store, &model)?;
    }
    customers.upgrade(&store).run()?;
    check(&customers, &store, &model)?;
    assert_eq!(customers.upgrade(&store).run()?.upgraded, 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn rows_of_mixed_versions_behave_like_rows_of_one_version(
        first in prop::collection::vec(0..IDS, 0..20),
        second in prop::collection::vec(0..IDS, 0..20),
        operations in prop::collection::vec(operation(), 1..40),
    ) {
        let fail = |error: Error| TestCaseError::fail(error.to_string());
        let dir = tempfile::tempdir()?;
        try_all(&|| store(dir.path()), (&first, &second), &operations).map_err(fail)?;
        crate::killing::sampled(|| {
            let killed = crate::killing::Killed::new(Store::options()).expect("a directory");
            try_all(&|| killed.open(), (&first, &second), &operations)
        })
        .map_err(fail)?;
        #[cfg(feature = "postgres")]
        if let Some(schema) = crate::postgres::Schema::new() {
            try_all(&|| schema.open(), (&first, &second), &operations).map_err(fail)?;
        }
        let memory = Store::in_memory();
        try_all(&|| Ok(memory.clone()), (&first, &second), &operations).map_err(fail)?;
    }
}
