//! Runs of sorted records in a temporary file without a name.

use std::{
    fs::File,
    io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write as _},
    ops::Range,
    path::Path,
    sync::Arc,
};

use super::record::{HEADER, Lengths};
use crate::{
    engine::files,
    model::error::{Error, Result},
};

/// Runs in one file.
#[derive(Debug)]
pub(super) struct Runs {
    directory: Arc<Path>,
    file: File,
    /// The range of each run in the file.
    ranges: Vec<Range<u64>>,
    /// The length of the largest record, in bytes.
    largest: usize,
}

impl Runs {
    pub(super) fn new(directory: Arc<Path>) -> Result<Self> {
        match files::temporary(&directory) {
            Ok(file) => Ok(Self { directory, file, ranges: Vec::new(), largest: 0 }),
            Err(error) => Err(failed(&directory, error)),
        }
    }

    pub(super) const fn directory(&self) -> &Arc<Path> {
        &self.directory
    }

    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the length of the largest record, which is the minimum buffer of a reader.
    pub(super) const fn largest(&self) -> usize {
        self.largest
    }

    /// Begins another run; `buffer` is the number of bytes to write at a time.
    pub(super) fn begin(&mut self, buffer: usize) -> Result<Writer<'_>> {
        let Self { directory, file, ranges, largest } = self;
        let start = ranges.last().map_or(0, |run| run.end);
        let mut file = &*file;
        file.seek(SeekFrom::Start(start)).map_err(|error| failed(directory, error))?;
        let to = BufWriter::with_capacity(buffer, file);
        Ok(Writer { directory, to, ranges, largest, run: start..start })
    }

    /// Reads a run; `buffer` is the number of bytes to read at a time.
    pub(super) fn read(self: &Arc<Self>, run: usize, buffer: usize) -> Reader {
        let left = self.ranges.get(run).cloned().unwrap_or_default();
        Reader { runs: Arc::clone(self), left, buffer, bytes: Vec::new(), at: 0, record: 0 }
    }
}

#[cold]
fn failed(directory: &Path, source: io::Error) -> Error {
    Error::io(directory, source)
}

/// Writes a run.
pub(super) struct Writer<'a> {
    directory: &'a Path,
    to: BufWriter<&'a File>,
    ranges: &'a mut Vec<Range<u64>>,
    largest: &'a mut usize,
    run: Range<u64>,
}

impl Writer<'_> {
    #[inline]
    pub(super) fn add(&mut self, record: &[u8]) -> Result<()> {
        self.run.end += record.len() as u64;
        *self.largest = record.len().max(*self.largest);
        self.to.write_all(record).map_err(|error| failed(self.directory, error))
    }

    pub(super) fn finish(mut self) -> Result<()> {
        self.to.flush().map_err(|error| failed(self.directory, error))?;
        self.ranges.push(self.run);
        Ok(())
    }
}

/// Reads a run, record by record.
#[derive(Debug)]
pub(super) struct Reader {
    runs: Arc<Runs>,
    /// The range that has not been read.
    left: Range<u64>,
    /// The number of bytes to read at a time.
    buffer: usize,
    bytes: Vec<u8>,
    /// The offset of the current record in `bytes`, and its length.
    at: usize,
    record: usize,
}

impl Reader {
    /// Returns the current record.
    #[inline]
    pub(super) fn record(&self) -> &[u8] {
        self.bytes.get(self.at..self.at + self.record).unwrap_or_default()
    }

    /// Steps to the next record; `false` at the end.
    #[inline]
    pub(super) fn advance(&mut self) -> Result<bool> {
        self.at += self.record;
        self.record = 0;
        if self.bytes.len() < self.at + HEADER && !self.fill(HEADER)? {
            return Ok(false);
        }
        let lengths = self.bytes.get(self.at..).and_then(Lengths::read);
        let record = lengths.map_or(HEADER, Lengths::record);
        if self.bytes.len() < self.at + record && !self.fill(record)? {
            return Err(failed(&self.runs.directory, io::ErrorKind::UnexpectedEof.into()));
        }
        self.record = record;
        Ok(true)
    }

    /// Reads until there are this many bytes; `false` if there are fewer.
    #[cold]
    fn fill(&mut self, bytes: usize) -> Result<bool> {
        self.bytes.drain(..self.at);
        self.at = 0;
        let start = self.bytes.len();
        let left = usize::try_from(self.left.end - self.left.start).unwrap_or(usize::MAX);
        let wanted = self.buffer.max(bytes).saturating_sub(start).min(left);
        if start + wanted < bytes {
            return Ok(false);
        }
        self.bytes.reserve_exact(wanted);
        self.bytes.resize(start + wanted, 0);
        let mut file = &self.runs.file;
        let read = file
            .seek(SeekFrom::Start(self.left.start))
            .and_then(|_| file.read_exact(self.bytes.get_mut(start..).unwrap_or_default()));
        read.map_err(|error| failed(&self.runs.directory, error))?;
        self.left.start += wanted as u64;
        Ok(true)
    }
}
