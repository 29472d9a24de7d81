//! An archive whose files are passed to a function.
//!
//! `archive.pending` also has the last manifest that was passed to the function, and the description of the last base.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    format::{self, BASE_FILE, Base, Based, MANAGER_FILE, MANIFEST_FILE, Manifest},
    outbox::{Outbox, Work, put},
};
use crate::engine::{ArchiveFile, HandOver, lmdb::names::FILE};

/// The file with the last manifest that was passed to the function.
const HANDED: &str = "handed";

/// The target of an archive with a function.
#[derive(Clone)]
pub(super) struct Handed {
    function: HandOver,
    /// The directory of the outbox.
    pending: PathBuf,
    data: PathBuf,
    /// The last commit that was passed to the function.
    pub(super) commit: u64,
    pub(super) is_attached: bool,
}

impl Handed {
    pub(super) fn new(function: HandOver, outbox: &Outbox) -> Self {
        let (pending, data) = (outbox.directory().to_owned(), outbox.store().join(FILE));
        Self { function, pending, data, commit: 0, is_attached: false }
    }

    /// Removes unfinished bases. Returns the shards of which a base of this generation has been passed to the function.
    pub(super) fn attach(&mut self, outbox: &Outbox) -> io::Result<Based> {
        for entry in fs::read_dir(&self.pending)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            }
        }
        let own = outbox.manifest();
        let before = outbox.work().complete.first().map_or(own.commit, |first| first.commit);
        let handed = match fs::read(self.pending.join(HANDED)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            bytes => Manifest::read(&bytes?),
        };
        let handed = handed.filter(|handed| handed.identity == own.identity);
        if handed.is_none() {
            // Later segments need the manifest, and so does a restore without segments.
            let first = outbox.work().complete.first().map_or(own.segment + 1, |it| it.segment);
            let manifest = Manifest { segment: first.saturating_sub(1), ..*own };
            put(&self.pending, HANDED, &manifest.bytes(), &self.data)?;
            let outcome = self.hand_over(&own.identity, MANIFEST_FILE, &self.pending.join(HANDED));
            if outcome.is_err() {
                fs::remove_file(self.pending.join(HANDED))?;
            }
            outcome?;
        }
        self.commit = handed.map_or(before, |handed| handed.commit).min(own.commit);
        self.is_attached = true;
        self.based(own)
    }

    /// Returns the shards of which a base of this generation has been passed to the function.
    pub(super) fn based(&self, own: &Manifest) -> io::Result<Based> {
        let mut bases = Vec::new();
        for entry in fs::read_dir(&self.pending)? {
            let entry = entry?;
            let is_base = entry.file_name().to_string_lossy().starts_with(BASE_FILE);
            if is_base && entry.file_type()?.is_file() {
                bases.extend(Base::read(&fs::read(entry.path())?));
            }
        }
        Ok(format::based(bases, own))
    }

    /// Calls the function with a file.
    fn hand_over(&self, identity: &[u8; 16], name: &str, path: &Path) -> io::Result<()> {
        let prefixed = format!("{:032x}/{name}", u128::from_be_bytes(*identity));
        (self.function.0)(ArchiveFile { name: &prefixed, path })
    }

    /// Calls the function with all complete segments.
    pub(super) fn deliver(&mut self, work: &Work, complete: &mut dyn FnMut(u64)) -> io::Result<()> {
        for end in &work.complete {
            let name = format::segment_name(end.segment);
            self.hand_over(&end.identity, &name, &self.pending.join(&name))?;
            put(&self.pending, HANDED, &end.bytes(), &self.data)?;
            self.hand_over(&end.identity, MANIFEST_FILE, &self.pending.join(HANDED))?;
            self.commit = end.commit;
            complete(end.segment);
        }
        if work.complete.is_empty() && work.growing == 0 {
            // The last records had no changes for a segment.
            self.commit = work.manifest.commit;
        }
        Ok(())
    }

    /// Calls the function with a base in the directory with this name, and removes the copy.
    pub(super) fn deliver_base(&self, name: &str) -> io::Result<()> {
        let directory = self.pending.join(name);
        let bytes = fs::read(directory.join(BASE_FILE))?;
        let base = Base::read(&bytes).ok_or(io::ErrorKind::InvalidData)?;
        let manager = base.shard.map(|_| MANAGER_FILE);
        for file in manager.into_iter().chain([FILE, BASE_FILE]) {
            self.hand_over(&base.identity, &format!("{name}/{file}"), &directory.join(file))?;
        }
        let known = match base.shard {
            None => BASE_FILE.to_owned(),
            Some(shard) => format!("{BASE_FILE}.{}", shard.number),
        };
        put(&self.pending, &known, &bytes, &self.data)?;
        fs::remove_dir_all(directory)
    }
}
