//! The shards that a query reads.

use index_table::{Error, Result, ShardMap, Store};

use crate::tables::{
    Kind,
    by_value::{Order, OrderRepository},
    options,
};

fn order(tenant: u8, number: u16) -> Order {
    let (town, note, tags) = (format!("town {}", number % 3), String::new(), Vec::new());
    Order { tenant, number, town, size: 0, code: number, note, tags }
}

/// Returns a store with four shards of eight tenants each, with ten rows for each tenant.
fn filled() -> Result<(Store, OrderRepository)> {
    let store = options(Kind::Ranges, 4).in_memory()?;
    let orders = OrderRepository::open(&store)?;
    for tenant in 0..32 {
        store.transaction(|txn| {
            (0..10).try_for_each(|number| orders.insert(txn, &order(tenant, number)))
        })?;
    }
    Ok((store, orders))
}

#[test]
fn a_query_with_the_shard_key_reads_one_shard() -> Result<()> {
    let (store, orders) = filled()?;
    let shards = |query: &dyn Fn(&index_table::ReadTxn<'_>) -> Result<u64>| -> Result<(u64, u64)> {
        let txn = store.read()?;
        let count = query(&txn)?;
        Ok((count, txn.stats().shards))
    };
    assert_eq!(shards(&|txn| orders.find_by_tenant(txn, 9).count())?, (10, 1));
    assert_eq!(shards(&|txn| orders.find_by_tenant_town(txn, 9, "town 0").count())?, (4, 1));
    assert_eq!(shards(&|txn| orders.find_by_placed(txn, "town 0", 9).count())?, (4, 1));
    assert_eq!(
        shards(&|txn| Ok(orders.get_by_tenant_code(txn, 9, 3)?.into_iter().count() as u64))?,
        (1, 1)
    );
    assert_eq!(shards(&|txn| Ok(orders.get(txn, 9, 3)?.into_iter().count() as u64))?, (1, 1));
    assert_eq!(shards(&|txn| orders.find_by_tenant_range(txn, 6..10).count())?, (40, 2));
    assert_eq!(shards(&|txn| orders.find_by_tenant_range(txn, 8..16).count())?, (80, 1));
    assert_eq!(shards(&|txn| orders.find_by_tenant_in(txn, [1, 2, 31]).count())?, (30, 2));
    assert_eq!(shards(&|txn| orders.find_by_town(txn, "town 0").count())?, (128, 4));
    assert_eq!(
        shards(&|txn| Ok(orders.find_by_town(txn, "town 0").rows().count() as u64))?,
        (128, 4)
    );
    let txn = store.read()?;
    assert_eq!((orders.find_by_tenant(&txn, 0).count()?, txn.stats().shards), (10, 1));
    assert_eq!((orders.find_by_tenant(&txn, 1).count()?, txn.stats().shards), (10, 1));
    assert_eq!((orders.find_by_tenant(&txn, 31).count()?, txn.stats().shards), (10, 2));
    Ok(())
}

#[test]
fn each_query_counts_the_different_shards_that_it_reads() -> Result<()> {
    let (store, orders) = filled()?;
    let txn = store.read()?;
    /// Runs a query to its end, and returns the number of shards that it has read.
    macro_rules! shards {
        ($iterator:expr) => {{
            let mut iterator = $iterator;
            while let Some(item) = iterator.next() {
                item?;
            }
            iterator.stats().shards
        }};
    }
    assert_eq!(shards!(orders.find_by_tenant(&txn, 9).rows()), 1);
    assert_eq!(shards!(orders.find_by_tenant(&txn, 31).rows()), 1);
    assert_eq!(shards!(orders.find_by_town(&txn, "town 0").rows()), 4);
    assert_eq!(shards!(orders.find_by_town(&txn, "town 0").keys()), 4);
    assert_eq!(shards!(orders.find_by_town(&txn, "town 0").entries()), 4);
    assert_eq!(shards!(orders.find_by_town(&txn, "town 0").views()), 4);
    assert_eq!(shards!(orders.find_by_tenant_range(&txn, 6..10).rows()), 2);
    assert_eq!(shards!(orders.find_by_tenant_in(&txn, [1, 2, 31]).rows()), 2);
    assert_eq!(shards!(orders.find_by_tenant_in(&txn, [1, 2, 31]).limit(15).rows()), 1);
    assert_eq!(shards!(orders.find_by_tenant_in(&txn, [1, 2, 31]).entries()), 2);
    assert_eq!(shards!(orders.find_by_note(&txn, "").rows()), 4);
    assert_eq!(shards!(orders.distinct_town(&txn).values()), 4);
    assert_eq!(shards!(orders.distinct_town_by_tenant(&txn, 3).counts()), 1);
    let keys = [(1, 1), (2, 1), (31, 1)];
    assert_eq!(shards!(orders.get_many(&txn, &keys)), 2);
    let tenant = |tenant| orders.find_by_tenant(&txn, tenant);
    assert_eq!(shards!(tenant(1).or(tenant(2)).rows()), 1);
    assert_eq!(shards!(tenant(1).or(tenant(31)).rows()), 2);
    assert_eq!(shards!(orders.find_by_town(&txn, "town 0").and(tenant(31)).rows()), 4);
    assert_eq!(txn.stats().shards, 4);

    let plain = index_table::Store::in_memory();
    let orders = OrderRepository::open(&plain)?;
    let txn = plain.read()?;
    assert_eq!(shards!(orders.find_by_town(&txn, "town 0").rows()), 0);
    Ok(())
}

#[test]
fn a_shard_is_found_by_the_shard_key() -> Result<()> {
    let (store, orders) = filled()?;
    assert_eq!(orders.shard_of(&store, 7)?.name(), "s0");
    assert_eq!(orders.shard_of(&store, 8)?.name(), "s1");
    assert_eq!(orders.shard_of(&store, 255)?, store.shard("s3")?);
    assert_eq!(
        store.shard_ids().iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["s0", "s1", "s2", "s3"]
    );
    let other = Store::in_memory();
    assert!(matches!(orders.shard_of(&other, 7), Err(Error::WrongStore { .. })));
    Ok(())
}

#[test]
fn a_key_without_a_shard_is_an_error() -> Result<()> {
    let store = Store::options()
        .shard("a", "a")
        .map("tenants", ShardMap::ranges().to("a", 10_u8..20))
        .in_memory()?;
    let orders = OrderRepository::open(&store)?;
    let outcome = store.transaction(|txn| orders.insert(txn, &order(20, 1)));
    let Err(Error::NoShard { table: "orders", key, map }) = outcome else { panic!("{outcome:?}") };
    assert_eq!((key.as_str(), map.as_str()), ("(20, 1)", "tenants"));
    store.transaction(|txn| orders.insert(txn, &order(10, 1)))?;
    let txn = store.read()?;
    assert!(matches!(orders.get(&txn, 9, 1), Err(Error::NoShard { .. })));
    assert!(matches!(orders.find_by_tenant(&txn, 9).count(), Err(Error::NoShard { .. })));
    assert!(matches!(orders.shard_of(&store, 9), Err(Error::NoShard { .. })));
    assert_eq!(orders.all(&txn).count()?, 1);
    Ok(())
}

#[test]
fn every_table_has_a_shard_map_in_a_store_in_memory() -> Result<()> {
    let names = ["a", "b", "c"];
    let store =
        names.iter().fold(Store::options(), |all, name| all.shard(*name, "")).in_memory()?;
    let orders = OrderRepository::open(&store)?;
    for tenant in 0..32 {
        store.transaction(|txn| orders.insert(txn, &order(tenant, 1)))?;
    }
    let txn = store.read()?;
    assert_eq!((orders.all(&txn).count()?, txn.stats().shards), (32, 3));
    Ok(())
}
