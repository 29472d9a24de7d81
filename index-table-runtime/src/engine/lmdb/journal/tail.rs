//! What of a journal counts: the last checkpoint, and the records behind it.
//!
//! Pure over [`Source`]s. A journal ends at the first frame that does not follow the one before it. That is
//! where the power failed or the process was killed, unless a later frame says that the place was durable:
//! then the journal is damaged, and nothing is guessed.

use std::io;

use super::{
    block::{Block, HEAD},
    frame::{self, ALIGNMENT, Frame, HEADER, Kind, Place, Salt},
    marker::Journalled,
};

/// The bytes of a segment.
pub(crate) trait Source {
    fn length(&self) -> io::Result<u64>;

    /// Fills the buffer with the bytes from this offset on, all of which are there.
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

/// Why a journal can't be read.
#[derive(Debug)]
pub(crate) enum Fault {
    Io(io::Error),
    /// What is wrong, with the place.
    Damaged(String),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A record: its number, when it was appended, and the frames that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) number: u64,
    pub(crate) time: u64,
    pub(crate) frames: Vec<Place>,
}

/// The records behind a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tail {
    /// Those that were not taken back, in order.
    pub(crate) records: Vec<Record>,
    /// The number of the next record.
    pub(crate) next: u64,
    /// The last segment with a frame, or that of the checkpoint.
    pub(crate) last: u64,
}

/// In which file a segment is, of so many.
pub(crate) fn file_of(sequence: u64, files: usize) -> usize {
    usize::try_from(sequence % files.max(1) as u64).unwrap_or_default()
}

/// The newest checkpoint among those at the beginnings of the segments' files.
///
/// # Errors
///
/// It is older than the marker of the data file says, or there is none.
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

/// Reads the records behind a checkpoint. `files` are the segments, each in its own place.
///
/// # Errors
///
/// A damaged place in front of durable ones.
pub(crate) fn read(files: &[impl Source], checkpoint: &Block) -> Result<Tail, Fault> {
    let mut reading = Reading {
        files,
        checkpoint,
        end: End {
            at: Place { sequence: checkpoint.salt.sequence, offset: HEAD },
            link: checkpoint.link,
            next: checkpoint.salt.sequence,
        },
        buffer: Vec::new(),
    };
    let mut tail =
        Tail { records: Vec::new(), next: checkpoint.record, last: checkpoint.salt.sequence };
    // The end of the last record, and the parts behind it.
    let (mut whole, mut parts) = (reading.end, Vec::new());
    loop {
        let Some((place, header, taken_back)) = reading.next(tail.next)? else {
            // Parts without an end are of a transaction that was rolled back. The next record may be in the next
            // segment.
            let behind = parts.last().map(|last: &Place| last.sequence + 1);
            reading.end = End { next: behind.unwrap_or_default(), ..whole };
            if behind.is_none() {
                break;
            }
            parts.clear();
            continue;
        };
        match header.kind {
            Kind::Part => {
                parts.push(place);
                continue;
            }
            Kind::Commit => {
                parts.push(place);
                let frames = std::mem::take(&mut parts);
                tail.records.push(Record { number: header.record, time: header.time, frames });
            }
            Kind::TakeBack => {
                let last = tail.records.pop_if(|last| Some(last.number) == taken_back);
                if last.is_none() {
                    return Err(damaged(place, "it takes back another record than the last"));
                }
                parts.clear();
            }
        }
        tail.next += 1;
        tail.last = place.sequence;
        whole = reading.end;
    }
    reading.refuse_later_frames()?;
    Ok(tail)
}

/// Reads the frame at a place that [`read`] has found, and what `each` makes of its sections.
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

/// Reads the bytes of a frame; `false`: none begins there.
fn load(file: &impl Source, offset: u64, into: &mut Vec<u8>) -> io::Result<bool> {
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

/// How far a journal has been read.
#[derive(Debug, Clone, Copy)]
struct End {
    at: Place,
    /// Of the last frame.
    link: u64,
    /// The first segment that may have the next one.
    next: u64,
}

impl<S: Source> Reading<'_, S> {
    fn salt(&self, sequence: u64) -> Salt {
        Salt { sequence, ..self.checkpoint.salt }
    }

    fn file(&self, sequence: u64) -> Option<&S> {
        self.files.get(file_of(sequence, self.files.len()))
    }

    /// The next frame that follows: its place, its header, and which record it takes back.
    fn next(&mut self, record: u64) -> Result<Option<(Place, frame::Header, Option<u64>)>, Fault> {
        // A segment may be empty, and one whose file is that of the checkpoint can't be behind it.
        let first = self.checkpoint.salt.sequence;
        let End { at, link, next } = self.end;
        for sequence in next..first.saturating_add(self.files.len() as u64) {
            let is_own = sequence == at.sequence;
            let place = if is_own { at } else { Place { sequence, offset: HEAD } };
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
                (place, frame.header, frame.taken_back())
            });
            self.buffer = buffer;
            if let Some((place, header, _)) = next {
                self.refuse_later_checkpoint(&header)?;
                if header.durable > place {
                    return Err(damaged(place, "it calls durable what is behind it"));
                }
                return Ok(next);
            }
        }
        Ok(None)
    }

    /// The checkpoint from which the journal is read has to be the last one that was durable: LMDB may have
    /// used pages of older ones again.
    fn refuse_later_checkpoint(&self, header: &frame::Header) -> Result<(), Fault> {
        if header.checkpoint <= self.checkpoint.salt.sequence {
            return Ok(());
        }
        let place = Place { sequence: header.checkpoint, offset: 0 };
        Err(damaged(place, "a later frame says that there is a checkpoint"))
    }

    /// Looks for frames behind the end which say that the end was durable.
    fn refuse_later_frames(&self) -> Result<(), Fault> {
        let (first, at) = (self.checkpoint.salt.sequence, self.end.at);
        let last = first.saturating_add(self.files.len() as u64);
        for sequence in at.sequence..last {
            let Some(file) = self.file(sequence) else { continue };
            let is_own = sequence == at.sequence;
            let mut offset = if is_own { at.offset } else { HEAD };
            let salt = self.salt(sequence);
            while let Some((found, header)) = find(file, &salt, offset)? {
                self.refuse_later_checkpoint(&header)?;
                if header.durable > at {
                    let is_end = !is_own && header.durable.sequence > at.sequence;
                    let next = Place { sequence: at.sequence + 1, offset: HEAD };
                    let place = if is_end { next } else { at };
                    return Err(damaged(place, "a later frame says that it was durable"));
                }
                offset = found + ALIGNMENT;
            }
        }
        Ok(())
    }
}

/// The first frame at this offset or behind it.
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
