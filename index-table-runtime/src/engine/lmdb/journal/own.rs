//! The start of the journal of one data file, in its own directory.

use std::{
    fs::File,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io,
    path::Path,
    sync::Arc,
};

use super::{
    archive::{known, outbox::Outbox},
    block::Block,
    files::{self, OWN, Segments},
    found::{Found, Records},
    frame::Salt,
    group::Strategy,
    limits::Limits,
    marked::{data, marker_of},
    marker::{Journalled, Marker},
    member::Member,
    not_started::NotStarted,
    presence::{FileLock, WriterLock},
    snapshot::Snapshot,
    start::{Joined, Start, last},
};
use crate::{
    engine::{Destination, lmdb::names::Env},
    locks::Unshared,
};

/// Returns a random number, for which no file of the operating system is needed.
pub(super) fn identity() -> [u8; 16] {
    let word = || RandomState::new().build_hasher().finish().to_le_bytes();
    let mut identity = [0; 16];
    identity.iter_mut().zip(word().into_iter().chain(word())).for_each(|(to, from)| *to = from);
    identity
}

/// [Starts](super::start) the journal, if no other process writes it.
pub(in crate::engine::lmdb) fn start(
    env: &Env,
    directory: &Path,
    limits: Limits,
    archive: Option<Destination>,
) -> Result<Member, NotStarted> {
    let files = files::create(directory, OWN)?;
    let first = files.first().ok_or(NotStarted::Elsewhere)?;
    // The files are closed before the lock is released.
    let locked = first.try_clone()?;
    let unshared = Unshared::new(first);
    let lock = FileLock::take(&locked)?.ok_or(NotStarted::Elsewhere)?;
    let journal = start_locked((env, directory), (files, unshared), limits, archive)?;
    lock.keep();
    Ok(journal)
}

/// Does this with the lock of the writer, which is released after an error.
fn start_locked(
    (env, directory): (&Env, &Path),
    (files, unshared): (Vec<File>, Unshared),
    limits: Limits,
    archive: Option<Destination>,
) -> Result<Member, NotStarted> {
    // The marker is read with the lock, because the previous owner of the lock may have changed it.
    let marker = marker_of(directory)?;
    let data = data(directory)?;
    let pin = Snapshot::take(env, &data)?;
    env.force_sync()?;

    let (known, left) = match marker {
        Marker::None => (Journalled::own(identity(), 0), None),
        // Without files, the data file uses the journal of all shards of a store.
        Marker::Clean(known) if !is_there(directory, &known)? => {
            (Journalled::own(identity(), 0), None)
        }
        Marker::Clean(known) => (known, None),
        Marker::Needed(known) => (known, Some(Found::read(directory, &known)?)),
    };
    known::settle(directory, archive.as_ref())?;
    let outbox = archive.as_ref().map(|_| outbox_of(directory, &known, left.as_ref(), pin.number));
    let outbox = outbox.transpose()?;
    let heads = files::heads(&files::existing(directory, OWN)?)?;
    let (epoch, sequence) = last(&heads, &known);
    let sequence = left.as_ref().map_or(sequence, |found| found.tail.last) + 1;
    files::forget_others(&files, &known.identity)?;
    let salt = Salt { identity: known.identity, epoch: epoch + 1, sequence };
    let files = Arc::new(Segments::new(files::paths(directory, OWN), files)?);
    // The lock of the writer is on the first file of the journal.
    let writer = WriterLock::of(unshared, Arc::clone(files.first()));
    let (env, epoch, source) = (env.clone(), known.epoch, left.as_ref().map(Records::Journal));
    let (path, slots, ended) = (directory.to_owned(), None, None);
    let joined =
        Joined { shard: 0, directory: path, env, slots, data, writer, epoch, ended, pin, source };
    let (found, strategy) = (left.as_ref(), Strategy::Streamed);
    let start = Start { directory, files, salt, found, first: 1, strategy };
    let members = start.begin(vec![joined], Vec::new(), limits, outbox.zip(archive));
    let mut members = members.map_err(|(_, not_started)| not_started)?;
    members.pop().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound).into())
}

/// Returns the segments that wait for an archive, with the records of an earlier process.
fn outbox_of(
    directory: &Path,
    known: &Journalled,
    left: Option<&Found>,
    number: u64,
) -> Result<Outbox, NotStarted> {
    // A recovery has applied the records. If they can't be read, the outbox finds the gap by the number.
    let read = if left.is_none() { Found::read(directory, known).ok() } else { None };
    Outbox::resume(directory, known, left.or(read.as_ref()), number, None)
}

/// Whether there is a journal with this identity in a directory.
fn is_there(directory: &Path, known: &Journalled) -> io::Result<bool> {
    let heads = files::heads(&files::existing(directory, OWN)?)?;
    let mut blocks = heads.iter().filter_map(|head| Block::read(head));
    Ok(blocks.any(|block| block.salt.identity == known.identity))
}
