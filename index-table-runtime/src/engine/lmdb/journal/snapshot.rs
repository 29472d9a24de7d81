//! The state of LMDB at a checkpoint: a reader that pins the state, and copies of the meta pages.

use std::{fs::File, io, path::Path};

use super::{
    block::{META, Saved, root_sum},
    files::{read_at, write_at},
    weaken,
};
use crate::engine::lmdb::{
    handle::Pin,
    names::Env,
    pages::{self, Fault, Meta, used},
};

/// A pinned state of LMDB. LMDB does not reuse the pages of the state until this value is dropped.
pub(crate) struct Snapshot {
    /// The reader. Nothing is read through it, since the map may have been replaced.
    pin: Option<Pin>,
    pub(crate) number: u64,
    metas: [[u8; META]; 2],
    page_size: u64,
    state: Meta,
}

/// The reason why a state was not pinned.
pub(crate) enum Refused {
    /// LMDB failed.
    Lmdb(heed::Error),
    /// The data file could not be read.
    Io(io::Error),
    /// The file was changed by something other than LMDB.
    Changed(&'static str),
}

impl From<heed::Error> for Refused {
    fn from(error: heed::Error) -> Self {
        Self::Lmdb(error)
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn meta(data: &File, at: u64) -> Result<([u8; META], Meta), Refused> {
    let mut bytes = [0; META];
    read_at(data, at, &mut bytes)?;
    let meta = Meta::read(&bytes).map_err(|_| Refused::Changed("a meta page is damaged"))?;
    Ok((bytes, meta))
}

/// Returns the number of the last transaction in a data file; `None` if its meta pages can't be read.
pub(super) fn last_number(data: &File) -> io::Result<Option<u64>> {
    let read = || {
        let (_, first) = meta(data, 0)?;
        let (_, second) = meta(data, first.page_size())?;
        Ok(first.txn.max(second.txn))
    };
    match read() {
        Ok(number) => Ok(Some(number)),
        Err(Refused::Io(error)) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        Err(_) => Ok(None),
    }
}

impl Snapshot {
    /// Pins the last state. The calling thread must have the turn to write, and no transaction.
    pub(crate) fn take(env: &Env, data: &File) -> Result<Self, Refused> {
        // LMDB's own lock prevents commits, and reports a process that ended in a commit.
        let lock = env.write_txn()?;
        let number = (lock.id() as u64).saturating_sub(1);
        let snapshot = Self::of_last(env, data)?;
        drop(lock);
        if snapshot.number != number {
            return Err(Refused::Changed("a reader has another state than the last one"));
        }
        Ok(snapshot)
    }

    /// Pins the last state. The calling thread must prevent commits. There may be an open transaction.
    pub(crate) fn of_last(env: &Env, data: &File) -> Result<Self, Refused> {
        let pin = env.pin()?;
        let number = pin.number();
        let (first, state) = meta(data, 0)?;
        let page_size = state.page_size();
        let (second, other) = meta(data, page_size)?;
        let newest = if state.txn < other.txn { other } else { state };
        // This also refuses a data file that was rewound while another process reads it.
        if newest.txn != number && !weaken::is("rewind-beside") {
            return Err(Refused::Changed("the last state is not the one of the meta pages"));
        }
        let is_pinned = !weaken::is("without-pin") && !weaken::is("late-pin");
        Ok(Self {
            pin: is_pinned.then_some(pin),
            number,
            metas: [first, second],
            page_size,
            state: newest,
        })
    }

    /// Pins the state too late, in a weakened build.
    pub(crate) fn pin_late(&mut self, env: &Env) {
        if weaken::is("late-pin") {
            self.pin = env.pin().ok();
        }
    }

    /// Releases the state while it is needed, in a weakened build.
    pub(crate) fn release_early(&mut self) {
        if weaken::is("early-release") {
            self.pin = None;
        }
    }

    /// Copies the meta pages too late, in a weakened build.
    pub(crate) fn copy_late(&mut self, data: &File) {
        if weaken::is("late-metas") {
            for (at, copied) in [0, self.page_size].into_iter().zip(&mut self.metas) {
                let _ = read_at(data, at, copied);
            }
        }
    }

    /// Returns the length of the data file with all pages of the state.
    pub(crate) const fn length(&self) -> u64 {
        self.state.last_page.saturating_add(1).saturating_mul(self.page_size)
    }

    /// Returns the bytes of the pages in use, without free pages.
    pub(crate) fn used(&self, data: &File) -> u64 {
        used(&self.state, |at, page| read_at(data, at, page)).unwrap_or_else(|| self.length())
    }

    /// Returns the offsets of both meta pages with the bytes of the state.
    pub(crate) fn metas(&self) -> [(u64, &[u8; META]); 2] {
        let [first, second] = &self.metas;
        [(0, first), (self.page_size, second)]
    }

    /// Returns the contents of a checkpoint block. The pages of the state must be on the disk.
    pub(crate) fn saved(&self, shard: u32, data: &File) -> io::Result<Saved> {
        let roots = [self.state.free.root, self.state.names.root];
        let [free, names] = roots.map(|root| sum(data, root, self.page_size));
        Ok(Saved {
            shard,
            page_size: u32::try_from(self.page_size).map_err(|_| io::ErrorKind::InvalidData)?,
            number: self.number,
            map_size: self.state.map_size,
            metas: self.metas,
            roots: [free?, names?],
        })
    }
}

fn sum(data: &File, root: Option<u64>, page_size: u64) -> io::Result<[u8; 16]> {
    let Some(root) = root else { return Ok(root_sum(None)) };
    let mut page = vec![0; usize::try_from(page_size).unwrap_or_default()];
    let at = root.checked_mul(page_size).ok_or(io::ErrorKind::InvalidData)?;
    read_at(data, at, &mut page)?;
    Ok(root_sum(Some(&page)))
}

impl Saved {
    /// Returns true if the data file has the saved state, by the checksums of its root pages.
    pub(crate) fn is_of(&self, data: &File) -> io::Result<bool> {
        if weaken::is("foreign-data") || weaken::is("late-metas") {
            return Ok(true);
        }
        let metas: Vec<_> = self.metas.iter().filter_map(|meta| Meta::read(meta).ok()).collect();
        let Some(newest) = metas.iter().find(|meta| meta.txn == self.number) else {
            return Ok(false);
        };
        for (root, expected) in [newest.free.root, newest.names.root].iter().zip(self.roots) {
            match sum(data, *root, self.page_size.into()) {
                Ok(found) if found == expected => {}
                Ok(_) => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Checks that the data file has all pages of the saved state, which LMDB would read after the end of a shorter file.
    pub(super) fn check_length(&self, path: &Path) -> Result<(), Fault> {
        let mut metas = self.metas.iter().filter_map(|meta| Meta::read(meta).ok());
        match metas.find(|meta| meta.txn == self.number) {
            Some(meta) if !weaken::any() => pages::look_at_length(path, &meta),
            _ => Ok(()),
        }
    }

    /// Returns the number of databases.
    pub(crate) fn databases(&self) -> u64 {
        let metas = self.metas.iter().filter_map(|meta| Meta::read(meta).ok());
        metas.map(|meta| meta.names.entries).max().unwrap_or_default()
    }

    /// Makes the saved state the current state of the data file. No process may have the file open.
    pub(crate) fn restore(&self, data: &File) -> io::Result<()> {
        if weaken::is("without-metas") {
            return Ok(());
        }
        for (slot, meta) in (0..).zip(&self.metas) {
            if slot == self.number % 2 || !weaken::is("one-slot") {
                write_at(data, slot * u64::from(self.page_size), meta)?;
            }
        }
        Ok(())
    }
}
