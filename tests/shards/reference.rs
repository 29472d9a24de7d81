//! Reference tables: a copy in every shard. All copies are written in one transaction, and any copy can be read.

use std::fs;

use index_table::{Error, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

use crate::tables::{Kind, by_value::OrderRepository, options, order};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "towns", reference)]
#[index(name)]
pub(crate) struct Town {
    #[primary_key]
    pub(crate) code: u8,
    pub(crate) name: String,
}

fn town(code: u8, name: &str) -> Town {
    Town { code, name: name.to_owned() }
}

/// Returns the codes of all towns in each shard, from the rows and from the index.
fn copies(store: &Store, towns: &TownRepository) -> Result<Vec<Vec<u8>>> {
    let mut copies = Vec::new();
    for shard in store.shard_ids() {
        let txn = store.read_on(&shard)?;
        let copy = towns.all(&txn).keys().collect::<Result<Vec<_>>>()?;
        let mut by_name = towns.by_name(&txn).keys().collect::<Result<Vec<_>>>()?;
        by_name.sort_unstable();
        assert_eq!(by_name, copy);
        copies.push(copy);
    }
    Ok(copies)
}

#[test]
fn a_row_is_written_in_every_shard() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    for store in [options(Kind::Ranges, 4).in_memory()?, options(Kind::Ranges, 4).open(dir.path())?]
    {
        let towns = TownRepository::open(&store)?;
        let mut runs = 0;
        store.transaction(|txn| {
            runs += 1;
            towns.insert(txn, &town(1, "Oslo"))?;
            towns.insert(txn, &town(2, "Rome"))
        })?;
        assert_eq!(runs, 1);
        assert_eq!(copies(&store, &towns)?, [[1, 2], [1, 2], [1, 2], [1, 2]]);
        store.transaction(|txn| {
            assert!(matches!(towns.insert(txn, &town(1, "Bonn")), Err(Error::DuplicateKey { .. })));
            assert!(towns.update(txn, 1, |town| town.name = "Bonn".to_owned())?);
            assert!(towns.delete(txn, 2)?);
            towns.insert_with(txn, |code| town(code, "Kyiv")).map(drop)
        })?;
        assert_eq!(copies(&store, &towns)?, [[1, 2], [1, 2], [1, 2], [1, 2]]);
        let rolled_back: Result<()> = store.transaction(|txn| {
            towns.put(txn, &town(9, "Oslo"))?;
            Err(Error::WriteInProgress)
        });
        assert!(rolled_back.is_err());
        let txn = store.read()?;
        assert_eq!(towns.all(&txn).count()?, 2);
        assert_eq!(towns.find_by_name(&txn, "Bonn").rows().count(), 1);
        assert!(towns.verify(&txn).run()?.is_clean());
        let sizes = store.sizes()?;
        assert_eq!((sizes[0].rows, sizes[0].indexes[0].entries), (2, 2));
    }
    Ok(())
}

#[test]
fn a_transaction_reads_the_copy_of_a_shard_that_it_already_reads() -> Result<()> {
    let store = options(Kind::Ranges, 4).in_memory()?;
    let (towns, orders) = (TownRepository::open(&store)?, OrderRepository::open(&store)?);
    store.transaction(|txn| {
        towns.insert(txn, &town(1, "Oslo"))?;
        orders.insert(txn, &order(20, 1))
    })?;
    let txn = store.read()?;
    assert_eq!(orders.find_by_tenant(&txn, 20).count()?, 1);
    assert_eq!(towns.get(&txn, 1)?, Some(town(1, "Oslo")));
    assert_eq!(towns.find_by_name(&txn, "Oslo").rows().count(), 1);
    assert_eq!(txn.stats().shards, 1);

    // A transaction of one shard reads the copy in this shard.
    let shard = orders.shard_of(&store, 20)?;
    assert_eq!(towns.all(&store.read_on(&shard)?).count()?, 1);
    let mut runs = 0;
    store.transaction(|txn| {
        runs += 1;
        orders.insert(txn, &order(20, 2))?;
        assert_eq!(towns.all(txn).count()?, 1);
        assert_eq!(txn.stats().shards, 1);
        Ok(())
    })?;
    assert_eq!(runs, 1);
    Ok(())
}

#[test]
fn a_write_after_a_later_shard_runs_the_closure_again() -> Result<()> {
    let store = options(Kind::Ranges, 4).in_memory()?;
    let (towns, orders) = (TownRepository::open(&store)?, OrderRepository::open(&store)?);
    let mut runs = 0;
    store.transaction(|txn| {
        runs += 1;
        orders.insert(txn, &order(20, 1))?;
        towns.insert(txn, &town(1, "Oslo"))
    })?;
    assert_eq!(runs, 3);
    assert_eq!(copies(&store, &towns)?, [[1], [1], [1], [1]]);
    let nested = store.transaction(|txn| {
        let failed: Result<()> = txn.nested(|txn| {
            towns.insert(txn, &town(2, "Rome"))?;
            Err(Error::WriteInProgress)
        });
        assert!(failed.is_err());
        txn.nested(|txn| towns.insert(txn, &town(3, "Kyiv")))
    });
    nested?;
    assert_eq!(copies(&store, &towns)?, [[1, 3], [1, 3], [1, 3], [1, 3]]);
    Ok(())
}

#[test]
fn a_transaction_of_one_shard_can_not_write_a_reference_table() -> Result<()> {
    let store = options(Kind::Ranges, 2).in_memory()?;
    let towns = TownRepository::open(&store)?;
    for shard in store.shard_ids() {
        let refused = store.transaction_on(&shard, |txn| towns.insert(txn, &town(1, "Oslo")));
        assert!(matches!(refused, Err(Error::OtherShard { .. })), "{refused:?}");
    }
    assert_eq!(copies(&store, &towns)?, [Vec::<u8>::new(), Vec::new()]);
    Ok(())
}

#[test]
fn a_reference_table_can_be_read_but_not_written_while_a_shard_is_missing() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    {
        let store = options(Kind::Ranges, 3).open(&shop)?;
        let towns = TownRepository::open(&store)?;
        store.transaction(|txn| towns.insert(txn, &town(1, "Oslo")))?;
        store.backup_to(&backup)?;
        store.transaction(|txn| {
            towns.delete(txn, 1)?;
            towns.insert(txn, &town(2, "Rome"))?;
            towns.insert(txn, &town(3, "Kyiv"))
        })?;
    }
    fs::remove_dir_all(shop.join("s0")).expect("removed");
    {
        let store = Store::open(&shop)?;
        let lost = store.shard("s0")?;
        // The copy in the shard would stay as old as the backup.
        let refused = store.restore_shard(&lost, backup.join("shard.0"));
        assert!(matches!(refused, Err(Error::ShardRefused { .. })), "{refused:?}");
        let towns = TownRepository::open(&store)?;
        assert_eq!(towns.all(&store.read()?).count()?, 2);
        for outcome in [
            store.transaction(|txn| towns.insert(txn, &town(4, "Bonn"))),
            store.write().and_then(|mut txn| towns.insert(&mut txn, &town(4, "Bonn"))),
        ] {
            assert!(matches!(outcome, Err(Error::ShardUnavailable { .. })), "{outcome:?}");
        }
        store.restore_shard(&lost, backup.join("shard.0"))?;
        assert_eq!(copies(&store, &towns)?, [[2, 3], [2, 3], [2, 3]]);
    }
    let store = Store::open(&shop)?;
    let towns = TownRepository::open(&store)?;
    store.transaction(|txn| towns.insert_with(txn, |code| town(code, "Bonn")).map(drop))?;
    assert_eq!(copies(&store, &towns)?, [[2, 3, 4], [2, 3, 4], [2, 3, 4]]);
    Ok(())
}

#[test]
fn new_shards_get_the_reference_rows_of_a_grown_store() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    {
        let store = Store::open(dir.path())?;
        let towns = TownRepository::open(&store)?;
        store.transaction(|txn| towns.insert(txn, &town(1, "Oslo")))?;
    }
    {
        let store = Store::options().add_shard("new", "new").open(dir.path())?;
        let towns = TownRepository::open(&store)?;
        assert_eq!(copies(&store, &towns)?, [[1], [1]]);
        store.transaction(|txn| towns.insert(txn, &town(2, "Rome")))?;
    }
    let store = Store::open(dir.path())?;
    assert_eq!(copies(&store, &TownRepository::open(&store)?)?, [[1, 2], [1, 2]]);
    Ok(())
}

#[test]
fn different_copies_in_the_shards_of_a_rebuilt_store_are_refused() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    {
        let store = options(Kind::Ranges, 2).open(dir.path())?;
        let towns = TownRepository::open(&store)?;
        store.transaction(|txn| towns.insert(txn, &town(1, "Oslo")))?;
    }
    crate::verify::alone(&dir.path().join("s1"), |store| {
        let towns = TownRepository::open(store)?;
        store.transaction(|txn| towns.put(txn, &town(1, "Bonn")))
    })?;
    fs::remove_file(dir.path().join("data.mdb")).expect("removed");
    let store = Store::options().shard("s0", "s0").shard("s1", "s1").rebuild(dir.path())?;
    let Err(Error::SchemaMismatch { difference, .. }) = TownRepository::open(&store) else {
        panic!("copies with different rows");
    };
    assert_eq!(difference, "its copy in shard `s1` has other rows than another copy");
    Ok(())
}

#[test]
fn a_reference_table_can_not_be_placed_in_a_shard() -> Result<()> {
    let store = options(Kind::Ranges, 2).place("towns", "s1").in_memory()?;
    let refused = TownRepository::open(&store);
    assert!(matches!(refused, Err(Error::SchemaMismatch { .. })), "{refused:?}");
    Ok(())
}

#[test]
fn a_plain_store_has_one_copy() -> Result<()> {
    let store = Store::in_memory();
    let towns = TownRepository::open(&store)?;
    store.transaction(|txn| towns.insert(txn, &town(1, "Oslo")))?;
    assert_eq!(towns.find_by_name(&store.read()?, "Oslo").rows().count(), 1);
    Ok(())
}
