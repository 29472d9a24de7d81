//! Followers of a store that grows: they go on without another copy of what they have.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use index_table::{Error, Follower, Result, Store};

use crate::{
    archived::{archived, opened},
    basic::{All, CustomerRepository, EventRepository, OrderRepository, customer},
};

/// A tenant whose customers are written besides the rows of `All`.
const TENANT: u32 = 600;

struct Dirs {
    _dir: tempfile::TempDir,
    shop: PathBuf,
    archive: PathBuf,
    standby: PathBuf,
}

impl Dirs {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        let (shop, archive, standby) = (path("shop"), path("archive"), path("standby"));
        Self { _dir: dir, shop, archive, standby }
    }

    /// Creates a store with an archive and all rows.
    fn create(&self) -> Result<(Store, All)> {
        let store = opened(&self.shop, &self.archive)?;
        let all = All::open(&store)?;
        all.fill(&store)?;
        archived(&store);
        Ok((store, all))
    }

    fn follow(&self) -> Result<Follower> {
        Follower::open(&self.standby, &self.archive)
    }

    /// Returns the identity of the first data file of the follower, which another copy would replace.
    fn first_file(&self) -> u64 {
        let file = fs::metadata(self.standby.join("data.mdb")).expect("a data file");
        #[cfg(unix)]
        return std::os::unix::fs::MetadataExt::ino(&file);
        #[cfg(not(unix))]
        u64::from(file.is_file())
    }

    /// Removes the base of the first data file from the archive, so that the archive can't be copied again.
    fn remove_first_base(&self) {
        let bases = fs::read_dir(&self.archive).expect("a directory");
        let bases = bases.map(|entry| entry.expect("an entry").path());
        let is_first = |base: &PathBuf| base.file_name().is_some_and(|it| it == "base.0000000001");
        let first: Vec<_> = bases.filter(is_first).collect();
        assert_eq!(first.len(), 1);
        fs::remove_file(first[0].join("data.mdb")).expect("a base");
    }
}

/// Inserts customers of the tenant, one in each transaction.
fn write(store: &Store, all: &All, ids: std::ops::Range<u64>) -> Result<()> {
    ids.into_iter().try_for_each(|id| {
        store.transaction(|txn| all.customers.insert(txn, &customer(TENANT, id)))
    })
}

/// Waits until a follower has the last commit of its original, and compares its rows.
fn compare(follower: &Follower, tables: &All, original: &Store, written: u64) -> Result<()> {
    archived(original);
    let (last, begun) = (original.read()?.commit_number(), Instant::now());
    while follower.store().read()?.commit_number() < last {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", follower.lag());
        thread::sleep(Duration::from_millis(5));
    }
    let lag = follower.lag()?;
    assert_eq!((lag.commits, lag.error), (0, None));
    let txn = follower.store().read()?;
    assert_eq!(tables.customers.all(&txn).rows().count() as u64, 300 + written);
    assert_eq!(tables.customers.find_by_tenant(&txn, TENANT).count()?, written);
    assert_eq!(tables.customers.find_by_tenant(&txn, 70).count()?, 3);
    assert_eq!(tables.orders.all(&txn).rows().count(), 100);
    assert_eq!(tables.events.all(&txn).rows().count(), 100);
    assert!(tables.codes.get(&txn, "98052")?.is_some());
    drop(txn);
    let report = follower.store().verify()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

/// Deletes the rows of the tenant in a promoted store, and compares the others.
fn promoted(dirs: &Dirs, follower: Follower, tables: All, written: u64) -> Result<()> {
    let check = |store: &Store, tables: &All| {
        let txn = store.read()?;
        let gone = tables.customers.find_by_tenant(&txn, TENANT).keys();
        let gone = gone.collect::<Result<Vec<_>>>()?;
        drop(txn);
        for key in gone {
            store.transaction(|txn| tables.customers.delete_key(txn, key))?;
        }
        tables.check(store)
    };
    let store = follower.promote()?;
    let count = tables.customers.find_by_tenant(&store.read()?, TENANT).count()?;
    assert_eq!(count, written);
    check(&store, &tables)?;
    store.add_shard("west", "west")?;
    store.move_range("customers", ..20u32, "west").run()?;
    check(&store, &tables)?;
    drop((store, tables));
    let store = opened(&dirs.standby, &dirs.archive)?;
    assert!(store.unavailable_shards().is_empty());
    All::open(&store)?.check(&store)?;
    archived(&store);
    Ok(())
}

#[test]
fn a_follower_stops_at_the_growth_and_goes_on_when_it_is_opened_again() -> Result<()> {
    let dirs = Dirs::new();
    let (store, all) = dirs.create()?;
    let follower = dirs.follow()?;
    let tables = All::open(follower.store())?;
    assert_eq!(tables.customers.all(&follower.store().read()?).count()?, 300);
    let file = dirs.first_file();

    store.add_shard("east", "east")?;
    store.move_range("customers", 50u32.., "east").run()?;
    archived(&store);
    let begun = Instant::now();
    loop {
        let counted = follower.store().read().and_then(|txn| tables.customers.all(&txn).count());
        match counted {
            Err(Error::ReopenNeeded { .. }) => break,
            counted => assert_eq!(counted?, 300),
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "the follower has not noticed it");
        thread::sleep(Duration::from_millis(5));
    }
    let begun = Instant::now();
    while follower.lag()?.error.is_none() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the lag has no error");
    }
    assert!(matches!(follower.promote(), Err(Error::NotInArchive { .. })));
    drop(tables);

    dirs.remove_first_base();
    for _ in 0..2 {
        let follower = dirs.follow()?;
        compare(&follower, &All::open(follower.store())?, &store, 0)?;
    }
    let follower = dirs.follow()?;
    let tables = All::open(follower.store())?;
    // It takes further shards by itself.
    store.add_shard("south", "south")?;
    store.move_range("customers", 70u32..80, "south").run()?;
    write(&store, &all, 0..10)?;
    compare(&follower, &tables, &store, 10)?;
    assert_eq!(tables.orders.shard_of(follower.store(), 75)?.name(), "south");
    assert_eq!(dirs.first_file(), file);
    drop((all, store));
    promoted(&dirs, follower, tables, 10)
}

#[test]
fn a_follower_that_was_behind_goes_on_after_the_growth() -> Result<()> {
    for round in 0..6_u64 {
        let dirs = Dirs::new();
        let (store, all) = dirs.create()?;
        drop(dirs.follow()?);
        let file = dirs.first_file();
        let behind = round * 7 % 11;
        write(&store, &all, 0..behind)?;
        if round == 3 {
            // The segments of before are complete.
            drop((all, store));
            drop(opened(&dirs.shop, &dirs.archive)?);
        } else {
            drop((all, store));
        }
        let store = opened(&dirs.shop, &dirs.archive)?;
        let all = All::open(&store)?;
        archived(&store);
        store.add_shard("east", "east")?;
        write(&store, &all, behind..20)?;
        store.move_range("customers", 50u32.., "east").run()?;
        if round % 2 == 1 {
            store.move_slots("events", ..2048, "east").run()?;
            store.add_shard("south", "south")?;
            store.move_range("customers", 60u32..90, "south").run()?;
            write(&store, &all, 20..25)?;
        }
        if round % 3 == 2 {
            let to = if round % 2 == 1 { "south" } else { "main" };
            store.move_range("customers", 50u32.., to).run()?;
            if round % 2 == 1 {
                store.move_slots("events", ..2048, "main").run()?;
            }
            store.remove_shard("east")?;
        }
        let written = if round % 2 == 1 { 25 } else { 20 };
        archived(&store);
        dirs.remove_first_base();
        // A process that was killed while it wrote the shard map manager has left this.
        fs::create_dir_all(dirs.standby.join(".shards.manager.partial/left")).expect("a directory");
        let follower = dirs.follow()?;
        let tables = All::open(follower.store())?;
        assert!(!dirs.standby.join(".shards.manager.partial").exists());
        compare(&follower, &tables, &store, written)?;
        drop((follower, tables));
        let follower = dirs.follow()?;
        let tables = All::open(follower.store())?;
        store.transaction(|txn| all.customers.insert(txn, &customer(TENANT, 100)))?;
        compare(&follower, &tables, &store, written + 1)?;
        assert_eq!(dirs.first_file(), file, "round {round}");
        drop((all, store));
        promoted(&dirs, follower, tables, written + 1)?;
    }
    Ok(())
}

/// Neither the original nor the archive has the table's shard map.
#[test]
fn a_follower_has_the_rows_of_a_table_that_was_not_opened_since_the_growth() -> Result<()> {
    let dirs = Dirs::new();
    let (store, all) = dirs.create()?;
    drop((store, all));
    let store = opened(&dirs.shop, &dirs.archive)?;
    archived(&store);
    drop(dirs.follow()?);
    store.add_shard("east", "east")?;
    archived(&store);
    dirs.remove_first_base();
    let follower = dirs.follow()?;
    let customers = CustomerRepository::open(follower.store())?;
    let orders = OrderRepository::open(follower.store())?;
    let events = EventRepository::open(follower.store())?;
    let check = || -> Result<()> {
        let txn = follower.store().read()?;
        let own = customer(70, 1);
        assert_eq!(customers.get_by_email(&txn, &own.email)?, Some(own));
        assert_eq!(customers.find_by_town(&txn, "town 1").rows().count(), 100);
        assert_eq!((orders.all(&txn).count()?, events.all(&txn).rows().count()), (100, 100));
        assert_eq!(orders.find_by_tenant(&txn, 70).count()?, 1);
        Ok(())
    };
    check()?;
    // The own records of the shards change.
    store.add_shard("south", "south")?;
    let begun = Instant::now();
    while follower.store().shard_ids().len() < 3 {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", follower.lag());
        thread::sleep(Duration::from_millis(5));
    }
    check()
}

#[test]
fn a_follower_is_copied_again_if_the_archive_has_a_gap_after_the_growth() -> Result<()> {
    let dirs = Dirs::new();
    let (store, all) = dirs.create()?;
    drop(dirs.follow()?);
    let file = dirs.first_file();
    store.add_shard("east", "east")?;
    store.move_range("customers", 50u32.., "east").run()?;
    store.detach_shard("east")?;
    store.attach_shard("east", "east")?;
    let follower = loop {
        archived(&store);
        match dirs.follow() {
            Err(Error::NotInArchive { .. }) => {}
            follower => break follower?,
        }
    };
    let tables = All::open(follower.store())?;
    compare(&follower, &tables, &store, 0)?;
    assert_ne!(dirs.first_file(), file);
    drop(all);
    Ok(())
}

/// Copies a directory, without the lock files of LMDB. Files are replaced.
fn copy_directory(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let to = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy_directory(&path, &to)?;
        } else if !path.ends_with("lock.mdb") {
            fs::copy(&path, to)?;
        }
    }
    Ok(())
}

/// Returns the complete segments of an archive, in order.
fn segments(archive: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(archive).expect("a directory").map(|it| it.expect("an entry").path());
    let is_segment = |path: &PathBuf| {
        let name = path.file_name().expect("a name").to_string_lossy();
        name.starts_with("segment.") && !name.ends_with(".part")
    };
    let mut segments: Vec<_> = paths.filter(is_segment).collect();
    segments.sort();
    segments
}

/// Each state of the archive from before the growth to after a move, in which a follower can be opened.
#[test]
fn a_follower_goes_on_from_each_part_of_the_growth() -> Result<()> {
    let dirs = Dirs::new();
    let (store, all) = dirs.create()?;
    drop(dirs.follow()?);
    drop((all, store));
    let manifest = fs::read(dirs.archive.join("manifest")).expect("a manifest");
    let before = segments(&dirs.archive).len();
    let store = opened(&dirs.shop, &dirs.archive)?;
    let all = All::open(&store)?;
    archived(&store);
    write(&store, &all, 0..2)?;
    store.add_shard("east", "east")?;
    write(&store, &all, 2..4)?;
    store.move_range("customers", 95u32.., "east").run()?;
    drop((all, store));
    let later = segments(&dirs.archive).split_off(before);
    let (mut refused, mut grown) = (0, 0);
    for (at, segment) in later.iter().enumerate() {
        let bytes = fs::read(segment).expect("a segment");
        for cut in (0..bytes.len()).step_by((bytes.len() / 8).max(1)) {
            let name = format!("{at} {cut}");
            let path = |kind: &str| dirs.shop.with_file_name(format!("{kind} {name}"));
            let of_cut = Dirs {
                _dir: tempfile::tempdir().expect("a directory"),
                shop: dirs.shop.clone(),
                archive: path("archive"),
                standby: path("standby"),
            };
            copy_directory(&dirs.archive, &of_cut.archive).expect("a copy");
            copy_directory(&dirs.standby, &of_cut.standby).expect("a copy");
            fs::write(of_cut.archive.join("manifest"), &manifest).expect("a manifest");
            for removed in later.iter().skip(at) {
                let name = removed.file_name().expect("a name");
                fs::remove_file(of_cut.archive.join(name)).expect("a segment");
            }
            let part = format!("{}.part", segment.file_name().expect("a name").display());
            fs::write(of_cut.archive.join(part), &bytes[..cut]).expect("a segment");
            let file = of_cut.first_file();
            for _ in 0..2 {
                match of_cut.follow() {
                    // It has the own record of the first shard, and the archive does not have the shard map manager.
                    Err(Error::NotInArchive { .. }) => refused += 1,
                    follower => {
                        let follower = follower?;
                        grown += u32::from(of_cut.standby.join("shards.manager").exists());
                        let lag = follower.lag()?;
                        assert_eq!((lag.commits, lag.error), (0, None), "{name}");
                    }
                }
            }
            copy_directory(&dirs.archive, &of_cut.archive).expect("a copy");
            let follower = of_cut.follow()?;
            let tables = All::open(follower.store())?;
            let txn = follower.store().read()?;
            assert_eq!(tables.customers.all(&txn).rows().count(), 304, "{name}");
            assert_eq!(tables.customers.find_by_tenant(&txn, TENANT).count()?, 4, "{name}");
            assert_eq!(tables.orders.all(&txn).rows().count(), 100, "{name}");
            assert!(follower.store().verify()?.is_clean(), "{name}");
            assert_eq!(follower.store().shard_ids().len(), 2, "{name}");
            assert_eq!(of_cut.first_file(), file, "{name}");
        }
    }
    assert!(refused > 0 && grown > 5, "{refused} refused, {grown} grown");
    Ok(())
}

const STANDBY: &str = "INDEX_TABLE_GROWTH_STANDBY";
const ARCHIVE: &str = "INDEX_TABLE_GROWTH_FOLLOWED";

/// The file whose appearance in the follower's directory the kill follows, and by how many microseconds.
const KILLS: [(&str, u64); 12] = [
    ("lock.mdb", 0),
    (".shards.manager.partial", 0),
    ("shards.manager", 0),
    ("shards.manager", 500),
    ("writer.lock", 0),
    ("writer.lock", 1000),
    ("writer.lock", 5000),
    (".shard.1.partial", 0),
    ("shard.1", 0),
    ("shard.1", 1000),
    ("shard.2", 0),
    ("shard.2", 10_000),
];

#[test]
fn a_follower_that_is_killed_while_it_grows_has_all_rows_afterwards() -> Result<()> {
    if let (Some(standby), Some(archive)) = (std::env::var_os(STANDBY), std::env::var_os(ARCHIVE)) {
        let follower = Follower::open(Path::new(&standby), Path::new(&archive))?;
        thread::sleep(Duration::from_secs(1));
        drop(follower);
        return Ok(());
    }
    let dirs = Dirs::new();
    let (store, all) = dirs.create()?;
    drop(dirs.follow()?);
    write(&store, &all, 0..5)?;
    store.add_shard("east", "east")?;
    store.move_range("customers", 50u32.., "east").run()?;
    store.add_shard("south", "south")?;
    store.move_range("customers", 80u32.., "south").run()?;
    write(&store, &all, 5..10)?;
    archived(&store);
    let (mut kills, mut kept) = (0, 0);
    for (round, (name, micros)) in KILLS.into_iter().enumerate() {
        let standby = dirs.standby.with_file_name(format!("standby {round}"));
        fs::create_dir(&standby).expect("a directory");
        for file in fs::read_dir(&dirs.standby).expect("a directory") {
            let path = file.expect("a file").path();
            let to = standby.join(path.file_name().expect("a name"));
            // LMDB creates its lock file.
            if !path.ends_with("lock.mdb") {
                fs::copy(&path, to).expect("a copy");
            }
        }
        let name_of_test =
            "followers::a_follower_that_is_killed_while_it_grows_has_all_rows_afterwards";
        let mut command = Command::new(std::env::current_exe().expect("a program"));
        command.args(["--exact", name_of_test, "--nocapture"]).stdout(Stdio::null());
        let mut child =
            command.env(STANDBY, &standby).env(ARCHIVE, &dirs.archive).spawn().expect("a process");
        let begun = Instant::now();
        // The first two names are there for a short time only.
        let is_there = || {
            let later = if name.starts_with(".shard.") { "shard.1" } else { "shards.manager" };
            standby.join(name).exists() || (name.starts_with('.') && standby.join(later).exists())
        };
        while !is_there() && child.try_wait().expect("a process").is_none() {
            assert!(begun.elapsed() < Duration::from_mins(1), "{name}");
        }
        thread::sleep(Duration::from_micros(micros));
        child.kill().expect("killed");
        kills += u32::from(!child.wait().expect("a process").success());
        let of_round = Dirs {
            _dir: tempfile::tempdir().expect("a directory"),
            shop: dirs.shop.clone(),
            archive: dirs.archive.clone(),
            standby,
        };
        let file = of_round.first_file();
        for _ in 0..2 {
            let follower = of_round.follow()?;
            compare(&follower, &All::open(follower.store())?, &store, 10)?;
        }
        let has_file = of_round.standby.join("shards.manager").exists();
        kept += u32::from(has_file && of_round.first_file() == file);
    }
    assert!(kills > 8, "{kills} kills");
    println!("{kept} of {kills} followers were kept");
    Ok(())
}
