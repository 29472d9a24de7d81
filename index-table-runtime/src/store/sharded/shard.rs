//! Opening one shard, whose identity is compared with the records of the shard map manager.

use std::{path::Path, sync::Arc};

use super::open::{LOCK, refused};
use crate::{
    engine::{Durability, Options, PlaceInJournal, files, lmdb::SharedJournal},
    model::{
        error::{Error, Result},
        shard::ShardNumber,
    },
    placement::shards::{
        Identity, ManagerRecords, Seen, ShardRecord, ShardState, options_of, place_of,
    },
    store::{Inner, shared},
};

/// Opens a shard, and checks that it belongs to the store. Returns the identity of the shard if it has changed, and the
/// caller writes it.
pub(super) fn open_shard(
    options: &Options,
    records: &mut ManagerRecords,
    number: ShardNumber,
    record: &ShardRecord,
    manager: &Path,
    journal: Option<&SharedJournal>,
) -> Result<(Arc<Inner>, Option<Identity>, Option<Seen>)> {
    let files = open_files(options, records, (number, record), manager, journal)?;
    compare_shard(options, records, (number, record), manager, files)
}

/// The open files of a shard, and its own records.
pub(super) type ShardFiles = (Arc<Inner>, Option<Seen>);

/// Opens the files of a shard, and corrects the shard maps by its moves.
pub(super) fn open_files(
    options: &Options,
    records: &mut ManagerRecords,
    (number, record): (ShardNumber, &ShardRecord),
    manager: &Path,
    journal: Option<&SharedJournal>,
) -> Result<ShardFiles> {
    let is_follower = options.follower;
    let read_only = options.read_only || is_follower;
    let own = durable(options_of(&record.options));
    let own = if is_follower {
        Options { follower: true, ..own.durability(Durability::None) }
    } else {
        let without_archive = options.without_archive;
        Options { read_only, without_archive, ..own }
    };
    let own = Options { create: record.state == ShardState::New && !read_only, ..own };
    own.check().map_err(|source| Error::Io { path: manager.to_owned(), source })?;
    let place = place_of(manager, &record.place);
    let inner =
        shared::open_shard(&own, &place, journal.map(|journal| PlaceInJournal(journal, number)))?;
    // With another lock file, a second process could write the shards.
    if !read_only && let Some(engine) = inner.engines.lmdb() {
        engine.watch_path(manager.join(LOCK));
    }
    let seen = Seen::read(inner.engine()?)?;
    // The own records have the state of a move before the manager has it.
    let known = seen.as_ref().filter(|_| journal.is_some() || read_only);
    let is_own = |own: &&Seen| own.identity().manager == records.own.id;
    if let Some(own) = known.filter(is_own) {
        records.add_placed(own.identity());
    }
    for own in known.map_or(Ok(Vec::new()), Seen::moves)? {
        if let Some(map) = records.maps.get_mut(&own.map)
            && let Some(boundaries) = own.boundaries(&map.boundaries)
        {
            map.boundaries = boundaries;
        }
    }
    Ok((inner, seen))
}

/// Checks that an open shard belongs to the store.
pub(super) fn compare_shard(
    options: &Options,
    records: &ManagerRecords,
    (number, record): (ShardNumber, &ShardRecord),
    manager: &Path,
    (inner, seen): ShardFiles,
) -> Result<(Arc<Inner>, Option<Identity>, Option<Seen>)> {
    let is_follower = options.follower;
    let read_only = options.read_only || is_follower;
    let directory = inner.engines.directory();
    let what = format!("shard `{}` in `{}`", record.name, directory.display());
    let expected = |checked| records.identity(number, &record.name, manager, &directory, checked);
    let Some(identity) = seen.as_ref().map(|seen| seen.identity().clone()) else {
        match record.state {
            ShardState::New if !inner.engines.catalog()?.is_empty() => {
                return Err(refused(
                    &what,
                    "it has a store with tables; declare an empty directory, or open that store and add shards to it with \
                     `add_shard`",
                ));
            }
            ShardState::Open | ShardState::Rebuilt | ShardState::Removed => {
                return Err(unavailable(record, "its directory has another store".to_owned()));
            }
            // Its own record is among the commits that the follower has not applied.
            ShardState::New | ShardState::Adopted if is_follower => {
                return Ok((inner, None, None));
            }
            ShardState::New | ShardState::Adopted if read_only => {
                return Err(Error::ReadOnly { path: directory, source: None });
            }
            ShardState::New => return Ok((inner, Some(expected(None)), None)),
            ShardState::Adopted => return Ok((inner, Some(expected(Some(Vec::new()))), None)),
        }
    };
    if identity.manager != records.own.id {
        return Err(refused(&what, "it is a shard of another store"));
    }
    if identity.number != number {
        let reason = format!("it is shard `{}` of this store", identity.name);
        return Err(refused(&what, &reason));
    }
    // The rows of a rebuilt shard are compared with its ranges once.
    let is_rebuilt = record.state == ShardState::Rebuilt;
    let unchecked = || if is_rebuilt { Some(Vec::new()) } else { identity.checked.clone() };
    let expected = expected(unchecked());
    let is_moved = identity.manager_directory != expected.manager_directory;
    if is_moved && identity.directory == expected.directory {
        // The manager was moved, or it is a copy. The original of a copy still exists.
        let other = Path::new(&identity.manager_directory);
        let exists = match files::exists(&other.join("data.mdb")) {
            // This user has no access to the original.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => false,
            exists => exists.map_err(|source| Error::io(other, source))?,
        };
        if exists {
            let reason = format!(
                "it belongs to the store in `{}`, of which this shard map manager is a copy",
                other.display()
            );
            return Err(refused(&what, &reason));
        }
    }
    let is_other = identity.contradicts(&expected);
    // Its files were replaced by a copy, to which rows may have been written alone.
    let is_alone = seen.as_ref().is_some_and(Seen::is_alone);
    // The shard was restored from a backup, and its global indexes may have entries of rows in a removed shard.
    let is_removed = |number| identity.removed.contains(number);
    let is_behind = !read_only && !expected.removed.iter().all(is_removed);
    if options.read_only && is_alone {
        let reason = "its files were replaced by a copy of the shard alone, so the indexes of other shards may not match it; open \
                      the store for writing, and then its tables, which checks them"
            .to_owned();
        return Err(unavailable(record, reason));
    }
    if read_only && is_other && !is_follower {
        let reason = "another process is moving rows between the shards";
        return Err(Error::ReopenNeeded { path: manager.to_owned(), reason });
    }
    // The files of the shard, or of the manager, are older than a move or a removal, or are a copy. Each table is checked when
    // it is opened.
    let is_unchecked = is_other || is_behind || is_alone;
    let checked = if is_unchecked { Some(Vec::new()) } else { expected.checked.clone() };
    let expected = Identity { checked, ..expected };
    let changed = ((identity != expected || is_alone) && !read_only).then_some(expected);
    Ok((inner, changed, seen))
}

/// Returns options of a shard that name a durability: the common journal, unless they name a weaker one. A shard of an earlier
/// release can have `Durability::Full`, which is as durable as the journal.
pub(super) fn durable(options: Options) -> Options {
    match options.durability {
        None | Some(Durability::Full) => options.durability(Durability::Journal),
        Some(_) => options,
    }
}

/// Returns the reason why a shard with rows can't be opened, without the advice to create a store.
pub(super) fn reason_of(error: &Error) -> String {
    match error {
        Error::StoreNotFound { path } => format!(
            "there is no store at `{}`; move its directory back, or restore it from a backup",
            path.display()
        ),
        error => error.to_string(),
    }
}

fn unavailable(record: &ShardRecord, reason: String) -> Error {
    Error::ShardUnavailable { shard: record.name.clone(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine,
        placement::shards::Manager,
        store::{Store, sharded::open::manager_options},
    };

    #[test]
    fn a_plain_store_becomes_a_shard_if_an_earlier_build_has_recorded_this() -> Result<()> {
        let dir = tempfile::tempdir().expect("a directory");
        let (old, shop) = (dir.path().join("old"), dir.path().join("shop"));
        drop(Store::open(&old)?);
        std::fs::create_dir(&shop).expect("a directory");
        let record = ShardRecord {
            name: "old".to_owned(),
            place: "../old".to_owned(),
            state: ShardState::Adopted,
            options: Vec::new(),
        };
        let records = ManagerRecords { shards: vec![record], ..ManagerRecords::new() };
        let options = Options { create: true, ..manager_options() };
        let manager = Manager::new(engine::Engine::open(&options, &shop)?, None);
        manager.write(&records)?;
        drop(manager);
        for _ in 0..2 {
            let store = Store::open(&shop)?;
            let shards = store.inner.engines.several().expect("shards");
            let identity = Identity::read(shards.member(0)?.engine()?)?.expect("a shard");
            assert_eq!((identity.name.as_str(), identity.checked), ("old", Some(Vec::new())));
        }
        Ok(())
    }
}
