//! Archives and followers of a store that grows.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant, SystemTime},
};

use index_table::{ArchiveFile, CommitNumber, Follower, Result, Store, report::ArchiveLag};

use crate::{
    basic::{All, CustomerRepository, customer},
    table::{self, InvoiceRepository},
};

pub(crate) fn opened(shop: &Path, archive: &Path) -> Result<Store> {
    Store::options().archive(archive).open(shop)
}

/// Waits until the archive has a base of each shard, and all commits.
pub(crate) fn archived(store: &Store) {
    wait_for(store, |lag| lag.commits == 0 && lag.has_base && lag.error.is_none());
}

fn wait_for(store: &Store, is_done: impl Fn(&ArchiveLag) -> bool) {
    let begun = Instant::now();
    loop {
        let lag = store.archive_lag().expect("an archive");
        if is_done(&lag) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{lag:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_archive_has_the_moments_before_and_after_the_growth() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let (shop, archive) = (dir.path().join("shop"), dir.path().join("archive"));
    let store = opened(&shop, &archive)?;
    let all = All::open(&store)?;
    all.fill(&store)?;
    let (before, time) = (store.read()?.commit_number(), SystemTime::now());
    thread::sleep(Duration::from_millis(5));
    store.add_shard("east", "east")?;
    store.move_range("customers", 50u32.., "east").run()?;
    let after = store.read()?.commit_number();
    assert!(before < after);
    archived(&store);

    for (name, restore) in [
        ("commit", Store::restore_archive(&archive).until_commit(before)),
        ("time", Store::restore_archive(&archive).until(time)),
    ] {
        let restored = dir.path().join(name);
        restore.run(&restored)?;
        let one = Store::open(&restored)?;
        assert_eq!(one.shard_ids().len(), 1, "{name}");
        assert!(!restored.join("writer.lock").exists(), "{name}");
        All::open(&one)?.check(&one)?;
    }
    for (name, restore) in [
        ("end", Store::restore_archive(&archive).until_end()),
        ("now", Store::restore_archive(&archive)),
        ("after", Store::restore_archive(&archive).until_commit(after)),
    ] {
        let restored = dir.path().join(name);
        restore.run(&restored)?;
        let several = Store::open(&restored)?;
        assert_eq!(several.shard_ids().len(), 2, "{name}");
        let copied = All::open(&several)?;
        copied.check(&several)?;
        assert_eq!(copied.orders.shard_of(&several, 70)?.name(), "east", "{name}");
    }
    // The archive goes on.
    drop((all, store));
    let store = opened(&shop, &archive)?;
    All::open(&store)?.check(&store)?;
    archived(&store);
    Ok(())
}

/// Returns the names of the bases in an archive, without those that are being written.
fn bases(archive: &Path) -> Vec<String> {
    let names = fs::read_dir(archive).unwrap().map(|it| it.unwrap().file_name());
    let mut names: Vec<_> = names.filter_map(|name| name.into_string().ok()).collect();
    names.retain(|name| name.starts_with("base."));
    names.sort();
    names
}

#[test]
fn an_archive_goes_on_without_another_base_of_the_first_data_file() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let (shop, archive) = (dir.path().join("shop"), dir.path().join("archive"));
    let store = opened(&shop, &archive)?;
    let all = All::open(&store)?;
    all.fill(&store)?;
    archived(&store);
    let first = bases(&archive);
    assert_eq!(first.len(), 1, "{first:?}");
    let mut moments = Vec::new();
    let mut insert = |tenants: std::ops::Range<u32>| -> Result<()> {
        for tenant in tenants {
            store.transaction(|txn| all.customers.insert(txn, &customer(tenant, 1000)))?;
            let txn = store.read()?;
            moments.push((
                txn.commit_number(),
                SystemTime::now(),
                all.customers.all(&txn).count()?,
            ));
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    };
    insert(0..5)?;
    store.add_shard("east", "east")?;
    insert(5..8)?;
    store.move_range("customers", 50u32.., "east").run()?;
    insert(47..53)?;
    archived(&store);
    let later = bases(&archive);
    assert_eq!(later.len(), 2, "{later:?}");
    assert!(later.contains(&first[0]) && later.iter().any(|it| it.ends_with(".1")), "{later:?}");
    restore_all(&archive, &dir.path().join("while open"), &moments)?;

    // The next process goes on.
    drop((all, store));
    let store = opened(&shop, &archive)?;
    archived(&store);
    assert_eq!(bases(&archive), later);
    drop(store);
    Store::restore_archive(&archive).run(dir.path().join("end"))?;
    let end = Store::open(dir.path().join("end"))?;
    let customers = CustomerRepository::open(&end)?;
    assert_eq!(customers.all(&end.read()?).count()?, 300 + 14);
    Ok(())
}

#[test]
fn a_function_gets_no_other_base_of_the_first_data_file() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let (shop, copied) = (dir.path().join("shop"), dir.path().join("copied"));
    let open = || {
        let copied = copied.clone();
        let copy = move |file: ArchiveFile<'_>| {
            // The first part of a name is the identity of the archive.
            let name = file.name.split_once('/').map_or(file.name, |(_, name)| name);
            let to = copied.join(name);
            fs::create_dir_all(to.parent().unwrap())?;
            fs::copy(file.path, to).map(drop)
        };
        Store::options().archive_with(copy).open(&shop)
    };
    let store = open()?;
    let all = All::open(&store)?;
    store.transaction(|txn| all.customers.insert(txn, &customer(200, 1)))?;
    wait_for(&store, |lag| lag.has_base);
    let before = store.read()?.commit_number();
    store.add_shard("east", "east")?;
    store.transaction(|txn| all.customers.insert(txn, &customer(201, 1)))?;
    store.move_range("customers", 201u32.., "east").run()?;
    wait_for(&store, |lag| lag.has_base);
    drop((all, store));
    let bases = bases(&copied);
    assert_eq!(bases.len(), 2, "{bases:?}");
    for (name, restore, count) in [
        ("before", Store::restore_archive(&copied).until_commit(before), 1),
        ("end", Store::restore_archive(&copied), 2),
    ] {
        let restored = dir.path().join(name);
        restore.run(&restored)?;
        let copy = Store::open(&restored)?;
        assert_eq!(copy.shard_ids().len(), count, "{name}");
        let customers = CustomerRepository::open(&copy)?;
        assert_eq!(customers.all(&copy.read()?).count()?, count as u64, "{name}");
    }
    Ok(())
}

/// Restores these moments, and compares the number of customers.
fn restore_all(
    archive: &Path,
    to: &Path,
    moments: &[(CommitNumber, SystemTime, u64)],
) -> Result<()> {
    fs::create_dir(to).unwrap();
    for (at, (number, time, count)) in moments.iter().enumerate() {
        for (name, restore) in [
            ("commit", Store::restore_archive(archive).until_commit(number.clone())),
            ("time", Store::restore_archive(archive).until(*time)),
        ] {
            let restored = to.join(format!("{name} {at}"));
            restore.run(&restored)?;
            let copy = Store::open(&restored)?;
            let customers = CustomerRepository::open(&copy)?;
            assert_eq!(customers.all(&copy.read()?).count()?, *count, "{name} {at}");
            assert_eq!(copy.shard_ids().len(), if at < 5 { 1 } else { 2 }, "{name} {at}");
            assert_eq!(restored.join("writer.lock").exists(), at >= 5, "{name} {at}");
            assert!(copy.verify()?.is_clean(), "{name} {at}");
        }
    }
    Ok(())
}

#[test]
fn archives_and_followers_have_a_table_where_it_was_moved() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let (shop, archive, standby) = (path("shop"), path("archive"), path("standby"));
    let store = opened(&shop, &archive)?;
    let (all, invoices) = table::fill(&store)?;
    store.add_shard("billing", "billing")?;
    archived(&store);
    let before = store.read()?.commit_number();
    let follower = Follower::open(&standby, &archive)?;
    let there = InvoiceRepository::open(follower.store())?;
    assert_eq!(there.all(&follower.store().read()?).count()?, table::ROWS);

    let mut during = Vec::new();
    let moved = store.move_table("invoices", "billing").progress(|_| {
        during.push(store.read().expect("a snapshot").commit_number());
        let txn = follower.store().read().expect("a snapshot");
        assert_eq!(there.all(&txn).rows().count() as u64, table::ROWS);
    });
    moved.run()?;
    store.transaction(|txn| invoices.update(txn, 1, |it| it.amount = 7).map(drop))?;
    archived(&store);
    let last = store.read()?.commit_number();
    let begun = Instant::now();
    while there.get(&follower.store().read()?, 1)?.is_none_or(|row| row.amount != 7) {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", follower.lag());
        thread::sleep(Duration::from_millis(5));
    }
    let txn = follower.store().read()?;
    assert_eq!(there.all(&txn).rows().count() as u64, table::ROWS);
    assert_eq!(there.find_by_customer(&txn, 2).count()?, table::ROWS.div_ceil(7));
    assert_eq!(txn.stats().shards, 1);
    drop(txn);
    store.transaction(|txn| invoices.update(txn, 1, |it| it.amount = 100).map(drop))?;
    archived(&store);

    let at = during.get(during.len() / 3).cloned().expect("a step");
    let late = during.get(during.len() - 2).cloned().expect("a step");
    for (name, commit) in [("before", before), ("during", at), ("late", late), ("last", last)] {
        let restored = path(name);
        Store::restore_archive(&archive).until_commit(commit).run(&restored)?;
        let copy = Store::open(&restored)?;
        let invoices = InvoiceRepository::open(&copy)?;
        copy.transaction(|txn| invoices.update(txn, 1, |it| it.amount = 100).map(drop))?;
        table::check(&copy, &invoices)?;
        for unfinished in copy.moves()? {
            copy.resume_move(unfinished.id).run()?;
        }
        copy.move_table("invoices", "main").run()?;
        table::check(&copy, &invoices)?;
    }
    drop((all, invoices, store));
    let promoted = follower.promote()?;
    table::check(&promoted, &there)?;
    promoted.move_table("invoices", "main").run()?;
    table::check(&promoted, &there)
}
