//! Global indexes while a shard is detached and attached: they stay readable and unique.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use index_table::{Error, IndexTable, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

use crate::{directories::copied, opening::reason};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "several indexes may be global")]
#[table(name = "users", shard_by = part)]
#[index(email, unique, scope = "global")]
#[index(town, scope = "global")]
#[index(hash(text), unique, scope = "global", name = "text")]
#[index(street, scope = "global", consistency = "eventual")]
struct User {
    #[primary_key]
    part: u32,
    #[primary_key]
    id: u32,
    email: String,
    town: String,
    text: String,
    street: String,
}

fn user(part: u32, id: u32) -> User {
    let email = format!("{part}.{id}@example.com");
    let (town, street) = (format!("t{}", id % 7), format!("s{}", id % 5));
    User { part, id, text: format!("text of {email}"), email, town, street }
}

const IDS: u32 = 150;

/// The parts with rows; the last two are in shard `b`.
const PARTS: [u32; 4] = [1, 21, 11, 12];

fn opened(path: &Path) -> Result<(Store, UserRepository)> {
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..20).to("c", 20u32..);
    let options = Store::options().shard("a", "a").shard("b", "b").shard("c", "c");
    let store = options.map("users", map).open(path)?;
    let users = UserRepository::open(&store)?;
    Ok((store, users))
}

fn filled(path: &Path) -> Result<(Store, UserRepository)> {
    let (store, users) = opened(path)?;
    for part in PARTS {
        store.transaction(|txn| (0..IDS).try_for_each(|id| users.insert(txn, &user(part, id))))?;
    }
    Ok((store, users))
}

/// Checks that a snapshot has the rows of all parts, or of those outside of `b`, with all of their entries.
fn check(store: &Store, users: &UserRepository) -> Result<bool> {
    let txn = store.read()?;
    let keys: Vec<(u32, u32)> = users.all(&txn).keys().collect::<Result<_>>()?;
    let has_b = keys.iter().any(|(part, _)| *part == 11);
    let expected = if has_b { PARTS.len() } else { PARTS.len() - 2 };
    assert_eq!(keys.len(), expected * IDS as usize);
    let expected = keys.len() as u64;
    assert_eq!(users.by_email(&txn).count()?, expected);
    assert_eq!(users.by_email(&txn).rows().filter_map(Result::ok).count() as u64, expected);
    assert_eq!(users.by_town(&txn).count()?, expected);
    let of_town = keys.iter().filter(|(_, id)| id % 7 == 3).count();
    assert_eq!(users.find_by_town(&txn, "t3").count()?, of_town as u64);
    assert_eq!(users.find_by_town(&txn, "t3").page(1000)?.items.len(), of_town);
    for part in PARTS {
        let row = users.get_by_email(&txn, &user(part, 7).email)?;
        let of_row = users.get(&txn, part, 7);
        assert_eq!(row.is_some(), has_b || part != 11 && part != 12, "{part}: {of_row:?}");
        assert_eq!(users.get_by_text(&txn, &user(part, 7).text)?.is_some(), row.is_some());
    }
    Ok(has_b)
}

#[test]
fn global_indexes_stay_readable_and_unique_while_a_shard_is_detached_and_attached() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, users) = filled(&dir.path().join("shop"))?;
    let before = store.read()?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        let (store, users, is_over) = (&store, &users, &is_over);
        let reader = scope.spawn(move || -> Result<[u32; 2]> {
            let mut seen = [0, 0];
            while !is_over.load(SeqCst) {
                seen[usize::from(check(store, users)?)] += 1;
            }
            Ok(seen)
        });
        let writer = scope.spawn(move || -> Result<()> {
            for number in 0_u32.. {
                if is_over.load(SeqCst) {
                    break;
                }
                // The reader looks up the email of row 7, which is therefore never absent.
                let id = if number % IDS == 7 { 8 } else { number % IDS };
                let again = User { id: 100_000, ..user(1, 7) };
                let taken = store.transaction(|txn| users.insert(txn, &again));
                assert!(matches!(taken, Err(Error::UniqueViolation { .. })), "{taken:?}");
                let hashed = User { email: "other".to_owned(), ..again };
                let taken = store.transaction(|txn| users.insert(txn, &hashed));
                assert!(matches!(taken, Err(Error::UniqueViolation { .. })), "{taken:?}");
                store.transaction(|txn| {
                    users.update(txn, 21, id, |row| row.email = format!("moved {number}"))
                })?;
                store.transaction(|txn| users.put(txn, &user(21, id)))?;
            }
            Ok(())
        });
        let changed = (0..3).try_for_each(|_| {
            store.detach_shard("b")?;
            // A snapshot from before does not change what later snapshots find.
            assert!(users.get_by_email(&before, &user(11, 7).email)?.is_some());
            store.attach_shard("b", "b").map(drop)
        });
        is_over.store(true, SeqCst);
        writer.join().expect("no panic")?;
        let [without, with] = reader.join().expect("no panic")?;
        assert!(without > 0 && with > 0, "{without} {with}");
        changed
    })?;
    assert!(check(&store, &users)?);
    drop(before);
    let _worker = store.start_index_worker()?;
    let mut txn = store.write()?;
    users.update(&mut txn, 1, 0, |row| row.street.push('x'))?;
    let token = txn.commit_with_token()?;
    assert!(users.wait_for(&store, &token, Duration::from_mins(1))?);
    let report = store.verify()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

#[test]
fn a_key_of_a_detached_row_is_free_and_then_its_shard_is_refused_with_both_rows() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, users) = filled(&dir.path().join("shop"))?;
    store.detach_shard("b")?;
    for hashed in [false, true] {
        let mut other = User { id: 1000, ..user(1, 7) };
        if hashed {
            (other.email, other.text) = ("free".to_owned(), user(11, 7).text);
        } else {
            (other.email, other.text) = (user(11, 7).email, "free".to_owned());
        }
        store.transaction(|txn| users.insert(txn, &other))?;
        let refused = reason(store.attach_shard("b", "b"));
        for part in ["(11, 7)", "(1, 1000)", "`users`", if hashed { "`text`" } else { "`email`" }] {
            let part = part.trim_matches(['(', ')']);
            assert!(refused.contains(part), "{refused}");
        }
        // Nothing has changed: the shard is still a plain store, and its key belongs to the other row.
        let found = users.get_by_email(&store.read()?, &other.email)?;
        assert_eq!(found.map(|row| row.part), Some(1));
        assert!(matches!(users.get(&store.read()?, 11, 7), Err(Error::NoShard { .. })));
        assert!(store.verify()?.is_clean());
        store.transaction(|txn| users.delete(txn, 1, 1000))?;
    }
    store.attach_shard("b", "b")?;
    assert!(check(&store, &users)?);
    Ok(())
}

#[test]
fn a_shard_with_rows_of_a_closed_table_with_global_indexes_is_not_attached() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    let (store, users) = filled(&path)?;
    store.detach_shard("b")?;
    let other = User { id: 1000, ..user(1, 7) }.with_key_of_b();
    store.transaction(|txn| users.insert(txn, &other))?;
    drop((store, users));
    {
        let store = Store::open(&path)?;
        for _ in 0..2 {
            let refused = reason(store.attach_shard("b", "b"));
            assert!(
                refused.contains("open the repository") && refused.contains("`users`"),
                "{refused}"
            );
        }
        // The table is as before, and the error of the taken key names both rows.
        let users = UserRepository::open(&store)?;
        assert_eq!(users.get_by_email(&store.read()?, &other.email)?.as_ref(), Some(&other));
        let refused = reason(store.attach_shard("b", "b"));
        assert!(refused.contains("11, 7") && refused.contains("1, 1000"), "{refused}");
        store.transaction(|txn| users.delete(txn, 1, 1000))?;
        store.attach_shard("b", "b")?;
        assert!(check(&store, &users)?);
    }
    let (store, users) = opened(&path)?;
    assert!(check(&store, &users)?);
    // A closed table without rows in the shard does not matter.
    for part in [11, 12] {
        store
            .transaction(|txn| (0..IDS).try_for_each(|id| users.delete(txn, part, id).map(drop)))?;
    }
    store.detach_shard("b")?;
    drop((store, users));
    let store = Store::open(&path)?;
    store.attach_shard("b", "b")?;
    let users = UserRepository::open(&store)?;
    assert!(!check(&store, &users)?);
    assert!(store.verify()?.is_clean());
    Ok(())
}

#[test]
fn a_shard_that_could_not_be_attached_is_a_whole_plain_store() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    let (store, users) = filled(&path)?;
    store.detach_shard("b")?;
    store.transaction(|txn| users.insert(txn, &User { id: 1000, ..user(1, 7) }.with_key_of_b()))?;
    assert!(store.attach_shard("b", "b").is_err());
    drop((store, users));
    let plain = Store::open(path.join("b"))?;
    let users = UserRepository::open(&plain)?;
    assert!(users.get_by_email(&plain.read()?, &user(11, 7).email)?.is_some());
    assert_eq!(users.by_town(&plain.read()?).count()?, 2 * u64::from(IDS));
    assert!(plain.verify()?.is_clean());
    Ok(())
}

impl User {
    fn with_key_of_b(self) -> Self {
        Self { email: user(11, 7).email, text: "free".to_owned(), ..self }
    }
}

/// The directory of a store whose shard `b` this process has to detach and attach until it is killed.
const KILLED: &str = "INDEX_TABLE_HIDDEN";

#[test]
fn a_process_that_is_killed_while_it_detaches_or_attaches_leaves_whole_indexes() -> Result<()> {
    if let Some(path) = std::env::var_os(KILLED) {
        let (store, users) = opened(Path::new(&path))?;
        loop {
            if check(&store, &users)? {
                store.detach_shard("b")?;
            } else {
                store.attach_shard("b", "b")?;
            }
        }
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    drop(filled(&path)?);
    let (mut seen, begun) = ([0, 0], Instant::now());
    for round in 0_u64..24 {
        if begun.elapsed() > Duration::from_mins(1) {
            break;
        }
        let name =
            "hidden::a_process_that_is_killed_while_it_detaches_or_attaches_leaves_whole_indexes";
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", name, "--nocapture"])
            .env(KILLED, &path)
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        thread::sleep(Duration::from_millis(60 + round * 37 % 400));
        let ended = child.try_wait().expect("a status");
        assert!(ended.is_none(), "{ended:?}");
        child.kill().expect("killed");
        child.wait().expect("ended");
        if round % 2 == 0 {
            // It recovers the shards, unless a commit is in some of them only.
            drop(Store::options().read_only(true).open(&path));
        }
        let is_plain = Store::open(path.join("b")).is_ok();
        let (store, users) = opened(&path)?;
        assert!(store.unavailable_shards().is_empty());
        let has_b = check(&store, &users)?;
        assert!(!(is_plain && has_b), "a shard of the store was open for writing alone");
        seen[usize::from(has_b)] += 1;
        let report = store.verify()?;
        assert!(report.is_clean(), "{report}");
        // Its keys are free, and its shard can be attached.
        if !has_b {
            store.transaction(|txn| {
                users.insert(txn, &User { id: 1000, ..user(1, 7) }.with_key_of_b())?;
                users.delete(txn, 1, 1000)
            })?;
        }
    }
    assert!(seen[0] + seen[1] > 0);
    Ok(())
}

#[test]
fn a_backup_beside_detaching_and_attaching_has_a_shard_with_its_entries_or_not_at_all() -> Result<()>
{
    let dir = tempfile::tempdir().expect("a directory");
    let (store, users) = filled(&dir.path().join("shop"))?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        let (store, is_over) = (&store, &is_over);
        let changing = scope.spawn(move || -> Result<()> {
            while !is_over.load(SeqCst) {
                store.detach_shard("b")?;
                while let Err(error) = store.attach_shard("b", "b") {
                    assert!(
                        matches!(error, Error::ShardRefused { .. } | Error::Io { .. }),
                        "{error}"
                    );
                    thread::yield_now();
                }
            }
            Ok(())
        });
        let copies = (0..12).try_for_each(|number| -> Result<()> {
            let copy = dir.path().join(format!("copy.{number}"));
            store.backup_to(&copy)?;
            let copied = Store::open(&copy)?;
            assert!(copied.unavailable_shards().is_empty(), "{:?}", copied.unavailable_shards());
            let users = UserRepository::open(&copied)?;
            let has_b = check(&copied, &users)?;
            assert_eq!(copied.shard_ids().len(), if has_b { 3 } else { 2 });
            assert!(copied.verify()?.is_clean());
            Ok(())
        });
        is_over.store(true, SeqCst);
        changing.join().expect("no panic")?;
        copies
    })?;
    assert!(check(&store, &users)?);
    Ok(())
}

#[test]
fn a_snapshot_from_before_a_shard_was_detached_has_its_queue() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, users) = filled(&dir.path().join("shop"))?;
    let before = store.read()?;
    let all = PARTS.len() as u64 * u64::from(IDS);
    assert_eq!(users.lag(&before)?.messages, all);
    store.detach_shard("b")?;
    assert_eq!(users.lag(&before)?.messages, all);
    let report = users.verify(&before).run()?;
    assert!(report.is_clean(), "{report}");
    assert_eq!(users.lag(&store.read()?)?.messages, all / 2);
    Ok(())
}

/// The directory of a store that this process has to read.
const READ: &str = "INDEX_TABLE_HIDDEN_READ";

#[test]
fn another_process_reads_a_shard_with_its_entries_or_opens_the_store_again() -> Result<()> {
    if let Some(path) = std::env::var_os(READ) {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) {
            let read = || -> Result<()> {
                let store = Store::options().read_only(true).open(&path)?;
                let users = UserRepository::open(&store)?;
                while begun.elapsed() < Duration::from_secs(3) {
                    check(&store, &users)?;
                }
                Ok(())
            };
            match read() {
                // The last two: it was detached while the store was opened.
                Ok(())
                | Err(
                    Error::ReopenNeeded { .. }
                    | Error::ShardUnavailable { .. }
                    | Error::SchemaMismatch { .. },
                ) => {}
                Err(error) => panic!("{error}"),
            }
        }
        return Ok(());
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    let (store, _users) = filled(&path)?;
    let name = "hidden::another_process_reads_a_shard_with_its_entries_or_opens_the_store_again";
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", name, "--nocapture"])
        .env(READ, &path)
        .stdout(Stdio::null())
        .spawn()
        .expect("a process");
    let mut change = || -> Result<()> {
        while child.try_wait().expect("a status").is_none() {
            store.detach_shard("b")?;
            thread::sleep(Duration::from_millis(20));
            store.attach_shard("b", "b")?;
        }
        Ok(())
    };
    let changed = change();
    let status = child.wait().expect("a status");
    changed?;
    assert!(status.success(), "{status}");
    Ok(())
}

/// Leaves a store as if its process had ended in `change` between the write of the shard map manager and the commit.
fn end_before_the_commit(path: &Path, change: impl FnOnce(&Store) -> Result<()>) {
    let before = path.with_extension("before");
    copied(path, &before).expect("copied");
    let (store, users) = opened(path).expect("opened");
    change(&store).expect("changed");
    drop((store, users));
    fs::copy(path.join("data.mdb"), before.join("data.mdb")).expect("copied");
    fs::remove_dir_all(path).expect("removed");
    fs::rename(before, path).expect("renamed");
}

#[test]
fn a_process_that_ends_before_the_commit_of_a_detachment_leaves_the_shard_in_the_store()
-> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    drop(filled(&path)?);
    end_before_the_commit(&path, |store| store.detach_shard("b"));
    let store = Store::options().read_only(true).open(&path)?;
    assert!(check(&store, &UserRepository::open(&store)?)?);
    drop(store);
    for _ in 0..2 {
        let (store, users) = opened(&path)?;
        assert!(check(&store, &users)?);
        assert!(store.verify()?.is_clean());
    }
    let (store, users) = opened(&path)?;
    store.detach_shard("b")?;
    store.attach_shard("b", "b")?;
    assert!(check(&store, &users)?);
    Ok(())
}

#[test]
fn a_process_that_ends_before_the_commit_of_an_attachment_leaves_the_shard_detached() -> Result<()>
{
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    let (store, users) = filled(&path)?;
    store.detach_shard("b")?;
    drop((store, users));
    end_before_the_commit(&path, |store| store.attach_shard("b", "b").map(drop));
    let store = Store::options().read_only(true).open(&path)?;
    assert!(!check(&store, &UserRepository::open(&store)?)?);
    drop(store);
    for _ in 0..2 {
        let (store, users) = opened(&path)?;
        assert!(!check(&store, &users)?);
        assert!(store.verify()?.is_clean());
    }
    let plain = Store::open(path.join("b"))?;
    let rows = UserRepository::open(&plain)?.all(&plain.read()?).count()?;
    assert_eq!(rows, 2 * u64::from(IDS));
    drop(plain);
    let (store, users) = opened(&path)?;
    store.attach_shard("b", "b")?;
    assert!(check(&store, &users)?);
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "entries", shard_by = month)]
#[index(amount)]
struct Entry {
    #[primary_key]
    month: u32,
    #[primary_key]
    id: u32,
    amount: u32,
}

#[test]
fn a_table_whose_shards_are_all_detached_opens_without_rows_and_gets_further_keys() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("log");
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..);
    let options = Store::options().shard("spare", "spare").shard("a", "a").shard("b", "b");
    let store = options.map("entries", map).open(&path)?;
    let entries = EntryRepository::open(&store)?;
    store.transaction(|txn| entries.insert(txn, &Entry { month: 1, id: 1, amount: 5 }))?;
    store.detach_shard("a")?;
    store.detach_shard("b")?;
    drop((store, entries));
    let store = Store::options().read_only(true).open(&path)?;
    match EntryRepository::open(&store) {
        Ok(entries) => assert_eq!(entries.all(&store.read()?).count()?, 0),
        Err(error) => assert!(matches!(error, Error::SchemaMismatch { .. }), "{error}"),
    }
    drop(store);
    let store = Store::open(&path)?;
    let entries = EntryRepository::open(&store)?;
    assert_eq!(entries.all(&store.read()?).count()?, 0);
    assert_eq!(entries.find_by_amount(&store.read()?, 5).count()?, 0);
    assert!(matches!(entries.get(&store.read()?, 1, 1), Err(Error::NoShard { .. })));
    store.move_range("entries", 20u32.., "spare").run()?;
    store.transaction(|txn| entries.insert(txn, &Entry { month: 20, id: 1, amount: 5 }))?;
    store.attach_shard("a", "a")?;
    assert_eq!(entries.find_by_amount(&store.read()?, 5).count()?, 2);
    assert!(store.verify()?.is_clean());
    Ok(())
}
