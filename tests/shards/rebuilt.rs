//! A lost shard map manager is rebuilt from its shards.

use std::{fs, path::Path};

use index_table::{Durability, Error, Options, Result, ShardMap, Store};

use crate::{
    opening::{Invoice, InvoiceRepository, SpreadInvoiceRepository, copy, reason},
    tables::{Kind, TENANTS, by_hash, by_value::OrderRepository, names, options, order},
};

/// Returns options with the shards only.
fn shards(count: u8) -> Options {
    names(count).iter().fold(Store::options(), |all, name| all.shard(name, name))
}

fn lose_manager(path: &Path) {
    fs::remove_file(path.join("data.mdb")).expect("a shard map manager");
}

/// Inserts a row of each tenant, and an invoice in the last shard.
fn fill(store: &Store) -> Result<()> {
    let (orders, invoices) = (OrderRepository::open(store)?, InvoiceRepository::open(store)?);
    for tenant in 0..TENANTS {
        store.transaction(|txn| orders.insert(txn, &order(tenant, 1)))?;
    }
    store.transaction(|txn| invoices.insert(txn, &Invoice { number: 7, amount: 1 }))
}

/// Returns the shard of each tenant.
fn placement(store: &Store) -> Result<Vec<String>> {
    let orders = OrderRepository::open(store)?;
    (0..=u8::MAX).map(|tenant| Ok(orders.shard_of(store, tenant)?.to_string())).collect()
}

fn assert_whole(store: &Store) -> Result<()> {
    let (orders, invoices) = (OrderRepository::open(store)?, InvoiceRepository::open(store)?);
    let txn = store.read()?;
    assert_eq!(orders.all(&txn).count()?, u64::from(TENANTS));
    assert_eq!(orders.by_town(&txn).rows().count(), usize::from(TENANTS));
    assert_eq!(invoices.all(&txn).count()?, 1);
    assert!(store.unavailable_shards().is_empty());
    drop(txn);
    store.check()
}

#[test]
fn a_shard_that_was_attached_again_is_missing_although_a_detached_shard_lists_it() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    {
        let store = options(Kind::Ranges, 3).open(dir.path())?;
        fill(&store)?;
        let _open = (OrderRepository::open(&store)?, InvoiceRepository::open(&store)?);
        store.detach_shard("s1")?;
        store.detach_shard("s2")?;
        store.attach_shard("s1", "s1")?;
    }
    lose_manager(dir.path());
    let without = Store::options().shard("s0", "s0").shard("s2", "s2");
    let refused = reason(without.rebuild(dir.path()));
    assert!(refused.contains("number 1 is not given"), "{refused}");
    let store = shards(3).rebuild(dir.path())?;
    assert_eq!(store.shard_ids().len(), 2);
    Ok(())
}

#[test]
fn a_lost_manager_is_rebuilt_from_its_shards() -> Result<()> {
    for kind in [Kind::Ranges, Kind::List] {
        let dir = tempfile::tempdir().expect("a directory");
        let placed = || {
            let store = options(kind, 3).place("invoices", "s2").open(dir.path())?;
            fill(&store)?;
            placement(&store)
        };
        let placed = placed()?;
        lose_manager(dir.path());
        assert!(matches!(Store::open(dir.path()), Err(Error::StoreNotFound { .. })));
        // The order of the shards does not matter.
        let rebuild = Store::options().shard("s1", "s1").shard("s2", "s2").shard("s0", "s0");
        {
            let store = rebuild.rebuild(dir.path())?;
            assert_eq!(placement(&store)?, placed);
            let in_order: Vec<_> = store.shard_ids().iter().map(ToString::to_string).collect();
            assert_eq!(in_order, names(3));
            assert_whole(&store)?;
            let orders = OrderRepository::open(&store)?;
            store.transaction(|txn| orders.insert(txn, &order(31, 2)))?;
            store.transaction(|txn| orders.delete(txn, 31, 2)).map(drop)?;
        }
        let store = Store::open(dir.path())?;
        assert_eq!(placement(&store)?, placed);
        assert_whole(&store)?;
    }
    Ok(())
}

#[test]
fn a_rebuild_continues_after_processes_that_were_killed() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, empty) = (dir.path().join("shop"), dir.path().join("empty"));
    drop(Store::options().durability(Durability::Relaxed).open(&empty)?);
    fill(&options(Kind::Ranges, 2).place("invoices", "s1").open(&path)?)?;
    let (file, partial) = (path.join("data.mdb"), path.join(".manager.partial"));
    // A process that creates a store leaves a file without commits, and a rebuild leaves a directory.
    let none = || Ok(());
    let without_bytes = || fs::write(&file, []);
    let without_commits = || fs::copy(empty.join("data.mdb"), &file).map(drop);
    let with_directory = || fs::create_dir(&partial);
    let with_file =
        || fs::create_dir(&partial).and_then(|()| fs::write(partial.join("data.mdb"), b"part"));
    let left: [&dyn Fn() -> std::io::Result<()>; 5] =
        [&none, &without_bytes, &without_commits, &with_directory, &with_file];
    for left in left {
        lose_manager(&path);
        left().expect("files");
        assert_whole(&shards(2).rebuild(&path)?)?;
        assert!(!partial.exists());
        assert_whole(&Store::open(&path)?)?;
    }
    // The process is killed after the manager has got its place.
    fs::create_dir(&partial).expect("a directory");
    drop(Store::options().read_only(true).open(&path)?);
    assert!(partial.exists());
    assert_whole(&Store::open(&path)?)?;
    assert!(!partial.exists());
    // A store with a journal is no such file, even if it has no table.
    lose_manager(&path);
    without_commits().expect("a file");
    fs::write(path.join("journal.0"), []).expect("a file");
    let refused = reason(shards(2).rebuild(&path));
    assert!(refused.contains("there is a `data.mdb`"), "{refused}");
    Ok(())
}

#[test]
fn a_hash_map_is_rebuilt() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let placement = |store: &Store| -> Result<Vec<String>> {
        let orders = by_hash::OrderRepository::open(store)?;
        (0..=u8::MAX).map(|tenant| Ok(orders.shard_of(store, tenant)?.to_string())).collect()
    };
    let placed = placement(&options(Kind::Hashed, 5).open(dir.path())?)?;
    lose_manager(dir.path());
    assert_eq!(placement(&shards(5).rebuild(dir.path())?)?, placed);
    Ok(())
}

/// The shards were not closed, so they need the journal, which is in the directory of the lost manager.
#[test]
fn shards_of_a_killed_process_are_recovered_first() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, left) = (dir.path().join("shop"), dir.path().join("left"));
    let store = options(Kind::Ranges, 3).place("invoices", "s2").open(&shop)?;
    fill(&store)?;
    copy(&shop, &left);
    lose_manager(&left);
    // The directories of two shards are exchanged. Both are refused, and neither changes.
    let swapped = dir.path().join("swapped");
    copy(&left, &swapped);
    fs::rename(swapped.join("s0"), swapped.join("x")).expect("another name");
    fs::rename(swapped.join("s1"), swapped.join("s0")).expect("another name");
    fs::rename(swapped.join("x"), swapped.join("s1")).expect("another name");
    assert_eq!(reason(shards(3).rebuild(&swapped)), "shard `s0`: the directory has shard `s1`");
    let right = Store::options().shard("s0", "s1").shard("s1", "s0").shard("s2", "s2");
    assert_whole(&right.rebuild(&swapped)?)?;
    // The journal is missing.
    let torn = dir.path().join("torn");
    copy(&left, &torn);
    for file in 0..3 {
        fs::remove_file(torn.join(format!("shards.journal.{file}"))).expect("a file");
    }
    let Err(error) = shards(3).rebuild(&torn) else { panic!("commits may be lost") };
    assert!(error.to_string().contains("journal of the shards is missing"), "{error}");
    assert!(!torn.join("data.mdb").exists());

    assert_whole(&shards(3).rebuild(&left)?)?;
    assert_whole(&store)
}

/// The data file of a shard contains its number, which prevents recovery with the records of another shard.
#[test]
fn the_journal_is_not_applied_to_another_shard() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, left) = (dir.path().join("shop"), dir.path().join("left"));
    let store = options(Kind::Ranges, 2).open(&shop)?;
    copy(&shop, &left);
    drop(store);
    // Both data files have the same root pages, except for the marker.
    for name in names(2) {
        fs::rename(left.join(&name), left.join(format!("{name}.x"))).expect("another name");
    }
    fs::rename(left.join("s0.x"), left.join("s1")).expect("another name");
    fs::rename(left.join("s1.x"), left.join("s0")).expect("another name");
    let before = fs::read(left.join("s0/data.mdb")).expect("a data file");
    let store = Store::open(&left);
    let shown = match &store {
        Ok(store) => format!("{:?}", store.unavailable_shards()),
        Err(error) => error.to_string(),
    };
    assert!(shown.contains("it is shard 1 of its store, and not shard 0"), "{shown}");
    drop(store);
    assert!(fs::read(left.join("s0/data.mdb")).expect("a data file") == before);
    Ok(())
}

#[test]
fn shards_that_do_not_fit_are_refused() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    fill(&options(Kind::Ranges, 3).open(path("shop"))?)?;
    let all = || shards(3);
    assert!(reason(all().rebuild(path("shop"))).contains("there is a `data.mdb`"));
    // The manager still exists in the directory that the shards have recorded.
    let absolute = names(3)
        .iter()
        .fold(Store::options(), |all, name| all.shard(name, dir.path().join("shop").join(name)));
    assert!(reason(absolute.rebuild(path("other"))).contains("its shard map manager is in"));
    assert!(!path("other").join("data.mdb").exists());

    lose_manager(&path("shop"));
    let rebuilt = |options: Options| reason(options.rebuild(path("shop")));
    assert!(rebuilt(Store::options()).contains("no shards are given"));
    assert!(rebuilt(shards(3).only(["s0"])).contains("alone"));
    assert!(rebuilt(options(Kind::Ranges, 3)).contains("alone"));
    assert!(rebuilt(shards(2)).contains("the store has 3 shards, of which number 2 is not given"));
    let last = Store::options().shard("s2", "s2");
    assert!(rebuilt(last).contains("number 0 is not given"));
    let renamed = shards(2).shard("vault", "s2");
    assert_eq!(rebuilt(renamed), "shard `vault`: the directory has shard `s2`");
    assert!(matches!(shards(4).rebuild(path("shop")), Err(Error::StoreNotFound { .. })));
    // One of the shards is a copy of another shard.
    copy(&path("shop/s1"), &path("copy"));
    let twice = shards(3).shard("s1", path("copy"));
    assert!(rebuilt(twice).contains("are copies of the same shard"));
    // A shard of another store, and a plain store.
    drop(options(Kind::Ranges, 3).open(path("second"))?);
    let foreign = shards(2).shard("s2", path("second/s2"));
    assert!(rebuilt(foreign).contains("its shard map manager is in"));
    lose_manager(&path("second"));
    let foreign = shards(2).shard("s2", path("second/s2"));
    assert!(rebuilt(foreign).contains("it is of another store than shard `s0`"));
    drop(Store::open(path("plain"))?);
    let plain = shards(2).shard("s2", path("plain"));
    assert!(rebuilt(plain).contains("it is no shard of a sharded store"));
    assert!(!path("shop").join("data.mdb").exists(), "nothing was written");

    assert_eq!(placement(&all().rebuild(path("shop"))?)?.len(), 256);
    Ok(())
}

/// The shards don't record how each table is distributed, so the rows are compared with the declaration once.
#[test]
fn rows_are_compared_with_the_declaration() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let numbers = ShardMap::ranges().to("s0", ..5_u32).to("s1", 5_u32..);
    fill(&options(Kind::Ranges, 2).map("numbers", numbers).open(dir.path())?)?;
    lose_manager(dir.path());
    let store = shards(2).rebuild(dir.path())?;
    let Err(Error::SchemaMismatch { difference, .. }) = SpreadInvoiceRepository::open(&store)
    else {
        panic!("a row that would not be found")
    };
    assert_eq!(
        difference,
        "the row with primary key 7 is in shard `s0`, and belongs to shard `s1`"
    );
    InvoiceRepository::open(&store).map(drop)
}

/// The table of two releases: the second has a global index.
mod releases {
    use super::Result;
    use index_table::IndexTable;
    use serde::{Deserialize, Serialize};

    pub(super) mod one {
        use super::{Deserialize, IndexTable, Serialize};

        #[derive(Serialize, Deserialize, IndexTable)]
        #[table(name = "parcels", shard_by = tenant, shard_map = "tenants")]
        pub(crate) struct Parcel {
            #[primary_key]
            pub(crate) tenant: u8,
            #[primary_key]
            pub(crate) id: u64,
            pub(crate) code: u64,
        }
    }

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "parcels", shard_by = tenant, shard_map = "tenants")]
    #[index(code, unique, scope = "global")]
    pub(crate) struct Parcel {
        #[primary_key]
        pub(crate) tenant: u8,
        #[primary_key]
        pub(crate) id: u64,
        pub(crate) code: u64,
    }

    /// Reads the table in a store that is only read.
    pub(super) fn read(path: &std::path::Path) -> Result<Option<u64>> {
        let options = index_table::Store::options().read_only(true);
        let store = options.open(path)?;
        let parcels = ParcelRepository::open(&store)?;
        Ok(parcels.get_by_code(&store.read()?, 12)?.map(|parcel| parcel.id))
    }
}

/// The rows of such a shard are looked for, and a declaration there would leave a global index that is not built.
#[test]
fn a_rebuilt_shard_without_keys_has_no_part_in_a_new_global_index() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    {
        let entries = ShardMap::hashed(["s1", "s2"]);
        let store = options(Kind::Ranges, 3).map("parcels.code", entries).open(dir.path())?;
        let parcels = releases::one::ParcelRepository::open(&store)?;
        store.transaction(|txn| {
            (0..TENANTS).try_for_each(|tenant| {
                let code = u64::from(tenant) + 10;
                parcels.insert(txn, &releases::one::Parcel { tenant, id: 1, code })
            })
        })?;
        store.rebalance("tenants").onto(["s1", "s2"]).exact().plan()?.run()?;
    }
    lose_manager(dir.path());
    {
        let store = shards(3).rebuild(dir.path())?;
        drop(releases::one::ParcelRepository::open(&store)?);
        let parcels = releases::ParcelRepository::open(&store)?;
        assert_eq!(parcels.get_by_code(&store.read()?, 12)?.map(|parcel| parcel.tenant), Some(2));
    }
    assert_eq!(releases::read(dir.path())?, Some(1));
    Ok(())
}
