//! Detaching, removing and attaching shards are commits of all shards. The shard map manager is written before such a
//! commit. If the process ends in between, or a reader opens the store in between, the own records of the shards are
//! right: they change in the commit. Until the commit, the record of the shard in the manager is
//! [unconfirmed](ShardRecord::is_unconfirmed). So the state can be corrected although the shard itself can't be read, and before
//! other changes of the own records.

use std::{collections::BTreeSet, io, path::Path};

use super::shard::{ShardFiles, open_files};
use crate::{
    engine::{DataFile, Marked, Options, lmdb::SharedJournal},
    model::{
        error::{Error, Result},
        shard::ShardNumber,
    },
    placement::shards::{Identity, ManagerRecords, Seen, ShardRecord, ShardState, place_of},
    store::shared,
};

/// The files of the shards, by their numbers; `None` for a shard that is not opened.
type Files = [Option<Result<ShardFiles>>];

/// Corrects the state and the ranges of shards whose own record contradicts the manager, if the records of all other open
/// shards contradict it too. Returns whether the records of the manager have changed.
///
/// # Errors
///
/// [`Error::ReopenNeeded`] in a reader: the records of the shards were read before such a commit, and after it.
/// [`Error::ShardUnavailable`]: a shard that has not left the store can't be read.
pub(super) fn settle(
    options: &Options,
    records: &mut ManagerRecords,
    files: &mut Files,
    path: &Path,
    journal: Option<&SharedJournal>,
) -> Result<bool> {
    let lists = removed_by(records, files);
    let mut all = lists.iter().map(|(_, removed)| removed);
    let first = all.next();
    if options.read_only && all.any(|removed| Some(removed) != first) {
        let reason = "another process is detaching or attaching a shard; if none is, open it for writing once, with all of \
                      its shards";
        return Err(Error::ReopenNeeded { path: path.to_owned(), reason });
    }
    let mut is_changed = false;
    for (number, record) in (0..).zip(records.shards.clone()) {
        let Some(removed) = is_removed(&lists, number) else { continue };
        match record.state {
            ShardState::Open if removed => {
                let own = lists.iter().find(|(own, _)| *own == number);
                let has_left = |(_, own): &List| own.contains(&number);
                if own.map_or_else(|| record.is_unconfirmed(), has_left) {
                    let of_shard = files.get_mut(number as usize).and_then(Option::take);
                    drop(of_shard);
                    DataFile(&place_of(path, &record.place)).wait_until_closed();
                    leave(records, number);
                    is_changed = true;
                }
            }
            ShardState::Removed if !removed => {
                let identity = match peek(records, (number, &record), path, journal) {
                    Ok(Some(identity)) => identity,
                    Ok(None) if record.is_unconfirmed() => {
                        return Err(unread(&record, path, "has no shard of the store"));
                    }
                    Ok(None) => continue,
                    Err(error) => {
                        let why = format!("can't be read ({error})");
                        return Err(unread(&record, path, &why));
                    }
                };
                if identity.removed.contains(&number) {
                    continue;
                }
                join(records, number, &identity);
                is_changed = true;
                let is_wanted = |only: &Vec<String>| only.contains(&record.name);
                if let Some(files) = files.get_mut(number as usize)
                    && options.declared.only.as_ref().is_none_or(is_wanted)
                {
                    let record = ShardRecord { state: ShardState::Open, ..record };
                    *files = Some(open_files(options, records, (number, &record), path, journal));
                }
            }
            // The other shards have the state of the manager.
            ShardState::Open | ShardState::Removed if record.is_unconfirmed() => {
                if let Some(record) = records.shards.get_mut(number as usize) {
                    record.confirm();
                    is_changed = true;
                }
            }
            _ => {}
        }
    }
    Ok(is_changed)
}

/// The error for a shard whose removal was not committed. The manager has given its keys to other shards, and only the own
/// record of the shard has them.
fn unread(record: &ShardRecord, path: &Path, why: &str) -> Error {
    let reason = format!(
        "its removal or detaching was not committed, so it belongs to the store, and its directory `{}` {why}; put the \
         directory back, or restore a backup of the shard there with `Store::restore`",
        place_of(path, &record.place).display()
    );
    Error::ShardUnavailable { shard: record.name.clone(), reason }
}

/// Returns whether the next opening of the store leaves a shard out that the manager has as removed, whose own record has it
/// in the store. `false` if no other shard can be read, or if the others contradict each other.
pub(super) fn stays_removed(records: &ManagerRecords, number: ShardNumber, path: &Path) -> bool {
    let own_of = |(other, record): (ShardNumber, &ShardRecord)| {
        if other == number || record.is_removed() {
            return None;
        }
        // A shard that needs the journal of all shards is an error.
        let place = place_of(path, &record.place).canonicalize().ok()?;
        let own = shared::read_apart(&place, Identity::read).ok()??;
        list_of(records, (other, record), &own)
    };
    let lists: Vec<_> = (0..).zip(&records.shards).filter_map(own_of).collect();
    is_removed(&lists, number) == Some(true)
}

/// The removed shards in the own record of a shard with this number.
type List = (ShardNumber, BTreeSet<ShardNumber>);

/// Returns whether the other shards have a shard as removed, if they have recorded the same.
fn is_removed(lists: &[List], number: ShardNumber) -> Option<bool> {
    let others = lists.iter().filter(|(other, _)| *other != number);
    let mut others = others.map(|(_, removed)| removed.contains(&number));
    let first = others.next()?;
    others.all(|other| other == first).then_some(first)
}

/// Returns the removed shards in the own record of each open shard.
fn removed_by(records: &ManagerRecords, files: &Files) -> Vec<List> {
    let mut lists = Vec::new();
    for (shard, files) in (0..).zip(&records.shards).zip(files) {
        let Some(Ok((_, Some(seen)))) = files else { continue };
        lists.extend(list_of(records, shard, seen.identity()));
    }
    lists
}

/// Returns the removed shards in the own record of a shard. Other shards are refused, or their rows are checked.
fn list_of(
    records: &ManagerRecords,
    (number, record): (ShardNumber, &ShardRecord),
    own: &Identity,
) -> Option<List> {
    let is_own = record.state == ShardState::Open && is_of(records, number, own);
    is_own.then(|| (number, own.removed.iter().copied().collect()))
}

fn is_of(records: &ManagerRecords, number: ShardNumber, own: &Identity) -> bool {
    own.manager == records.own.id && own.number == number
}

/// Returns the own record of a removed shard of the store; `None` if its directory has none, or does not exist.
fn peek(
    records: &ManagerRecords,
    (number, record): (ShardNumber, &ShardRecord),
    path: &Path,
    journal: Option<&SharedJournal>,
) -> Result<Option<Identity>> {
    let place = place_of(path, &record.place);
    let place = match place.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        canonical => canonical.map_err(|source| Error::opening(&place, source))?,
    };
    let of_store = (records.own.id, number);
    let identity = match (DataFile(&place).marked()?, journal) {
        (Marked::Shard { manager, number }, Some(journal)) if (manager, number) == of_store => {
            let options = Options::default();
            let record = ShardRecord { state: ShardState::Open, ..record.clone() };
            let opened =
                open_files(&options, &mut records.clone(), (number, &record), path, Some(journal));
            let identity = opened?.1.as_ref().map(Seen::identity).cloned();
            DataFile(&place).wait_until_closed();
            identity
        }
        _ => match shared::read_apart(&place, Identity::read) {
            Err(Error::StoreNotFound { .. }) => None,
            identity => identity?,
        },
    };
    Ok(identity.filter(|identity| is_of(records, number, identity)))
}

/// Undoes the record of a shard that was not attached.
fn leave(records: &mut ManagerRecords, number: ShardNumber) {
    for map in records.maps.values_mut() {
        map.boundaries = map.boundaries.with_none_for(number);
    }
    if let Some(record) = records.shards.get_mut(number as usize) {
        record.state = ShardState::Removed;
        record.confirm();
    }
}

/// Undoes the record of a shard that was not removed or detached.
fn join(records: &mut ManagerRecords, number: ShardNumber, own: &Identity) {
    for own in &own.maps {
        let Some(map) = records.maps.get_mut(&own.map) else { continue };
        for (start, end) in &own.ranges {
            map.boundaries.assign(start, end.as_deref(), Some(number));
        }
    }
    if let Some(record) = records.shards.get_mut(number as usize) {
        record.state = ShardState::Open;
        record.confirm();
    }
}
