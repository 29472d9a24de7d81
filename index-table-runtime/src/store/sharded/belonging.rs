//! Refusing to open the directory of a shard as a plain store. Rows that are written to it alone may be outside of the
//! shard's ranges, or missing in global indexes, so the store would not find them.

use std::{
    path::{Path, PathBuf},
    sync::Weak,
};

use super::open::{OPEN, manager_options, refused};
use crate::{
    engine::{
        self, Options, lmdb,
        shards::{Identity, Manager, ManagerRecords, place_of},
    },
    model::error::{Error, Result},
    store::shared,
};

/// Fails if the directory has a shard that belongs to a store.
///
/// A shard that was removed or detached records this itself, unless an older release has removed it. Then the shard
/// map manager has the record, if it is where it was, or where it would be if the directory of the whole store was
/// moved. A copy of a shard in another directory belongs to no store.
pub(in crate::store) fn refuse_shard(path: &Path) -> Result<()> {
    let what = format!("`{}`", path.display());
    let path = path.canonicalize().map_err(|source| Error::opening(path, source))?;
    let identity = match shared::read_apart(&path, Identity::read) {
        Err(Error::RecoveryNeeded { .. }) => {
            let reason = "it is a shard of a sharded store, whose journal has commits of the shard; open the sharded \
                          store first";
            return Err(refused(&what, reason));
        }
        identity => identity?,
    };
    let Some(identity) = identity.filter(|own| !own.removed.contains(&own.number)) else {
        return Ok(());
    };
    let mut known = Vec::new();
    for manager in managers(&identity, &path) {
        if let Some(records) = records(&manager).filter(|it| it.own.id == identity.manager) {
            known.push(is_listed(&records, &manager, &identity, &path));
        }
    }
    let is_in_place = Path::new(&identity.directory) == path;
    let belongs = if known.is_empty() { is_in_place } else { known.contains(&true) };
    if !belongs {
        return Ok(());
    }
    let reason = format!(
        "it is shard `{}` of the sharded store in `{}`, which would not find rows that are written to the shard alone; \
         open that store, detach the shard first, or open the directory with `read_only(true)`",
        identity.name, identity.manager_directory
    );
    Err(refused(&what, &reason))
}

/// Returns the directories in which the shard map manager can be.
fn managers(identity: &Identity, path: &Path) -> Vec<PathBuf> {
    let recorded = Path::new(&identity.manager_directory);
    let mut all = vec![recorded.to_owned()];
    if let Ok(relative) = Path::new(&identity.directory).strip_prefix(recorded)
        && path.ends_with(relative)
        && let Some(moved) = path.ancestors().nth(relative.components().count())
        && moved != recorded
    {
        all.push(moved.to_owned());
    }
    all
}

/// Whether the records of the shard's manager have it in this directory.
fn is_listed(records: &ManagerRecords, manager: &Path, identity: &Identity, path: &Path) -> bool {
    let record = records.shards.get(identity.number as usize);
    let record = record.filter(|own| !own.is_removed());
    let place = record.and_then(|own| place_of(manager, &own.place).canonicalize().ok());
    place.is_some_and(|place| place == path)
}

/// Returns the records of the manager in a directory; `None` if they can't be read.
fn records(directory: &Path) -> Option<ManagerRecords> {
    let directory = directory.canonicalize().ok()?;
    let stores = OPEN.lock();
    let open = stores.get(&directory).and_then(Weak::upgrade);
    let records = if let Some(inner) = &open {
        inner.engine.sharded().and_then(|own| own.manager()?.read().ok()?)
    } else {
        lmdb::Engine::wait_until_closed(&directory);
        let options = Options { create: false, read_only: true, ..manager_options() };
        let engine = engine::Engine::open(&options, &directory).ok();
        let records = engine.and_then(|engine| Manager::new(engine, None).read().ok()?);
        lmdb::Engine::wait_until_closed(&directory);
        records
    };
    drop(stores);
    // If it is the last handle, closing the store takes the lock.
    drop(open);
    records
}
