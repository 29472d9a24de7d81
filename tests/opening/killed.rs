//! Processes that are killed while they open a store, and processes that wait for them.

use std::{
    fs::{self, File},
    os::fd::AsRawFd,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use index_table::{Durability, Error, Store};

use super::{TestResult, plain, support::await_blocked_process};

const ROWS: u32 = 50;

/// Opens a store that several processes write.
fn open(path: &Path) -> index_table::Result<Store> {
    Store::options().durability(Durability::Full).open(path)
}

fn insert(path: &Path, id: u32) -> index_table::Result<()> {
    let store = open(path)?;
    let people = plain::PersonRepository::open(&store)?;
    store.transaction(|txn| people.insert(txn, &plain::person(id)))
}

fn in_another_process(name: &str, role: &str, path: &Path) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(["--exact", &format!("killed::{name}"), "--nocapture"])
        .env("INDEX_TABLE_OTHER_PROCESS", path)
        .env("INDEX_TABLE_ROLE", role)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

fn as_other_process() -> Option<(PathBuf, String)> {
    Some((
        std::env::var_os("INDEX_TABLE_OTHER_PROCESS")?.into(),
        std::env::var("INDEX_TABLE_ROLE").ok()?,
    ))
}

/// Takes the lock that the first opening process takes, and brings the lock file into a state before LMDB has
/// initialized it.
fn begin_to_open(path: &Path, state: &str) -> TestResult {
    let lock = File::options().read(true).write(true).open(path.join("lock.mdb"))?;
    let range = libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 1,
        l_pid: 0,
    };
    #[expect(unsafe_code, reason = "a call of the operating system")]
    // SAFETY: the file is open, and `range` is only read.
    let locked = unsafe { libc::fcntl(lock.as_raw_fd(), libc::F_SETLK, &raw const range) };
    assert_eq!(locked, 0);
    match state {
        "empty" => lock.set_len(0)?,
        "zeros" => lock.write_all_at(&[0; 64], 0)?,
        // After a number and a format of four bytes each.
        _ => lock.write_all_at(&[0; 8], 8)?,
    }
    fs::write(path.join("started"), "")?;
    loop {
        thread::sleep(Duration::from_mins(1));
    }
}

fn make(path: &Path) -> TestResult {
    for id in 0..ROWS {
        insert(path, id)?;
    }
    Ok(())
}

fn await_file(file: &Path) {
    while !file.exists() {
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn processes_that_wait_for_a_killed_opener_open_the_store() -> TestResult {
    const NAME: &str = "processes_that_wait_for_a_killed_opener_open_the_store";
    if let Some((path, role)) = as_other_process() {
        return match role.parse() {
            Ok(id) => Ok(insert(&path, id)?),
            Err(_) => begin_to_open(&path, &role),
        };
    }
    for state in ["empty", "zeros", "no transaction"] {
        let dir = tempfile::tempdir()?;
        make(dir.path())?;
        let mut killed = in_another_process(NAME, state, dir.path())?;
        await_file(&dir.path().join("started"));
        let waiting: Vec<Child> = (ROWS..ROWS + 3)
            .map(|id| in_another_process(NAME, &id.to_string(), dir.path()))
            .collect::<Result<_, _>>()?;
        for child in &waiting {
            await_blocked_process(child.id());
        }
        killed.kill()?;
        killed.wait()?;
        for child in waiting {
            let output = child.wait_with_output()?;
            let said = [output.stdout, output.stderr].concat();
            assert!(output.status.success(), "{state}: {}", String::from_utf8_lossy(&said));
        }
        let store = open(dir.path())?;
        store.check()?;
        let people = plain::PersonRepository::open(&store)?;
        let txn = store.read()?;
        let ids = people.all(&txn).keys().collect::<Result<Vec<_>, _>>()?;
        assert_eq!(ids, (0..ROWS + 3).collect::<Vec<_>>(), "{state}");
    }
    Ok(())
}

/// After the killed process, a program without this crate has opened the store and keeps it open.
#[test]
fn a_lock_file_that_stays_unusable_is_named() -> TestResult {
    const NAME: &str = "a_lock_file_that_stays_unusable_is_named";
    if let Some((path, role)) = as_other_process() {
        if role != "other" {
            return begin_to_open(&path, &role);
        }
        #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
        // SAFETY: the environment is not used.
        let _env = unsafe { heed::EnvOpenOptions::new().open(&path)? };
        fs::write(path.join("opened"), "")?;
        thread::sleep(Duration::from_mins(1));
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    make(dir.path())?;
    let mut killed = in_another_process(NAME, "no transaction", dir.path())?;
    await_file(&dir.path().join("started"));
    let mut other = in_another_process(NAME, "other", dir.path())?;
    await_blocked_process(other.id());
    killed.kill()?;
    killed.wait()?;
    await_file(&dir.path().join("opened"));
    let result = insert(dir.path(), ROWS);
    let Err(Error::LockFile { path, .. }) = &result else {
        return Err(format!("{result:?}").into());
    };
    assert_eq!(*path, dir.path().canonicalize()?);
    other.kill()?;
    other.wait()?;
    insert(dir.path(), ROWS)?;
    Ok(open(dir.path())?.check()?)
}
