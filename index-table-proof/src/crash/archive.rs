//! Processes that are killed while they write a store with an archive, beside a consumer of a change stream and a follower.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use index_table::{CommitNumber, Error, Follower, IndexTable, Options, Result, Store};
use serde::{Deserialize, Serialize};

use super::{Failure, Known, advance, say, together};
use crate::{
    random::Random,
    shop::{Model, Shop},
};

/// A row for each step, whose insertion is a change of a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "ticks", changes)]
struct Tick {
    #[primary_key]
    number: u64,
}

/// The number of changes that the consumer has received.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
struct Received {
    #[primary_key]
    id: u8,
    count: u64,
    sum: u64,
}

const CONSUMER: &str = "sum";

/// The number of requests of a restore to an earlier commit after each round.
const EARLIER: u64 = 2;

/// The longest time until an archive has all commits.
const PATIENCE: Duration = Duration::from_secs(30);

fn archive(path: &Path) -> PathBuf {
    path.join("archive")
}

fn standby(path: &Path) -> PathBuf {
    path.join("standby")
}

fn options(path: &Path) -> Options {
    crate::journal().archive(archive(path))
}

struct Stream {
    ticks: TickRepository,
    received: ReceivedRepository,
}

impl Stream {
    fn open(store: &Store) -> Result<Self> {
        let (ticks, received) = (TickRepository::open(store)?, ReceivedRepository::open(store)?);
        Ok(Self { ticks, received })
    }

    /// Counts the changes that the consumer has not received, exactly once. Returns how many there were.
    fn consume(&self, store: &Store) -> Result<usize> {
        let batch = self.ticks.changes(store, CONSUMER)?.next_batch(7)?;
        if batch.is_empty() {
            return Ok(0);
        }
        let sum: u64 = batch.iter().map(|change| change.row.number).sum();
        store.transaction(|txn| {
            let before = self.received.get(txn, 0)?.unwrap_or(Received { id: 0, count: 0, sum: 0 });
            let (count, sum) = (before.count + batch.len() as u64, before.sum + sum);
            self.received.put(txn, &Received { id: 0, count, sum })?;
            batch.commit_in(txn)
        })?;
        Ok(batch.len())
    }

    /// Drains the stream, and compares the counted changes with the rows.
    fn prove(&self, store: &Store) -> Result<Option<String>> {
        while self.consume(store)? > 0 {}
        let txn = store.read()?;
        let (mut count, mut sum) = (0, 0);
        for tick in self.ticks.all(&txn).keys() {
            (count, sum) = (count + 1, sum + tick?);
        }
        let found = self.received.get(&txn, 0)?.unwrap_or(Received { id: 0, count: 0, sum: 0 });
        let is_right = found == Received { id: 0, count, sum };
        Ok((!is_right).then(|| format!("{found:?} of {count} changes")))
    }
}

/// Writes a store with an archive, while a consumer receives changes, and a follower applies the commits of the archive.
pub(super) fn write(path: &Path) -> Result<()> {
    let shop = Shop::new(options(path).open(path.join("store"))?)?;
    let stream = Stream::open(&shop.store)?;
    thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                match stream.consume(&shop.store) {
                    Ok(0) => thread::sleep(Duration::from_millis(1)),
                    Ok(_) => {}
                    Err(error) => say(&format!("error: the consumer: {error}")),
                }
            }
        });
        scope.spawn(|| follow(path));
        say("open");
        let mut model = Model::default();
        model.advance(shop.steps()?);
        loop {
            match shop.step(&mut model) {
                Ok(Ok(())) => say("done"),
                Ok(Err(error)) => return Err(error),
                Err(wrong) => say(&format!("error: {wrong}")),
            }
            let number = model.steps;
            shop.store.transaction(|txn| stream.ticks.put(txn, &Tick { number }))?;
        }
    })
}

/// Compares a follower with the model all the time.
fn follow(path: &Path) {
    loop {
        let opened = Follower::open(standby(path), archive(path));
        let follower = match opened {
            Ok(follower) => follower,
            // The archive has no base yet.
            Err(Error::NotInArchive { .. } | Error::Io { .. }) => {
                thread::sleep(Duration::from_millis(2));
                continue;
            }
            Err(error) => return say(&format!("error: the follower: {error}")),
        };
        let mut shop = None;
        loop {
            let Ok(shop) = open_table(&mut shop, follower.store()) else {
                thread::sleep(Duration::from_millis(2));
                continue;
            };
            if let Err(wrong) = compare(shop) {
                return say(&format!("error: the follower: {wrong}"));
            }
        }
    }
}

/// Opens the tables of a read-only store, which may not exist yet.
fn open_table<'s>(shop: &'s mut Option<Shop>, store: &Store) -> Result<&'s Shop> {
    if shop.is_none() {
        *shop = Some(Shop::new(store.clone())?);
    }
    shop.as_ref().ok_or_else(|| unreachable!("it was set"))
}

/// Compares one snapshot with the model. Returns the number of its steps.
fn compare(shop: &Shop) -> Result<u64, Failure> {
    let compared = || -> Result<_> {
        let txn = shop.store.read()?;
        let steps = shop.steps_in(&txn)?;
        let mut model = Model::default();
        model.advance(steps);
        Ok((steps, shop.differs(&txn, &model.rows)?))
    };
    let (steps, difference) = compared().map_err(|error| error.to_string())?;
    difference.map_or(Ok(steps), |difference| Err(format!("after {steps} steps: {difference}")))
}

/// Restores the archive, and compares the result with the model. Returns the number of its steps, and of its last commit;
/// `None` if the archive does not have this state.
fn restore(path: &Path, until: Option<u64>) -> Result<Option<(u64, u64)>, Failure> {
    let to = path.join("restored");
    if to.exists() {
        fs::remove_dir_all(&to).map_err(|error| error.to_string())?;
    }
    let mut restore = Store::restore_archive(archive(path));
    if let Some(commit) = until {
        restore = restore.until_commit(commit);
    }
    let last = match restore.run(&to) {
        Ok(last) => last,
        Err(Error::NotInArchive { .. }) => return Ok(None),
        // The process was killed before the archive had its first manifest.
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => return Err(format!("the restore: {error}")),
    };
    let proven = || -> Result<_> {
        let store = Store::options().create(false).open(&to)?;
        store.check()?;
        let shop = Shop::new(store)?;
        let report = shop.items.verify(&shop.store.read()?).run()?;
        let wrong = Stream::open(&shop.store)?.prove(&shop.store)?;
        Ok((shop, report, wrong))
    };
    let (shop, report, wrong) = proven().map_err(|error| format!("the restored store: {error}"))?;
    if let Some(wrong) = wrong {
        return Err(format!("the restored consumer: {wrong}"));
    }
    if !report.is_clean() {
        return Err(format!("the restored store: {report}"));
    }
    let steps = compare(&shop).map_err(|wrong| format!("the restored store: {wrong}"))?;
    if until.is_some_and(|until| last != CommitNumber::from(until)) {
        return Err(format!("commit {last} was restored, and not {until:?}"));
    }
    let last = last.to_string().parse().map_err(|_| "a commit number")?;
    Ok(Some((steps, last)))
}

/// Checks the store, restores of the archive before and after the store has archived the last commits, and the follower.
pub(super) fn prove(path: &Path, known: &mut Known) -> Result<(), Failure> {
    let archived = restore(path, None)?;
    let store = options(path).open(path.join("store")).map_err(|error| error.to_string())?;
    let shop = Shop::new(store).map_err(|error| error.to_string())?;
    advance(&shop, known)?;
    if let Some((steps, _)) = archived
        && steps > known.model.steps
    {
        return Err(format!("the archive has {steps} steps, and the store {}", known.model.steps));
    }
    shop.prove(&known.model)?;
    let stream = Stream::open(&shop.store).map_err(|error| error.to_string())?;
    if let Some(wrong) = stream.prove(&shop.store).map_err(|error| error.to_string())? {
        return Err(format!("the consumer: {wrong}"));
    }
    wait(&shop.store)?;
    drop((shop, stream));
    let Some((steps, last)) = restore(path, None)? else {
        return Err("the archive can't be restored".to_owned());
    };
    if steps != known.model.steps {
        return Err(format!("{steps} steps were restored of {}", known.model.steps));
    }
    let mut random = Random(known.random);
    for _ in 0..EARLIER {
        let commit = last - random.below(last.min(60));
        known.cut += u64::from(restore(path, Some(commit))?.is_some());
    }
    let follower = Follower::open(standby(path), archive(path)).map_err(|it| it.to_string())?;
    let shop = Shop::new(follower.store().clone()).map_err(|error| error.to_string())?;
    let steps = compare(&shop).map_err(|wrong| format!("the follower: {wrong}"))?;
    if steps != known.model.steps {
        return Err(format!("the follower has {steps} steps of {}", known.model.steps));
    }
    Ok(())
}

fn wait(store: &Store) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        let lag = store.archive_lag().ok_or("no archive")?;
        if lag.commits == 0 && lag.has_base && lag.error.is_none() {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("the archive is late: {lag:?}"));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Commits transactions of several shards in rounds, with an archive and a follower.
pub(super) fn write_shards(path: &Path) -> Result<()> {
    let tables = together::open_with(path, options(path))?;
    thread::scope(|scope| {
        scope.spawn(|| follow_shards(path));
        tables.write_in_rounds()
    })
}

fn follow_shards(path: &Path) {
    loop {
        let follower = match Follower::open(standby(path), archive(path)) {
            Ok(follower) => follower,
            // The archive does not have all bases yet.
            Err(Error::NotInArchive { .. } | Error::Io { .. } | Error::NotOffered { .. }) => {
                thread::sleep(Duration::from_millis(2));
                continue;
            }
            Err(error) => return say(&format!("error: the follower: {error}")),
        };
        loop {
            let Ok(tables) = together::Tables::new(follower.store().clone()) else {
                thread::sleep(Duration::from_millis(2));
                continue;
            };
            match tables.check() {
                Ok(Ok(_)) => {}
                Ok(Err(wrong)) => return say(&format!("error: the follower: {wrong}")),
                Err(error) => return say(&format!("error: the follower: {error}")),
            }
        }
    }
}

/// Restores the archive of a sharded store, and checks the result. Returns the number of transactions.
fn restore_shards(path: &Path, until: Option<&CommitNumber>) -> Result<Option<u64>, Failure> {
    let to = path.join("restored");
    if to.exists() {
        fs::remove_dir_all(&to).map_err(|error| error.to_string())?;
    }
    let mut restore = Store::restore_archive(archive(path));
    if let Some(commit) = until {
        restore = restore.until_commit(commit.clone());
    }
    match restore.run(&to) {
        Ok(last) => {
            if until.is_some_and(|until| last != *until) {
                return Err(format!("commit {last} was restored, and not {until:?}"));
            }
        }
        Err(Error::NotInArchive { .. }) => return Ok(None),
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => return Err(format!("the restore: {error}")),
    }
    let checked = || -> Result<_> {
        let store = Store::open(&to)?;
        // The process may have been killed before it had opened its tables.
        together::Tables::new(store)?.check()
    };
    let count = checked().map_err(|error| format!("the restored store: {error}"))?;
    count.map(Some).map_err(|wrong| format!("the restored store: {wrong}"))
}

/// Does the same as [`prove`] for a sharded store.
pub(super) fn prove_shards(path: &Path, known: &mut Known) -> Result<(), Failure> {
    let archived = restore_shards(path, None)?;
    let tables = together::open_with(path, options(path)).map_err(|error| error.to_string())?;
    let count = tables.check().map_err(|error| error.to_string())??;
    known.find(count, 2 * u64::from(together::THREADS))?;
    if archived.is_some_and(|archived| archived > count) {
        return Err(format!("the archive has {archived:?} transactions, and the store {count}"));
    }
    let commit = tables.commit_number().map_err(|error| error.to_string())?;
    known.moments.push((commit, count));
    wait(tables.store())?;
    drop(tables);
    let restored = restore_shards(path, None)?;
    if restored != Some(count) {
        return Err(format!("{restored:?} transactions were restored of {count}"));
    }
    let mut random = Random(known.random);
    for _ in 0..EARLIER {
        let at = random.below(known.moments.len() as u64) as usize;
        let (commit, expected) = known.moments.get(at).cloned().ok_or("no earlier state")?;
        // It may precede the bases of a store that was killed before it had them.
        if let Some(restored) = restore_shards(path, Some(&commit))? {
            known.cut += 1;
            if restored != expected {
                return Err(format!("{restored} transactions were restored of {expected}"));
            }
        }
    }
    let follower = Follower::open(standby(path), archive(path));
    let follower = follower.map_err(|error| format!("the follower: {error}"))?;
    let tables = together::Tables::new(follower.store().clone()).map_err(|it| it.to_string())?;
    let found = tables.check().map_err(|error| error.to_string())??;
    if found != count {
        return Err(format!("the follower has {found} transactions of {count}"));
    }
    Ok(())
}
