//! Followers of a store to which shards are added: they take these shards without another copy of the others.

use std::{fs, path::Path};

use index_table::{Error, Follower, IndexTable, Store};
use serde::{Deserialize, Serialize};

use crate::{
    Dirs, Kind, OrderRepository, Rows, TestResult,
    changed_shards::{bases, file_of, hide_bases, original, segments, wait_for_error},
    dirs, rows_of, wait, wait_for, wait_for_archive, write,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "topics", reference)]
struct Topic {
    #[primary_key]
    number: u8,
    name: String,
}

fn topic(number: u8) -> Topic {
    Topic { number, name: format!("topic {number}") }
}

/// Returns numbers by which the data files of the first shards are recognized.
fn files(dirs: &Dirs) -> std::io::Result<Vec<u64>> {
    (0..3).map(|shard| file_of(&dirs.standby.join(format!("shard.{shard}/data.mdb")))).collect()
}

/// Removes the data files of these bases, so that the archive can't be copied.
fn damage(dirs: &Dirs, damaged: &[String]) -> std::io::Result<()> {
    damaged.iter().try_for_each(|base| fs::remove_file(dirs.archive.join(base).join("data.mdb")))
}

fn has_all(follower: &Follower, copies: &OrderRepository, rows: &Rows) -> TestResult {
    assert!(rows_of(follower.store(), copies)? == *rows);
    let report = follower.store().verify()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

#[test]
fn a_running_follower_takes_added_shards() -> TestResult {
    let (dirs, mut rows) = (dirs(Kind::Several)?, Rows::new());
    let (store, orders) = original(&dirs, &mut rows)?;
    let topics = TopicRepository::open(&store)?;
    store.transaction(|txn| (0..5).try_for_each(|it| topics.insert(txn, &topic(it))))?;
    wait_for_archive(&store);
    let (follower, copies) = dirs.follow()?;
    let reference = TopicRepository::open(follower.store())?;
    let own = files(&dirs)?;
    damage(&dirs, &bases(&dirs.archive)?)?;
    for (number, name) in (3_u8..).zip(["d", "e", "f"]) {
        store.add_shard(name, name)?;
        write(&store, &orders, &mut rows, 20..25)?;
        let first = u32::from(number) * 2 - 5;
        store.move_range("orders", first..first + 2, name).run()?;
        store.transaction(|txn| topics.insert(txn, &topic(number + 10)))?;
        wait_for(&follower, &store)?;
        has_all(&follower, &copies, &rows)?;
        assert_eq!(copies.shard_of(follower.store(), first)?.name(), name);
        assert_eq!(follower.store().shard_ids().len(), usize::from(number) + 1);
        let shard = follower.store().shard(name)?;
        let txn = follower.store().read_on(&shard)?;
        assert_eq!(reference.all(&txn).count()?, u64::from(number) + 3);
        let found = copies.find_by_tenant(&txn, first).count()?;
        assert_eq!(found, rows.keys().filter(|(tenant, _)| *tenant == first).count() as u64);
    }
    store.move_range("orders", 3u32..5, "a").run()?;
    store.remove_shard("e")?;
    write(&store, &orders, &mut rows, 25..30)?;
    wait_for(&follower, &store)?;
    has_all(&follower, &copies, &rows)?;
    assert_eq!(follower.store().shard_ids().len(), 5);
    drop((follower, copies, reference));
    let (follower, copies) = dirs.follow()?;
    wait_for(&follower, &store)?;
    has_all(&follower, &copies, &rows)?;
    assert_eq!(files(&dirs)?, own);
    drop((store, orders, topics));
    let promoted = follower.promote()?;
    write(&promoted, &copies, &mut rows, 30..35)?;
    promoted.move_range("orders", 20u32.., "d").run()?;
    drop((promoted, copies));
    let promoted = Store::open(&dirs.standby)?;
    assert!(rows_of(&promoted, &OrderRepository::open(&promoted)?)? == rows);
    assert_eq!(TopicRepository::open(&promoted)?.all(&promoted.read()?).count()?, 8);
    assert!(promoted.verify()?.is_clean());
    Ok(())
}

#[test]
fn a_follower_that_was_behind_takes_added_shards() -> TestResult {
    for round in 0..4_u32 {
        let (dirs, mut rows) = (dirs(Kind::Several)?, Rows::new());
        let (store, orders) = original(&dirs, &mut rows)?;
        wait_for_archive(&store);
        drop(Follower::open(&dirs.standby, &dirs.archive)?);
        let (own, first) = (files(&dirs)?, bases(&dirs.archive)?);
        write(&store, &orders, &mut rows, 20..20 + round * 5 % 7)?;
        store.add_shard("d", "d")?;
        store.move_range("orders", ..5u32, "d").run()?;
        write(&store, &orders, &mut rows, 30..40)?;
        if round % 2 == 0 {
            store.add_shard("e", "e")?;
            store.move_range("orders", 2u32..13, "e").run()?;
            write(&store, &orders, &mut rows, 40..50)?;
        }
        if round > 1 {
            store.move_range("orders", ..10u32, "c").run()?;
            store.remove_shard("d")?;
        }
        wait_for_archive(&store);
        damage(&dirs, &first)?;
        for _ in 0..2 {
            let (follower, copies) = dirs.follow()?;
            wait_for(&follower, &store)?;
            has_all(&follower, &copies, &rows)?;
        }
        assert_eq!(files(&dirs)?, own, "round {round}");
        let (follower, copies) = dirs.follow()?;
        drop((store, orders));
        let promoted = follower.promote()?;
        write(&promoted, &copies, &mut rows, 50..55)?;
        assert!(rows_of(&promoted, &copies)? == rows);
    }
    Ok(())
}

#[test]
fn a_follower_waits_for_the_base_of_an_added_shard() -> TestResult {
    let (dirs, mut rows) = (dirs(Kind::Several)?, Rows::new());
    let (store, orders) = original(&dirs, &mut rows)?;
    wait_for_archive(&store);
    let (follower, _) = dirs.follow()?;
    wait_for(&follower, &store)?;
    drop(follower);
    let (before, kept, own) = (rows.clone(), bases(&dirs.archive)?, files(&dirs)?);
    store.add_shard("d", "d")?;
    store.move_range("orders", ..5u32, "d").run()?;
    write(&store, &orders, &mut rows, 20..30)?;
    wait_for_archive(&store);
    let hidden = hide_bases(&dirs.archive, &kept)?;
    assert_eq!(hidden.len(), 1);
    for _ in 0..3 {
        let (follower, copies) = dirs.follow()?;
        wait_for_error(&follower, "no base of shard number 3 yet");
        assert!(rows_of(follower.store(), &copies)? == before);
        assert_eq!(follower.store().shard_ids().len(), 3);
    }
    let promoted = dirs.follow()?.0.promote();
    assert!(matches!(promoted, Err(Error::NotInArchive { .. })), "{promoted:?}");
    let (follower, copies) = dirs.follow()?;
    for name in hidden {
        fs::rename(dirs.archive.join(format!(".{name}")), dirs.archive.join(name))?;
    }
    wait_for(&follower, &store)?;
    has_all(&follower, &copies, &rows)?;
    assert_eq!(files(&dirs)?, own);
    Ok(())
}

/// The archive could not be written when the shard was added, so the base of the shard has some of its commits. With it, a snapshot
/// would have a part of these commits.
#[test]
fn a_follower_is_copied_again_if_the_shard_has_only_a_later_base() -> TestResult {
    let (dirs, mut rows) = (dirs(Kind::Several)?, Rows::new());
    let (store, orders) = original(&dirs, &mut rows)?;
    wait_for_archive(&store);
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    wait_for(&follower, &store)?;
    let own = files(&dirs)?;
    let away = dirs.path("away");
    fs::rename(&dirs.archive, &away)?;
    store.add_shard("d", "d")?;
    write(&store, &orders, &mut rows, 20..25)?;
    wait(|| store.archive_lag().is_some_and(|lag| lag.error.is_some()));
    store.move_range("orders", ..5u32, "d").run()?;
    write(&store, &orders, &mut rows, 25..30)?;
    fs::rename(&away, &dirs.archive)?;
    wait_for_archive(&store);
    wait_for_error(&follower, "from before the shard was added");
    let promoted = follower.promote();
    assert!(matches!(promoted, Err(Error::NotInArchive { .. })), "{promoted:?}");
    let (follower, copies) = dirs.follow()?;
    wait_for(&follower, &store)?;
    has_all(&follower, &copies, &rows)?;
    assert_ne!(files(&dirs)?, own);
    Ok(())
}

#[test]
fn what_a_killed_process_has_left_of_an_added_shard_is_replaced() -> TestResult {
    let (dirs, mut rows) = (dirs(Kind::Several)?, Rows::new());
    let (store, orders) = original(&dirs, &mut rows)?;
    wait_for_archive(&store);
    let (follower, copies) = dirs.follow()?;
    fs::create_dir_all(dirs.standby.join(".shard.3.partial/left"))?;
    fs::create_dir_all(dirs.standby.join("shard.3/left"))?;
    store.add_shard("d", "d")?;
    store.move_range("orders", ..5u32, "d").run()?;
    write(&store, &orders, &mut rows, 20..30)?;
    wait_for(&follower, &store)?;
    has_all(&follower, &copies, &rows)?;
    assert!(!dirs.standby.join(".shard.3.partial").exists());
    assert!(!dirs.standby.join("shard.3/left").exists());
    Ok(())
}

#[test]
fn a_follower_that_could_not_write_an_added_shard_tries_again() -> TestResult {
    let (dirs, mut rows) = (dirs(Kind::Several)?, Rows::new());
    let (store, orders) = original(&dirs, &mut rows)?;
    wait_for_archive(&store);
    let (follower, copies) = dirs.follow()?;
    let own = files(&dirs)?;
    // A file is in the way.
    let obstacle = dirs.standby.join("shard.3");
    fs::write(&obstacle, "")?;
    store.add_shard("d", "d")?;
    store.move_range("orders", ..5u32, "d").run()?;
    write(&store, &orders, &mut rows, 20..30)?;
    wait_for_error(&follower, "shard.3");
    drop((follower, copies));
    let outcome = dirs.follow();
    assert!(matches!(outcome, Err(Error::Io { .. })), "{outcome:?}");
    fs::remove_file(&obstacle)?;
    let (follower, copies) = dirs.follow()?;
    wait_for(&follower, &store)?;
    has_all(&follower, &copies, &rows)?;
    assert_eq!(files(&dirs)?, own);
    Ok(())
}

/// Copies a directory, without the lock files of LMDB.
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

/// Each state of the archive from before the addition of a shard to after a move to it, in which an original can be lost.
#[test]
fn a_follower_takes_a_shard_of_which_the_archive_has_a_part() -> TestResult {
    let (dirs, mut rows) = (dirs(Kind::Several)?, Rows::new());
    let (store, orders) = original(&dirs, &mut rows)?;
    wait_for_archive(&store);
    drop(Follower::open(&dirs.standby, &dirs.archive)?);
    drop((store, orders));
    let (manifest, first) = (fs::read(dirs.archive.join("manifest"))?, bases(&dirs.archive)?);
    let before = segments(&dirs.archive)?;
    let (store, orders) = dirs.open()?;
    wait_for_archive(&store);
    store.add_shard("d", "d")?;
    store.move_range("orders", ..3u32, "d").run()?;
    write(&store, &orders, &mut rows, 20..22)?;
    drop((store, orders));
    let later = segments(&dirs.archive)?.split_off(before.len());
    let (mut promoted, mut waited) = (0, 0);
    for (at, segment) in later.iter().enumerate() {
        let length = fs::read(segment)?.len();
        for (cut, step) in (0..length).step_by((length / 10).max(1)).zip(0_usize..) {
            let name = format!("{at} {cut}");
            let archive = dirs.path(&format!("archive {name}"));
            copy_directory(&dirs.archive, &archive)?;
            fs::write(archive.join("manifest"), &manifest)?;
            for removed in later.iter().skip(at) {
                fs::remove_file(archive.join(removed.file_name().expect("a name")))?;
            }
            let mut part = segment.file_name().expect("a name").to_owned();
            part.push(".part");
            fs::write(archive.join(part), &fs::read(segment)?[..cut])?;
            if step % 3 == 0 {
                hide_bases(&archive, &first)?;
            }
            let standby = dirs.path(&format!("standby {name}"));
            copy_directory(&dirs.standby, &standby)?;
            let file = file_of(&standby.join("shard.0/data.mdb"))?;
            drop(Follower::open(&standby, &archive)?);
            let follower = Follower::open(&standby, &archive)?;
            assert_eq!(file_of(&standby.join("shard.0/data.mdb"))?, file, "{name}");
            let copies = OrderRepository::open(follower.store())?;
            let found = rows_of(follower.store(), &copies)?;
            if follower.lag()?.error.is_some() {
                assert!(step % 3 == 0, "{name}: {:?}", follower.lag());
                waited += 1;
            } else if step % 2 == 0 {
                promoted += 1;
                let (store, mut found) = (follower.promote()?, found);
                write(&store, &copies, &mut found, 40..42)?;
                assert!(rows_of(&store, &copies)? == found, "{name}");
                drop((store, copies));
                let store = Store::open(&standby)?;
                assert!(store.unavailable_shards().is_empty(), "{name}");
                if store.shard("d").is_err() {
                    store.add_shard("d", "d")?;
                }
                let orders = OrderRepository::open(&store)?;
                for interrupted in store.moves()? {
                    store.resume_move(interrupted.id).run()?;
                }
                store.move_range("orders", 20u32.., "d").run()?;
                write(&store, &orders, &mut found, 42..44)?;
                assert!(rows_of(&store, &orders)? == found, "{name}");
                assert!(store.verify()?.is_clean(), "{name}");
                continue;
            }
            for entry in fs::read_dir(&dirs.archive)? {
                let path = entry?.path();
                let to = archive.join(path.file_name().expect("a name"));
                if path.is_dir() {
                    copy_directory(&path, &to)?;
                } else {
                    fs::copy(&path, to)?;
                }
            }
            wait(|| follower.lag().is_ok_and(|lag| lag.commits == 0 && lag.error.is_none()));
            has_all(&follower, &copies, &rows)?;
            assert_eq!(file_of(&standby.join("shard.0/data.mdb"))?, file, "{name}");
            fs::remove_dir_all(&archive)?;
        }
    }
    assert!(promoted > 3 && waited > 0, "{promoted} promoted, {waited} waited");
    Ok(())
}
