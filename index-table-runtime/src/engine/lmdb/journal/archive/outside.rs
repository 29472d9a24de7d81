//! The commits that an archive lacks, as a process sees them that does not write the store.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use super::{
    format::{self, nanoseconds_of, part_name, segment_name},
    outbox::PENDING,
    records::Records,
    restore::Archive,
};
use crate::model::error::{Error, Result};

impl Archive {
    /// Returns the time of the first commit that the outbox of a store has and the archive lacks, in nanoseconds since 1970; `None` if there
    /// is none. Commits that the writer has not put into its outbox are unknown: it does this several times a second.
    ///
    /// Cost: the outbox's segments are opened, and the records of the first one that the archive lacks are read.
    pub(crate) fn lacks_since(&self, store: &Path) -> Result<Option<u64>> {
        let pending = store.join(PENDING);
        let found = match fs::read_dir(&pending) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found.map_err(|source| Error::io(&pending, source))?,
        };
        let mut segments = Vec::new();
        for entry in found {
            let name = entry.map_err(|source| Error::io(&pending, source))?.file_name();
            let name = name.to_string_lossy();
            let name = name.strip_suffix(".part").unwrap_or(&name);
            segments.extend(format::number_of(name, "segment"));
        }
        segments.sort_unstable();
        for segment in segments.into_iter().filter(|segment| *segment > self.manifest.segment) {
            for name in [segment_name(segment), part_name(segment)] {
                let path = pending.join(name);
                let io = |source| Error::io(&path, source);
                // The writer has moved it meanwhile.
                let Some(file) = opened(&path).map_err(io)? else { continue };
                let has = self.length(segment)?;
                let Some(mut records) = Records::open(&file).map_err(io)? else { continue };
                while let Some(record) = records.next().map_err(io)? {
                    if records.offset > has {
                        return Ok(Some(nanoseconds_of(record.time)));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Returns the bytes of a segment in the archive.
    fn length(&self, segment: u64) -> Result<u64> {
        let mut length = 0;
        for name in [segment_name(segment), part_name(segment)] {
            let path = self.directory.join(name);
            match fs::metadata(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                found => {
                    length = found.map_err(|source| Error::io(&path, source))?.len().max(length);
                }
            }
        }
        Ok(length)
    }
}

fn opened(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        file => file.map(Some),
    }
}
