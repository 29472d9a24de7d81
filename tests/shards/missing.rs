//! Queries of the available shards.

use std::fs;

use index_table::{Error, Result, Store};

use crate::tables::{
    Kind,
    by_value::{Order, OrderRepository},
    options,
};

fn order(tenant: u8, number: u16) -> Order {
    let (town, note, tags) = ("Oslo".to_owned(), format!("note {number}"), vec!["a".to_owned()]);
    Order { tenant, number, town, size: 0, code: number, note, tags }
}

/// Creates a store with four shards of eight tenants each, and loses the second shard.
fn with_a_lost_shard() -> Result<(tempfile::TempDir, Store, OrderRepository)> {
    let dir = tempfile::tempdir().expect("a directory");
    {
        let store = options(Kind::Ranges, 4).open(dir.path())?;
        let orders = OrderRepository::open(&store)?;
        for tenant in 0..32 {
            store.transaction(|txn| orders.insert(txn, &order(tenant, 1)))?;
        }
    }
    fs::remove_dir_all(dir.path().join("s1")).expect("removed");
    let store = Store::open(dir.path())?;
    let orders = OrderRepository::open(&store)?;
    Ok((dir, store, orders))
}

#[test]
fn a_scan_of_available_shards_lists_the_missing_shards() -> Result<()> {
    let (_dir, store, orders) = with_a_lost_shard()?;
    let txn = store.read()?;
    let towns = || orders.find_by_town(&txn, "Oslo");
    assert!(matches!(towns().count(), Err(Error::ShardUnavailable { .. })));
    let found = towns().available();
    let [missing] = &found.missing[..] else { panic!("{:?}", found.missing) };
    assert_eq!(missing.name, "s1");
    assert_eq!(missing.reason, store.unavailable_shards()[0].1);
    assert_eq!(found.scan.count()?, 24);

    let expected: Vec<_> = (0..8).chain(16..32).map(|tenant| (tenant, 1)).collect();
    let keys = |scan: index_table::Scan<'_, _>| scan.keys().collect::<Result<Vec<_>>>();
    assert_eq!(keys(orders.all(&txn).available().scan)?, expected);
    let reversed: Vec<_> = expected.iter().rev().copied().collect();
    assert_eq!(keys(orders.all(&txn).rev().available().scan)?, reversed);
    assert_eq!(orders.all(&txn).available().scan.entries().count(), 24);
    assert_eq!(orders.find_by_note(&txn, "note 1").available().scan.rows().count(), 24);
    let both = towns().available().scan.and(orders.find_by_tags(&txn, "a").available().scan);
    assert_eq!(both.rows().collect::<Result<Vec<_>>>()?.len(), 24);
    assert!(towns().available().scan.and(orders.find_by_tags(&txn, "a")).count().is_err());

    let (mut paged, mut cursor) = (Vec::new(), None);
    loop {
        let scan = orders.all(&txn).available().scan;
        let page = match &cursor {
            Some(cursor) => scan.after(cursor).page(5)?,
            None => scan.page(5)?,
        };
        paged.extend(page.items.iter().map(|order| (order.tenant, order.number)));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(paged, expected);
    Ok(())
}

#[test]
fn a_query_of_available_shards_has_no_missing_shards() -> Result<()> {
    let (_dir, store, orders) = with_a_lost_shard()?;
    let txn = store.read()?;
    let missing = |scan: index_table::Scan<'_, Order>| -> Result<(Vec<String>, u64)> {
        let found = scan.available();
        Ok((found.missing.into_iter().map(|missing| missing.name).collect(), found.scan.count()?))
    };
    let none = Vec::new();
    assert_eq!(missing(orders.find_by_tenant(&txn, 0).boxed())?, (none.clone(), 1));
    assert_eq!(missing(orders.find_by_tenant_range(&txn, 16..20).boxed())?, (none.clone(), 4));
    assert_eq!(missing(orders.find_by_tenant_in(&txn, [0, 31]).boxed())?, (none, 2));
    let lost = vec!["s1".to_owned()];
    assert_eq!(missing(orders.find_by_tenant(&txn, 9).boxed())?, (lost.clone(), 0));
    assert_eq!(missing(orders.find_by_tenant_range(&txn, 6..20).boxed())?, (lost.clone(), 6));
    assert_eq!(missing(orders.find_by_tenant_in(&txn, [0, 9, 31]).boxed())?, (lost, 2));

    let plain = index_table::Store::in_memory();
    let orders = OrderRepository::open(&plain)?;
    plain.transaction(|txn| orders.insert(txn, &order(9, 1)))?;
    let txn = plain.read()?;
    let found = orders.find_by_town(&txn, "Oslo").available();
    assert!(found.missing.is_empty());
    assert_eq!(found.scan.count()?, 1);
    Ok(())
}

#[test]
fn a_shard_that_was_left_out_is_missing() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    drop(options(Kind::Hashed, 3).open(dir.path())?);
    let store = Store::options().only(["s2"]).open(dir.path())?;
    let orders = crate::tables::by_hash::OrderRepository::open(&store)?;
    let txn = store.read()?;
    let found = orders.find_by_town(&txn, "Oslo").available();
    assert_eq!(
        found.missing.iter().map(|missing| &*missing.name).collect::<Vec<_>>(),
        ["s0", "s1"]
    );
    assert!(found.missing[0].reason.contains("left out"), "{}", found.missing[0].reason);
    Ok(())
}
