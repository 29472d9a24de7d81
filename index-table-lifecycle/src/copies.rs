//! The steps with copies of the store: backups, archives, followers, and other processes.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use index_table::{Error, Follower, Store};

use crate::{
    app::{App, Handle, open_copy, read_one},
    failure::{Failure, Outcome, same, wrong},
    model::States,
    random::Random,
    script::Step,
    tables::{ConsumerRepository, KindRepository, Progress},
};

/// The most time that the archive or a follower may need.
const PATIENCE: Duration = Duration::from_secs(25);

fn remove(path: &Path) -> Outcome {
    if path.exists() { Ok(fs::remove_dir_all(path)?) } else { Ok(()) }
}

/// Compares a complete copy with the model. Returns its progress.
fn check_copy(app: &App, path: &Path) -> Outcome<BTreeMap<u32, Progress>> {
    let copy = open_copy(app, path, false)?;
    if let Some((shard, reason)) = copy.shards().and_then(|it| it.unavailable_shards().pop()) {
        return wrong(format!("the copy has no shard `{shard}`: {reason}"));
    }
    let txn = copy.store.read()?;
    let progress = app.check(&copy.tables, &txn).all(&mut States::new(app.config.seed))?;
    let report = copy.store.verify()?;
    if app.is_sound() && !report.is_clean() {
        return wrong(format!("verify of the copy: {report}"));
    }
    Ok(progress)
}

pub(crate) fn is_complete(handle: &Handle) -> bool {
    handle.shards().is_none_or(|it| it.unavailable_shards().is_empty())
}

fn operations(progress: &BTreeMap<u32, Progress>) -> BTreeMap<u32, u64> {
    progress.iter().map(|(tenant, row)| (*tenant, row.n)).collect()
}

/// Fails if a copy lacks operations that were acknowledged before it was begun.
fn compare_since(
    app: &App,
    what: &str,
    before: &BTreeMap<u32, u64>,
    found: &BTreeMap<u32, u64>,
) -> Outcome {
    for (tenant, n) in before {
        match found.get(tenant) {
            Some(found) if found < n => {
                return wrong(format!("{what}: tenant {tenant} has {found} of {n} operations"));
            }
            None if !app.has("detached") => {
                return wrong(format!("{what}: tenant {tenant} is missing"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Makes a backup, and compares a store that is restored from it.
pub(crate) fn backup(app: &Arc<App>) -> Outcome {
    let _copying = app.copying();
    let handle = app.handle()?;
    let (backup, next, copy) =
        (app.dir.join("backup"), app.dir.join("backup.next"), app.dir.join("backup.copy"));
    remove(&next)?;
    remove(&copy)?;
    let (before, complete) = (app.acknowledged(), is_complete(&handle));
    app.unmark("moved")?;
    handle.store.backup_to(&next)?;
    if complete {
        Store::restore(&next, &copy)?;
        let found = check_copy(app, &copy).map_err(|it| it.within("backup"))?;
        if app.is_whole() {
            compare_since(app, "backup", &before, &operations(&found))?;
        }
        remove(&copy)?;
    }
    remove(&backup)?;
    Ok(fs::rename(next, backup)?)
}

/// Loses the directory of a shard, of which there is a backup, while the store is closed.
pub(crate) fn lose(app: &Arc<App>, shard: &str) -> Outcome {
    let _copying = app.copying();
    // A backup of a shard that is older than a move can't be used.
    if !app.has("backup") || app.has("moved") {
        return Ok(());
    }
    // A directory of a shard that has left may be in use, so only shards of the store are lost.
    let handle = app.handle()?;
    let shards = handle.shards().filter(|it| it.shard(shard).is_ok());
    let place = shards.and_then(|it| it.shard_directories().into_iter().find(|it| it.0 == shard));
    drop(handle);
    // The first data file of a store that has grown is in the directory of the store.
    let is_lost = |path: &Path| path.exists() && path != app.current().0;
    let Some((_, path)) = place.filter(|it| is_lost(&it.1)) else { return Ok(()) };
    app.close();
    app.mark("detached")?;
    Ok(fs::remove_dir_all(path)?)
}

/// Restores a lost shard from the backup, or, without a name, the first one: `restore-shard [SHARD] [killed MICROSECONDS]`. The
/// process ends this long after the beginning of the restoration, unless it has ended before.
pub(crate) fn restore_shard(app: &Arc<App>, step: &Step) -> Outcome {
    let end = step.has("killed").then(|| step.words.last().and_then(|it| it.parse().ok()));
    let end = end.flatten().map(Duration::from_micros);
    let name = if step.word(1) == "killed" { "" } else { step.word(1) };
    let _copying = app.copying();
    let _consumers = app.consumers();
    let handle = match app.handle() {
        // A table has all of its rows in the lost shard, and can't be opened.
        Err(Failure::Store(Error::ShardUnavailable { .. })) => {
            let store = app.open_store()?;
            let _references = (KindRepository::open(&store)?, ConsumerRepository::open(&store)?);
            return restore_lost(app, &store, (name, end)).map(drop);
        }
        handle => handle?,
    };
    let Some(shards) = handle.shards() else { return Ok(()) };
    if !restore_lost(app, shards, (name, end))? {
        return Ok(());
    }
    let _paused = app.pause();
    app.record_readable(&handle)?;
    crate::consume::expect(app, &handle, None)?;
    crate::whole::paused(app, &handle).map(drop)
}

/// Returns false if the shard is not lost.
fn restore_lost(app: &App, shards: &Store, (name, end): (&str, Option<Duration>)) -> Outcome<bool> {
    let is_this = |shard: &str| name.is_empty() || name == shard;
    let lost = shards.unavailable_shards().into_iter().find(|it| is_this(it.0.name()));
    let (Some((lost, _)), true) = (lost, app.has("backup")) else { return Ok(false) };
    {
        let _paused = app.pause();
        app.mark("restored")?;
        app.forget_acknowledged();
    }
    let (mut outcome, is_over) = (Ok(()), &AtomicBool::new(false));
    for entry in fs::read_dir(app.dir.join("backup"))? {
        let path = entry?.path();
        if path.is_dir() {
            is_over.store(false, SeqCst);
            app.mark("unreadable")?;
            outcome = thread::scope(|scope| {
                scope.spawn(|| end.map(|end| kill_after(end, is_over)));
                let restored = shards.restore_shard(&lost, &path);
                is_over.store(true, SeqCst);
                restored
            });
            if !matches!(outcome, Err(Error::ShardRefused { .. })) {
                break;
            }
        }
    }
    outcome?;
    Ok(true)
}

/// Kills this process after a while, unless the work is over before.
fn kill_after(end: Duration, is_over: &AtomicBool) {
    let begun = Instant::now();
    while begun.elapsed() < end {
        if is_over.load(SeqCst) {
            return;
        }
        thread::sleep(Duration::from_micros(50));
    }
    if !is_over.load(SeqCst) {
        // As after a kill, no destructor runs.
        std::process::abort();
    }
}

/// Waits until the archive has all commits. Returns false if the store has no archive.
pub(crate) fn wait_for_archive(app: &App, handle: &Handle) -> Outcome<bool> {
    let begun = Instant::now();
    loop {
        let Some(lag) = handle.store.archive_lag() else { return Ok(false) };
        if lag.commits == 0 && lag.has_base && lag.error.is_none() {
            return Ok(true);
        }
        if begun.elapsed() > PATIENCE {
            if app.has("restored") {
                // The commits of a restored shard are archived after the store was opened again.
                return Ok(false);
            }
            return wrong(format!("the archive is late: {lag:?}"));
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Restores the archive to its end, and compares the result. `paused` waits for all commits before.
pub(crate) fn restore_archive(app: &Arc<App>, paused: bool) -> Outcome {
    // The first rows may not be in the archive of a new store.
    if app.config.archive == 0 || !paused && !app.has("created") {
        return Ok(());
    }
    let _copying = app.copying();
    let (copy, archive) = (app.dir.join("archive.copy"), app.current().1);
    remove(&copy)?;
    let restore = || Store::restore_archive(&archive).run(&copy);
    if !paused {
        return match restore() {
            // A base is not complete yet, or a file was replaced meanwhile.
            Err(Error::NotInArchive { .. } | Error::Io { .. }) => Ok(()),
            restored => {
                restored?;
                let found = check_copy(app, &copy);
                found.map(drop).map_err(|it| it.within("restored archive"))
            }
        };
    }
    let handle = app.handle()?;
    let guard = app.pause();
    if !is_complete(&handle) || !wait_for_archive(app, &handle)? {
        return Ok(());
    }
    let expected = crate::whole::paused(app, &handle)?;
    wait_for_archive(app, &handle)?;
    restore()?;
    let is_same = operations(&crate::whole::paused(app, &handle)?) == operations(&expected);
    drop(guard);
    let found = check_copy(app, &copy).map_err(|it| it.within("restored archive"))?;
    if !is_same {
        // A shard has left or come back beside this step.
        return Ok(());
    }
    same(|| "the restored archive".to_owned(), &operations(&found), &operations(&expected))
}

/// Loses the shard map manager, and builds it again from the shards.
pub(crate) fn rebuild(app: &Arc<App>) -> Outcome {
    let handle = app.handle()?;
    let Some(shards) = handle.shards().cloned().filter(|_| is_complete(&handle)) else {
        return Ok(());
    };
    let mut places = shards.shard_directories();
    let present = shards.shard_ids();
    places.retain(|(name, _)| present.iter().any(|it| it.name() == name));
    drop((handle, shards));
    app.close();
    let (path, archive) = app.current();
    let grown = path.join("shards.manager");
    let manager = if grown.exists() { grown } else { path.clone() };
    fs::remove_file(manager.join("data.mdb"))?;
    app.mark("unreadable")?;
    let options = app.options(&archive);
    let options = places.iter().fold(options, |all, (name, place)| all.shard(name, place));
    let store = options.rebuild(&path)?;
    let handle = Handle::of(store, false)?;
    app.record_readable(&handle)
}

fn open_follower(app: &App) -> index_table::Result<Follower> {
    let (store, archive) = app.current();
    Follower::open(format!("{}.follower", store.display()), archive)
}

fn handle_of(app: &App, follower: &Follower) -> Outcome<Handle> {
    app.handle_of(follower.store())
}

/// Compares the snapshots of a follower with the model, for a while.
pub(crate) fn follow(app: &Arc<App>, millis: u64) -> Outcome {
    if app.config.archive == 0 {
        return Ok(());
    }
    // The archive of a new store has all first rows when the store is open.
    app.handle()?;
    let (begun, mut states) = (Instant::now(), States::new(app.config.seed));
    let mut random = Random::new(&[app.config.seed, 6]);
    while begun.elapsed() < Duration::from_millis(millis) {
        // The archive may lack a base or a table for a while, and that of a new store the first rows.
        let following = if app.has("created") { open_follower(app).ok() } else { None };
        let Some(following) = following else {
            thread::sleep(Duration::from_millis(20));
            continue;
        };
        let handle = match handle_of(app, &following) {
            Err(Failure::Store(_)) => continue,
            handle => handle?,
        };
        while begun.elapsed() < Duration::from_millis(millis) {
            // The follower is in the state before a restoration for a while, and after it.
            match read_one(app, &handle, &mut states, &mut random) {
                Err(failure) if app.is_expected(&failure, !app.is_whole()) => break,
                outcome => outcome.map_err(|it| it.within("follower"))?,
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
    Ok(())
}

/// Waits until a follower has everything. Returns it, and the progress of the store.
fn caught_up(app: &Arc<App>) -> Outcome<Option<(Follower, BTreeMap<u32, u64>)>> {
    let handle = app.handle()?;
    if app.config.archive == 0 || !is_complete(&handle) {
        return Ok(None);
    }
    let _paused = app.pause();
    let expected = operations(&crate::whole::paused(app, &handle)?);
    if !wait_for_archive(app, &handle)? {
        return Ok(None);
    }
    let (begun, mut last) = (Instant::now(), String::new());
    while begun.elapsed() < PATIENCE {
        match open_follower(app) {
            Ok(following) => loop {
                let lag = following.lag()?;
                if lag.error.is_some() || begun.elapsed() > PATIENCE {
                    last = format!("{lag:?}");
                    break;
                }
                if lag.commits == 0 {
                    return Ok(Some((following, expected)));
                }
                thread::sleep(Duration::from_millis(10));
            },
            Err(error) => last = error.to_string(),
        }
        thread::sleep(Duration::from_millis(50));
    }
    wrong(format!("the follower does not catch up: {last}"))
}

fn compare(app: &App, following: &Follower, expected: &BTreeMap<u32, u64>) -> Outcome {
    let (handle, begun) = (handle_of(app, following)?, Instant::now());
    loop {
        let txn = handle.store.read()?;
        let found = app.check(&handle.tables, &txn).all(&mut States::new(app.config.seed))?;
        let found = operations(&found);
        // The commits of checks follow.
        if found == *expected {
            return Ok(());
        }
        if begun.elapsed() > Duration::from_secs(5) {
            return wrong(format!(
                "{found:?} operations, and not {expected:?}: {:?}",
                following.lag()?
            ));
        }
        drop(txn);
        thread::sleep(Duration::from_millis(20));
    }
}

/// Compares a follower that has everything with the store.
pub(crate) fn compare_follower(app: &Arc<App>) -> Outcome {
    let Some((following, expected)) = caught_up(app)? else { return Ok(()) };
    let (_paused, handle) = (app.pause(), app.handle()?);
    if operations(&crate::whole::paused(app, &handle)?) != expected {
        return Ok(());
    }
    match compare(app, &following, &expected) {
        // The original is building the index.
        Err(Failure::Store(Error::IndexNotReadable { .. })) if handle.is_online => Ok(()),
        outcome => outcome.map_err(|it| it.within("follower")),
    }
}

/// Promotes a follower that has everything. It is the store from now on.
pub(crate) fn promote(app: &Arc<App>) -> Outcome {
    {
        let _guards = (app.consumers(), app.pause());
        app.leases.leave(app)?;
    }
    let Some((following, _)) = caught_up(app)? else { return Ok(()) };
    app.close();
    drop(following);
    let following = open_follower(app)?;
    app.mark("promoting")?;
    if let Err(error) = following.promote() {
        fs::remove_file(app.dir.join("promoting"))?;
        return Err(error.into());
    }
    end_promotion(app)?;
    app.open(false, false).map(drop)
}

/// Makes the promoted follower the store.
fn end_promotion(app: &App) -> Outcome {
    let text = fs::read_to_string(app.dir.join("current")).unwrap_or_else(|_| "0".to_owned());
    let number = text.trim().parse::<u64>().unwrap_or_default();
    let (from, to) = (
        app.dir.join(format!("store.{number}.follower")),
        app.dir.join(format!("store.{}", number + 1)),
    );
    if from.exists() {
        fs::rename(from, &to)?;
    }
    if to.exists() {
        fs::write(app.dir.join("current"), (number + 1).to_string())?;
    }
    Ok(fs::remove_file(app.dir.join("promoting"))?)
}

/// Continues a promotion that was killed.
pub(crate) fn resume_promotion(app: &App) -> Outcome {
    if !app.has("promoting") {
        return Ok(());
    }
    let archive = app.current().1;
    let mut is_promoted = archive.join("promoted").exists();
    for entry in fs::read_dir(&archive)? {
        is_promoted |= entry?.path().join("promoted").exists();
    }
    if is_promoted {
        return end_promotion(app);
    }
    Ok(fs::remove_file(app.dir.join("promoting"))?)
}
