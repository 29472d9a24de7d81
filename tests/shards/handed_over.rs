//! The numbers of `insert_with` and the places of changes, after their shard was removed or detached.

use std::{fs, path::Path};

use index_table::{IndexTable, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "invoices", shard_by = tenant, changes)]
struct Invoice {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "letters", shard_by = hash(tenant))]
struct Letter {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u16,
}

const TENANTS: [u32; 3] = [5, 20, 30];

struct Tables {
    invoices: InvoiceRepository,
    letters: LetterRepository,
}

impl Tables {
    fn open(store: &Store) -> Result<Self> {
        let invoices = InvoiceRepository::open(store)?;
        Ok(Self { invoices, letters: LetterRepository::open(store)? })
    }

    /// Inserts a row of each table for each tenant, deletes them, and checks their numbers.
    fn number(&self, store: &Store, tenants: &[u32], expected: u16) -> Result<()> {
        let Self { invoices, letters } = self;
        for &tenant in tenants {
            let numbers = store.transaction(|txn| {
                let invoice = |number| Invoice { tenant, number };
                let letter = |number| Letter { tenant, number };
                let number = invoices.insert_with(txn, tenant, invoice)?;
                let numbers = (number, letters.insert_with(txn, tenant, letter)?);
                invoices.delete(txn, tenant, numbers.0)?;
                letters.delete(txn, tenant, numbers.1)?;
                Ok(numbers)
            })?;
            assert_eq!(numbers, (expected.into(), expected), "of tenant {tenant}");
        }
        Ok(())
    }
}

fn opened(path: &Path) -> Result<(Store, Tables)> {
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..);
    let store = Store::options()
        .shard("a", "a")
        .shard("b", "b")
        .map("invoices", map)
        .map("letters", ShardMap::hashed(["a", "b"]))
        .open(path)?;
    let tables = Tables::open(&store)?;
    Ok((store, tables))
}

#[test]
fn numbers_of_a_removed_shard_are_not_assigned_again() -> Result<()> {
    for leaving in ["a", "b"] {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("shop");
        let (store, tables) = opened(&path)?;
        for expected in 1..=5 {
            tables.number(&store, &TENANTS, expected)?;
        }
        store.remove_shard(leaving)?;
        tables.number(&store, &TENANTS, 6)?;
        drop((store, tables));
        let store = Store::open(&path)?;
        Tables::open(&store)?.number(&store, &TENANTS, 7)?;
    }
    Ok(())
}

/// The map has no other shard, so that a shard without keys keeps the numbers.
#[test]
fn numbers_of_a_detached_range_go_to_the_shard_that_gets_the_range() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    let (store, tables) = opened(&path)?;
    tables.number(&store, &TENANTS, 1)?;
    store.move_range("invoices", ..10u32, "b").run()?;
    store.detach_shard("b")?;
    drop((store, tables));
    // The shard that keeps them can leave the store as well.
    let (store, tables) = opened(&path)?;
    store.add_shard("c", "c")?;
    store.add_shard("d", "d")?;
    assert!(tables.invoices.insert_new(&store, 20).is_err(), "no shard has its range");
    store.move_slots("letters", .., "c").run()?;
    store.detach_shard("a")?;
    store.move_range("invoices", 10u32..25, "d").run()?;
    tables.number(&store, &[20], 2)?;
    store.move_range("invoices", 25u32.., "c").run()?;
    store.move_range("invoices", 10u32..25, "c").run()?;
    tables.number(&store, &[20], 3)?;
    tables.number(&store, &[30], 2)
}

impl InvoiceRepository {
    fn insert_new(&self, store: &Store, tenant: u32) -> Result<u64> {
        store.transaction(|txn| self.insert_with(txn, tenant, |number| Invoice { tenant, number }))
    }
}

/// An attached shard has assigned further numbers in the meantime.
#[test]
fn a_detached_shard_continues_its_numbers() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    let (store, tables) = opened(&path)?;
    store.move_slots("letters", .., "a").run()?;
    tables.number(&store, &TENANTS, 1)?;
    store.detach_shard("b")?;
    {
        let plain = Store::open(path.join("b"))?;
        let invoices = InvoiceRepository::open(&plain)?;
        assert_eq!(invoices.insert_new(&plain, 20)?, 2);
        assert!(plain.transaction(|txn| invoices.delete(txn, 20, 2))?);
    }
    store.attach_shard("b", "b")?;
    assert_eq!(tables.invoices.insert_new(&store, 20)?, 3);
    store.move_range("invoices", 10u32.., "a").run()?;
    assert_eq!(tables.invoices.insert_new(&store, 20)?, 4);
    Ok(())
}

#[test]
fn places_of_changes_are_not_assigned_again_after_their_shard_was_removed() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    let (store, tables) = opened(&path)?;
    tables.number(&store, &[5], 1)?;
    for expected in 1..=5 {
        tables.number(&store, &[20], expected)?;
    }
    let last = tables.invoices.last_change(&store.read()?)?;
    store.remove_shard("b")?;
    drop((store, tables));
    let store = Store::open(&path)?;
    let tables = Tables::open(&store)?;
    tables.number(&store, &[20], 6)?;
    let next = tables.invoices.last_change(&store.read()?)?;
    assert!(next > last, "{next:?} after {last:?}");
    Ok(())
}

#[test]
fn numbers_are_not_assigned_again_after_an_older_copy_of_a_shard_was_attached() -> Result<()> {
    for is_open in [true, false] {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, older) = (dir.path().join("shop"), dir.path().join("older"));
        let (store, tables) = opened(&path)?;
        tables.number(&store, &TENANTS, 1)?;
        store.backup_shard(&store.shard("b")?, &older)?;
        tables.number(&store, &TENANTS, 2)?;
        tables.number(&store, &TENANTS, 3)?;
        store.detach_shard("b")?;
        let mut tables = Some(tables);
        let store = if is_open {
            store
        } else {
            drop((tables.take(), store));
            Store::open(&path)?
        };
        store.attach_shard("b", &older)?;
        let tables = tables.map_or_else(|| Tables::open(&store), Ok)?;
        tables.number(&store, &TENANTS, 4)?;
        assert!(store.verify()?.is_clean());
    }
    Ok(())
}

#[test]
fn numbers_that_another_shard_keeps_are_not_assigned_again_after_a_shard_was_restored() -> Result<()>
{
    for is_open in [true, false] {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, backup) = (dir.path().join("shop"), dir.path().join("backup"));
        let (store, tables) = opened(&path)?;
        tables.number(&store, &TENANTS, 1)?;
        store.backup_shard(&store.shard("b")?, &backup)?;
        tables.number(&store, &TENANTS, 2)?;
        // The other shard keeps the numbers since then.
        store.detach_shard("b")?;
        store.attach_shard("b", "b")?;
        drop((store, tables));
        fs::remove_dir_all(path.join("b")).expect("removed");
        let store = Store::open(&path)?;
        let tables = is_open.then(|| Tables::open(&store)).transpose()?;
        store.restore_shard(&store.shard("b")?, &backup)?;
        let tables = tables.map_or_else(|| Tables::open(&store), Ok)?;
        tables.number(&store, &TENANTS, 3)?;
        assert!(store.verify()?.is_clean());
    }
    Ok(())
}
