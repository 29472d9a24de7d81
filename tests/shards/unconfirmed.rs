//! Openings after a process was killed before the commit that detaches, removes or attaches a shard.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Mutex,
    thread,
    time::Duration,
};

use index_table::{Error, IndexTable, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

use crate::{random_local::random_together::copy, verify_global::raw};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "members", shard_by = tenant)]
#[index(computed(email: String), unique, scope = "global", name = "email")]
struct Member {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
}

/// More rows than a batch of `attach_shard` has.
const IDS: u32 = 1100;

/// A store that is copied when the key of the last row of tenant 11 is computed the first time, and the copy. Later, it is also
/// computed after the commit.
static COPIED: Mutex<Option<(PathBuf, PathBuf)>> = Mutex::new(None);

impl Member {
    fn email(&self) -> String {
        if (self.tenant, self.id) == (11, IDS - 1)
            && let Some((from, to)) = COPIED.lock().expect("no panic").take()
        {
            copy_at_one_moment(&from, &to);
        }
        format!("{}.{}", self.tenant, self.id)
    }
}

/// Copies files that checkpoints in the background may change meanwhile, until two copies are equal.
fn copy_at_one_moment(from: &Path, to: &Path) {
    let mut before = BTreeMap::new();
    loop {
        let _ = fs::remove_dir_all(to);
        copy(from, to).expect("a copy");
        let copied = contents(to);
        if copied == before {
            return;
        }
        before = copied;
    }
}

fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).expect("entries") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.append(&mut contents(&path));
        } else {
            let bytes = fs::read(&path).expect("a file");
            files.insert(path, bytes);
        }
    }
    files
}

fn opened(path: &Path) -> Result<(Store, MemberRepository)> {
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..);
    let store = Store::options().shard("a", "a").shard("b", "b").map("members", map).open(path)?;
    let members = MemberRepository::open(&store)?;
    Ok((store, members))
}

fn filled(path: &Path) -> Result<(Store, MemberRepository)> {
    let (store, members) = opened(path)?;
    store.transaction(|txn| {
        (0..IDS).try_for_each(|id| {
            members.insert(txn, &Member { tenant: 1, id })?;
            members.insert(txn, &Member { tenant: 11, id })
        })
    })?;
    Ok((store, members))
}

/// Gives a copy the shard map manager of the store, as it was before the commit that changed shard `b`.
fn before_commit(store: &Path, copied: &Path) {
    fs::copy(store.join("data.mdb"), copied.join("data.mdb")).expect("copied");
    unconfirm(copied);
}

/// Makes the state of shard `b` in a shard map manager one that is not confirmed. Fails if it is not confirmed already.
fn unconfirm(store: &Path) {
    raw(store, "", ".shards", |records, txn| {
        let (key, mut record) = (b"shard.\0\0\0\x01", Vec::new());
        record.extend_from_slice(records.get(txn, key)?.expect("the record of the shard"));
        // The last byte is the number of options.
        assert_eq!(record.pop(), Some(0));
        record.extend_from_slice(b"\x01\x0bunconfirmed\x01");
        records.put(txn, key, &record)
    })
    .expect("written");
    fs::remove_file(store.join("lock.mdb")).expect("removed");
}

fn check(path: &Path, tenants: &[u32]) -> Result<()> {
    let store = Store::open(path)?;
    let members = MemberRepository::open(&store)?;
    assert_eq!(store.shard_ids().len(), tenants.len());
    let txn = store.read()?;
    assert_eq!(members.all(&txn).count()?, u64::from(IDS) * tenants.len() as u64);
    assert_eq!(members.by_email(&txn).count()?, u64::from(IDS) * tenants.len() as u64);
    for tenant in [1, 11] {
        let found = members.get_by_email(&txn, &format!("{tenant}.7"))?;
        assert_eq!(found.is_some(), tenants.contains(&tenant));
    }
    drop(txn);
    let report = store.verify()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

/// Returns how often the store has announced to readers that a shard was replaced.
fn replaced(path: &Path) -> Vec<u8> {
    fs::read(path.join("writer.lock")).expect("the lock file").split_off(16)
}

#[test]
fn a_shard_that_was_not_attached_stays_detached_after_an_opening_without_it() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, copied) = (dir.path().join("shop"), dir.path().join("copied"));
    let (store, members) = filled(&path)?;
    store.detach_shard("b")?;
    *COPIED.lock().expect("no panic") = Some((path.clone(), copied.clone()));
    store.attach_shard("b", "b")?;
    assert!(COPIED.lock().expect("no panic").is_none(), "copied");
    drop((store, members));
    // Its tables were checked in the commit.
    let before = replaced(&path);
    check(&path, &[1, 11])?;
    assert_eq!(replaced(&path), before);
    before_commit(&path, &copied);
    for is_missing in [false, true] {
        let killed = dir.path().join(format!("killed.{is_missing}"));
        copy(&copied, &killed).expect("a copy");
        if is_missing {
            fs::rename(killed.join("b"), dir.path().join("away")).expect("renamed");
            check(&killed, &[1])?;
            fs::rename(dir.path().join("away"), killed.join("b")).expect("renamed");
        } else {
            let store = Store::options().only(["a"]).open(&killed)?;
            let members = MemberRepository::open(&store)?;
            assert_eq!(members.all(&store.read()?).count()?, u64::from(IDS));
        }
        check(&killed, &[1])?;
        let store = Store::open(&killed)?;
        let members = MemberRepository::open(&store)?;
        store.attach_shard("b", "b")?;
        drop((store, members));
        check(&killed, &[1, 11])?;
    }
    Ok(())
}

#[test]
fn a_shard_that_was_not_removed_is_not_left_out_while_it_is_missing() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, killed) = (dir.path().join("shop"), dir.path().join("killed"));
    let (store, members) = filled(&path)?;
    drop((store, members));
    copy(&path, &killed).expect("a copy");
    let (store, members) = opened(&path)?;
    store.detach_shard("b")?;
    drop((store, members));
    before_commit(&path, &killed);
    fs::rename(killed.join("b"), dir.path().join("away")).expect("renamed");
    for options in
        [Store::options(), Store::options().read_only(true), Store::options().only(["a"])]
    {
        let refused = options.open(&killed).map(drop);
        let Err(Error::ShardUnavailable { shard, reason }) = refused else {
            panic!("{refused:?}");
        };
        assert!(shard == "b" && reason.contains("put the directory back"), "{shard}: {reason}");
    }
    fs::rename(dir.path().join("away"), killed.join("b")).expect("renamed");
    check(&killed, &[1, 11])?;
    check(&killed, &[1, 11])
}

/// The commit that removed the shard was lost after the manager had confirmed it, such as in a power failure with a weaker
/// durability.
#[test]
fn a_shard_whose_record_cannot_be_read_is_not_left_out() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, lost) = (dir.path().join("shop"), dir.path().join("lost"));
    drop(filled(&path)?);
    copy(&path, &lost).expect("a copy");
    let (store, members) = opened(&path)?;
    store.detach_shard("b")?;
    drop((store, members));
    fs::copy(path.join("data.mdb"), lost.join("data.mdb")).expect("copied");
    let (place, away) = (lost.join("b"), dir.path().join("away"));
    copy(&place, &away).expect("a copy");

    let data = place.join("data.mdb");
    let link_to_itself = || std::os::unix::fs::symlink(&place, &place);
    let directory = || fs::create_dir(&place).and_then(|()| fs::create_dir(&data));
    let other_file = || fs::create_dir(&place).and_then(|()| fs::write(&data, [7; 1 << 14]));
    let damaged_record = || {
        copy(&away, &place).expect("a copy");
        raw(&lost, "b", ".shard", |records, txn| {
            let keys = records.iter(txn)?.map(|record| record.map(|(key, _)| key.to_vec()));
            let keys = keys.collect::<heed::Result<Vec<_>>>()?;
            keys.iter().try_for_each(|key| records.put(txn, key, &[255]))
        })
        .expect("damaged");
        Ok(())
    };
    let damages: [&dyn Fn() -> std::io::Result<()>; 4] =
        [&link_to_itself, &directory, &other_file, &damaged_record];
    for damage in damages {
        fs::remove_dir_all(&place).expect("removed");
        damage().expect("damaged");
        for options in
            [Store::options(), Store::options().read_only(true), Store::options().only(["a"])]
        {
            let refused = options.open(&lost).map(|store| store.shard_ids());
            let Err(Error::ShardUnavailable { shard, reason }) = refused else {
                panic!("{refused:?}");
            };
            assert!(shard == "b" && reason.contains("can't be read"), "{shard}: {reason}");
        }
    }
    fs::remove_dir_all(&place).expect("removed");
    copy(&away, &place).expect("a copy");
    check(&lost, &[1, 11])
}

#[test]
fn a_change_whose_confirmation_has_failed_is_confirmed_by_the_next_opening() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    drop(filled(&path)?);
    let (detached, whole): (&[u32], &[u32]) = (&[1], &[1, 11]);
    for tenants in [detached, whole, detached] {
        let store = Store::open(&path)?;
        let members = MemberRepository::open(&store)?;
        if tenants == whole {
            store.attach_shard("b", "b")?;
        } else {
            store.detach_shard("b")?;
        }
        drop((store, members));
        // As if the second write of the manager had failed. After each opening, the state is confirmed.
        for _ in 0..2 {
            unconfirm(&path);
            check(&path, tenants)?;
        }
        // A reader takes the state of the other shards.
        unconfirm(&path);
        let store = Store::options().read_only(true).open(&path)?;
        assert_eq!(store.shard_ids().len(), tenants.len());
        drop(store);
        check(&path, tenants)?;
    }
    Ok(())
}

/// Whether the state of shard `b` is not confirmed in a shard map manager. Removes its lock file.
fn is_unconfirmed(store: &Path) -> bool {
    let mut found = false;
    raw(store, "", ".shards", |records, txn| {
        let record = records.get(txn, b"shard.\0\0\0\x01")?.expect("the record of the shard");
        found = record.ends_with(b"\x0bunconfirmed\x01");
        Ok(())
    })
    .expect("read");
    fs::remove_file(store.join("lock.mdb")).expect("removed");
    found
}

const SHOP: &str = "INDEX_TABLE_UNCONFIRMED_SHOP";
const IS_ATTACHED: &str = "INDEX_TABLE_UNCONFIRMED_IS_ATTACHED";

/// Kills a process that detaches or attaches shard `b` when it has written the manager, until one has not confirmed the state.
/// Returns its store.
fn killed(whole: &Path, dir: &Path, name: &str, is_attached: bool) -> PathBuf {
    let first_pages = |path: &Path| {
        let manager = fs::read(path.join("data.mdb")).expect("the manager");
        (manager[..8192].to_vec(), manager.windows(11).any(|bytes| bytes == b"unconfirmed"))
    };
    // The pages of an earlier, confirmed change are still in the file.
    let was_named = first_pages(whole).1;
    // About one in forty processes is killed in time.
    for round in 0..1000 {
        let path = dir.join(format!("{is_attached}.{round}"));
        copy(whole, &path).expect("a copy");
        let mut command = Command::new(std::env::current_exe().expect("a program"));
        command.args(["--exact", name]).env(SHOP, &path).stdout(Stdio::null());
        if is_attached {
            command.env(IS_ATTACHED, "1");
        }
        let mut child = command.spawn().expect("a process");
        let mut is_running = || child.try_wait().expect("a process").is_none();
        while !path.join("ready").exists() && is_running() {
            thread::sleep(Duration::from_millis(1));
        }
        // The pages of the manager are written first, and then one of the two first pages, which makes them valid.
        let (mut before, mut is_named) = first_pages(&path);
        while is_running() {
            let (now, now_named) = first_pages(&path);
            if now != before && (is_named || was_named) {
                break;
            }
            (before, is_named) = (now, now_named);
        }
        child.kill().expect("killed");
        child.wait().expect("a process");
        if is_unconfirmed(&path) {
            return path;
        }
        fs::remove_dir_all(path).expect("removed");
    }
    panic!("no process was killed before it had confirmed the state");
}

#[test]
fn a_killed_process_leaves_a_state_that_is_not_confirmed_and_that_the_next_opening_corrects()
-> Result<()> {
    if let Some(path) = std::env::var_os(SHOP) {
        let path = Path::new(&path);
        let store = Store::open(path)?;
        let _members = MemberRepository::open(&store)?;
        fs::write(path.join("ready"), "").expect("a file");
        return if std::env::var_os(IS_ATTACHED).is_some() {
            store.attach_shard("b", "b").map(drop)
        } else {
            store.detach_shard("b")
        };
    }
    let name = "unconfirmed::a_killed_process_leaves_a_state_that_is_not_confirmed_and_that_the_next_opening_corrects";
    let dir = tempfile::tempdir().expect("a directory");
    let whole = dir.path().join("whole");
    drop(filled(&whole)?);
    for is_attached in [false, true] {
        if is_attached {
            let (store, members) = opened(&whole)?;
            store.detach_shard("b")?;
            drop((store, members));
        }
        let killed = killed(&whole, dir.path(), name, is_attached);
        let (opens, away) = (dir.path().join(format!("opens.{is_attached}")), killed.join("away"));
        copy(&killed, &opens).expect("a copy");
        let has_b = Store::open(&opens)?.shard("b").is_ok();
        let tenants: &[u32] = if has_b { &[1, 11] } else { &[1] };
        check(&opens, tenants)?;
        check(&opens, tenants)?;
        // While the directory of the shard is missing, the store is not opened without its rows.
        fs::rename(killed.join("b"), &away).expect("renamed");
        match Store::open(&killed) {
            Err(Error::ShardUnavailable { shard, .. }) => assert!(shard == "b" && has_b),
            store => {
                let is_lost = !store?.unavailable_shards().is_empty();
                assert_eq!(is_lost, has_b, "{is_attached}");
            }
        }
        fs::rename(&away, killed.join("b")).expect("renamed");
        check(&killed, tenants)?;
    }
    Ok(())
}
