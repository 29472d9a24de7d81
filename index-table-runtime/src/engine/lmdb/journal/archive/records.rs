//! The complete records of a segment. A segment has only committed records, and each frame is linked to the previous
//! frame.

use std::io;

use super::format::{Head, START};
use crate::engine::lmdb::journal::{
    frame::{Frame, Kind, Place, Section},
    tail::{Fault, Source, load},
};

/// A record of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Archived {
    /// The number of the commit.
    pub(crate) commit: u64,
    pub(crate) time: u64,
    /// The epoch of the journal and the position in it.
    pub(crate) journal: u64,
    pub(crate) at: Place,
    /// The offsets of its frames.
    pub(crate) frames: Vec<u64>,
}

/// The records of a segment, in order.
pub(crate) struct Records<'s, S> {
    source: &'s S,
    pub(crate) head: Head,
    /// The end of the last complete record.
    pub(crate) offset: u64,
    /// The link of the last complete record.
    pub(crate) link: u64,
    /// The number and the time of the last record.
    pub(crate) commit: u64,
    pub(crate) time: u64,
    buffer: Vec<u8>,
}

impl<'s, S: Source> Records<'s, S> {
    /// Reads the head. Returns `None` if it is damaged or incomplete.
    pub(crate) fn open(source: &'s S) -> io::Result<Option<Self>> {
        let mut head = [0; START as usize];
        if source.length()? < START {
            return Ok(None);
        }
        source.read_at(0, &mut head)?;
        let Some(head) = Head::read(&head) else { return Ok(None) };
        let Head { link, commit, time, .. } = head;
        Ok(Some(Self { source, head, offset: START, link, commit, time, buffer: Vec::new() }))
    }

    /// Returns the next complete record. After the last record, [`offset`](Records::offset) is the end of the valid part.
    pub(crate) fn next(&mut self) -> io::Result<Option<Archived>> {
        let (mut offset, mut link, mut frames) = (self.offset, self.link, Vec::new());
        let salt = self.head.salt();
        loop {
            if !load(self.source, offset, &mut self.buffer)? {
                return Ok(None);
            }
            let frame = Frame::read(&self.buffer, &salt, offset);
            let Some(frame) = frame.filter(|frame| frame.header.link == link) else {
                return Ok(None);
            };
            frames.push(offset);
            offset = frame.end(offset);
            link = frame.link();
            let header = frame.header;
            match header.kind {
                Kind::Part => {}
                Kind::TakeBack | Kind::Direct => return Ok(None),
                Kind::Commit => {
                    (self.offset, self.link) = (offset, link);
                    (self.commit, self.time) = (header.record, header.time);
                    return Ok(Some(Archived {
                        commit: header.record,
                        time: header.time,
                        journal: header.checkpoint,
                        at: header.durable,
                        frames,
                    }));
                }
            }
        }
    }
}

/// Calls `each` with all sections of a frame.
pub(crate) fn sections<E: From<Fault>>(
    source: &impl Source,
    head: &Head,
    offset: u64,
    each: &mut dyn FnMut(Section<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let damaged = || {
        let reason = format!("segment {} is damaged at byte {offset}", head.segment);
        E::from(Fault::Damaged(reason))
    };
    let mut buffer = Vec::new();
    if !load(source, offset, &mut buffer).map_err(Fault::Io)? {
        return Err(damaged());
    }
    let frame = Frame::read(&buffer, &head.salt(), offset).ok_or_else(damaged)?;
    for section in frame.sections() {
        each(section.ok_or_else(damaged)?)?;
    }
    Ok(())
}
