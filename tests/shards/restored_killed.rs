//! A process that is killed while it restores a lost shard.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use index_table::{Error, IndexTable, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

use crate::directories::copied;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "countries", reference)]
struct Country {
    #[primary_key]
    code: u32,
    name: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "members", shard_by = tenant)]
#[allow(clippy::duplicated_attributes, reason = "several indexes may be global")]
#[index(email, unique, scope = "global")]
#[index(town, scope = "global")]
struct Member {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    email: String,
    town: u32,
}

const IDS: u32 = 40;

/// The backup has the first version of the row, the store the second.
fn member(tenant: u32, id: u32, version: u32) -> Member {
    Member { tenant, id, email: format!("{tenant}.{id}.{version}"), town: id % 3 + version * 10 }
}

fn countries(store: &Store, version: u32) -> Result<()> {
    let countries = CountryRepository::open(store)?;
    store.transaction(|txn| {
        (version..version + 5).try_for_each(|code| {
            countries.put(txn, &Country { code, name: format!("{code}, version {version}") })
        })?;
        if version == 1 { countries.delete(txn, 0).map(drop) } else { Ok(()) }
    })
}

/// Creates a store with two shards, and a backup. Then both shards get other rows, and shard `b` is lost.
fn create(shop: &Path, backup: &Path) -> Result<()> {
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..);
    let options = Store::options().shard("a", "a").shard("b", "b").map("members", map);
    let store = options.open(shop)?;
    let members = MemberRepository::open(&store)?;
    for version in 0..2 {
        countries(&store, version)?;
        store.transaction(|txn| {
            [1, 11].into_iter().try_for_each(|tenant| {
                (0..IDS).try_for_each(|id| members.put(txn, &member(tenant, id, version)))
            })
        })?;
        if version == 0 {
            store.backup_to(backup)?;
        }
    }
    drop((store, members));
    fs::remove_dir_all(shop.join("b")).expect("removed");
    Ok(())
}

fn restore(store: &Store, backup: &Path) -> Result<()> {
    let _countries = CountryRepository::open(store)?;
    store.restore_shard(&store.shard("b")?, backup.join("shard.1"))
}

/// Restores the shard in this process, while the repository of the members is open or not.
fn child(work: &Path, is_open: bool) -> Result<()> {
    let store = Store::open(work.join("shop"))?;
    let _members = is_open.then(|| MemberRepository::open(&store)).transpose()?;
    restore(&store, &work.join("backup"))
}

/// Checks what another process can read.
fn check_reader(shop: &Path) -> Result<()> {
    let store = Store::options().read_only(true).open(shop)?;
    if !store.unavailable_shards().is_empty() {
        return Ok(());
    }
    if let Ok(countries) = CountryRepository::open(&store) {
        for shard in store.shard_ids() {
            assert_eq!(countries.all(&store.read_on(&shard)?).count()?, 5);
        }
    }
    let Ok(members) = MemberRepository::open(&store) else { return Ok(()) };
    let txn = store.read()?;
    for id in 0..IDS {
        for (tenant, version, is_there) in [(1, 1, true), (11, 0, true), (11, 1, false)] {
            match members.get_by_email(&txn, &member(tenant, id, version).email) {
                Ok(found) => assert_eq!(found, is_there.then(|| member(tenant, id, version))),
                Err(Error::IndexNotReadable { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Checks that the store has the restored shard with everything that depends on it.
fn check(store: &Store) -> Result<()> {
    let countries = CountryRepository::open(store)?;
    let members = MemberRepository::open(store)?;
    let txn = store.read()?;
    let number = txn.commit_number().to_string();
    let number = number.split('.').nth(1).and_then(|number| number.parse::<u64>().ok());
    assert!(number > Some(1 << 40), "the restored shard can have this number again: {number:?}");
    for shard in store.shard_ids() {
        let rows: Vec<_> = countries.all(&store.read_on(&shard)?).rows().collect::<Result<_>>()?;
        assert!(rows.iter().map(|row| row.code).eq(1..6), "{rows:?}");
        assert!(rows.iter().all(|row| row.name.ends_with("version 1")), "{rows:?}");
    }
    for id in 0..IDS {
        for (tenant, version, is_there) in
            [(1, 0, false), (1, 1, true), (11, 0, true), (11, 1, false)]
        {
            let row = member(tenant, id, version);
            let found = members.get_by_email(&txn, &row.email)?;
            assert_eq!(found, is_there.then(|| row.clone()));
        }
    }
    assert_eq!(members.by_email(&txn).count()?, u64::from(2 * IDS));
    let of_towns: u64 =
        (0..3).map(|town| members.find_by_town(&txn, town).count()).sum::<Result<_>>()?;
    assert_eq!(of_towns, u64::from(IDS));
    drop(txn);
    for id in 0..IDS {
        for (tenant, version) in [(1, 1), (11, 0)] {
            let again = Member { id: 1000, tenant: 12, ..member(tenant, id, version) };
            let taken = store.transaction(|txn| members.insert(txn, &again));
            assert!(matches!(taken, Err(Error::UniqueViolation { .. })), "{taken:?}");
        }
    }
    let report = store.verify()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

const WORK: &str = "INDEX_TABLE_RESTORED_WORK";
const IS_OPEN: &str = "INDEX_TABLE_RESTORED_IS_OPEN";

#[test]
fn a_process_that_is_killed_while_it_restores_a_shard_leaves_no_wrong_results() -> Result<()> {
    if let Some(work) = std::env::var_os(WORK) {
        return child(Path::new(&work), std::env::var_os(IS_OPEN).is_some());
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (whole, mut kills) = (dir.path().join("whole"), 0);
    create(&whole.join("shop"), &whole.join("backup"))?;
    // The delays after the directory has appeared.
    for (round, millis) in [0, 0, 1, 3, 8, 30].into_iter().enumerate() {
        let work = dir.path().join(round.to_string());
        copied(&whole, &work).expect("a copy");
        let (shop, place) = (work.join("shop"), work.join("shop/b"));
        let name = "restored_killed::a_process_that_is_killed_while_it_restores_a_shard_leaves_no_wrong_results";
        let mut command = Command::new(std::env::current_exe().expect("a program"));
        command.args(["--exact", name]).env(WORK, &work);
        if round % 2 == 0 {
            command.env(IS_OPEN, "1");
        }
        let mut child = command.stdout(Stdio::null()).spawn().expect("a process");
        let begun = Instant::now();
        while !place.exists() && child.try_wait().expect("a process").is_none() {
            assert!(begun.elapsed() < Duration::from_mins(1), "the shard was not restored");
        }
        thread::sleep(Duration::from_millis(millis));
        child.kill().expect("killed");
        kills += u32::from(!child.wait().expect("a process").success());
        check_reader(&shop)?;
        let store = Store::open(&shop)?;
        if !store.unavailable_shards().is_empty() {
            restore(&store, &work.join("backup"))?;
        }
        check(&store)?;
        drop(store);
        check(&Store::open(&shop)?)?;
        let names = fs::read_dir(&shop).expect("a directory");
        let mut names = names.map(|it| it.expect("an entry").file_name());
        assert!(names.all(|name| !name.as_encoded_bytes().starts_with(b".")), "a copy is left");
    }
    assert!(kills > 0);
    Ok(())
}

#[test]
fn the_copies_that_killed_processes_have_left_are_removed() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    create(&shop, &backup)?;
    let others = [".a.restored", ".b", ".b.restored.txt", ".bb.restored"];
    let store = Store::open(&shop)?;
    leave_directories(&shop, COPIES.into_iter().chain(others));
    restore(&store, &backup)?;
    check(&store)?;
    assert_eq!(hidden_names(&shop), others);
    Ok(())
}

#[test]
fn an_opening_with_the_shard_removes_the_copies_that_killed_processes_have_left() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (shop, backup) = (dir.path().join("shop"), dir.path().join("backup"));
    create(&shop, &backup)?;
    let (others, place) = ([".b", ".b.restored.txt", ".bb.restored"], shop.join("b"));
    let left = || COPIES.into_iter().chain([".manager.partial"]);
    leave_directories(&shop, left().chain(others));
    let all = hidden_names(&shop);
    // Another process must not remove what this store restores.
    drop(Store::options().read_only(true).open(&shop)?);
    assert_eq!(hidden_names(&shop), all);
    // While the shard is lost, it can be in the list of another store, whose process restores it.
    drop(Store::open(&shop)?);
    let copies: Vec<_> = all.iter().filter(|name| *name != ".manager.partial").cloned().collect();
    assert_eq!(hidden_names(&shop), copies);
    // The directory of the shard is back.
    let store = Store::open(&shop)?;
    restore(&store, &backup)?;
    drop(store);
    leave_directories(&shop, left());
    drop(Store::options().read_only(true).open(&shop)?);
    assert_eq!(hidden_names(&shop), all);
    let away = dir.path().join("away");
    fs::rename(&place, &away).expect("renamed");
    drop(Store::open(&shop)?);
    assert_eq!(hidden_names(&shop), copies);
    fs::rename(&away, &place).expect("renamed");
    check(&Store::open(&shop)?)?;
    assert_eq!(hidden_names(&shop), others);
    Ok(())
}

const COPIES: [&str; 2] = [".b.restored", "..b.restored.123-0.partial"];

fn leave_directories<'n>(shop: &Path, names: impl Iterator<Item = &'n str>) {
    for name in names {
        fs::create_dir(shop.join(name)).expect("a directory");
        fs::write(shop.join(name).join("data.mdb"), "a part").expect("a file");
    }
}

/// Returns the names that begin with a dot.
fn hidden_names(shop: &Path) -> Vec<String> {
    let names = fs::read_dir(shop).expect("a directory");
    let names = names.map(|it| it.expect("an entry").file_name().into_string().expect("a name"));
    let mut names: Vec<_> = names.filter(|name| name.starts_with('.')).collect();
    names.sort();
    names
}
