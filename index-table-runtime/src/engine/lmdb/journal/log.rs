//! Appends to the journal.

use std::{fs::File, io, sync::Arc, time::SystemTime};

use super::{
    files::{FIRST, Segments, ZEROS, write_at, zero},
    frame::{self, Body, Header, Kind, Place, Salt, Section},
    tail::file_of,
};

/// The maximum number of bytes that are written ahead when a segment is extended.
const STEP: u64 = 1 << 20;

/// The journal, for appends.
pub(crate) struct Log {
    files: Arc<Segments>,
    /// The file of the current segment.
    current: Arc<File>,
    /// The written length of each file.
    written: Vec<u64>,
    /// The salt of the current segment.
    salt: Salt,
    /// The offset of the first frame in each segment.
    head: u64,
    /// The offset of the next frame.
    offset: u64,
    /// The link of the last frame.
    link: u64,
    /// The end of the last complete record, and its link.
    whole: (u64, u64),
    /// The number of the next record.
    record: u64,
    durable: Place,
    checkpoint: u64,
    buffer: Vec<u8>,
}

/// The end of a frame in the current segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    offset: u64,
    link: u64,
}

/// A failure of a commit before LMDB commits.
pub(in crate::engine::lmdb) enum AppendFailure {
    /// The record is not in the journal.
    Refused(io::Error),
    /// The record may be on the disk.
    Unknown(io::Error),
}

/// The state of the log when it switched to another segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Switched {
    pub(crate) salt: Salt,
    pub(crate) record: u64,
    pub(crate) link: u64,
}

/// Returns the current time in milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let time = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the current time in nanoseconds since 1970, for a frame. Two commits that follow each other have different times.
pub(crate) fn nanoseconds() -> u64 {
    let time = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Log {
    /// Creates a log that starts in an empty segment. The first frame of each segment is at offset `head`.
    pub(crate) fn new(
        files: Arc<Segments>,
        salt: Salt,
        record: u64,
        head: u64,
    ) -> io::Result<Self> {
        let lengths = files.open_all()?.into_iter().map(|file| Ok(file.metadata()?.len()));
        let current = files.of(salt.sequence)?;
        Ok(Self {
            written: lengths.collect::<io::Result<_>>()?,
            files,
            current: Arc::new(current),
            salt,
            head,
            offset: head,
            link: 0,
            whole: (head, 0),
            record,
            durable: Place { sequence: salt.sequence, offset: head },
            checkpoint: salt.sequence,
            buffer: Vec::new(),
        })
    }

    /// Returns the number of bytes of complete records in the current segment.
    pub(crate) const fn length(&self) -> u64 {
        self.whole.0 - self.head
    }

    /// Returns the offset of the first frame in each segment.
    pub(crate) const fn head(&self) -> u64 {
        self.head
    }

    /// Returns the link of the last complete record.
    pub(crate) const fn link(&self) -> u64 {
        self.whole.1
    }

    /// Returns the number of the next record.
    pub(crate) const fn next(&self) -> u64 {
        self.record
    }

    /// Whether a file is longer than this.
    pub(crate) fn is_longer(&self, longest: u64) -> bool {
        let longest = self.longest(longest);
        self.written.iter().any(|written| *written > longest)
    }

    /// Records that the checkpoint of this segment is durable.
    pub(crate) const fn set_checkpoint(&mut self, sequence: u64) {
        self.checkpoint = sequence;
    }

    /// Appends a record, or a part of one.
    pub(crate) fn append(
        &mut self,
        kind: Kind,
        sections: &[Section<'_>],
        time: u64,
    ) -> io::Result<()> {
        self.append_frame(kind, Body::Sections(sections), time)
    }

    /// Appends a notice that takes a record back. No later record may have changes of the same shards.
    pub(crate) fn take_back(&mut self, record: u64) -> io::Result<()> {
        self.append_frame(Kind::TakeBack, Body::Record(record), nanoseconds())
    }

    /// Removes the parts of the current record, which are not on the disk yet.
    pub(crate) fn remove_parts(&mut self) {
        self.roll_back();
        let end = self.offset.next_multiple_of(STEP).max(self.longest(0));
        let at = self.at();
        if let Some(written) = self.written.get_mut(at)
            && *written > end
            && self.current.set_len(end).is_ok()
        {
            *written = end;
        }
    }

    fn append_frame(&mut self, kind: Kind, body: Body<'_>, time: u64) -> io::Result<()> {
        let Self { record, durable, checkpoint, link, .. } = *self;
        let header = Header { kind, record, time, durable, checkpoint, link };
        let mut buffer = std::mem::take(&mut self.buffer);
        let link = frame::write(&mut buffer, &self.salt, self.offset, &header, body);
        let link = link.ok_or(io::ErrorKind::FileTooLarge);
        let appended = link.map_err(io::Error::from).and_then(|link| {
            self.write(&buffer)?;
            Ok(link)
        });
        let length = buffer.len() as u64;
        buffer.shrink_to(ZEROS.len());
        self.buffer = buffer;
        self.link = appended?;
        self.offset += length;
        if kind != Kind::Part {
            self.record += 1;
            self.whole = (self.offset, self.link);
        }
        Ok(())
    }

    /// The number of the file of the current segment.
    fn at(&self) -> usize {
        file_of(self.salt.sequence, self.files.len())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (at, file) = (self.at(), &*self.current);
        let end = self.offset + bytes.len() as u64;
        let written = self.written.get(at).copied().unwrap_or_default();
        let mut longer = written;
        // A long write extends the file by itself.
        if end > written && bytes.len() < STEP as usize / 4 {
            longer = end + written.min(STEP);
            zero(file, written, longer).or_else(|_| {
                longer = end;
                zero(file, written, end)
            })?;
        }
        write_at(file, self.offset, bytes)?;
        if let Some(written) = self.written.get_mut(at) {
            *written = longer.max(end);
        }
        Ok(())
    }

    /// Makes all appended frames durable.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.current.sync_data()?;
        self.synced(self.end());
        Ok(())
    }

    /// Returns the end of the last complete record.
    pub(crate) const fn end(&self) -> Place {
        Place { sequence: self.salt.sequence, offset: self.whole.0 }
    }

    /// Returns the position before which everything is durable.
    pub(crate) const fn durable(&self) -> Place {
        self.durable
    }

    /// Returns the file whose sync makes all appended frames durable. Frames in earlier segments are durable already.
    pub(crate) fn unsynced(&self) -> Arc<File> {
        Arc::clone(&self.current)
    }

    /// Records that everything before this position was synced.
    pub(crate) fn synced(&mut self, end: Place) {
        self.durable = self.durable.max(end);
    }

    /// Returns to the end of the last complete record. The next frame overwrites the frames after it.
    pub(crate) const fn roll_back(&mut self) {
        (self.offset, self.link) = self.whole;
    }

    /// Returns the end of the last frame.
    pub(crate) const fn position(&self) -> End {
        End { offset: self.offset, link: self.link }
    }

    /// Returns to an earlier end in the parts of the current record. The next frame overwrites the frames after it.
    pub(crate) const fn back_to(&mut self, end: End) {
        (self.offset, self.link) = (end.offset, end.link);
    }

    /// Erases the start of a record whose append has failed, so that the record is never read.
    pub(crate) fn erase(&mut self) -> io::Result<()> {
        self.roll_back();
        let file = &*self.current;
        if self.offset < file.metadata()?.len() {
            write_at(file, self.offset, &[0; 8])?;
            file.sync_data()?;
        }
        Ok(())
    }

    /// Opens the file of the next segment.
    pub(crate) fn next_file(&self) -> io::Result<File> {
        self.files.of(self.salt.sequence + 1)
    }

    /// Switches to the next segment, whose [file](Self::next_file) must be free. A file longer than `longest` is truncated.
    pub(crate) fn switch(&mut self, file: File, longest: u64) -> Switched {
        self.roll_back();
        let Self { record, link, .. } = *self;
        self.salt.sequence += 1;
        self.offset = self.head;
        self.whole = (self.head, link);
        self.current = Arc::new(file);
        self.truncate(self.at(), longest);
        Switched { salt: self.salt, record, link }
    }

    /// Truncates the files of all earlier segments, which are not needed if the current segment has a durable checkpoint.
    pub(crate) fn shrink(&mut self, longest: u64) {
        let current = self.at();
        for at in (0..self.files.len()).filter(|at| *at != current) {
            self.truncate(at, longest);
        }
    }

    /// No file becomes shorter than its first length and the head of its segment.
    fn longest(&self, longest: u64) -> u64 {
        longest.max(FIRST).max(self.head)
    }

    fn truncate(&mut self, at: usize, longest: u64) {
        let longest = self.longest(longest);
        if let Some(written) = self.written.get_mut(at)
            && *written > longest
            && self.files.open(at).is_ok_and(|file| file.set_len(longest).is_ok())
        {
            *written = longest;
        }
    }
}

/// Writes a checkpoint block into the file of its segment, and makes it durable. The file was opened for the block, so that its
/// sync does not take an error from the sync of a commit.
pub(crate) fn put_block(file: &File, block: &super::block::Block) -> io::Result<()> {
    write_at(file, 0, &block.bytes().ok_or(io::ErrorKind::FileTooLarge)?)?;
    file.sync_data()
}
