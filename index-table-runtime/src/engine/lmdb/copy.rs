//! Copies of the data file, concurrent with writers.

use std::{
    fs::File,
    io::{self, Read, Seek as _, SeekFrom, Write as _},
    path::Path,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

#[cfg(unix)]
use std::os::unix::net::UnixStream as Pipe;

#[cfg(windows)]
use std::io::{PipeReader as Pipe, pipe};

use heed::CompactionOption;

use super::{
    begin::read_txn,
    env::Engine,
    gate::Kind,
    journal::{
        marker::{self, Marker},
        snapshot::{Refused, Snapshot},
    },
    pages::read_at,
};
use crate::model::error::{Error, Result};

/// The maximum number of attempts to pin a snapshot without a wait.
const TRIES: usize = 100;

/// The wait between two further attempts, while other processes sync their commits, and the maximum time of all attempts.
const WAIT: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_mins(1);

/// The name of the thread that compacts a copy.
const NAME: &str = "store-copy";

/// The number of bytes that are copied at once.
const PIECE: u64 = 1 << 20;

/// Is called with the number of bytes of each piece of a copy. Its error ends the copy.
pub(crate) type Copied<'c> = dyn FnMut(u64) -> io::Result<()> + 'c;

/// A pinned snapshot of a data file. It can be copied while others write, since LMDB does not reuse its pages.
pub(crate) struct Pinned<'e> {
    engine: &'e Engine,
    /// LMDB's own descriptor: the file may have been moved, and LMDB uses the position of the descriptor.
    data: File,
    snapshot: Snapshot,
}

impl Pinned<'_> {
    /// Returns the directory of the data file.
    pub(crate) fn directory(&self) -> &Path {
        self.engine.directory()
    }

    /// Returns the length of a copy, in bytes.
    pub(crate) const fn length(&self) -> u64 {
        self.snapshot.length()
    }

    /// Writes the snapshot into an empty file. Calls `copied` with the number of bytes of each piece. Its error ends the copy.
    ///
    /// The copy has all pages of the data file. Pages that are not in the snapshot may have any contents.
    pub(crate) fn copy(&self, file: &File, copied: &mut Copied<'_>) -> Result<()> {
        self.copy_to(file, copied).map_err(|source| Error::io(&self.engine.path, source))
    }

    fn copy_to(&self, mut file: &File, copied: &mut Copied<'_>) -> io::Result<()> {
        let [_, (page_size, _)] = self.snapshot.metas();
        // Pages at the end that were never written are not in the data file.
        let (mut at, end) = (2 * page_size, self.length().min(self.data.metadata()?.len()));
        file.seek(SeekFrom::Start(at))?;
        let mut piece = Vec::new();
        while at < end {
            let length = PIECE.min(end - at);
            piece.resize(length as usize, 0);
            read_at(&self.data, at, &mut piece)?;
            file.write_all(&piece)?;
            at += length;
            copied(length)?;
        }
        file.set_len(self.length())?;
        for (offset, meta) in self.snapshot.metas() {
            file.seek(SeekFrom::Start(offset))?;
            file.write_all(meta)?;
        }
        // A copy is complete without a journal.
        marker::put(file, Marker::None)
    }
}

/// Copies all bytes of `from`, and calls `copied` after each piece.
fn copy_pieces(from: &mut dyn Read, mut to: &File, copied: &mut Copied<'_>) -> io::Result<()> {
    let mut piece = Vec::new();
    loop {
        piece.clear();
        let length = (&mut *from).take(PIECE).read_to_end(&mut piece)?;
        if length == 0 {
            return Ok(());
        }
        to.write_all(&piece)?;
        copied(length as u64)?;
    }
}

impl Engine {
    /// Pins the last snapshot. Waits at most a minute, while commits of other processes are synced.
    pub(crate) fn pin(&self) -> Result<Pinned<'_>> {
        let io = |source| Error::io(&self.path, source);
        let begun = Instant::now();
        for attempt in 0.. {
            if attempt >= TRIES {
                thread::sleep(WAIT);
            }
            if begun.elapsed() > PATIENCE {
                break;
            }
            let pinned = self.begin(Kind::Reader, |env| {
                let data = env.try_clone_inner_file()?;
                match Snapshot::of_last(env, &data) {
                    Ok(snapshot) => Ok(Some(Ok((data, snapshot)))),
                    Err(Refused::Lmdb(error)) => Err(error),
                    Err(Refused::Io(source)) => Ok(Some(Err(source))),
                    // A commit has changed a meta page during the copy.
                    Err(Refused::Changed(_)) => Ok(None),
                }
            })?;
            if let (_pass, Some(pinned)) = pinned.into_parts() {
                let (data, snapshot) = pinned.map_err(io)?;
                return Ok(Pinned { engine: self, data, snapshot });
            }
        }
        Err(Error::internal("no snapshot could be pinned, because the meta pages kept changing"))
    }

    /// Returns the bytes in use, up to the last page.
    pub(crate) fn size(&self) -> Result<u64> {
        let reading = self.begin(Kind::Reader, read_txn)?;
        let used = self.used() as u64;
        drop(reading);
        Ok(used)
    }

    /// Writes a snapshot without its free pages into an empty file. The caller has [checked](Engine::check) each page in use: LMDB
    /// writes outside of its buffers if it compacts some damaged pages. `copied` is called as by [`Pinned::copy`].
    ///
    /// LMDB compacts in a separate thread, and writes to a pipe, so that the copy can end early.
    pub(crate) fn compact(&self, mut file: &File, copied: &mut Copied<'_>) -> Result<()> {
        let io = |source| Error::io(&self.path, source);
        thread::scope(|scope| {
            let (attempts, pipes) = mpsc::channel();
            let compacting = thread::Builder::new()
                .name(NAME.to_owned())
                .spawn_scoped(scope, move || self.compact_into(&attempts))
                .map_err(|source| Error::Thread { name: NAME, source })?;
            let mut written = Ok(());
            // There is another attempt after the map has grown.
            for mut pipe in pipes {
                written = file
                    .set_len(0)
                    .and_then(|()| file.rewind())
                    .and_then(|()| copy_pieces(&mut pipe, file, copied));
            }
            let compacted = compacting.join();
            // LMDB's error is the consequence of an error of the file.
            written.map_err(io)?;
            compacted.unwrap_or_else(|_| Err(Error::internal("a copy has panicked")))?;
            // A copy is complete without a journal.
            marker::put(file, Marker::None).map_err(io)
        })
    }

    /// Compacts into a new pipe, whose reader it sends.
    fn compact_into(&self, attempts: &mpsc::Sender<Pipe>) -> Result<()> {
        let copied = self.begin(Kind::Reader, |env| {
            let piped = pipe().map_err(heed::Error::Io).and_then(|(reader, writer)| {
                // Without a receiver, the pipe has no reader, and the copy fails.
                drop(attempts.send(reader));
                let end = End(writer.try_clone().map_err(heed::Error::Io)?);
                let copied = env.copy_to_file(&mut file_of(writer), CompactionOption::Enabled);
                drop(end);
                copied
            });
            match piped {
                // The error concerns the pipe, not the file of the store.
                Err(heed::Error::Io(source)) => Ok(Err(Error::io(&self.path, source))),
                copied => copied.map(Ok),
            }
        })?;
        copied.into_parts().1
    }
}

/// Returns both ends of a pipe.
#[cfg(unix)]
fn pipe() -> io::Result<(Pipe, Pipe)> {
    Pipe::pair()
}

#[cfg(unix)]
fn file_of(pipe: Pipe) -> File {
    File::from(std::os::fd::OwnedFd::from(pipe))
}

/// Ends a pipe, also if a forked process has inherited its writer.
#[cfg(unix)]
struct End(Pipe);

#[cfg(unix)]
impl Drop for End {
    fn drop(&mut self) {
        // Otherwise, the last handle of the writer ends it.
        let _ = self.0.shutdown(std::net::Shutdown::Write);
    }
}

#[cfg(windows)]
fn file_of(pipe: io::PipeWriter) -> File {
    File::from(std::os::windows::io::OwnedHandle::from(pipe))
}

#[cfg(windows)]
struct End(io::PipeWriter);
