//! The numbers of `insert_with`, which clients take in blocks.

use std::{collections::BTreeSet, mem, thread};

use index_table::{Error, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

use super::{TestResult, postgres::Schema};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "tickets")]
#[index(title)]
struct Ticket {
    #[primary_key]
    id: u64,
    title: String,
}

fn ticket(id: u64) -> Ticket {
    Ticket { id, title: format!("ticket {}", id % 7) }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "slots")]
struct Slot {
    #[primary_key]
    id: i8,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", shard_by = tenant)]
struct Order {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u64,
}

fn next(store: &Store, tickets: &TicketRepository) -> Result<u64> {
    store.transaction(|txn| tickets.insert_with(txn, ticket))
}

#[test]
fn numbers_of_eight_clients_are_distinct_and_cause_no_conflicts() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let given: Vec<u64> = thread::scope(|scope| {
        let clients = (0..8).map(|_| {
            scope.spawn(|| -> Result<Vec<u64>> {
                let store = schema.open()?;
                let tickets = TicketRepository::open(&store)?;
                let mut given = Vec::new();
                for _ in 0..100 {
                    // This transaction does not run again, so a conflict would be an error.
                    let mut txn = store.write()?;
                    given.push(tickets.insert_with(&mut txn, ticket)?);
                    txn.commit()?;
                    given.push(tickets.insert_with(&mut store.autocommit()?, ticket)?);
                }
                Ok(given)
            })
        });
        let clients: Vec<_> = clients.collect();
        let all = clients.into_iter().map(|client| client.join().expect("a client"));
        all.collect::<Result<Vec<_>>>().map(|all| all.concat())
    })?;
    assert_eq!(given.iter().collect::<BTreeSet<_>>().len(), 1600);
    let store = schema.open()?;
    let tickets = TicketRepository::open(&store)?;
    let txn = store.read()?;
    assert_eq!(tickets.all(&txn).count()?, 1600);
    assert!(tickets.verify(&txn).run()?.is_clean());
    Ok(())
}

#[test]
fn one_client_assigns_ascending_numbers_without_gaps() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let tickets = TicketRepository::open(&store)?;
    for expected in 1..=300 {
        assert_eq!(tickets.insert_with(&mut store.autocommit()?, ticket)?, expected);
    }
    Ok(())
}

#[test]
fn no_number_is_assigned_twice_after_a_crash() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let mut given = BTreeSet::new();
    for _ in 0..3 {
        let store = schema.open()?;
        let tickets = TicketRepository::open(&store)?;
        for _ in 0..3 {
            let number = next(&store, &tickets)?;
            assert!(given.insert(number), "{number} was assigned twice");
            // Without its row, only the sequence has the number.
            assert!(store.transaction(|txn| tickets.delete(txn, number))?);
        }
        // Nothing of this client runs again.
        mem::forget((tickets, store));
    }
    assert_eq!(given.len(), 9);
    Ok(())
}

#[test]
fn a_rollback_assigns_no_number_twice() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let tickets = TicketRepository::open(&store)?;
    let mut txn = store.write()?;
    assert_eq!(tickets.insert_with(&mut txn, ticket)?, 1);
    drop(txn);
    // The number of a transaction that was rolled back is a gap.
    assert_eq!(next(&store, &tickets)?, 2);
    let other_key = store.transaction(|txn| tickets.insert_with(txn, |id| ticket(id + 1)));
    assert!(matches!(other_key, Err(Error::OtherKey { .. })), "{other_key:?}");
    assert_eq!(next(&store, &tickets)?, 4);
    Ok(())
}

#[test]
fn numbers_follow_the_explicit_keys_of_the_same_client() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let tickets = TicketRepository::open(&store)?;
    let mut txn = store.write()?;
    tickets.insert(&mut txn, &ticket(5))?;
    assert_eq!(tickets.insert_with(&mut txn, ticket)?, 6);
    assert_eq!(tickets.insert_with(&mut txn, ticket)?, 7);
    txn.commit()?;
    assert_eq!(next(&store, &tickets)?, 8);

    // Inside of the block, and above it.
    for explicit in [20, 500] {
        store.transaction(|txn| tickets.insert(txn, &ticket(explicit)))?;
        assert_eq!(next(&store, &tickets)?, explicit + 1);
    }
    let mut each = store.autocommit()?;
    tickets.insert(&mut each, &ticket(3_000))?;
    assert_eq!(tickets.insert_with(&mut each, ticket)?, 3_001);
    store.transaction(|txn| {
        tickets.update(txn, 3_001, |row| row.id = 4_000)?;
        assert_eq!(tickets.insert_with(txn, ticket)?, 4_001);
        Ok(())
    })?;
    assert_eq!(next(&store, &tickets)?, 4_002);
    tickets.bulk_load(&store, (5_000..5_010).map(ticket)).run()?;
    assert_eq!(next(&store, &tickets)?, 5_010);

    // A transaction that is rolled back leaves no trace of its keys.
    let mut txn = store.write()?;
    tickets.insert(&mut txn, &ticket(u64::MAX - 1))?;
    assert_eq!(tickets.insert_with(&mut txn, ticket)?, u64::MAX);
    let exhausted = tickets.insert_with(&mut txn, ticket);
    assert!(matches!(exhausted, Err(Error::SequenceExhausted { .. })), "{exhausted:?}");
    drop(txn);
    assert_eq!(next(&store, &tickets)?, 5_011);
    Ok(())
}

#[test]
fn a_number_that_another_client_has_used_as_an_explicit_key_is_not_assigned() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let (store, other) = (schema.open()?, schema.open()?);
    let (tickets, of_other) = (TicketRepository::open(&store)?, TicketRepository::open(&other)?);
    assert_eq!(next(&store, &tickets)?, 1);
    other.transaction(|txn| of_other.insert(txn, &ticket(2)))?;
    // The closure runs again, with a block above all rows.
    let number = next(&store, &tickets)?;
    assert!(number > 2, "{number}");

    other.transaction(|txn| of_other.insert(txn, &ticket(number + 1)))?;
    let mut each = store.autocommit()?;
    let taken = tickets.insert_with(&mut each, ticket);
    let reason = "another client has inserted a row with the assigned number";
    assert!(
        matches!(&taken, Err(Error::TransactionFailed { reason: it }) if it.starts_with(reason)),
        "{taken:?}"
    );
    assert!(tickets.insert_with(&mut each, ticket)? > number + 1);
    drop(each);
    assert_eq!(tickets.all(&store.read()?).count()?, 5);
    Ok(())
}

#[test]
fn blocks_do_not_exhaust_a_small_type() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let mut given = BTreeSet::new();
    for _ in 0..5 {
        let store = schema.open()?;
        let slots = SlotRepository::open(&store)?;
        for _ in 0..25 {
            given.insert(store.transaction(|txn| slots.insert_with(txn, |id| Slot { id }))?);
        }
    }
    assert_eq!(given, (1..=125).collect());
    let store = schema.open()?;
    let slots = SlotRepository::open(&store)?;
    let mut each = store.autocommit()?;
    for expected in [126, 127] {
        assert_eq!(slots.insert_with(&mut each, |id| Slot { id })?, expected);
    }
    let exhausted = slots.insert_with(&mut each, |id| Slot { id });
    assert!(matches!(exhausted, Err(Error::SequenceExhausted { last: 127, .. })), "{exhausted:?}");
    Ok(())
}

#[test]
fn each_shard_key_has_its_own_numbers() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let orders = OrderRepository::open(&store)?;
    let mut each = store.autocommit()?;
    for number in 1..4 {
        for tenant in [7, 8] {
            let order = |number| Order { tenant, number };
            assert_eq!(orders.insert_with(&mut each, tenant, order)?, number);
        }
    }
    orders.insert(&mut each, &Order { tenant: 7, number: 30 })?;
    assert_eq!(orders.insert_with(&mut each, 7, |number| Order { tenant: 7, number })?, 31);
    assert_eq!(orders.insert_with(&mut each, 8, |number| Order { tenant: 8, number })?, 4);
    Ok(())
}
