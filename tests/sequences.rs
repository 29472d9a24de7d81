//! `insert_with`, which assigns each number once.

use std::num::NonZero;

use index_table::{Error, IndexKey, IndexTable, Result, Store};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

type TestResult = Result<(), Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers")]
#[index(email, unique)]
struct Customer {
    #[primary_key]
    id: i8,
    email: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IndexKey)]
struct OrderId(NonZero<u32>);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
struct Order {
    #[primary_key]
    id: OrderId,
    sum: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
struct Event {
    #[primary_key]
    number: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
struct Tick {
    #[primary_key]
    id: u128,
}

fn customer(id: i8) -> Customer {
    Customer { id, email: format!("{id}@x") }
}

/// Runs `check` on a store of each kind.
fn on_both_engines(check: impl Fn(&Store) -> TestResult) -> TestResult {
    let dir = tempfile::tempdir()?;
    check(&Store::options().map_size(1 << 26).open(dir.path())?)?;
    check(&Store::in_memory())
}

#[test]
fn numbers_start_at_one_and_are_not_reused() -> TestResult {
    on_both_engines(|store| {
        let customers = CustomerRepository::open(store)?;
        let mut txn = store.write()?;
        assert_eq!(customers.insert_with(&mut txn, customer)?, 1);
        assert_eq!(customers.insert_with(&mut txn, customer)?, 2);
        assert!(customers.delete(&mut txn, 2)?);
        txn.commit()?;
        let id = store.transaction(|txn| customers.insert_with(txn, customer))?;
        assert_eq!(id, 3);
        assert_eq!(customers.get(&store.read()?, 3)?, Some(customer(3)));
        Ok(())
    })
}

#[test]
fn explicit_keys_do_not_collide_with_numbers() -> TestResult {
    on_both_engines(|store| {
        let customers = CustomerRepository::open(store)?;
        let mut txn = store.write()?;
        customers.insert(&mut txn, &customer(-5))?;
        assert_eq!(customers.insert_with(&mut txn, customer)?, 1);
        customers.insert(&mut txn, &customer(2))?;
        assert_eq!(customers.insert_with(&mut txn, customer)?, 3);
        customers.insert(&mut txn, &customer(40))?;
        assert_eq!(customers.insert_with(&mut txn, customer)?, 41);
        Ok(())
    })
}

#[test]
fn failed_and_rolled_back_inserts_use_no_number() -> TestResult {
    on_both_engines(|store| {
        let customers = CustomerRepository::open(store)?;
        let first = |id| Customer { id, email: "a".into() };
        let mut txn = store.write()?;
        assert_eq!(customers.insert_with(&mut txn, first)?, 1);
        let taken = customers.insert_with(&mut txn, first);
        assert!(matches!(taken, Err(Error::UniqueViolation { .. })), "{taken:?}");
        let other = customers.insert_with(&mut txn, |id| customer(id + 1));
        assert!(
            matches!(&other, Err(Error::OtherKey { table: "customers", given, key }) if given == "2" && key == "3"),
            "{other:?}"
        );
        assert_eq!(customers.insert_with(&mut txn, customer)?, 2);
        drop(txn);
        assert_eq!(store.transaction(|txn| customers.insert_with(txn, customer))?, 1);
        Ok(())
    })
}

#[test]
fn insert_with_fails_after_the_greatest_number() -> TestResult {
    on_both_engines(|store| {
        let customers = CustomerRepository::open(store)?;
        let mut txn = store.write()?;
        customers.insert(&mut txn, &customer(126))?;
        assert_eq!(customers.insert_with(&mut txn, customer)?, 127);
        for _ in 0..2 {
            let exhausted = customers.insert_with(&mut txn, customer);
            assert!(
                matches!(
                    exhausted,
                    Err(Error::SequenceExhausted { table: "customers", last: 127 })
                ),
                "{exhausted:?}"
            );
            customers.delete(&mut txn, 127)?;
        }
        customers.insert(&mut txn, &customer(3))?;
        let events = EventRepository::open(store);
        assert!(matches!(events, Err(Error::WriteInProgress)));
        txn.commit()?;

        let events = EventRepository::open(store)?;
        let mut txn = store.write()?;
        events.insert(&mut txn, &Event { number: u64::MAX })?;
        let exhausted = events.insert_with(&mut txn, |number| Event { number });
        assert!(matches!(exhausted, Err(Error::SequenceExhausted { last: u64::MAX, .. })));
        Ok(())
    })
}

const BEYOND: u128 = 1 << 64;

#[test]
fn numbers_of_128_bits_continue_beyond_64() -> TestResult {
    on_both_engines(|store| {
        let ticks = TickRepository::open(store)?;
        let tick = |id| Tick { id };
        let mut txn = store.write()?;
        assert_eq!(ticks.insert_with(&mut txn, tick)?, 1);
        ticks.insert(&mut txn, &tick(BEYOND - 2))?;
        for next in [BEYOND - 1, BEYOND, BEYOND + 1] {
            assert_eq!(ticks.insert_with(&mut txn, tick)?, next);
        }
        assert!(ticks.delete(&mut txn, BEYOND + 1)?);
        assert_eq!(ticks.insert_with(&mut txn, tick)?, BEYOND + 2, "a number was assigned twice");
        ticks.insert(&mut txn, &tick(u128::MAX - 1))?;
        assert_eq!(ticks.insert_with(&mut txn, tick)?, u128::MAX);
        let exhausted = ticks.insert_with(&mut txn, tick).map_err(|error| error.to_string());
        let reason = "table `tick` has no primary key left for `insert_with` above the last \
                      number; use `insert` with a free key";
        assert_eq!(exhausted, Err(reason.to_owned()));
        Ok(())
    })
}

#[test]
fn newtypes_of_numbers_are_numbered() -> TestResult {
    on_both_engines(|store| {
        let orders = OrderRepository::open(store)?;
        let mut txn = store.write()?;
        let id: OrderId = orders.insert_with(&mut txn, |id| Order { id, sum: 7 })?;
        assert_eq!(id, OrderId(NonZero::<u32>::MIN));
        assert_eq!(orders.get(&txn, &id)?.map(|order| order.sum), Some(7));
        Ok(())
    })
}

#[test]
fn the_last_number_is_stored_in_the_file() -> TestResult {
    let dir = tempfile::tempdir()?;
    {
        let store = Store::options().map_size(1 << 26).open(dir.path())?;
        let customers = CustomerRepository::open(&store)?;
        store.transaction(|txn| {
            for _ in 0..3 {
                customers.insert_with(txn, customer)?;
            }
            customers.delete(txn, 3).map(drop)
        })?;
    }
    // The bytes of `docs/FORMAT.md`.
    {
        #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
        // SAFETY: nothing else has the files of this test open.
        let env =
            unsafe { heed::EnvOpenOptions::new().max_dbs(4).map_size(1 << 26).open(dir.path())? };
        let txn = env.write_txn()?;
        env.create_databases_and_commit(txn, |opener, txn| {
            use heed::types::Bytes;
            let sequences = opener.open_database::<Bytes, Bytes>(txn, Some(".sequences"))?;
            let sequences = sequences.expect("the database of sequences");
            let number = sequences.get(txn, b"customers")?.map(<[u8]>::to_vec);
            assert_eq!(number, Some(vec![0, 0, 0, 0, 0, 0, 0, 3]));
            assert_eq!(sequences.len(txn)?, 1);
            sequences.put(txn, b"order", &[1, 2, 3])?;
            sequences.put(txn, b"tick", &BEYOND.to_be_bytes())?;
            Ok::<_, heed::Error>(heed::CommitOrAbort::<(), ()>::Commit(()))
        })?;
    }
    let store = Store::options().map_size(1 << 26).open(dir.path())?;
    let customers = CustomerRepository::open(&store)?;
    assert_eq!(store.transaction(|txn| customers.insert_with(txn, customer))?, 4);
    let orders = OrderRepository::open(&store)?;
    let damaged = store.transaction(|txn| orders.insert_with(txn, |id| Order { id, sum: 7 }));
    assert!(matches!(damaged, Err(Error::Corrupt { table: "order", .. })), "{damaged:?}");
    let ticks = TickRepository::open(&store)?;
    assert_eq!(store.transaction(|txn| ticks.insert_with(txn, |id| Tick { id }))?, BEYOND + 1);
    Ok(())
}

#[derive(Debug, Clone)]
enum Step {
    Next,
    Insert(i8),
    Delete(i8),
    Commit,
    Abort,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Next),
        2 => (-20..60_i8).prop_map(Step::Insert),
        2 => (-20..60_i8).prop_map(Step::Delete),
        1 => Just(Step::Commit),
        1 => Just(Step::Abort),
    ]
}

/// The existing keys, and the last assigned number.
type Model = (std::collections::BTreeSet<i8>, i8);

fn run(store: &Store, steps: &[Step]) -> TestResult {
    let customers = CustomerRepository::open(store)?;
    let (mut committed, mut model) = (Model::default(), Model::default());
    let mut txn = store.write()?;
    for step in steps {
        let (keys, last) = &mut model;
        match step {
            Step::Next => {
                let above = keys.last().copied().unwrap_or(0).max(*last);
                let number = customers.insert_with(&mut txn, customer);
                match above.checked_add(1) {
                    Some(next) => {
                        assert_eq!(number?, next);
                        keys.insert(next);
                        *last = next;
                    }
                    None => assert!(matches!(number, Err(Error::SequenceExhausted { .. }))),
                }
            }
            Step::Insert(id) => match customers.insert(&mut txn, &customer(*id)) {
                Ok(()) => assert!(keys.insert(*id)),
                Err(Error::DuplicateKey { .. }) => assert!(keys.contains(id)),
                Err(error) => return Err(error.into()),
            },
            Step::Delete(id) => {
                assert_eq!(customers.delete(&mut txn, *id)?, keys.remove(id));
            }
            Step::Commit => {
                txn.commit()?;
                committed.clone_from(&model);
                txn = store.write()?;
            }
            Step::Abort => {
                drop(txn);
                model.clone_from(&committed);
                txn = store.write()?;
            }
        }
    }
    let found = customers.all(&txn).keys().collect::<Result<Vec<i8>>>()?;
    assert_eq!(found, model.0.into_iter().collect::<Vec<_>>());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn numbers_match_the_model(steps in prop::collection::vec(step(), 1..60)) {
        on_both_engines(|store| run(store, &steps))
            .map_err(|error| TestCaseError::fail(error.to_string()))?;
    }
}
