//! A lost shard is restored from its backup while the store is open.

use std::{fs, path::Path};

use index_table::{Error, IndexTable, ReadTxn, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

use crate::{
    directories::copied,
    opening::reason,
    tables::{Kind, by_value::OrderRepository, options, order},
};

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
        let alone = Store::options().read_only(true).open(shop.join(shard))?;
        alone.backup_to(path.join(format!("backup of {shard}")))?;
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
        let store = Store::open(&shop)?;
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
        let store = Store::open(&shop)?;
        let orders = OrderRepository::open(&store)?;
        store.transaction(|txn| orders.insert(txn, &order(16, number)))?;
        assert_eq!(orders.all(&store.read()?).count()?, u64::from(number) + 3);
        store.check()?;
    }
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "countries", reference)]
struct Country {
    #[primary_key]
    code: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "users", shard_by = tenant)]
#[index(email, unique, scope = "global")]
#[index(country)]
struct User {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
    email: String,
    #[references(Country)]
    country: String,
}

#[test]
fn a_backup_whose_rows_refer_to_deleted_rows_is_not_restored() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    let user = |tenant, id: u64, country: &str| {
        let (email, country) = (format!("{tenant}-{id}"), country.to_owned());
        User { tenant, id, email, country }
    };
    let country = |code: &str| Country { code: code.to_owned() };
    {
        let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..);
        let options = Store::options().shard("a", "a").shard("b", "b").map("users", map);
        let store = options.open(&shop)?;
        let countries = CountryRepository::open(&store)?;
        let users = UserRepository::open(&store)?;
        store.transaction(|txn| {
            ["x", "y"].into_iter().try_for_each(|it| countries.insert(txn, &country(it)))?;
            users.insert(txn, &user(1, 1, "x"))?;
            users.insert(txn, &user(11, 1, "x"))?;
            users.insert(txn, &user(11, 2, "y"))
        })?;
        store.backup_to(&backup)?;
        // After the backup: a row and a country are deleted, and a row is inserted.
        store.transaction(|txn| {
            users.delete(txn, 11, 2)?;
            countries.delete(txn, "y")?;
            users.insert(txn, &user(11, 3, "x"))
        })?;
    }
    fs::remove_dir_all(shop.join("b")).expect("removed");
    {
        let store = Store::open(&shop)?;
        let _countries = CountryRepository::open(&store)?;
        let _users = UserRepository::open(&store)?;
        let lost = store.shard("b")?;
        for _ in 0..2 {
            let refused = reason(store.restore_shard(&lost, backup.join("shard.1")));
            let expected = "row (11, 2) of table `users` in it refers by `country` to the row with primary key \"y\" of the \
                            reference table `countries`";
            assert!(refused.contains(expected), "{refused}");
            assert_eq!(store.unavailable_shards().len(), 1);
            assert!(!shop.join("b").exists());
        }
        // The way out that the error names.
        let copied = dir.path().join("copied");
        Store::restore(backup.join("shard.1"), &copied)?;
        let plain = Store::open(&copied)?;
        let users = UserRepository::open(&plain)?;
        assert!(plain.transaction(|txn| users.delete(txn, 11, 2))?);
        drop((plain, users));
        store.restore_shard(&lost, &copied)?;
        assert!(store.verify()?.is_clean());
    }
    let store = Store::open(&shop)?;
    let countries = CountryRepository::open(&store)?;
    let users = UserRepository::open(&store)?;
    // The global index has exactly the rows that the shards have.
    let txn = store.read()?;
    assert_eq!(users.by_email(&txn).count()?, 2);
    assert_eq!(users.get_by_email(&txn, "11-3")?, None);
    assert_eq!(users.get_by_email(&txn, "11-1")?, Some(user(11, 1, "x")));
    assert_eq!(countries.all(&txn).count()?, 1);
    drop(txn);
    assert!(store.verify()?.is_clean());
    Ok(())
}

#[test]
fn one_shard_is_copied_while_the_store_is_open_and_restored() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    let store = options(Kind::Ranges, 2).open(&shop)?;
    let orders = OrderRepository::open(&store)?;
    let rows = |count: u16| {
        store.transaction(|txn| {
            (0..30).try_for_each(|tenant| orders.put(txn, &order(tenant, count)))
        })
    };
    (0..10).try_for_each(rows)?;
    let [first, last] = [0, 29].map(|tenant| orders.shard_of(&store, tenant).expect("a shard"));
    assert_ne!(first, last);
    store.backup_shard(&last, &backup)?;
    let again = store.backup_shard(&last, &backup);
    assert!(matches!(again, Err(Error::Io { .. })), "{again:?}");
    // The other shard gets more rows than the backup has.
    store.transaction(|txn| orders.put(txn, &order(0, 100)))?;
    let before = orders.all(&store.read()?).count()?;
    drop((store, orders));
    let name = last.name().to_owned();
    fs::remove_dir_all(shop.join(&name)).expect("removed");
    {
        let store = Store::open(&shop)?;
        let _orders = OrderRepository::open(&store)?;
        store.restore_shard(&store.shard(&name)?, &backup)?;
    }
    let store = Store::open(&shop)?;
    let orders = OrderRepository::open(&store)?;
    assert_eq!(orders.all(&store.read()?).count()?, before);
    assert!(store.verify()?.is_clean());
    Ok(())
}

/// A table whose rows are all in shard `a`, with entries of a global index in `a` and `b`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "members", shard_by = tenant)]
#[index(email, unique, scope = "global")]
struct Member {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
    email: String,
}

#[test]
fn a_restored_shard_with_entries_only_gets_the_entries_of_its_global_index() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    let member = |id: u64| Member { tenant: 1, id, email: format!("{id}@example.com") };
    {
        let map = ShardMap::ranges().to("a", 0u32..);
        let options = Store::options().shard("a", "a").shard("b", "b");
        let store = options.map("members", map).open(&shop)?;
        let members = MemberRepository::open(&store)?;
        store.backup_to(&backup)?;
        // The backup lacks these entries.
        store.transaction(|txn| (0..20).try_for_each(|id| members.insert(txn, &member(id))))?;
        assert!(store.shards()?.iter().all(|shard| shard.bytes > 0));
    }
    fs::remove_dir_all(shop.join("b")).expect("removed");
    let has_all = |store: &Store, members: &MemberRepository| -> Result<()> {
        for id in 0..20 {
            assert!(members.get_by_email(&store.read()?, &member(id).email)?.is_some());
            let again = Member { id: 100 + id, ..member(id) };
            let taken = store.transaction(|txn| members.insert(txn, &again));
            assert!(matches!(taken, Err(Error::UniqueViolation { .. })), "{taken:?}");
        }
        let report = store.verify()?;
        assert!(report.is_clean(), "{report}");
        Ok(())
    };
    {
        let store = Store::open(&shop)?;
        let members = MemberRepository::open(&store)?;
        let before = store.read()?;
        let find = |txn: &ReadTxn<'_>, id| members.get_by_email(txn, &member(id).email);
        assert!((0..20).any(|id| matches!(find(&before, id), Ok(Some(_)))));
        store.restore_shard(&store.shard("b")?, backup.join("shard.1"))?;
        // A snapshot from before the restoration has the entries of the other shard only.
        for id in 0..20 {
            let _ = find(&before, id);
        }
        drop(before);
        has_all(&store, &members)?;
    }
    let store = Store::open(&shop)?;
    has_all(&store, &MemberRepository::open(&store)?)
}

/// Creates a store with a member in each of three shards, and a backup. Then shards `b` and `c` are lost.
fn with_two_lost_shards(shop: &Path, backup: &Path) -> Result<()> {
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..20).to("c", 20u32..);
    let options = Store::options().shard("a", "a").shard("b", "b").shard("c", "c");
    let store = options.map("members", map).open(shop)?;
    let members = MemberRepository::open(&store)?;
    store.transaction(|txn| [1, 11, 21].iter().try_for_each(|it| members.insert(txn, &of(*it))))?;
    store.backup_to(backup)?;
    drop((store, members));
    for lost in ["b", "c"] {
        fs::remove_dir_all(shop.join(lost)).expect("removed");
    }
    Ok(())
}

fn of(tenant: u32) -> Member {
    Member { tenant, id: 1, email: format!("{tenant}@example.com") }
}

#[test]
fn an_emptied_unique_index_accepts_no_key_until_the_last_lost_shard_is_restored() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    with_two_lost_shards(&shop, &backup)?;
    let store = Store::open(&shop)?;
    let members = MemberRepository::open(&store)?;
    store.restore_shard(&store.shard("b")?, backup.join("shard.1"))?;
    for tenant in [1, 11, 21] {
        // Its key belongs to a row that the emptied index does not have.
        let again = Member { tenant: 2, ..of(tenant) };
        let refused = store.transaction(|txn| members.insert(txn, &again));
        assert!(
            matches!(refused, Err(Error::IndexNotReadable { index: "email", .. })),
            "{refused:?}"
        );
        let loaded = members.bulk_load(&store, vec![again]).run();
        assert!(
            matches!(loaded, Err(Error::IndexNotReadable { .. } | Error::ShardUnavailable { .. })),
            "{loaded:?}"
        );
    }
    // Rows without a further key can be written, and rows can be deleted.
    store.transaction(|txn| members.put(txn, &of(11)))?;
    assert!(store.transaction(|txn| members.delete(txn, 1, 1))?);
    store.restore_shard(&store.shard("c")?, backup.join("shard.2"))?;
    for tenant in [1, 11, 21] {
        let again = Member { tenant: 2, id: tenant.into(), ..of(tenant) };
        let inserted = store.transaction(|txn| members.insert(txn, &again));
        match tenant {
            1 => assert!(inserted.is_ok(), "{inserted:?}"),
            _ => assert!(matches!(inserted, Err(Error::UniqueViolation { .. })), "{inserted:?}"),
        }
    }
    let report = store.verify()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

#[test]
fn a_key_that_was_given_to_another_row_since_the_backup_is_an_error_of_the_restoration()
-> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    with_two_lost_shards(&shop, &backup)?;
    {
        let store = Store::open(&shop)?;
        let members = MemberRepository::open(&store)?;
        store.restore_shard(&store.shard("b")?, backup.join("shard.1"))?;
        store.restore_shard(&store.shard("c")?, backup.join("shard.2"))?;
        store.transaction(|txn| {
            members.delete(txn, 21, 1)?;
            members.insert(txn, &Member { tenant: 2, ..of(21) })
        })?;
    }
    fs::remove_dir_all(shop.join("c")).expect("removed");
    let store = Store::open(&shop)?;
    let members = MemberRepository::open(&store)?;
    let restored = store.restore_shard(&store.shard("c")?, backup.join("shard.2"));
    assert!(matches!(restored, Err(Error::IndexNotReadable { .. })), "{restored:?}");
    assert!(store.unavailable_shards().is_empty());
    assert!(members.get(&store.read()?, 21, 1)?.is_some());
    assert!(store.transaction(|txn| members.delete(txn, 2, 1))?);
    assert!(members.build(&store).run()?.is_readable());
    assert_eq!(members.get_by_email(&store.read()?, &of(21).email)?, Some(of(21)));
    let report = store.verify()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

#[test]
fn a_key_that_was_given_to_another_row_since_the_backup_is_an_error_of_opening_a_closed_table()
-> Result<()> {
    for is_opened_again in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
        with_two_lost_shards(&shop, &backup)?;
        {
            let store = Store::open(&shop)?;
            let members = MemberRepository::open(&store)?;
            store.restore_shard(&store.shard("b")?, backup.join("shard.1"))?;
            store.restore_shard(&store.shard("c")?, backup.join("shard.2"))?;
            store.transaction(|txn| {
                members.delete(txn, 21, 1)?;
                members.insert(txn, &Member { tenant: 2, ..of(21) })
            })?;
        }
        fs::remove_dir_all(shop.join("c")).expect("removed");
        let mut store = Store::open(&shop)?;
        store.restore_shard(&store.shard("c")?, backup.join("shard.2"))?;
        assert!(store.unavailable_shards().is_empty());
        if is_opened_again {
            drop(store);
            store = Store::open(&shop)?;
        }
        for _ in 0..2 {
            match MemberRepository::open(&store).map(drop) {
                Err(Error::UniqueViolation { table: "members", .. }) => {}
                opened => panic!("{opened:?}"),
            }
        }
        // All rows can be read and written, and no further key can be taken.
        let members = MemberRepository::open_online(&store)?;
        let refused = members.get_by_email(&store.read()?, &of(21).email);
        assert!(matches!(refused, Err(Error::IndexNotReadable { .. })), "{refused:?}");
        assert_eq!(members.get(&store.read()?, 21, 1)?, Some(of(21)));
        let report = members.build(&store).run()?;
        assert!(!report.is_readable());
        assert!(store.transaction(|txn| members.delete(txn, 2, 1))?);
        assert!(members.build(&store).run()?.is_readable());
        drop(members);
        let members = MemberRepository::open(&store)?;
        assert_eq!(members.get_by_email(&store.read()?, &of(21).email)?, Some(of(21)));
        assert!(store.verify()?.is_clean());
    }
    Ok(())
}

mod before {
    use super::{Deserialize, IndexTable, Serialize};

    /// A table before its unique index was declared.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "visits", shard_by = tenant)]
    pub(super) struct Visit {
        #[primary_key]
        pub(super) tenant: u32,
        #[primary_key]
        pub(super) id: u64,
        pub(super) code: String,
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "visits", shard_by = tenant)]
#[index(tenant, code, unique)]
struct Visit {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
    code: String,
}

#[test]
fn a_backup_that_violates_a_later_unique_index_changes_nothing() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, wrong, right) =
        (dir.path().join("shop"), dir.path().join("wrong"), dir.path().join("right"));
    {
        let map = || ShardMap::ranges().to("a", ..10u32).to("b", 10u32..);
        let options = Store::options().shard("a", "a").shard("b", "b");
        let store = options.map("members", map()).map("visits", map()).open(&shop)?;
        let members = MemberRepository::open(&store)?;
        let visits = before::VisitRepository::open(&store)?;
        let visit = |id| before::Visit { tenant: 11, id, code: "same".to_owned() };
        store.transaction(|txn| {
            (0..20).try_for_each(|tenant| members.insert(txn, &of(tenant)))?;
            (0..2).try_for_each(|id| visits.insert(txn, &visit(id)))
        })?;
        store.backup_to(&wrong)?;
        store.transaction(|txn| visits.delete(txn, 11, 1))?;
        store.backup_to(&right)?;
    }
    fs::remove_dir_all(shop.join("b")).expect("removed");
    let store = Store::open(&shop)?;
    let members = MemberRepository::open(&store)?;
    let visits = VisitRepository::open(&store)?;
    let found = || -> Result<Vec<_>> {
        let txn = store.read()?;
        let find = |tenant| members.get_by_email(&txn, &of(tenant).email).ok().flatten();
        Ok((0..20).map(find).collect())
    };
    let before = found()?;
    assert!(before.iter().flatten().count() > 0);
    let lost = store.shard("b")?;
    for _ in 0..2 {
        let refused = store.restore_shard(&lost, wrong.join("shard.1"));
        assert!(
            matches!(refused, Err(Error::UniqueViolation { table: "visits", .. })),
            "{refused:?}"
        );
        assert_eq!(store.unavailable_shards().len(), 1);
        assert!(!shop.join("b").exists());
        // The index of the other table is readable, and its shard is written.
        assert_eq!(found()?, before);
        store.transaction(|txn| {
            visits.put(txn, &Visit { tenant: 1, id: 1, code: "1".to_owned() })
        })?;
    }
    store.restore_shard(&lost, right.join("shard.1"))?;
    assert_eq!(found()?.into_iter().flatten().count(), 20);
    let again = Visit { tenant: 11, id: 5, code: "same".to_owned() };
    let taken = store.transaction(|txn| visits.insert(txn, &again));
    assert!(matches!(taken, Err(Error::UniqueViolation { .. })), "{taken:?}");
    let report = store.verify()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

#[test]
fn all_shards_of_a_store_are_restored() -> Result<()> {
    for (is_killed, is_archived) in [(false, false), (true, false), (true, true)] {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
        let archive = dir.path().join("archive");
        let options = || {
            let options = options(Kind::Ranges, 2);
            if is_archived { options.archive(&archive) } else { options }
        };
        {
            let store = options().open(&shop)?;
            let orders = OrderRepository::open(&store)?;
            store.backup_to(&backup)?;
            // More commits than the restoration makes.
            for number in 1..50 {
                for tenant in [0, 16] {
                    store.transaction(|txn| orders.insert(txn, &order(tenant, number)))?;
                }
            }
            if is_killed {
                let left = dir.path().join("left");
                copied(&shop, &left).expect("a copy");
                shop = left;
            }
        }
        for shard in ["s0", "s1"] {
            fs::remove_dir_all(shop.join(shard)).expect("removed");
        }
        let killed = dir.path().join("killed");
        {
            let store = options().open(&shop)?;
            for (number, shard) in ["s0", "s1"].into_iter().enumerate() {
                let backup = backup.join(format!("shard.{number}"));
                store.restore_shard(&store.shard(shard)?, backup)?;
                // Each of them is written and read at once.
                let tenant = [0, 16][number];
                let orders = OrderRepository::open(&store)?;
                let shard = store.shard(shard)?;
                store.transaction_on(&shard, |txn| orders.insert(txn, &order(tenant, 1)))?;
                assert_eq!(orders.get(&store.read()?, tenant, 1)?, Some(order(tenant, 1)));
            }
            let orders = OrderRepository::open(&store)?;
            store.transaction(|txn| {
                [0, 16].into_iter().try_for_each(|tenant| orders.insert(txn, &order(tenant, 2)))
            })?;
            assert_eq!(orders.all(&store.read()?).count()?, 4);
            assert!(store.verify()?.is_clean());
            // They have the journal of all shards.
            for shard in ["s0", "s1"] {
                let size = |number| {
                    let journal = shop.join(shard).join(format!("journal.{number}"));
                    fs::metadata(journal).map_or(0, |file| file.len())
                };
                assert_eq!((0..3).map(size).sum::<u64>(), 0);
            }
            copied(&shop, &killed).expect("a copy");
        }
        for path in [&killed, &shop] {
            if is_archived && path == &killed {
                continue;
            }
            for number in 3..5 {
                let store = options().open(path)?;
                assert!(store.unavailable_shards().is_empty(), "{:?}", store.unavailable_shards());
                let orders = OrderRepository::open(&store)?;
                for tenant in [0, 16] {
                    store.transaction(|txn| orders.insert(txn, &order(tenant, number)))?;
                }
                assert_eq!(orders.all(&store.read()?).count()?, 2 * u64::from(number));
                assert!(store.verify()?.is_clean());
            }
        }
        if is_archived {
            let restored = dir.path().join("restored");
            Store::restore_archive(&archive).run(&restored)?;
            let store = Store::open(&restored)?;
            assert_eq!(OrderRepository::open(&store)?.all(&store.read()?).count()?, 8);
        }
    }
    Ok(())
}

#[test]
fn a_restored_store_has_no_earlier_commit_number() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    let mut earlier = Vec::new();
    {
        let store = options(Kind::Ranges, 2).open(&shop)?;
        let orders = OrderRepository::open(&store)?;
        store.transaction(|txn| orders.insert(txn, &order(16, 0)))?;
        store.backup_shard(&store.shard("s1")?, &backup)?;
        for id in 1..60 {
            store.transaction(|txn| orders.insert(txn, &order(16, id)))?;
            earlier.push(store.read()?.commit_number());
        }
    }
    fs::remove_dir_all(shop.join("s1")).expect("removed");
    for _ in 0..2 {
        let store = Store::open(&shop)?;
        let orders = OrderRepository::open(&store)?;
        let lost = store.shard("s1")?;
        store.restore_shard(&lost, &backup)?;
        assert_eq!(orders.all(&store.read()?).count()?, 1);
        let now = store.read()?.commit_number();
        assert!(!earlier.contains(&now), "{now} in {earlier:?}");
        earlier.push(now);
        drop((store, orders));
        let now = Store::open(&shop)?.read()?.commit_number();
        assert!(!earlier.contains(&now) || earlier.last() == Some(&now), "{now} in {earlier:?}");
        fs::remove_dir_all(shop.join("s1")).expect("removed");
    }
    Ok(())
}

#[test]
fn a_restored_store_has_no_earlier_commit_number_if_it_had_no_other_shard() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    let mut earlier = Vec::new();
    {
        let store = options(Kind::Ranges, 2).open(&shop)?;
        let orders = OrderRepository::open(&store)?;
        store.transaction(|txn| {
            [0, 16].into_iter().try_for_each(|tenant| orders.insert(txn, &order(tenant, 0)))
        })?;
        store.backup_to(&backup)?;
        // Each number of a shard with each number of the other one, as far as a restoration could repeat them.
        for id in 1..40 {
            for tenant in [0, 16] {
                store.transaction(|txn| orders.insert(txn, &order(tenant, id)))?;
                earlier.push(store.read()?.commit_number());
            }
        }
    }
    for lost in [&["s0", "s1"][..], &["s1", "s0"], &["s1"], &["s0"], &["s1"]] {
        for shard in lost {
            fs::remove_dir_all(shop.join(shard)).expect("removed");
        }
        let store = Store::open(&shop)?;
        for shard in lost {
            let number = shard.trim_start_matches('s');
            let backup = backup.join(format!("shard.{number}"));
            store.restore_shard(&store.shard(shard)?, backup)?;
            let orders = OrderRepository::open(&store)?;
            let tenant = if number == "0" { 0 } else { 16 };
            for id in 1..40 {
                let now = store.read()?.commit_number();
                assert!(!earlier.contains(&now), "{now} after {lost:?}");
                earlier.push(now);
                let shard = store.shard(shard)?;
                store.transaction_on(&shard, |txn| orders.insert(txn, &order(tenant, id)))?;
            }
        }
        drop(store);
    }
    Ok(())
}
