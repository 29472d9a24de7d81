//! Copying the data file at a pinned state.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use super::{
    format::{BASE_FILE, Base, MANAGER_FILE, ShardBase},
    outbox::put,
};
use crate::engine::{
    files as modes,
    lmdb::{
        journal::{
            files::{read_at, sync_directory},
            snapshot::Snapshot,
        },
        names::FILE,
    },
};

/// The number of bytes that are copied at once.
const PIECE: usize = 1 << 20;

/// A state of the data file that will be copied.
pub(super) struct Request {
    pub(super) snapshot: Snapshot,
    /// The directory of the data file.
    pub(super) store: PathBuf,
    /// In a sharded store, the number of the shard and the records of the shard map manager.
    pub(super) shard: Option<(u32, Vec<u8>)>,
    pub(super) identity: [u8; 16],
    pub(super) generation: u64,
    pub(super) segment: u64,
    /// A time at or after that of the last commit in the state.
    pub(super) time: u64,
}

/// Writes a base into an archive.
pub(super) fn write(archive: &Path, request: &Request) -> io::Result<Base> {
    let shard = request.shard.as_ref().map(|(number, manager)| ShardBase {
        number: *number,
        manager: *blake3::hash(manager).as_bytes(),
    });
    let base = Base {
        identity: request.identity,
        generation: request.generation,
        segment: request.segment,
        commit: request.snapshot.number,
        time: request.time,
        length: 0,
        hash: [0; 32],
        shard,
    };
    let partial = archive.join(format!(".{}.partial", base.name()));
    if modes::exists(&partial)? {
        fs::remove_dir_all(&partial)?;
    }
    modes::create_directory(&partial)?;
    let outcome = write_to(&partial, base, request);
    let renamed = outcome.and_then(|base| {
        fs::set_permissions(&partial, fs::metadata(&request.store)?.permissions())?;
        let directory = archive.join(base.name());
        // A base of an earlier generation, with the same segment.
        let replaced = archive.join(format!(".{}.replaced", base.name()));
        if modes::exists(&directory)? {
            if modes::exists(&replaced)? {
                fs::remove_dir_all(&replaced)?;
            }
            fs::rename(&directory, &replaced)?;
        }
        fs::rename(&partial, directory)?;
        sync_directory(archive)?;
        if modes::exists(&replaced)? {
            fs::remove_dir_all(&replaced)?;
        }
        Ok(base)
    });
    if renamed.is_err() {
        // The first error is returned.
        let _ = fs::remove_dir_all(&partial);
    }
    renamed
}

fn write_to(partial: &Path, base: Base, request: &Request) -> io::Result<Base> {
    let Request { snapshot, store, shard, .. } = request;
    let data = File::open(store.join(FILE))?;
    let mut file = modes::create_file(&partial.join(FILE))?;
    let (length, on_disk) = (snapshot.length(), data.metadata()?.len());
    let [_, (page_size, _)] = snapshot.metas();
    let mut hasher = blake3::Hasher::new();
    // Only the pages of the state are copied from the first two, without the marker of the journal.
    let mut piece = vec![0; usize::try_from(2 * page_size).unwrap_or_default()];
    for (offset, meta) in snapshot.metas() {
        let at = usize::try_from(offset).unwrap_or_default();
        if let Some(to) = piece.get_mut(at..at + meta.len()) {
            to.copy_from_slice(meta);
        }
    }
    let mut offset = 0;
    loop {
        hasher.update(&piece);
        file.write_all(&piece)?;
        offset += piece.len() as u64;
        let left = length.saturating_sub(offset);
        if left == 0 {
            break;
        }
        piece.clear();
        piece.resize(usize::try_from(left).unwrap_or(PIECE).min(PIECE), 0);
        // Pages at the end that were never written are not in the data file.
        let there = on_disk.saturating_sub(offset).min(piece.len() as u64);
        let there = usize::try_from(there).unwrap_or_default();
        if let Some(there) = piece.get_mut(..there) {
            read_at(&data, offset, there)?;
        }
    }
    file.set_permissions(fs::metadata(store.join(FILE))?.permissions())?;
    file.sync_all()?;
    if let Some((_, manager)) = shard {
        put(partial, MANAGER_FILE, manager, &store.join(FILE))?;
    }
    let base = Base { length: offset, hash: *hasher.finalize().as_bytes(), ..base };
    put(partial, BASE_FILE, &base.bytes(), &store.join(FILE))?;
    Ok(base)
}
