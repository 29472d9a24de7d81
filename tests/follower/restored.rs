//! Followers of an original one of whose shards is lost, and restored from a backup.

use std::fs;

use index_table::{Durability, Error, Follower, IndexTable, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

use crate::{Dirs, Kind, TestResult, dirs, wait, wait_for, wait_for_archive};

#[derive(Debug, Clone, PartialEq, PartialOrd, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "several indexes may be global")]
#[table(name = "users", shard_by = part)]
#[index(email, unique, scope = "global")]
#[index(town, scope = "global")]
#[index(town, id)]
struct User {
    #[primary_key]
    part: u32,
    #[primary_key]
    id: u32,
    email: String,
    town: u32,
}

/// Parts in the shards `a`, `b` and `c`.
const PARTS: [u32; 3] = [1, 11, 21];

fn open(dirs: &Dirs) -> Result<(Store, UserRepository)> {
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..20).to("c", 20u32..);
    let options = Store::options().durability(Durability::Journal).archive(&dirs.archive);
    let options = ["a", "b", "c"].iter().fold(options, |all, name| all.shard(*name, name));
    let store = options.map("users", map).open(&dirs.store)?;
    let users = UserRepository::open(&store)?;
    Ok((store, users))
}

fn write(store: &Store, users: &UserRepository, ids: std::ops::Range<u32>) -> Result<()> {
    for id in ids {
        store.transaction(|txn| {
            for part in PARTS {
                let email = format!("{part}.{id}@example.com");
                users.insert(txn, &User { part, id, email, town: id % 5 })?;
                if id > 8 {
                    users.delete(txn, part, id - 8)?;
                }
            }
            Ok::<_, Error>(())
        })?;
    }
    Ok(())
}

/// Returns all rows, by each index in turn, after a check of the whole store.
fn state(store: &Store, users: &UserRepository) -> Result<Vec<Vec<User>>> {
    let report = store.verify()?;
    assert!(report.is_clean(), "{report}");
    let txn = store.read()?;
    let all = [
        users.all(&txn).rows().collect::<Result<Vec<_>>>()?,
        users.by_email(&txn).rows().collect::<Result<Vec<_>>>()?,
        users.by_town(&txn).rows().collect::<Result<Vec<_>>>()?,
        users.by_town_id(&txn).rows().collect::<Result<Vec<_>>>()?,
    ];
    for row in &all[0] {
        assert_eq!(users.get_by_email(&txn, &row.email)?.as_ref(), Some(row));
    }
    Ok(all.into())
}

#[test]
fn a_follower_has_the_rows_of_a_restored_shard() -> TestResult {
    for lost in ["a", "b"] {
        for is_open in [true, false] {
            let dirs = dirs(Kind::Several)?;
            let backup = dirs.path("backup");
            let (store, users) = open(&dirs)?;
            write(&store, &users, 0..20)?;
            store.backup_shard(&store.shard(lost)?, &backup)?;
            write(&store, &users, 20..30)?;
            wait_for_archive(&store);
            let follower = Follower::open(&dirs.standby, &dirs.archive)?;
            let copies = UserRepository::open(follower.store())?;
            assert!(state(follower.store(), &copies)? == state(&store, &users)?);
            drop((copies, store, users));
            let follower = Some(follower).filter(|_| is_open);
            fs::remove_dir_all(dirs.store.join(lost))?;
            let (store, users) = open(&dirs)?;
            store.restore_shard(&store.shard(lost)?, &backup)?;
            write(&store, &users, 30..40)?;
            wait_for_archive(&store);
            let original = state(&store, &users)?;
            if let Some(follower) = follower {
                wait(|| follower.lag().is_ok_and(|lag| lag.error.is_some()));
                let lag = follower.lag()?;
                assert!(lag.commits > 0 && lag.error.is_some_and(|it| it.contains("gap")));
                let promoted = follower.promote();
                assert!(matches!(promoted, Err(Error::NotInArchive { .. })), "{promoted:?}");
            }
            for _ in 0..2 {
                let follower = Follower::open(&dirs.standby, &dirs.archive)?;
                let copies = UserRepository::open(follower.store())?;
                assert!(state(follower.store(), &copies)? == original, "{lost} {is_open}");
            }
            let follower = Follower::open(&dirs.standby, &dirs.archive)?;
            let copies = UserRepository::open(follower.store())?;
            write(&store, &users, 40..50)?;
            wait_for(&follower, &store)?;
            assert!(state(follower.store(), &copies)? == state(&store, &users)?);
            drop((store, users));
            // Another process continues after the restoration.
            let (store, users) = open(&dirs)?;
            write(&store, &users, 50..55)?;
            wait_for(&follower, &store)?;
            let original = state(&store, &users)?;
            assert!(state(follower.store(), &copies)? == original);
            drop((store, users));
            let promoted = follower.promote()?;
            assert!(state(&promoted, &copies)? == original);
            write(&promoted, &copies, 55..60)?;
            state(&promoted, &copies)?;
        }
    }
    Ok(())
}
