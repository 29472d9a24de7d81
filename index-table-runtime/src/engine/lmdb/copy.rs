//! Copies of the data file, concurrent with writers.

use std::{
    fs::File,
    io::{self, Read as _, Seek, SeekFrom, Write as _},
    path::Path,
};

use heed::CompactionOption;

use super::{
    begin::read_txn,
    env::Engine,
    gate::Kind,
    journal::{
        marker::{self, Marker},
        snapshot::{Refused, Snapshot},
    },
    names::FILE,
};
use crate::{
    engine::CopyKind,
    model::error::{Error, Result},
};

/// The maximum number of attempts to pin a snapshot while other processes commit.
const TRIES: usize = 1000;

/// The number of bytes that are copied at once.
const PIECE: usize = 1 << 20;

/// A pinned snapshot of a data file. It can be copied while others write, since LMDB does not reuse its pages.
pub(crate) struct Pinned<'e> {
    engine: &'e Engine,
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

    /// Writes the snapshot into an empty file. Calls `copied` with the number of bytes of each piece.
    ///
    /// The copy has all pages of the data file. Pages that are not in the snapshot may have any contents.
    pub(crate) fn copy(&self, file: &File, copied: &mut dyn FnMut(u64)) -> Result<()> {
        self.copy_to(file, copied).map_err(|source| Error::io(&self.engine.path, source))
    }

    fn copy_to(&self, mut file: &File, copied: &mut dyn FnMut(u64)) -> io::Result<()> {
        let [_, (page_size, _)] = self.snapshot.metas();
        let start = 2 * page_size;
        let mut data = &self.data;
        data.seek(SeekFrom::Start(start))?;
        file.seek(SeekFrom::Start(start))?;
        let mut rest = data.take(self.length().saturating_sub(start));
        let mut piece = Vec::new();
        loop {
            piece.clear();
            let length = (&mut rest).take(PIECE as u64).read_to_end(&mut piece)?;
            if length == 0 {
                break;
            }
            file.write_all(&piece)?;
            copied(length as u64);
        }
        // Pages at the end that were never written are not in the data file.
        file.set_len(self.length())?;
        for (offset, meta) in self.snapshot.metas() {
            file.seek(SeekFrom::Start(offset))?;
            file.write_all(meta)?;
        }
        Ok(())
    }
}

impl Engine {
    /// Pins the last snapshot.
    pub(crate) fn pin(&self) -> Result<Pinned<'_>> {
        let io = |source| Error::io(&self.path, source);
        let data = File::open(self.path.join(FILE)).map_err(io)?;
        for _ in 0..TRIES {
            let pinned = self.begin(Kind::Reader, |env| {
                match Snapshot::of_last(env, &data) {
                    Ok(snapshot) => Ok(Some(Ok(snapshot))),
                    Err(Refused::Lmdb(error)) => Err(error),
                    Err(Refused::Io(source)) => Ok(Some(Err(source))),
                    // A commit has changed a meta page during the copy.
                    Err(Refused::Changed(_)) => Ok(None),
                }
            })?;
            if let (_pass, Some(pinned)) = pinned.into_parts() {
                return Ok(Pinned { engine: self, data, snapshot: pinned.map_err(io)? });
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

    /// Writes a snapshot into an empty file. Before a compact copy, checks each page in use: LMDB writes outside of its
    /// buffers if it compacts some damaged pages.
    pub(crate) fn copy(&self, mut file: &File, copy: CopyKind) -> Result<()> {
        let compaction = match copy {
            CopyKind::Whole => CompactionOption::Disabled,
            CopyKind::Compact => {
                self.check(&mut |_, _| ())?;
                CompactionOption::Enabled
            }
        };
        let copied = self.begin(Kind::Reader, |env| {
            // The copy may be repeated after the map has grown.
            let copied = file
                .set_len(0)
                .and_then(|()| file.rewind())
                .and_then(|()| file.try_clone())
                .map_err(heed::Error::Io)
                .and_then(|mut same| env.copy_to_file(&mut same, compaction));
            match copied {
                // The error concerns the file of the copy, not the file of the store.
                Err(heed::Error::Io(source)) => Ok(Err(Error::io(&self.path, source))),
                copied => copied.map(Ok),
            }
        })?;
        copied.into_parts().1?;
        // A copy is complete without a journal.
        marker::put(file, Marker::None).map_err(|source| Error::io(&self.path, source))
    }
}
