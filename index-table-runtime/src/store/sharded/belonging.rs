//! Refusing to open the directory of a shard as a plain store. Rows that are written to it alone may be outside of the
//! shard's ranges, or missing in global indexes, so the store would not find them.

use std::{path::Path, sync::Weak};

use super::{
    copy::close,
    grow::manager_of,
    open::{OPEN, manager_options, refused},
    settle::stays_removed,
};
use crate::{
    engine::{self, DataFile, Durability, Options},
    model::error::{Error, Result},
    placement::shards::{Identity, Manager, ManagerRecords, Seen, place_of, write_alone},
    store::{Store, shared},
};

/// Fails if the directory has a shard that belongs to a store, wherever the directory is.
///
/// The shard's own record states whether it belongs to a store. A shard that was removed or detached has recorded this, and
/// so has a [copy](mark_copy) of a single shard. All other copies of a shard belong to a store too: to a backup or a
/// restored store, or to a follower. An earlier release did not record that it removed a shard, so the shard map manager is
/// read too. The manager is written before the commit that removes a shard, so the records of the other shards decide.
pub(in crate::store) fn refuse_shard(path: &Path) -> Result<()> {
    let what = format!("`{}`", path.display());
    let path = path.canonicalize().map_err(|source| Error::opening(path, source))?;
    let seen = match shared::read_apart(&path, Seen::read) {
        Err(Error::RecoveryNeeded { .. }) => {
            let reason = "it is a shard of a sharded store, whose journal has commits of the shard; open the sharded \
                          store first";
            return Err(refused(&what, reason));
        }
        seen => seen?,
    };
    let Some(seen) = seen.filter(|seen| !seen.is_plain()) else { return Ok(()) };
    let identity = seen.identity();
    if managers(identity, &path).any(|manager| has_removed(manager, identity, &path)) {
        return Ok(());
    }
    let reason = format!(
        "it is shard `{}` of the sharded store in `{}` or of a copy of this store, which would not find rows that are \
         written to the shard alone; open that store, detach the shard first, open the directory with `read_only(true)`, \
         or write to a copy of the shard that `Store::restore` makes",
        identity.name, identity.manager_directory
    );
    Err(refused(&what, &reason))
}

/// Records in a copy whether it belongs to a sharded store, if it is a copy of a shard. `directory` has no other files than
/// the copy.
pub(in crate::store) fn mark_copy(
    source: &engine::Engine,
    directory: &Path,
    is_alone: bool,
) -> Result<()> {
    let Some(seen) = Seen::read(source)? else { return Ok(()) };
    if is_alone == seen.is_plain() {
        return Ok(());
    }
    let options = Options::default().create(false).durability(Durability::Full);
    let copy = engine::Engine::open(&options, directory)?;
    if is_alone {
        write_alone(&copy)?;
    } else {
        seen.identity().write(&copy)?;
    }
    close(copy, directory)
}

/// Makes a store with one data file one that belongs to no other store, if its original was growing.
pub(in crate::store) fn leave_store(store: &Store) -> Result<()> {
    if is_growing(store)? { write_alone(store.inner.engine()?) } else { Ok(()) }
}

/// Whether a store with one data file has the own record of a shard: it is a copy of a store that was growing.
pub(in crate::store) fn is_growing(store: &Store) -> Result<bool> {
    Ok(Seen::read(store.inner.engine()?)?.is_some_and(|seen| !seen.is_plain()))
}

/// Makes a restored data file a store with one data file, if its store was growing: it has the own record of a shard, and no shard
/// map manager.
pub(in crate::store) fn leave_shards(directory: &Path) -> Result<()> {
    if !DataFile(directory).has_tables()? || has_manager(directory) {
        return Ok(());
    }
    let options = Options::default().create(false).durability(Durability::Full);
    let restored = engine::Engine::open(&options, directory)?;
    if Seen::read(&restored)?.is_some_and(|seen| !seen.is_plain()) {
        write_alone(&restored)?;
    }
    close(restored, directory)
}

/// Returns the directories in which the shard map manager can be.
fn managers<'m>(identity: &'m Identity, path: &'m Path) -> impl Iterator<Item = &'m Path> {
    let recorded = Path::new(&identity.manager_directory);
    let relative = Path::new(&identity.directory).strip_prefix(recorded).ok();
    let relative = relative.filter(|relative| path.ends_with(relative));
    // Of a store that was moved as a whole.
    let moved = relative.and_then(|relative| path.ancestors().nth(relative.components().count()));
    let moved = moved.filter(|moved| *moved != recorded);
    [Some(recorded), moved].into_iter().flatten()
}

/// Whether the manager in a directory has removed the shard from the directory `path`, and the next opening of the store
/// does not correct the manager.
fn has_removed(manager: &Path, identity: &Identity, path: &Path) -> bool {
    let Some(records) = records(manager).filter(|it| it.own.id == identity.manager) else {
        return false;
    };
    let record = records.shards.get(identity.number as usize);
    let place = record.filter(|it| it.is_removed()).map(|it| place_of(manager, &it.place));
    place.and_then(|place| place.canonicalize().ok()).is_some_and(|place| place == path)
        && stays_removed(&records, identity.number, manager)
}

/// Whether this process has a store with shards open in the directory.
pub(in crate::store) fn is_open(directory: &Path) -> bool {
    let directory = directory.canonicalize().ok();
    directory.is_some_and(|it| OPEN.lock().get(&it).is_some_and(|it| it.strong_count() > 0))
}

/// Whether the directory has a shard map manager that can be read.
pub(in crate::store) fn has_manager(directory: &Path) -> bool {
    records(directory).is_some()
}

/// Returns the records of the manager in a directory; `None` if they can't be read.
fn records(directory: &Path) -> Option<ManagerRecords> {
    let directory = directory.canonicalize().ok()?;
    let stores = OPEN.lock();
    let open = stores.get(&directory).and_then(Weak::upgrade);
    let records = if let Some(inner) = &open {
        inner.engines.several().and_then(|own| own.manager()?.read().ok()?)
    } else {
        read_manager(&manager_of(&directory).ok()?).ok().flatten()
    };
    drop(stores);
    // If it is the last handle, closing the store takes the lock.
    drop(open);
    records
}

/// Reads the records of the manager whose environment is in a directory, which this process has not open.
pub(super) fn read_manager(directory: &Path) -> Result<Option<ManagerRecords>> {
    DataFile(directory).wait_until_closed();
    let options = Options { create: false, read_only: true, ..manager_options() };
    let manager = Manager::new(engine::Engine::open(&options, directory)?, None);
    let records = manager.read();
    drop(manager);
    DataFile(directory).wait_until_closed();
    records
}
