//! Copying the data file at a pinned state.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
};

use super::{
    format::{self, BASE_FILE, Base},
    outbox::put,
};
use crate::engine::{
    files as modes,
    lmdb::{
        journal::{
            files::{read_at, sync_directory},
            log,
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
    pub(super) identity: [u8; 16],
    pub(super) generation: u64,
    pub(super) segment: u64,
    /// The time of the last commit that was archived before.
    pub(super) time: u64,
}

/// Writes a base into an archive. Returns the number of bytes.
pub(super) fn write(archive: &Path, store: &Path, request: &Request) -> io::Result<u64> {
    let partial = archive.join(format!(".{}.partial", format::base_name(request.segment)));
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    modes::create_directory(&partial)?;
    let outcome = write_to(&partial, store, request);
    let renamed = outcome.and_then(|length| {
        fs::set_permissions(&partial, fs::metadata(store)?.permissions())?;
        fs::rename(&partial, archive.join(format::base_name(request.segment)))?;
        sync_directory(archive)?;
        Ok(length)
    });
    if renamed.is_err() {
        // The first error is returned.
        let _ = fs::remove_dir_all(&partial);
    }
    renamed
}

fn write_to(partial: &Path, store: &Path, request: &Request) -> io::Result<u64> {
    let Request { snapshot, identity, generation, segment, time } = request;
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
    let base = Base {
        identity: *identity,
        generation: *generation,
        segment: *segment,
        commit: snapshot.number,
        time: log::now().max(*time),
        length: offset,
        hash: *hasher.finalize().as_bytes(),
    };
    put(partial, BASE_FILE, &base.bytes(), &store.join(FILE))?;
    Ok(offset)
}
