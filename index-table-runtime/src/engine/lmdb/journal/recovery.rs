//! Recovery: the last checkpoint of a data file, and the records after it.

use std::{fs::File, io, path::Path};

use heed::{EnvFlags, EnvOpenOptions};

use super::{
    found::Found,
    marked::{data, marker_of},
    marker::{self, Journalled, Marker},
    not_started::NotStarted,
    replay::Failure,
    snapshot::{Snapshot, last_number},
    weaken,
};
use crate::engine::lmdb::{
    names::{Env, FILE},
    pages::Meta,
};

/// Brings the data file to the last commit. No process has the store open, or opens it before this function returns.
/// The data file is complete afterwards. An interrupted recovery is repeated from the same checkpoint, whose
/// pages are unchanged because a reader pins them before the first write.
pub(in crate::engine::lmdb) fn recover(
    directory: &Path,
    known: Journalled,
    (map_size, databases): (usize, u32),
    prepare: impl FnOnce() -> io::Result<()>,
) -> Result<(), NotStarted> {
    let found = Found::read(directory, &known)?;
    // If the power fails during the recovery, data.mdb must not have a record that the journal lacks.
    found.sync()?;
    recover_from(&found, 0, directory, known, (map_size, databases), prepare)
}

/// Returns the state at the last checkpoint, and the number of commits after it, for a data file that has to be recovered. Writes
/// nothing. `None` for a file that is complete.
pub(in crate::engine::lmdb) fn checkpoint_of(
    directory: &Path,
) -> Result<Option<(Meta, u64)>, NotStarted> {
    let known = match marker_of(directory)? {
        Marker::Needed(known) if known.shard.is_none() => known,
        // Its journal is elsewhere, and its last state may lack parts of commits.
        Marker::Needed(_) => {
            let reason = "it is a shard that has to be recovered: open the sharded store first";
            return Err(NotStarted::Damaged(reason.to_owned()));
        }
        _ => return Ok(None),
    };
    let found = Found::read(directory, &known)?;
    let saved = found.saved(0)?;
    let metas = saved.metas.iter().filter_map(|meta| Meta::read(meta).ok());
    let state = metas.max_by_key(|meta| meta.txn).filter(|meta| meta.txn == saved.number);
    let is_own = saved.is_of(&File::open(directory.join(FILE))?)?;
    let damaged = || NotStarted::Damaged("the last checkpoint is not one of data.mdb".to_owned());
    let commits = found.last(0)?.saturating_sub(saved.number);
    Ok(Some((state.filter(|_| is_own).ok_or_else(damaged)?, commits)))
}

/// Does the same for one shard, with a journal that has been read.
pub(super) fn recover_from(
    found: &Found,
    shard: u32,
    directory: &Path,
    known: Journalled,
    (map_size, databases): (usize, u32),
    prepare: impl FnOnce() -> io::Result<()>,
) -> Result<(), NotStarted> {
    let (data, saved) = (data(directory)?, found.saved(shard)?);
    if !saved.is_of(&data)? {
        let reason = "data.mdb is not the file that its journal was written for";
        return Err(NotStarted::Damaged(reason.to_owned()));
    }
    saved.check_length(&directory.join(FILE))?;
    // A record is durable before LMDB commits it.
    let (last, number) = (found.last(shard)?, last_number(&data)?);
    let direct = found.tail.direct;
    let last = direct.map_or(last, |direct| last.max(direct.number));
    if number.is_some_and(|number| number > last) && !weaken::any() {
        return Err(NotStarted::Damaged(found.ends_early(last, number.unwrap_or_default())));
    }
    let created = found.source().creates(&found.tail.records, shard)?;
    // Nothing is written to the data file if the lock file can't be.
    prepare()?;
    let epoch = found.checkpoint.salt.epoch;
    let clean = Marker::Clean(Journalled { epoch, ..known });
    if direct.is_some_and(|it| !it.is_taken_back && Some(it.number) == number) {
        // LMDB has synced the data file before it wrote this number.
        return Ok(marker::put_durably(&data, clean)?);
    }
    saved.restore(&data)?;
    let named = saved.databases().saturating_add(created);
    let databases = databases.saturating_add(u32::try_from(named).unwrap_or(u32::MAX));
    let noted = usize::try_from(saved.map_size).unwrap_or_default();
    let mut open = EnvOpenOptions::new().read_txn_without_tls();
    open.map_size(map_size.max(noted)).max_dbs(databases);
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: no other process has the store open, and none opens it before this process is done. Without syncs
    // the file can be rebuilt from the last checkpoint and the journal, until it is synced below.
    let env = unsafe { Env::open(open.flags(EnvFlags::NO_SYNC), directory) }?;
    let applied = apply_all(&env, &data, found, shard);
    if applied.is_ok() {
        env.force_sync()?;
        marker::put_durably(&data, clean)?;
    }
    // The reader is dropped after that.
    drop(applied?);
    env.close();
    Ok(())
}

/// Applies all records. Returns the reader that pins the checkpoint.
fn apply_all(env: &Env, data: &File, found: &Found, shard: u32) -> Result<Snapshot, NotStarted> {
    let (snapshot, saved) = (Snapshot::take(env, data)?, found.saved(shard)?);
    if snapshot.number != saved.number && !weaken::any() {
        let reason = format!(
            "LMDB has opened transaction {}, and the checkpoint is of {}",
            snapshot.number, saved.number
        );
        return Err(NotStarted::Damaged(reason));
    }
    let larger = || grow(env);
    // Without an overlap, a record that is in the state already has another number than the next record.
    let number = if found.overlaps { saved.number } else { 0 };
    for record in found.records_after(shard, number)? {
        found.source().apply(env, record, shard, &larger)?;
    }
    Ok(snapshot)
}

/// Doubles the size of the map.
pub(super) fn grow(env: &Env) -> Result<bool, Failure> {
    let Some(larger) = env.info().map_size.checked_mul(2) else { return Ok(false) };
    #[expect(unsafe_code, reason = "transactions that are active would lose their map")]
    // SAFETY: only the pin is active, and nothing is read through it.
    unsafe {
        env.resize(larger)?;
    }
    Ok(true)
}
