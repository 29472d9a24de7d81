//! A lost shard is restored from its backup while the store is open.

use std::{fs, path::Path};

use index_table::{Error, Result, ShardedStore, Store};

use crate::tables::{Kind, by_value::OrderRepository, options, order};

/// Creates a store of two shards with a row in each, and backups of both. Then shard `s1` is lost.
fn with_a_lost_shard(path: &Path) -> Result<()> {
    let shop = path.join("shop");
    {
        let store = options(Kind::Ranges, 2).open(&shop)?;
        let orders = OrderRepository::open(&store)?;
        for tenant in [0, 16] {
            store.transaction(|txn| orders.insert(txn, &order(tenant, 1)))?;
        }
    }
    for shard in ["s0", "s1"] {
        Store::open(shop.join(shard))?.backup_to(path.join(format!("backup of {shard}")))?;
    }
    fs::remove_dir_all(shop.join("s1")).expect("removed");
    Ok(())
}

#[test]
fn a_lost_shard_is_restored_while_the_store_is_open() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    with_a_lost_shard(dir.path())?;
    let shop = dir.path().join("shop");
    {
        let store = ShardedStore::open(&shop)?;
        let orders = OrderRepository::open(&store)?;
        store.transaction(|txn| orders.insert(txn, &order(0, 2)))?;
        let before = store.read()?;
        let lost = store.shard("s1")?;
        assert!(matches!(orders.all(&before).count(), Err(Error::ShardUnavailable { .. })));

        let refused = store.restore_shard(&lost, dir.path().join("backup of s0"));
        assert!(matches!(refused, Err(Error::ShardRefused { .. })), "{refused:?}");
        assert!(!shop.join("s1").exists());
        store.restore_shard(&lost, dir.path().join("backup of s1"))?;

        assert!(store.unavailable_shards().is_empty());
        let after = store.read()?;
        assert_eq!(
            orders.all(&after).keys().collect::<Result<Vec<_>>>()?,
            [(0, 1), (0, 2), (16, 1)]
        );
        assert!(orders.find_by_town(&after, "Oslo").available().missing.is_empty());
        // A transaction that began before the restoration has no snapshot of the shard.
        assert!(matches!(orders.all(&before).count(), Err(Error::ShardUnavailable { .. })));
        drop((before, after));
        store.transaction(|txn| orders.insert(txn, &order(17, 1)))?;
        store.transaction_on(&lost, |txn| orders.insert(txn, &order(18, 1)))?;
        assert_eq!(OrderRepository::open(&store)?.all(&store.read()?).count()?, 5);
        let again = store.restore_shard(&lost, dir.path().join("backup of s1"));
        assert!(matches!(again, Err(Error::ShardRefused { .. })), "{again:?}");
    }
    for number in 3..5 {
        let store = ShardedStore::open(&shop)?;
        let orders = OrderRepository::open(&store)?;
        store.transaction(|txn| orders.insert(txn, &order(16, number)))?;
        assert_eq!(orders.all(&store.read()?).count()?, u64::from(number) + 3);
        store.check()?;
    }
    Ok(())
}
