//! The valid part of a journal: the last checkpoint, and the records after it.
//! Pure over [`Source`]s. A journal ends at the first frame that does not follow the previous frame: there
//! the power failed or the process was killed. But if a later frame records that this position was durable,
//! the journal is damaged, and reading it is an error.

use std::io;

use super::{
    block::Block,
    frame::{self, ALIGNMENT, Frame, HEADER, Kind, Place, Salt},
    marker::Journalled,
    weaken,
};

/// The bytes of a segment.
pub(crate) trait Source {
    fn length(&self) -> io::Result<u64>;

    /// Fills the buffer with the bytes at this offset, which must exist.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
}

impl Source for &[u8] {
    fn length(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|offset| self.get(offset..));
        let from = from.and_then(|from| from.get(..into.len()));
        into.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// The reason why a journal can't be read.
#[derive(Debug)]
pub(crate) enum Fault {
    Io(io::Error),
    /// The damage, with its position.
    Damaged(String),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A record: its number, when it was appended, the shards that it changes, and the frames that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) number: u64,
    pub(crate) time: u64,
    pub(crate) shards: Vec<u32>,
    pub(crate) frames: Vec<Place>,
}

impl Record {
    /// Whether the record has changes of this shard. A record without shards is malformed, which is detected
    /// when it is applied.
    pub(crate) fn changes(&self, shard: u32) -> bool {
        self.shards.contains(&shard) || self.shards.is_empty()
    }
}

/// A record whose changes are in the data file only. No other record follows it, unless it was taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Direct {
    record: u64,
    /// The number of LMDB's transaction.
    pub(crate) number: u64,
    pub(crate) is_taken_back: bool,
}

/// The records after a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tail {
    /// The records with changes that were not taken back, in order.
    pub(crate) records: Vec<Record>,
    /// The last direct record.
    pub(crate) direct: Option<Direct>,
    /// The number of the next record.
    pub(crate) next: u64,
    /// The last segment with a frame, or the segment of the checkpoint.
    pub(crate) last: u64,
    /// The end of the last record, or of the checkpoint.
    pub(crate) end: Place,
}

/// Returns the number of the file of a segment.
pub(crate) fn file_of(sequence: u64, files: usize) -> usize {
    if weaken::is("reused-segment") {
        return 0;
    }
    usize::try_from(sequence % files.max(1) as u64).unwrap_or_default()
}

/// Returns the newest checkpoint in the first blocks of the files.
///
/// # Errors
///
/// If it is older than the marker of the data file requires, or if there is none.
pub(crate) fn newest(heads: &[Vec<u8>], marked: &Journalled) -> Result<Block, Fault> {
    let own = heads.iter().enumerate().filter_map(|(at, head)| {
        let block = Block::read(head)?;
        let is_own = block.salt.identity == marked.identity
            && file_of(block.salt.sequence, heads.len()) == at;
        is_own.then_some(block)
    });
    let newest = own.max_by_key(|block| (block.salt.epoch, block.salt.sequence));
    match newest {
        Some(block) if block.salt.epoch >= marked.epoch => Ok(block),
        Some(block) => Err(Fault::Damaged(format!(
            "the journal is older than data.mdb, or its last checkpoint is damaged: it was started {} \
             times, and data.mdb says {}",
            block.salt.epoch, marked.epoch
        ))),
        None => Err(Fault::Damaged(
            "the journal of data.mdb is missing, or its checkpoints are damaged".to_owned(),
        )),
    }
}

/// Reads the records after a checkpoint. `files` are the segments, each at its position.
///
/// # Errors
///
/// If there is damage before durable frames.
pub(crate) fn read(files: &[impl Source], checkpoint: &Block) -> Result<Tail, Fault> {
    let mut reading = Reading {
        files,
        checkpoint,
        end: End {
            at: Place { sequence: checkpoint.salt.sequence, offset: checkpoint.head() },
            link: checkpoint.link,
            next: checkpoint.salt.sequence,
        },
        buffer: Vec::new(),
    };
    let mut tail = Tail {
        records: Vec::new(),
        direct: None,
        next: checkpoint.record,
        last: checkpoint.salt.sequence,
        end: reading.end.at,
    };
    // The end of the last record, and the parts after it with their shards.
    let (mut whole, mut parts, mut shards) = (reading.end, Vec::new(), Vec::new());
    loop {
        let Some(Found { place, header, taken_back, direct, changes }) = reading.next(tail.next)?
        else {
            // Parts without an end belong to a transaction that was rolled back. The next record may be in
            // the next segment.
            let after = parts.last().map(|last: &Place| last.sequence + 1);
            reading.end = End { next: after.unwrap_or_default(), ..whole };
            if after.is_none() {
                break;
            }
            parts.clear();
            shards.clear();
            continue;
        };
        for shard in changes {
            if !shards.contains(&shard) {
                shards.push(shard);
            }
        }
        match header.kind {
            Kind::Part => {
                parts.push(place);
                continue;
            }
            Kind::Commit | Kind::Direct if tail.direct.is_some_and(|it| !it.is_taken_back) => {
                return Err(damaged(place, "it follows a direct record without a checkpoint"));
            }
            Kind::Direct => {
                let number = direct.ok_or_else(|| damaged(place, "its transaction is missing"))?;
                tail.direct = Some(Direct { record: header.record, number, is_taken_back: false });
                parts.clear();
                shards.clear();
            }
            Kind::Commit => {
                parts.push(place);
                let frames = std::mem::take(&mut parts);
                let (number, time) = (header.record, header.time);
                let shards = std::mem::take(&mut shards);
                tail.records.push(Record { number, time, shards, frames });
            }
            Kind::TakeBack => {
                // A record before the checkpoint is not in its states, because its shards were pinned after
                // the notice.
                let is_before = taken_back.is_some_and(|number| number < checkpoint.record);
                let direct = tail.direct.as_mut().filter(|it| Some(it.record) == taken_back);
                if let Some(direct) = direct {
                    direct.is_taken_back = true;
                } else if !is_before && !take_back(&mut tail.records, taken_back) {
                    return Err(damaged(place, "it takes back another record than the last"));
                }
                parts.clear();
                shards.clear();
            }
        }
        tail.next += 1;
        tail.last = place.sequence;
        whole = reading.end;
        tail.end = whole.at;
    }
    reading.refuse_later_frames()?;
    Ok(tail)
}

/// Removes a record that is the last record of each of its shards. Returns false if there is none.
fn take_back(records: &mut Vec<Record>, number: Option<u64>) -> bool {
    let found = records.iter().rposition(|record| Some(record.number) == number);
    let Some((at, taken)) = found.and_then(|at| Some((at, records.get(at)?))) else { return false };
    let later = records.iter().skip(at + 1);
    let is_last = later
        .flat_map(|record| &record.shards)
        .all(|shard| !taken.shards.contains(shard) && !taken.shards.is_empty());
    if is_last {
        records.remove(at);
    }
    is_last
}

/// Reads the frame at a position found by [`read`], and returns the results of `each` for its sections.
pub(crate) fn frame<T>(
    files: &[impl Source],
    checkpoint: &Block,
    place: Place,
    each: impl FnOnce(&Frame<'_>) -> T,
) -> Result<T, Fault> {
    let salt = Salt { sequence: place.sequence, ..checkpoint.salt };
    let mut buffer = Vec::new();
    let file = files.get(file_of(place.sequence, files.len()));
    let found = file.map_or(Ok(false), |file| load(file, place.offset, &mut buffer))?;
    match Frame::read(&buffer, &salt, place.offset).filter(|_| found) {
        Some(frame) => Ok(each(&frame)),
        None => Err(damaged(place, "it has changed since it was read")),
    }
}

fn damaged(place: Place, what: &str) -> Fault {
    let Place { sequence, offset } = place;
    Fault::Damaged(format!("the journal is damaged in segment {sequence} at byte {offset}: {what}"))
}

/// Reads the bytes of a frame. Returns false if no frame starts at the offset, or if the writer of the file makes it
/// shorter at the same time.
pub(super) fn load(file: &impl Source, offset: u64, into: &mut Vec<u8>) -> io::Result<bool> {
    match load_whole(file, offset, into) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        outcome => outcome,
    }
}

fn load_whole(file: &impl Source, offset: u64, into: &mut Vec<u8>) -> io::Result<bool> {
    let left = file.length()?.saturating_sub(offset);
    if left < HEADER as u64 {
        return Ok(false);
    }
    into.clear();
    into.resize(HEADER, 0);
    file.read_at(offset, into)?;
    let Some(length) = frame::length(into).filter(|length| *length as u64 <= left) else {
        return Ok(false);
    };
    into.resize(length, 0);
    let rest = into.get_mut(HEADER..).unwrap_or_default();
    file.read_at(offset + HEADER as u64, rest)?;
    Ok(true)
}

struct Reading<'f, S> {
    files: &'f [S],
    checkpoint: &'f Block,
    end: End,
    buffer: Vec<u8>,
}

/// A frame that follows.
struct Found {
    place: Place,
    header: frame::Header,
    /// The record that the frame takes back.
    taken_back: Option<u64>,
    /// The number of LMDB's transaction, if the frame is a direct record.
    direct: Option<u64>,
    /// The shards that the frame changes. Malformed sections are detected when the record is applied.
    changes: Vec<u32>,
}

/// The end of the part that has been read.
#[derive(Debug, Clone, Copy)]
struct End {
    at: Place,
    /// The link of the last frame.
    link: u64,
    /// The first segment that may have the next frame.
    next: u64,
}

impl<S: Source> Reading<'_, S> {
    fn salt(&self, sequence: u64) -> Salt {
        Salt { sequence, ..self.checkpoint.salt }
    }

    fn file(&self, sequence: u64) -> Option<&S> {
        self.files.get(file_of(sequence, self.files.len()))
    }

    /// Returns the next frame that follows.
    fn next(&mut self, record: u64) -> Result<Option<Found>, Fault> {
        // A segment may be empty. A segment in the file of the checkpoint can't be after it.
        let first = self.checkpoint.salt.sequence;
        let End { at, link, next } = self.end;
        for sequence in next..first.saturating_add(self.files.len() as u64) {
            let is_own = sequence == at.sequence;
            let offset = self.checkpoint.head();
            let place = if is_own { at } else { Place { sequence, offset } };
            let salt = self.salt(place.sequence);
            let mut buffer = std::mem::take(&mut self.buffer);
            let found = match self.file(place.sequence) {
                Some(file) => load(file, place.offset, &mut buffer)?,
                None => false,
            };
            let frame = Frame::read(&buffer, &salt, place.offset)
                .filter(|frame| found && frame.header.link == link)
                .filter(|frame| frame.header.record == record);
            let next = frame.map(|frame| {
                let at = Place { offset: frame.end(place.offset), ..place };
                self.end = End { at, link: frame.link(), next: place.sequence };
                let changes = frame.sections().map_while(|it| it.map(|it| it.shard)).collect();
                let (taken_back, direct) = (frame.taken_back(), frame.direct());
                Found { place, header: frame.header, taken_back, direct, changes }
            });
            self.buffer = buffer;
            if let Some(Found { place, header, .. }) = next {
                self.refuse_later_checkpoint(&header)?;
                if header.durable > place {
                    return Err(damaged(place, "it records a position after itself as durable"));
                }
                return Ok(next);
            }
        }
        Ok(None)
    }

    /// Checks that the checkpoint from which the journal is read is the last durable one. LMDB may have
    /// reused pages of older checkpoints.
    fn refuse_later_checkpoint(&self, header: &frame::Header) -> Result<(), Fault> {
        if header.checkpoint <= self.checkpoint.salt.sequence {
            return Ok(());
        }
        let place = Place { sequence: header.checkpoint, offset: 0 };
        Err(damaged(place, "a later frame says that there is a checkpoint"))
    }

    /// Searches for frames after the end which record that the end was durable.
    fn refuse_later_frames(&self) -> Result<(), Fault> {
        let (first, at) = (self.checkpoint.salt.sequence, self.end.at);
        let last = first.saturating_add(self.files.len() as u64);
        for sequence in at.sequence..last {
            let Some(file) = self.file(sequence) else { continue };
            let is_own = sequence == at.sequence;
            let mut offset = if is_own { at.offset } else { self.checkpoint.head() };
            let salt = self.salt(sequence);
            while let Some((found, header)) = find(file, &salt, offset)? {
                self.refuse_later_checkpoint(&header)?;
                if header.durable > at {
                    let is_end = !is_own && header.durable.sequence > at.sequence;
                    let next = Place { sequence: at.sequence + 1, offset: self.checkpoint.head() };
                    let place = if is_end { next } else { at };
                    return Err(damaged(place, "a later frame says that it was durable"));
                }
                offset = found + ALIGNMENT;
            }
        }
        Ok(())
    }
}

/// Returns the first frame at or after this offset.
fn find(
    file: &impl Source,
    salt: &Salt,
    mut offset: u64,
) -> Result<Option<(u64, frame::Header)>, Fault> {
    const WINDOW: usize = 1 << 16;
    let length = file.length()?;
    let (mut window, mut buffer) = (Vec::new(), Vec::new());
    while offset + (HEADER as u64) <= length {
        let left = usize::try_from(length - offset).unwrap_or(usize::MAX);
        window.resize(left.min(WINDOW), 0);
        file.read_at(offset, &mut window)?;
        for (at, first) in window.chunks(ALIGNMENT as usize).enumerate() {
            if frame::length(first).is_none() {
                continue;
            }
            let at = offset + at as u64 * ALIGNMENT;
            if load(file, at, &mut buffer)?
                && let Some(frame) = Frame::read(&buffer, salt, at)
            {
                return Ok(Some((at, frame.header)));
            }
        }
        offset += (window.len() as u64).next_multiple_of(ALIGNMENT);
    }
    Ok(None)
}
