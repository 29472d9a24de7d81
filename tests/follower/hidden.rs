//! Global indexes of a follower while the original detaches and attaches a shard.

use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::Duration,
};

use index_table::{Durability, Follower, IndexTable, ReadTxn, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

use crate::{Dirs, Kind, TestResult, dirs, wait};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "several indexes may be global")]
#[table(name = "users", shard_by = part)]
#[index(email, unique, scope = "global")]
#[index(town, scope = "global")]
struct User {
    #[primary_key]
    part: u32,
    #[primary_key]
    id: u32,
    email: String,
    town: u32,
}

const IDS: u32 = 60;

/// The last part is in the shard that is detached. Rows of part 30 change meanwhile.
const PARTS: [u32; 3] = [1, 21, 11];
const CHANGING: u32 = 30;

fn user(part: u32, id: u32) -> User {
    User { part, id, email: format!("{part}.{id}@example.com"), town: id % 7 }
}

fn original(dirs: &Dirs) -> Result<(Store, UserRepository)> {
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..20).to("c", 20u32..);
    let options = Store::options().durability(Durability::Journal).archive(&dirs.archive);
    let store = options
        .shard("a", "a")
        .shard("b", "b")
        .shard("c", "c")
        .map("users", map)
        .open(&dirs.store)?;
    let users = UserRepository::open(&store)?;
    for part in PARTS {
        store.transaction(|txn| (0..IDS).try_for_each(|id| users.insert(txn, &user(part, id))))?;
    }
    Ok((store, users))
}

/// Ends the threads, also after a panic.
struct Ending<'e>(&'e AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Checks that a snapshot has all rows, or those outside of `b`, with all of their entries. Returns whether it has all.
fn check(store: &Store, users: &UserRepository) -> Result<bool> {
    check_in(&store.read()?, users)
}

fn check_in(txn: &ReadTxn<'_>, users: &UserRepository) -> Result<bool> {
    let keys: Vec<(u32, u32)> = users.all(txn).keys().collect::<Result<_>>()?;
    let has_b = keys.iter().any(|(part, _)| *part == 11);
    let parts = if has_b { &PARTS[..] } else { &PARTS[..2] };
    let fixed = keys.iter().filter(|(part, _)| *part != CHANGING).count();
    assert_eq!(fixed, parts.len() * IDS as usize);
    assert_eq!(users.by_email(txn).count()?, keys.len() as u64);
    assert_eq!(users.by_email(txn).rows().filter_map(Result::ok).count(), keys.len());
    let of_town = users.find_by_town(txn, 3).keys().collect::<Result<Vec<_>>>()?;
    assert_eq!(of_town.len(), keys.iter().filter(|(_, id)| id % 7 == 3).count());
    for part in PARTS {
        for id in [0, 7, IDS - 1] {
            let row = users.get_by_email(txn, &user(part, id).email)?;
            assert_eq!(row, Some(user(part, id)).filter(|_| parts.contains(&part)));
        }
    }
    Ok(has_b)
}

#[test]
fn a_follower_finds_all_present_rows_while_its_original_detaches_and_attaches_a_shard() -> TestResult
{
    let dirs = dirs(Kind::Several)?;
    let (store, users) = original(&dirs)?;
    let is_archived = || store.archive_lag().is_some_and(|lag| lag.has_base && lag.commits == 0);
    for _ in 0..2 {
        wait(is_archived);
        let follower = Follower::open(&dirs.standby, &dirs.archive)?;
        let copies = UserRepository::open(follower.store())?;
        assert!(check(follower.store(), &copies)?);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| -> TestResult {
            let (copies, is_over) = (&copies, &is_over);
            let (follower, store, users) = (&follower, &store, &users);
            let reader = scope.spawn(move || -> Result<[u32; 2]> {
                let mut seen = [0, 0];
                while !is_over.load(SeqCst) {
                    seen[usize::from(check(follower.store(), copies)?)] += 1;
                }
                Ok(seen)
            });
            let writer = scope.spawn(move || -> Result<()> {
                for id in (0..IDS).cycle() {
                    if is_over.load(SeqCst) {
                        break;
                    }
                    store.transaction(|txn| users.put(txn, &user(CHANGING, id)))?;
                    store.transaction(|txn| users.delete(txn, CHANGING, id).map(drop))?;
                    thread::sleep(Duration::from_millis(1));
                }
                Ok(())
            });
            let ending = Ending(is_over);
            store.detach_shard("b")?;
            wait(|| check(follower.store(), copies).is_ok_and(|has_b| !has_b));
            store.attach_shard("b", "b")?;
            // The follower has to copy the attached shard.
            wait(|| follower.lag().is_ok_and(|lag| lag.error.is_some()));
            assert!(!check(follower.store(), copies)?);
            drop(ending);
            let seen = reader.join().expect("no panic")?;
            writer.join().expect("no panic")?;
            assert!(seen[0] > 0, "{seen:?}");
            Ok(())
        })?;
    }
    wait(is_archived);
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    assert!(check(follower.store(), &UserRepository::open(follower.store())?)?);
    Ok(())
}

/// Checks that a follower, and then a reader, find all rows.
fn check_others(dirs: &Dirs, store: Store, users: UserRepository) -> TestResult {
    wait(|| store.archive_lag().is_some_and(|lag| lag.has_base && lag.commits == 0));
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    assert!(check(follower.store(), &UserRepository::open(follower.store())?)?);
    drop((store, users));
    let reader = Store::options().read_only(true).open(&dirs.store)?;
    assert!(check(&reader, &UserRepository::open(&reader)?)?);
    Ok(())
}

/// An attached shard is checked once. It has nothing of the table then.
#[test]
fn readers_and_followers_find_rows_that_move_to_an_attached_shard() -> TestResult {
    let dirs = dirs(Kind::Several)?;
    let (store, users) = original(&dirs)?;
    store.add_shard("d", "d")?;
    store.detach_shard("d")?;
    store.attach_shard("d", "d")?;
    store.move_range("users", 10u32..20, "d").run()?;
    check_others(&dirs, store, users)
}

/// The shard is attached with the files that an earlier transaction still uses, so the table is still open in it.
#[test]
fn readers_and_followers_find_rows_that_move_to_a_shard_that_was_attached_in_use() -> TestResult {
    let dirs = dirs(Kind::Several)?;
    let (store, users) = original(&dirs)?;
    let before = store.read()?;
    assert!(check_in(&before, &users)?);
    store.move_range("users", 10u32..20, "a").run()?;
    store.detach_shard("b")?;
    store.attach_shard("b", "b")?;
    assert!(check_in(&before, &users)?);
    drop(before);
    store.move_range("users", 10u32..20, "b").run()?;
    check_others(&dirs, store, users)
}
