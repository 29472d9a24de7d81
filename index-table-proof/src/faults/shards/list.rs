//! System calls that fail while the list of shards changes: a shard is added, detached and attached, and gets the rows of a tenant.
//! The shard that had them is removed, and the new shard is detached, attached in another directory, and relocated to a third one. Then the
//! shard map manager is lost and rebuilt. At the end, the shard is lost, and restored from a backup from before its labels got
//! other codes.

use std::fs;
use std::path::Path;

use index_table::{Error, Result, Store};

use super::{Failure, Label, Opened, PartRepository, Run, TENANTS, UNIT};

/// The tenant whose rows are in the shard that comes and goes.
pub(super) const TENANT: u8 = 1;

/// The shard that is added, and its directories.
const ADDED: &str = "s3";
const DIRECTORIES: [&str; 3] = ["s3", "s3-attached", "s3-relocated"];

/// The directory of the backup of the shard, and the directory of the lost shard.
const BACKUP: &str = "s3-backup";
const LOST: &str = "s3-lost";

/// The codes of the labels that were changed after the backup.
const CHANGED: u64 = 1 << 40;

/// The steps, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Add,
    /// The added shard is detached. It has no rows and no tables.
    Leave,
    /// It is attached.
    Return,
    Move,
    Remove,
    Detach,
    Attach,
    Relocate,
    Rebuild,
    Backup,
    Restore,
}

pub(super) const STEPS: [Step; 11] = [
    Step::Add,
    Step::Leave,
    Step::Return,
    Step::Move,
    Step::Remove,
    Step::Detach,
    Step::Attach,
    Step::Relocate,
    Step::Rebuild,
    Step::Backup,
    Step::Restore,
];

/// The shard map manager, and its name after its loss.
const MANAGER: [&str; 2] = ["data.mdb", "lost.mdb"];

pub(super) fn has(store: &Store, name: &str) -> bool {
    store.shard_ids().iter().any(|shard| shard.name() == name)
}

fn rename(path: &Path, from: &str, to: &str) -> Result<()> {
    let (from, to) = (path.join(from), path.join(to));
    if to.exists() {
        return Ok(());
    }
    fs::rename(&from, &to).map_err(|source| Error::Io { path: from, source })
}

/// Completes the last step for which the store is closed: opens the store with the directory of the shard, if it was renamed and
/// the store was not opened since, rebuilds a lost manager, and restores a lost shard.
pub(super) fn complete(path: &Path) -> Result<()> {
    if path.join(LOST).exists() {
        return restore(path);
    }
    if path.join(MANAGER[1]).exists() {
        // The rebuilt manager has the last directory of the shard.
        rebuild(path)?;
    }
    if path.join(DIRECTORIES[2]).exists() {
        Store::options().relocate(ADDED, DIRECTORIES[2]).open(path)?;
    }
    Ok(())
}

/// Loses the shard map manager, and rebuilds it unless it was rebuilt before. A killed process leaves no other manager.
fn rebuild(path: &Path) -> Result<()> {
    rename(path, MANAGER[0], MANAGER[1])?;
    let store = if path.join(MANAGER[0]).exists() {
        Store::open(path)?
    } else {
        let options = crate::journal().map_size(1 << 17);
        let options = options.shard("s0", "s0").shard("s1", "s1").shard("s2", "s2");
        options.shard(ADDED, DIRECTORIES[2]).rebuild(path)?
    };
    super::require_all(&store)
}

/// Loses the shard, unless it is lost already, and restores it.
fn restore(path: &Path) -> Result<()> {
    rename(path, DIRECTORIES[2], LOST)?;
    let opened = Opened::open(path)?;
    if let Some((lost, _)) = opened.store.unavailable_shards().pop() {
        opened.store.restore_shard(&lost, path.join(BACKUP))?;
    }
    super::require_all(&opened.store)
}

impl Opened {
    /// Whether the shard with the rows of the tenant is detached.
    pub(super) fn is_detached(&self) -> bool {
        has(&self.store, "s0") && !has(&self.store, "s1") && !has(&self.store, ADDED)
    }

    /// Makes a step, unless it was made before.
    fn change(&self, step: Step, path: &Path) -> Result<()> {
        let store = &self.store;
        match step {
            Step::Add if !has(store, ADDED) => store.add_shard(ADDED, DIRECTORIES[0]).map(drop),
            Step::Move => {
                self.end_moves(true)?;
                if self.parts.shard_of(store, TENANT)?.name() == ADDED {
                    return Ok(());
                }
                store.move_keys("parts", [TENANT], ADDED).run().map(drop)
            }
            Step::Remove if has(store, "s1") => store.remove_shard("s1"),
            Step::Leave | Step::Detach if has(store, ADDED) => store.detach_shard(ADDED),
            Step::Return if !has(store, ADDED) => {
                store.attach_shard(ADDED, DIRECTORIES[0]).map(drop)
            }
            Step::Attach if !has(store, ADDED) => {
                rename(path, DIRECTORIES[0], DIRECTORIES[1])?;
                store.attach_shard(ADDED, DIRECTORIES[1]).map(drop)
            }
            Step::Backup => {
                if !path.join(BACKUP).exists() {
                    store.backup_shard(&store.shard(ADDED)?, path.join(BACKUP))?;
                }
                self.change_codes()
            }
            _ => Ok(()),
        }
    }

    /// Changes the codes of the tenant's labels. Their entries in the global index are in all shards.
    fn change_codes(&self) -> Result<()> {
        self.store.transaction(|txn| {
            let labels =
                self.labels.find_by_tenant(txn, TENANT).rows().collect::<Result<Vec<_>>>()?;
            labels.into_iter().try_for_each(|label| {
                self.labels.put(txn, &Label { code: label.code | CHANGED, ..label })
            })
        })
    }
}

/// Reads the detached shard as a plain store. Returns the number of the tenant's rows; a failure if they are not the rows
/// of its transactions.
fn read_detached(path: &Path) -> Result<Result<u32, Failure>> {
    let found = DIRECTORIES.iter().map(|directory| path.join(directory)).find(|it| it.exists());
    let Some(found) = found else { return Ok(Err("the detached shard has no directory".into())) };
    let plain = Store::open(found)?;
    let parts = PartRepository::open(&plain)?;
    let count = parts.count(&plain.read()?, TENANT, UNIT)?;
    let report = parts.verify(&plain.read()?).run()?;
    if !report.is_clean() {
        return Ok(Err(report.to_string()));
    }
    Ok(count.ok_or_else(|| "the detached shard has other rows".to_owned()))
}

/// The work of the child.
pub(in crate::faults) fn child(path: &Path) -> Result<(), Failure> {
    let mut run = Run::new("store", path);
    run.steps(TENANTS + 1)?;
    for step in STEPS {
        println!("step {step:?}");
        run.change(step)?;
        // While the shard is detached, the transactions of other tenants continue. After the backup, the tenant has none that
        // would be lost.
        let is_short = matches!(step, Step::Detach | Step::Backup);
        run.steps(if is_short { 1 } else { TENANTS + 1 })?;
    }
    Ok(())
}

impl Run {
    /// Makes a step, and makes it again after an error. A fault that has not ended stops the child.
    fn change(&mut self, step: Step) -> Result<(), Failure> {
        for _ in 0..2 {
            if let Some(outcome) = self.change_closed(step) {
                if outcome.is_ok() {
                    return Ok(());
                }
                continue;
            }
            let Some(opened) = self.open()? else { continue };
            match opened.change(step, &self.path) {
                Ok(()) => {
                    self.opened = Some(opened);
                    return Ok(());
                }
                Err(Error::CommitUnknown { .. }) => {
                    println!("error: the step is unknown");
                    println!("reopened");
                }
                // The other steps are made again while the store stays open.
                Err(error) => self.met(opened, &error, super::ALL)?,
            }
        }
        println!("stopped");
        std::process::exit(0)
    }

    /// Makes a step for which the store is closed; `None` for other steps.
    fn change_closed(&mut self, step: Step) -> Option<Result<()>> {
        let relocate = || {
            rename(&self.path, DIRECTORIES[1], DIRECTORIES[2])?;
            let options = Store::options().relocate(ADDED, DIRECTORIES[2]);
            super::require_all(&options.open(&self.path)?)
        };
        let made = match step {
            Step::Relocate | Step::Rebuild | Step::Restore => {
                self.opened = None;
                match step {
                    Step::Relocate => relocate(),
                    Step::Rebuild => rebuild(&self.path),
                    _ => restore(&self.path),
                }
            }
            _ => return None,
        };
        Some(made.inspect_err(|error| println!("error: {error}")))
    }

    /// Continues with the steps from the last one of the child, and checks everything after each of them. No call fails.
    pub(super) fn finish(&mut self, said: &str) -> Result<(), Failure> {
        let shown = |error: Error| error.to_string();
        let begun = |step: &Step| said.contains(&format!("step {step:?}"));
        let mut first = STEPS.into_iter().rfind(begun).unwrap_or(Step::Add);
        if first == Step::Restore && !self.path.join(LOST).exists() {
            first = Step::Backup;
        }
        for step in STEPS.into_iter().filter(|step| *step >= first) {
            let opened = self.opened.take().ok_or("no store")?;
            if step == Step::Backup {
                // A backup of the child lacks the later commits of the tenant.
                let _ = fs::remove_dir_all(self.path.join(BACKUP));
            }
            if matches!(step, Step::Relocate | Step::Rebuild | Step::Restore) {
                drop(opened);
                let made = self.change_closed(step).unwrap_or(Ok(()));
                made.map_err(|error| format!("{step:?}, without a fault: {error}"))?;
            } else {
                // If the child was attaching the shard, it may be attached where it was, or not be detached yet.
                let made = opened.change(step, &self.path);
                made.map_err(|error| format!("{step:?}, without a fault: {error}"))?;
                drop(opened);
            }
            if step == Step::Detach {
                let found = read_detached(&self.path).map_err(shown)??;
                if found != self.commits[usize::from(TENANT)] * 2 {
                    return Err(format!("the detached shard has {found} rows of the tenant"));
                }
            }
            self.check(step).map_err(|wrong| format!("after {step:?}: {wrong}"))?;
        }
        Ok(())
    }

    /// Opens the store and checks it, also in a reader, commits, and checks it again.
    fn check(&mut self, step: Step) -> Result<(), Failure> {
        let shown = |error: Error| error.to_string();
        // A reader needs no writer before it, except for the check of rebuilt shards.
        if step != Step::Rebuild {
            let reader = Opened::read(&self.path).map_err(|error| format!("a reader: {error}"))?;
            reader.compare_labels().map_err(shown)??;
        }
        let opened = Opened::open(&self.path).map_err(shown)?;
        super::require_all(&opened.store).map_err(shown)?;
        for is_written in [false, true] {
            opened.compare(&mut self.commits, &mut self.unknown).map_err(shown)??;
            opened.compare_labels().map_err(shown)??;
            let report = opened.store.verify().map_err(shown)?;
            if !report.is_clean() {
                return Err(report.to_string());
            }
            if !is_written {
                let all = 0..=super::ALL;
                let can = |tenant: &u8| ![TENANT, super::ALL].contains(tenant);
                // The commits after the backup are lost.
                let is_limited = opened.is_detached() || step == Step::Backup;
                let all = all.filter(|tenant| !is_limited || can(tenant));
                for tenant in all {
                    opened.commit(tenant, &mut self.commits).map_err(shown)?;
                }
            }
        }
        self.opened = Some(opened);
        Ok(())
    }
}
