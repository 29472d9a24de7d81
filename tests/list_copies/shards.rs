//! The copies in the data files of shards, and in that of the shard map manager.

use std::path::Path;

use heed::{CommitOrAbort, EnvOpenOptions, types::Bytes};
use index_table::{Durability, Result, ShardMap, Store};

use super::{
    Order, Orders, TestResult, copies, damaged, finding, number, pages::zero_page, replace, text,
};

fn open_shards(path: &Path) -> Result<(Store, Orders)> {
    let map = ShardMap::ranges().to("north", ..10u32).to("south", 10u32..);
    let options = Store::options().durability(Durability::None);
    let options = options.shard("north", "north").shard("south", "south");
    let store = options.map("tenants", map).open(path)?;
    let orders = Orders::open(&store)?;
    Ok((store, orders))
}

#[test]
fn one_copy_is_enough_in_each_shard() -> TestResult {
    for shard in ["north", "south"] {
        for at in [0, 1] {
            let dir = tempfile::tempdir()?;
            {
                let (store, orders) = open_shards(dir.path())?;
                store.transaction(|txn| {
                    orders.insert(txn, &text(1))?;
                    orders.insert(txn, &number(11))
                })?;
                store.check()?;
            }
            let file = dir.path().join(shard);
            let [Some(intact), _] = copies(&file)? else { return Err("no record".into()) };
            replace(&file, at, Some(&damaged(&intact)))?;
            {
                let store = Store::options().read_only(true).open(dir.path())?;
                let orders = Orders::open(&store)?;
                let rows = orders.all(&store.read()?).rows().collect::<Result<Vec<_>>>()?;
                assert_eq!(rows, [text(1), number(11)]);
                let found = store.check().err().ok_or("nothing was found")?.to_string();
                assert!(found.contains("copy of their record is damaged"), "{found}");
            }
            let (store, orders) = open_shards(dir.path())?;
            store.transaction(|txn| orders.insert(txn, &Order { tenant: 2, note: None }))?;
            store.check()?;
            drop((orders, store));
            assert_eq!(copies(&file)?, [Some(intact.clone()), Some(intact)]);
        }
    }
    Ok(())
}

#[test]
fn a_check_reads_the_pages_of_the_shard_map_manager() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (store, orders) = open_shards(dir.path())?;
    store.transaction(|txn| orders.insert(txn, &text(1)))?;
    store.check()?;
    drop((orders, store));
    zero_page(dir.path(), ".lists", "orders")?;
    let found = finding(dir.path())?;
    assert!(found.contains("database `.lists`"), "{found}");
    Ok(())
}

/// The shard map manager has the record of each table twice, too.
#[test]
fn one_copy_is_enough_for_the_shard_map_manager() -> TestResult {
    for (database, key) in [(".shards", "lists.orders"), (".lists", "orders")] {
        for is_missing in [false, true] {
            let dir = tempfile::tempdir()?;
            {
                let (store, orders) = open_shards(dir.path())?;
                store.transaction(|txn| orders.insert(txn, &text(1)))?;
                store.check()?;
            }
            let change = |change: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>| -> TestResult {
                #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
                // SAFETY: nothing else has the files of this test open.
                let env = unsafe { EnvOpenOptions::new().max_dbs(1).open(dir.path())? };
                let txn = env.write_txn()?;
                env.create_databases_and_commit(txn, |opener, txn| {
                    let records = opener.create_database::<Bytes, Bytes>(txn, Some(database))?;
                    let key = key.as_bytes();
                    let before = records.get(txn, key)?.unwrap_or_default().to_vec();
                    match change(&before) {
                        Some(after) => records.put(txn, key, &after)?,
                        None => drop(records.delete(txn, key)?),
                    }
                    Ok::<_, heed::Error>(CommitOrAbort::<(), ()>::Commit(()))
                })?;
                Ok(())
            };
            let mut intact = Vec::new();
            change(&mut |record| {
                intact = record.to_vec();
                (!is_missing).then(|| damaged(record))
            })?;
            let found = finding(dir.path())?;
            assert!(found.contains("table `orders`") && found.contains("copy of their"), "{found}");
            let (store, orders) = open_shards(dir.path())?;
            store.check()?;
            drop((orders, store));
            change(&mut |record| {
                assert_eq!(record, intact);
                Some(record.to_vec())
            })?;
        }
    }
    Ok(())
}
