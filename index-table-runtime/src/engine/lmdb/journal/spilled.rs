//! The changes of a transaction before its commit: in memory up to a bound, and in a temporary file beyond it.
//!
//! In the common journal of the shards, the frames of a record are contiguous, because other threads append records of other
//! shards. So the changes of a transaction are appended at its commit, and have to be kept until then. The file has no name,
//! and nothing in it outlives the process.

use std::{borrow::Cow, fs::File, io, path::Path};

use super::files::{read_at, write_at};
use crate::engine::files;

/// The bytes that are kept in memory.
const MEMORY: usize = 2 << 20;

/// The earlier changes of a transaction, in parts.
#[derive(Default)]
pub(super) struct Spilled {
    parts: Vec<Part>,
    /// The bytes of the parts in memory.
    in_memory: usize,
    file: Option<File>,
    /// The bytes of the parts in the file.
    in_file: u64,
}

enum Part {
    Memory(Vec<u8>),
    File { offset: u64, length: usize },
}

/// A part, which may have to be read from the file.
#[derive(Clone, Copy)]
pub(super) enum Stored<'c> {
    Memory(&'c [u8]),
    File { file: &'c File, offset: u64, length: usize },
}

impl<'c> Stored<'c> {
    pub(super) const fn len(&self) -> usize {
        match self {
            Self::Memory(changes) => changes.len(),
            Self::File { length, .. } => *length,
        }
    }

    /// Returns the changes.
    pub(super) fn read(self) -> io::Result<Cow<'c, [u8]>> {
        match self {
            Self::Memory(changes) => Ok(changes.into()),
            Self::File { file, offset, length } => {
                let mut changes = vec![0; length];
                read_at(file, offset, &mut changes)?;
                Ok(changes.into())
            }
        }
    }
}

impl Spilled {
    /// Returns the number of bytes of all parts.
    pub(super) const fn bytes(&self) -> u64 {
        self.in_memory as u64 + self.in_file
    }

    /// Returns the number of parts.
    pub(super) const fn len(&self) -> usize {
        self.parts.len()
    }

    /// Adds a part. A temporary file is created in this directory if necessary.
    pub(super) fn push(&mut self, changes: &[u8], directory: &Path) -> io::Result<()> {
        if self.in_memory + changes.len() <= MEMORY {
            self.in_memory += changes.len();
            self.parts.push(Part::Memory(changes.to_vec()));
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(files::temporary(directory)?),
        };
        let (offset, length) = (self.in_file, changes.len());
        write_at(file, offset, changes)?;
        self.in_file += length as u64;
        self.parts.push(Part::File { offset, length });
        Ok(())
    }

    /// Removes the parts after the first `len` parts.
    pub(super) fn truncate(&mut self, len: usize) {
        while self.parts.len() > len {
            match self.parts.pop() {
                Some(Part::Memory(changes)) => self.in_memory -= changes.len(),
                Some(Part::File { offset, .. }) => self.in_file = offset,
                None => {}
            }
        }
    }

    /// Removes all parts, and the file.
    pub(super) fn clear(&mut self) {
        if !self.parts.is_empty() || self.file.is_some() {
            *self = Self::default();
        }
    }

    /// Returns the parts in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Stored<'_>> {
        self.parts.iter().filter_map(|part| match part {
            Part::Memory(changes) => Some(Stored::Memory(changes)),
            Part::File { offset, length } => {
                Some(Stored::File { file: self.file.as_ref()?, offset: *offset, length: *length })
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(spilled: &Spilled) -> io::Result<Vec<u8>> {
        spilled.iter().try_fold(Vec::new(), |mut all, part| {
            assert_eq!(part.len(), part.read()?.len());
            all.extend_from_slice(&part.read()?);
            Ok(all)
        })
    }

    #[test]
    fn parts_beyond_the_memory_are_read_from_a_file_and_removed_again() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let mut spilled = Spilled::default();
        let part = |byte: u8| vec![byte; MEMORY / 2];
        for byte in 1..=5 {
            spilled.push(&part(byte), directory.path())?;
        }
        assert_eq!((spilled.len(), spilled.in_memory), (5, MEMORY));
        let all: Vec<_> = (1..=5).flat_map(part).collect();
        assert!(read(&spilled)? == all);
        // The bytes after the third part are written again.
        spilled.truncate(3);
        spilled.push(&part(7), directory.path())?;
        assert!(read(&spilled)? == [1, 2, 3, 7].map(part).concat());
        spilled.truncate(1);
        for byte in 8..=9 {
            spilled.push(&part(byte), directory.path())?;
        }
        assert!(read(&spilled)? == [1, 8, 9].map(part).concat());
        spilled.clear();
        assert_eq!((spilled.len(), spilled.in_memory, spilled.in_file), (0, 0, 0));
        assert!(spilled.file.is_none() && read(&spilled)?.is_empty());
        // Without the directory, a part that fits into the memory is kept, and a larger one is refused.
        let missing = directory.path().join("missing");
        spilled.push(&part(1), &missing)?;
        assert!(spilled.push(&vec![0; MEMORY], &missing).is_err());
        assert_eq!(spilled.len(), 1);
        Ok(())
    }
}
