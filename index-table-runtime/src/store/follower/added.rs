//! A shard that is added to the original of a follower.
//!
//! The archive has a base of the shard from before its first commit. The follower copies this base when it gets this commit, so no
//! snapshot has a part of a commit of several shards. A follower that ends without being closed copies the archive again, so there
//! is nothing to be done after a crash in between.

use std::{fs, path::Path, sync::Arc};

use crate::{
    engine::{
        files::{self, DATA_FILE},
        lmdb::{Archive, Base, BaseBefore, Following},
    },
    model::{
        error::{Error, Result},
        shard::ShardNumber,
    },
    placement::shards::Shard,
    store::{
        Inner, Shards, Store,
        copy::Modes,
        sharded::{open_followed, place_in_copy},
    },
};

/// Adds a shard to a follower. `number` is that of the first commit that the follower gets of the shard.
///
/// # Errors
///
/// [`Error::NotInArchive`]: the archive has no base of the shard yet. Or it has later ones only; then the next opening of the follower
/// copies the archive.
pub(super) fn add_shard(
    store: &Store,
    shards: &Shards,
    begun: &Following,
    (shard, number): (ShardNumber, u64),
) -> Result<()> {
    let lacks = |reason: String| Error::NotInArchive { path: begun.directory().to_owned(), reason };
    let archive = Archive::open(begun.directory())?;
    let base = match begun.base_before(&archive, shard, number) {
        BaseBefore::Found(base) if shards.next_number() == shard => base,
        BaseBefore::NotYet => {
            return Err(lacks(format!(
                "it has no base of shard number {shard} yet, which was added to the original; the follower continues when it has one"
            )));
        }
        BaseBefore::Found(_) | BaseBefore::None => {
            shards.set_lacks_shard();
            return Err(lacks(format!(
                "it has no base of shard number {shard} from before the shard was added to the original; drop the follower and open \
                 it again, which copies the archive"
            )));
        }
    };
    let _opening = store.inner.lock_opening();
    let path = shards.directory();
    let place = path.join(place_in_copy(shard));
    let partial = path.join(format!(".{}.partial", place_in_copy(shard)));
    let copied = copy(&archive, &base, (&partial, &place));
    let opened = copied.and_then(|()| open(shards, shard));
    let (name, inner) = opened.inspect_err(|_| {
        // The position of a closed follower is that of its own shards, so the next opening must not find this one.
        let is_left = files::exists(&place.join(DATA_FILE)).unwrap_or(true);
        if super::original::remove(&place).is_err() && is_left {
            shards.set_lacks_shard();
        }
    })?;
    shards.keep_store(&inner);
    let engine = Arc::clone(inner.engine()?);
    let in_use = store.inner.tables_in_use();
    shards.add_followed(Shard::open(name, engine), |name| {
        for tables in in_use.iter().filter_map(|table| table.tables.several()) {
            tables.add_name(shard, name);
        }
    });
    Ok(())
}

/// Copies a base to a directory of the follower, which may have a shard that the original could not add.
fn copy(archive: &Archive, base: &Base, (partial, place): (&Path, &Path)) -> Result<()> {
    let io = |source| Error::io(place, source);
    [partial, place].into_iter().try_for_each(super::original::remove).map_err(io)?;
    files::create_directory(partial).map_err(io)?;
    let file = files::create_file(&partial.join(DATA_FILE)).map_err(io)?;
    archive.copy(base, (&file, place), &mut |_| ())?;
    Modes::of(&archive.base_directory(base)).apply(&file, partial).map_err(io)?;
    // Closing the follower syncs the file.
    files::sync_directory(partial).map_err(io)?;
    fs::rename(partial, place).map_err(io)?;
    files::sync_directory(files::parent(place)).map_err(io)
}

/// Opens the copy of a base. Until the follower is closed, nothing else opens it.
fn open(shards: &Shards, shard: ShardNumber) -> Result<(Arc<str>, Arc<Inner>)> {
    let (name, inner) = open_followed(shards, shard)?;
    inner.engine()?.on_disk()?.begin_to_follow()?;
    Ok((name, inner))
}
