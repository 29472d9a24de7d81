//! Followers of a store whose shards are detached, attached, removed and added.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use index_table::{Error, Follower, Store};

use crate::{
    Dirs, Kind, OrderRepository, Rows, TestResult, dirs, rows_of, wait, wait_for, wait_for_archive,
    write,
};

pub(crate) type Opened = Result<(Store, OrderRepository), Box<dyn std::error::Error>>;

/// Opens an original whose archive has a base, and writes rows.
pub(crate) fn original(dirs: &Dirs, rows: &mut Rows) -> Opened {
    let (store, orders) = dirs.open()?;
    wait(|| store.archive_lag().is_some_and(|lag| lag.has_base));
    write(&store, &orders, rows, 0..20)?;
    Ok((store, orders))
}

/// Returns the error of a follower that can't continue, which is behind its archive.
pub(crate) fn stopped(follower: &Follower) -> String {
    let mut lag = None;
    wait(|| {
        lag = follower.lag().ok().filter(|lag| lag.error.is_some());
        lag.is_some()
    });
    let lag = lag.expect("a lag");
    assert!(lag.commits > 0 && lag.time > Duration::ZERO, "{lag:?}");
    lag.error.expect("an error")
}

/// Waits until a follower can't continue for a reason with this text.
pub(crate) fn wait_for_error(follower: &Follower, text: &str) {
    wait(|| follower.lag().is_ok_and(|lag| lag.error.is_some_and(|error| error.contains(text))));
    assert!(stopped(follower).contains(text));
}

#[test]
fn a_follower_has_the_rows_of_a_shard_that_is_attached_again() -> TestResult {
    for is_open in [true, false] {
        let (dirs, mut rows) = (dirs(Kind::Several)?, Rows::new());
        let (store, orders) = original(&dirs, &mut rows)?;
        let follower = Follower::open(&dirs.standby, &dirs.archive)?;
        store.detach_shard("b")?;
        let mut kept = rows.clone();
        kept.retain(|(tenant, _), _| !(10..20).contains(tenant));
        wait_for(&follower, &store)?;
        let copies = OrderRepository::open(follower.store())?;
        assert!(rows_of(follower.store(), &copies)? == kept);
        drop(copies);
        let follower = Some(follower).filter(|_| is_open);
        store.attach_shard("b", "b")?;
        write(&store, &orders, &mut rows, 20..30)?;
        wait_for_archive(&store);
        if let Some(follower) = follower {
            assert!(stopped(&follower).contains("gap"));
            let promoted = follower.promote();
            assert!(matches!(promoted, Err(Error::NotInArchive { .. })), "{promoted:?}");
        }
        let follower = Follower::open(&dirs.standby, &dirs.archive)?;
        let copies = OrderRepository::open(follower.store())?;
        assert!(rows_of(follower.store(), &copies)? == rows);
        write(&store, &orders, &mut rows, 30..40)?;
        wait_for(&follower, &store)?;
        let promoted = follower.promote()?;
        assert!(rows_of(&promoted, &copies)? == rows);
        write(&promoted, &copies, &mut rows, 40..50)?;
        drop((promoted, copies));
        let promoted = Store::open(&dirs.standby)?;
        assert!(rows_of(&promoted, &OrderRepository::open(&promoted)?)? == rows);
    }
    Ok(())
}

#[test]
fn a_follower_opens_as_often_as_wanted_after_a_shard_is_gone() -> TestResult {
    for is_removed in [true, false] {
        let (dirs, mut rows) = (dirs(Kind::Several)?, Rows::new());
        let (store, orders) = original(&dirs, &mut rows)?;
        let follower = Follower::open(&dirs.standby, &dirs.archive)?;
        if is_removed {
            store.move_range("orders", 10u32..20, "c").run()?;
            store.remove_shard("b")?;
        } else {
            store.detach_shard("b")?;
            rows.retain(|(tenant, _), _| !(10..20).contains(tenant));
        }
        wait_for(&follower, &store)?;
        drop((follower, store, orders));
        let created = file_of(&dirs.standby.join("shard.0/data.mdb"))?;
        for _ in 0..3 {
            let follower = Follower::open(&dirs.standby, &dirs.archive)?;
            let copies = OrderRepository::open(follower.store())?;
            assert!(rows_of(follower.store(), &copies)? == rows);
        }
        // It was not copied again.
        assert_eq!(file_of(&dirs.standby.join("shard.0/data.mdb"))?, created);
        let follower = Follower::open(&dirs.standby, &dirs.archive)?;
        drop(follower.promote()?);
        let promoted = Store::open(&dirs.standby)?;
        assert!(rows_of(&promoted, &OrderRepository::open(&promoted)?)? == rows);
    }
    Ok(())
}

/// Returns a number by which a file is recognized.
pub(crate) fn file_of(path: &Path) -> std::io::Result<u64> {
    let file = fs::metadata(path)?;
    #[cfg(unix)]
    return Ok(std::os::unix::fs::MetadataExt::ino(&file));
    #[cfg(not(unix))]
    Ok(u64::from(file.is_file()))
}

/// Renames the bases that are not in `kept`, and returns the names.
pub(crate) fn hide_bases(archive: &Path, kept: &[String]) -> std::io::Result<Vec<String>> {
    let mut hidden = Vec::new();
    for name in bases(archive)? {
        if !kept.contains(&name) {
            fs::rename(archive.join(&name), archive.join(format!(".{name}")))?;
            hidden.push(name);
        }
    }
    Ok(hidden)
}

pub(crate) fn bases(archive: &Path) -> std::io::Result<Vec<String>> {
    let names = fs::read_dir(archive)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into()));
    let names = names.collect::<std::io::Result<Vec<String>>>()?;
    Ok(names.into_iter().filter(|name| name.starts_with("base.")).collect())
}

#[test]
fn an_earlier_copy_stays_until_the_next_copy_can_be_had() -> TestResult {
    let (dirs, mut rows) = (dirs(Kind::Several)?, Rows::new());
    let (store, orders) = original(&dirs, &mut rows)?;
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    wait_for(&follower, &store)?;
    let (before, kept) = (rows.clone(), bases(&dirs.archive)?);
    // The archive gets no base of the shard from before its first commit, so the follower has to be copied again.
    let away = dirs.path("away");
    fs::rename(&dirs.archive, &away)?;
    store.add_shard("d", "d")?;
    store.move_range("orders", ..5u32, "d").run()?;
    wait(|| store.archive_lag().is_some_and(|lag| lag.error.is_some()));
    write(&store, &orders, &mut rows, 20..30)?;
    fs::rename(&away, &dirs.archive)?;
    wait_for_archive(&store);
    wait_for_error(&follower, "from before the shard was added");
    // As before the base of the added shard is complete.
    let hidden = hide_bases(&dirs.archive, &kept)?;
    assert!(!hidden.is_empty());
    drop(follower);
    for _ in 0..2 {
        let outcome = Follower::open(&dirs.standby, &dirs.archive);
        assert!(matches!(outcome, Err(Error::NotInArchive { .. })), "{outcome:?}");
    }
    let read_only = Store::options().read_only(true).open(&dirs.standby)?;
    let copies = OrderRepository::open(&read_only)?;
    let found = rows_of(&read_only, &copies)?;
    assert!(before.iter().all(|(key, order)| found.get(key) == Some(order) || key.0 < 5));
    drop((read_only, copies));
    for name in hidden {
        fs::rename(dirs.archive.join(format!(".{name}")), dirs.archive.join(name))?;
    }
    let (follower, copies) = dirs.follow()?;
    assert!(rows_of(follower.store(), &copies)? == rows);
    let left: Vec<_> = fs::read_dir(dirs.standby.parent().expect("a directory"))?.collect();
    assert_eq!(left.len(), 3, "{left:?}");
    Ok(())
}

#[test]
fn a_copy_that_was_not_put_in_place_is_used() -> TestResult {
    let (dirs, mut rows) = (dirs(Kind::Several)?, Rows::new());
    let (store, orders) = original(&dirs, &mut rows)?;
    drop(Follower::open(&dirs.standby, &dirs.archive)?);
    drop((store, orders));
    // A killed process leaves these names.
    fs::rename(&dirs.standby, dirs.standby.with_file_name(".standby.next"))?;
    fs::create_dir(dirs.standby.with_file_name(".standby.discarded"))?;
    let (follower, copies) = dirs.follow()?;
    assert!(rows_of(follower.store(), &copies)? == rows);
    let left: Vec<_> = fs::read_dir(dirs.standby.parent().expect("a directory"))?.collect();
    assert_eq!(left.len(), 3, "{left:?}");
    Ok(())
}

#[test]
fn a_failed_promotion_leaves_the_original_and_the_follower() -> TestResult {
    let (dirs, mut rows) = (dirs(Kind::Several)?, Rows::new());
    let (store, orders) = original(&dirs, &mut rows)?;
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    store.detach_shard("b")?;
    store.attach_shard("b", "b")?;
    wait(|| follower.lag().is_ok_and(|lag| lag.error.is_some()));
    let promoted = follower.promote();
    assert!(matches!(promoted, Err(Error::NotInArchive { .. })), "{promoted:?}");
    assert!(!dirs.archive.join("promoted").exists());
    write(&store, &orders, &mut rows, 20..30)?;
    wait_for_archive(&store);
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    wait_for(&follower, &store)?;
    let copies = OrderRepository::open(follower.store())?;
    assert!(rows_of(follower.store(), &copies)? == rows);
    Ok(())
}

#[cfg(unix)]
#[test]
fn a_promotion_that_fails_at_its_end_is_taken_back() -> TestResult {
    let (dirs, mut rows) = (dirs(Kind::Several)?, Rows::new());
    let (store, orders) = original(&dirs, &mut rows)?;
    drop((store, orders));
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    // The journal of the promoted store can't be created.
    let obstacle = dirs.standby.join("shards.journal.0");
    fs::create_dir(&obstacle)?;
    let promoted = follower.promote();
    assert!(matches!(promoted, Err(Error::Io { .. })), "{promoted:?}");
    assert!(!dirs.archive.join("promoted").exists());
    let (store, orders) = dirs.open()?;
    write(&store, &orders, &mut rows, 20..30)?;
    drop((store, orders));
    fs::remove_dir(obstacle)?;
    let (follower, copies) = dirs.follow()?;
    let store = follower.promote()?;
    assert!(rows_of(&store, &copies)? == rows);
    Ok(())
}

#[test]
fn a_written_follower_is_not_replaced_after_a_gap() -> TestResult {
    let (dirs, mut rows) = (dirs(Kind::Several)?, Rows::new());
    let (store, orders) = original(&dirs, &mut rows)?;
    wait_for_archive(&store);
    drop(Follower::open(&dirs.standby, &dirs.archive)?);
    let mut own = rows.clone();
    {
        let store = Store::open(&dirs.standby)?;
        write(&store, &OrderRepository::open(&store)?, &mut own, 50..52)?;
    }
    store.detach_shard("b")?;
    store.attach_shard("b", "b")?;
    wait_for_archive(&store);
    let outcome = Follower::open(&dirs.standby, &dirs.archive);
    let is_refused = matches!(&outcome, Err(Error::Io { source, .. })
        if source.kind() == std::io::ErrorKind::AlreadyExists);
    assert!(is_refused, "{outcome:?}");
    let store = Store::open(&dirs.standby)?;
    assert!(rows_of(&store, &OrderRepository::open(&store)?)? == own);
    drop(orders);
    Ok(())
}

#[test]
fn a_follower_without_its_next_segment_says_so() -> TestResult {
    let (dirs, mut rows) = (dirs(Kind::Several)?, Rows::new());
    let (store, orders) = original(&dirs, &mut rows)?;
    wait_for_archive(&store);
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    drop((store, orders));
    let last = segments(&dirs.archive)?.len();
    drop(original(&dirs, &mut rows)?);
    drop(follower);
    // These segments are removed by hand, as all segments before a later base can be.
    let later = segments(&dirs.archive)?.split_off(last);
    assert!(!later.is_empty());
    for segment in &later {
        fs::rename(segment, segment.with_extension("removed"))?;
    }
    let manifest = fs::read(dirs.archive.join("manifest"))?;
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    assert!(stopped(&follower).contains("missing"));
    let promoted = follower.promote();
    assert!(matches!(promoted, Err(Error::NotInArchive { .. })), "{promoted:?}");
    for segment in &later {
        fs::rename(segment.with_extension("removed"), segment)?;
    }
    assert_eq!(fs::read(dirs.archive.join("manifest"))?, manifest);
    let (follower, copies) = dirs.follow()?;
    assert!(rows_of(follower.store(), &copies)? == rows);
    Ok(())
}

/// Returns the complete segments of an archive, in order.
pub(crate) fn segments(archive: &Path) -> std::io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(archive)?.map(|entry| Ok(entry?.path()));
    let mut paths = paths.collect::<std::io::Result<Vec<_>>>()?;
    let is_segment = |path: &PathBuf| {
        path.extension()
            .is_some_and(|it| it.to_string_lossy().bytes().all(|it| it.is_ascii_digit()))
            && path.file_stem().is_some_and(|it| it == "segment")
    };
    paths.retain(is_segment);
    paths.sort();
    Ok(paths)
}
