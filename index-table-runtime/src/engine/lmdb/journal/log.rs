//! Appending to the journal. One thread at a time does so: the one with the turn to write.

use std::{fs::File, io, sync::Arc, time::SystemTime};

use super::{
    files::{ZEROS, write_at, zero},
    frame::{self, Body, Header, Kind, Place, Salt, Section},
    tail::file_of,
};

/// How much is written ahead when a segment gets longer.
const STEP: u64 = 1 << 20;

/// The journal as it is written.
pub(crate) struct Log {
    files: Arc<Vec<File>>,
    /// How many bytes of each file are written.
    written: Vec<u64>,
    /// Of the current segment.
    salt: Salt,
    /// Where its frames begin.
    head: u64,
    offset: u64,
    link: u64,
    /// The end of the last record, and its link.
    whole: (u64, u64),
    /// The number of the next record.
    record: u64,
    durable: Place,
    checkpoint: u64,
    buffer: Vec<u8>,
}

/// How a commit fails before LMDB knows of it.
pub(in crate::engine::lmdb) enum AppendFailure {
    /// Nothing has changed.
    Refused(io::Error),
    /// The record may be on the disk or not.
    Unknown(io::Error),
}

/// Where the log was when it went on to another segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Switched {
    pub(crate) salt: Salt,
    pub(crate) record: u64,
    pub(crate) link: u64,
}

/// In milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let time = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Log {
    /// A log that goes on in an empty segment, whose frames begin at `head`.
    pub(crate) fn new(
        files: Arc<Vec<File>>,
        salt: Salt,
        record: u64,
        head: u64,
    ) -> io::Result<Self> {
        let lengths = files.iter().map(|file| Ok(file.metadata()?.len()));
        Ok(Self {
            written: lengths.collect::<io::Result<_>>()?,
            files,
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

    /// How many bytes the current segment has.
    pub(crate) const fn length(&self) -> u64 {
        self.whole.0 - self.head
    }

    /// The number of the next record.
    pub(crate) const fn next(&self) -> u64 {
        self.record
    }

    /// The next segment that was begun has a durable checkpoint.
    pub(crate) const fn set_checkpoint(&mut self, sequence: u64) {
        self.checkpoint = sequence;
    }

    /// Appends a part of a record, or the end of one.
    pub(crate) fn append(
        &mut self,
        kind: Kind,
        sections: &[Section<'_>],
        time: u64,
    ) -> io::Result<()> {
        self.append_frame(kind, Body::Sections(sections), time)
    }

    /// Appends the notice that a record is taken back. No later record has changes of its shards.
    pub(crate) fn take_back(&mut self, record: u64) -> io::Result<()> {
        self.append_frame(Kind::TakeBack, Body::Record(record), now())
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

    fn file(&self) -> io::Result<(usize, &File)> {
        let at = file_of(self.salt.sequence, self.files.len());
        let file = self.files.get(at).ok_or(io::ErrorKind::NotFound)?;
        Ok((at, file))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (at, file) = self.file()?;
        let end = self.offset + bytes.len() as u64;
        let written = self.written.get(at).copied().unwrap_or_default();
        let mut longer = written;
        // What is long itself makes the file longer itself.
        if end > written && bytes.len() < STEP as usize / 4 {
            longer = end + STEP;
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

    /// Makes everything that was appended durable.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.file()?.1.sync_data()?;
        self.synced(self.end());
        Ok(())
    }

    /// The end of the last record.
    pub(crate) const fn end(&self) -> Place {
        Place { sequence: self.salt.sequence, offset: self.whole.0 }
    }

    /// Everything before this place is durable.
    pub(crate) const fn durable(&self) -> Place {
        self.durable
    }

    /// The file that has to be synced for everything to be durable that was appended. What is in earlier segments is.
    pub(crate) fn unsynced(&self) -> (Arc<Vec<File>>, usize) {
        (Arc::clone(&self.files), file_of(self.salt.sequence, self.files.len()))
    }

    /// What is before this place has been synced.
    pub(crate) fn synced(&mut self, end: Place) {
        self.durable = self.durable.max(end);
    }

    /// Goes back to the end of the last record, and overwrites the next frame that is appended.
    pub(crate) const fn roll_back(&mut self) {
        (self.offset, self.link) = self.whole;
    }

    /// Removes what may be there of a record whose append has failed, so that it is never read.
    pub(crate) fn erase(&mut self) -> io::Result<()> {
        self.roll_back();
        let (_, file) = self.file()?;
        if self.offset < file.metadata()?.len() {
            write_at(file, self.offset, &[0; 8])?;
            file.sync_data()?;
        }
        Ok(())
    }

    /// Goes on in the next segment, whose file has to be free, and which is no longer than `longest` then.
    pub(crate) fn switch(&mut self, longest: u64) -> Switched {
        self.roll_back();
        let Self { record, link, .. } = *self;
        self.salt.sequence += 1;
        self.offset = self.head;
        self.whole = (self.head, link);
        let longest = longest.max(STEP);
        if let Ok((at, file)) = self.file()
            && self.written.get(at).is_some_and(|written| *written > longest)
            && file.set_len(longest).is_ok()
            && let Some(written) = self.written.get_mut(at)
        {
            *written = longest;
        }
        Switched { salt: self.salt, record, link }
    }
}

/// Writes the block of a checkpoint into its segment, and makes it durable.
pub(crate) fn put_block(files: &[File], block: &super::block::Block) -> io::Result<()> {
    let file = files.get(file_of(block.salt.sequence, files.len()));
    let file = file.ok_or(io::ErrorKind::NotFound)?;
    write_at(file, 0, &block.bytes().ok_or(io::ErrorKind::FileTooLarge)?)?;
    file.sync_data()
}
