//! Random operations on sharded stores and on one store: all results are equal.

use index_table::{Error, Result, Store};
use proptest::prelude::*;

use crate::{
    results::{self, QueryValues, assert_same},
    tables::{Kind, TENANTS, options},
};

/// An operation in a transaction of one tenant.
#[derive(Debug, Clone)]
enum Operation {
    Insert(u16, Fields),
    Put(u16, Fields),
    Update(u16, Fields),
    /// Gives a row another number.
    Move(u16, u16),
    Delete(u16),
    /// Operations in a savepoint, which fails.
    Nested(u16, Fields),
}

type Fields = (String, i8, u16, String, Vec<String>);

/// The tenant, whether the transaction is committed, and its operations.
type Transaction = (u8, bool, Vec<Operation>);

fn text() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["", "a", "ab", "b", "b\0", "\u{1}", "ÿ"]).prop_map(str::to_owned)
}

fn fields() -> impl Strategy<Value = Fields> {
    (text(), -2..3_i8, 0..6_u16, text(), prop::collection::vec(text(), 0..3))
}

fn operation() -> impl Strategy<Value = Operation> {
    let number = 0..8_u16;
    prop_oneof![
        6 => (number.clone(), fields()).prop_map(|(number, fields)| Operation::Insert(number, fields)),
        4 => (number.clone(), fields()).prop_map(|(number, fields)| Operation::Put(number, fields)),
        2 => (number.clone(), fields()).prop_map(|(number, fields)| Operation::Update(number, fields)),
        1 => (number.clone(), number.clone()).prop_map(|(from, to)| Operation::Move(from, to)),
        1 => number.clone().prop_map(Operation::Delete),
        1 => (number, fields()).prop_map(|(number, fields)| Operation::Nested(number, fields)),
    ]
}

fn transaction() -> impl Strategy<Value = Transaction> {
    let commits = prop::bool::weighted(0.9);
    (0..TENANTS, commits, prop::collection::vec(operation(), 1..6))
}

fn values() -> impl Strategy<Value = QueryValues> {
    (0..TENANTS, 0..TENANTS, text(), -2..3_i8, 0..6_u16, text(), 0..5_usize).prop_map(
        |(tenant, other, town, size, code, tag, limit)| QueryValues {
            tenant,
            other,
            town,
            size,
            code,
            tag,
            limit,
        },
    )
}

fn outcome<T: std::fmt::Debug>(outcome: Result<T>) -> String {
    match outcome {
        Ok(value) => format!("{value:?}"),
        Err(error) => error.to_string(),
    }
}

macro_rules! model {
    ($run:ident, $module:ident, $results:ident) => {
        /// Runs a transaction, and returns the results of its operations.
        fn $run(
            store: &Store,
            orders: &crate::tables::$module::OrderRepository,
            (tenant, commits, operations): &Transaction,
        ) -> Vec<String> {
            use crate::tables::$module::Order;
            let tenant = *tenant;
            let row = |number: u16, fields: &Fields| {
                let (town, size, code, note, tags) = fields.clone();
                Order { tenant, number, town, size, code, note, tags }
            };
            let mut outcomes = Vec::new();
            let ended = store.transaction(|txn| {
                outcomes.clear();
                for operation in operations {
                    outcomes.push(match operation {
                        Operation::Insert(number, fields) => {
                            outcome(orders.insert(txn, &row(*number, fields)))
                        }
                        Operation::Put(number, fields) => {
                            outcome(orders.replace(txn, &row(*number, fields)))
                        }
                        Operation::Update(number, fields) => {
                            outcome(orders.update(txn, tenant, *number, |order| {
                                *order = row(*number, fields)
                            }))
                        }
                        Operation::Move(from, to) => {
                            outcome(orders.update(txn, tenant, *from, |order| order.number = *to))
                        }
                        Operation::Delete(number) => outcome(orders.remove(txn, tenant, *number)),
                        Operation::Nested(number, fields) => {
                            outcome(txn.nested(|txn| -> Result<()> {
                                orders.put(txn, &row(*number, fields))?;
                                Err(Error::WriteInProgress)
                            }))
                        }
                    });
                }
                if *commits { Ok(()) } else { Err(Error::WriteInProgress) }
            });
            outcomes.push(outcome(ended));
            outcomes
        }
    };
}

model!(run_by_value, by_value, of_values);
model!(run_by_hash, by_hash, of_hashes);

/// Runs the same transactions on one store and on a sharded store, and compares the results.
fn compare(
    kind: Kind,
    sharded: &Store,
    transactions: &[Transaction],
    values: &QueryValues,
) -> Result<()> {
    let what = format!("{kind:?} over {} shards", sharded.shard_ids().len());
    let store = Store::in_memory();
    if kind == Kind::Hashed {
        use crate::tables::by_hash::OrderRepository;
        let (one, many) = (OrderRepository::open(&store)?, OrderRepository::open(sharded)?);
        for transaction in transactions {
            let expected = run_by_hash(&store, &one, transaction);
            assert_eq!(
                run_by_hash(sharded, &many, transaction),
                expected,
                "{what}: {transaction:?}"
            );
        }
        let (one_txn, many_txn) = (store.read()?, sharded.read()?);
        let expected = results::of_hashes(&one, &one_txn, values);
        assert_same(&expected, &results::of_hashes(&many, &many_txn, values), &what);
        assert!(many.verify(&many_txn).run()?.is_clean());
    } else {
        use crate::tables::by_value::OrderRepository;
        let (one, many) = (OrderRepository::open(&store)?, OrderRepository::open(sharded)?);
        for transaction in transactions {
            let expected = run_by_value(&store, &one, transaction);
            assert_eq!(
                run_by_value(sharded, &many, transaction),
                expected,
                "{what}: {transaction:?}"
            );
        }
        let (one_txn, many_txn) = (store.read()?, sharded.read()?);
        let expected = results::of_values(&one, &one_txn, values);
        assert_same(&expected, &results::of_values(&many, &many_txn, values), &what);
        assert!(many.verify(&many_txn).run()?.is_clean());
    }
    Ok(())
}

const KINDS: [Kind; 3] = [Kind::Ranges, Kind::List, Kind::Hashed];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_sharded_store_in_memory_has_the_results_of_one_store(
        transactions in prop::collection::vec(transaction(), 0..60),
        values in values(),
        kind in prop::sample::select(KINDS.to_vec()),
        shards in prop::sample::select(vec![1_u8, 2, 5, 16]),
    ) {
        let sharded = options(kind, shards).in_memory().expect("a store");
        compare(kind, &sharded, &transactions, &values).expect("no error");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn a_sharded_store_on_disk_has_the_results_of_one_store(
        transactions in prop::collection::vec(transaction(), 0..30),
        values in values(),
        kind in prop::sample::select(KINDS.to_vec()),
        shards in prop::sample::select(vec![1_u8, 2, 5]),
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        let options = options(kind, shards).durability(index_table::Durability::None);
        let sharded = options.open(dir.path()).expect("a store");
        compare(kind, &sharded, &transactions, &values).expect("no error");
    }
}
