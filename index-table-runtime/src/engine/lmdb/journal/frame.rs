//! Frames of the journal. A frame is a record, a part of a large record, or a notice that takes a record back.
//!
//! This module does no input or output. `docs/FORMAT.md` fixes the bytes ("Frames").

use super::read::{Rest, first_half};

const MAGIC: [u8; 4] = *b"itJF";

/// The length of a frame without its body.
pub(crate) const HEADER: usize = 80;

/// The offset of each frame is a multiple of this number.
pub(crate) const ALIGNMENT: u64 = 8;

/// The key of the checksums of a segment. With it, frames of an earlier segment in the same file, of an earlier start, or
/// of another store are invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Salt {
    /// The identity of the journal.
    pub(crate) identity: [u8; 16],
    /// The number of times that the journal was started.
    pub(crate) epoch: u64,
    /// The number of the segment.
    pub(crate) sequence: u64,
}

impl Salt {
    fn key(&self) -> [u8; 32] {
        let mut key = [0; 32];
        let bytes = self.identity.into_iter().chain(self.epoch.to_le_bytes());
        let bytes = bytes.chain(self.sequence.to_le_bytes());
        key.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        key
    }
}

/// A position in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Place {
    /// The number of the segment.
    pub(crate) sequence: u64,
    /// The offset in the segment, in bytes.
    pub(crate) offset: u64,
}

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A whole record, or the last part of a record. It commits the record.
    Commit,
    /// A part of a record that continues in the next frame.
    Part,
    /// A notice that takes the previous record back.
    TakeBack,
    /// A record without changes. The data file has its transaction, or no part of it.
    Direct,
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// The number of the record or notice, which is one more than the previous number.
    pub(crate) record: u64,
    /// The time of the append, in nanoseconds since 1970; of earlier releases, in milliseconds.
    pub(crate) time: u64,
    /// Everything before this position was durable when the frame was appended.
    pub(crate) durable: Place,
    /// The segment of the last checkpoint that was durable when the frame was appended.
    pub(crate) checkpoint: u64,
    /// The [`link`](Frame::link) of the previous frame. It excludes frames of a transaction that was rolled back.
    pub(crate) link: u64,
}

/// The changes of one shard in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Section<'b> {
    /// The number of the shard; 0 in a store without shards.
    pub(crate) shard: u32,
    /// The number of LMDB's transaction.
    pub(crate) number: u64,
    /// The encoded [`Operations`](super::changes::Operations).
    pub(crate) changes: &'b [u8],
}

/// The contents of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body<'b> {
    /// The contents of [`Kind::Commit`] and [`Kind::Part`], and of [`Kind::Direct`], whose section has no changes.
    Sections(&'b [Section<'b>]),
    /// The contents of [`Kind::TakeBack`]: the number of the record.
    Record(u64),
}

/// A decoded frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame<'b> {
    pub(crate) header: Header,
    body: &'b [u8],
    sum: [u8; 16],
    length: usize,
}

/// Replaces the contents of the buffer with a frame for this offset of a segment. Returns the link of the frame; `None` if
/// the frame is too long.
pub(crate) fn write(
    into: &mut Vec<u8>,
    salt: &Salt,
    offset: u64,
    header: &Header,
    body: Body<'_>,
) -> Option<u64> {
    into.clear();
    into.extend_from_slice(&MAGIC);
    into.extend_from_slice(&[0; 20]);
    let kind = match header.kind {
        Kind::Commit => 1,
        Kind::Part => 2,
        Kind::TakeBack => 3,
        Kind::Direct => 4,
    };
    let Header { record, time, durable, checkpoint, link, .. } = header;
    let words = [kind, *record, *time, durable.sequence, durable.offset, *checkpoint, *link];
    into.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    match body {
        Body::Sections(sections) => {
            for Section { shard, number, changes } in sections {
                into.extend_from_slice(&shard.to_le_bytes());
                into.extend_from_slice(&number.to_le_bytes());
                into.extend_from_slice(&u32::try_from(changes.len()).ok()?.to_le_bytes());
                into.extend_from_slice(changes);
            }
        }
        Body::Record(number) => into.extend_from_slice(&number.to_le_bytes()),
    }
    let length = u32::try_from(into.len()).ok()?;
    into.get_mut(4..8)?.copy_from_slice(&length.to_le_bytes());
    let sum = checksum(into, salt, offset)?;
    into.get_mut(8..24)?.copy_from_slice(&sum);
    into.resize(into.len().next_multiple_of(ALIGNMENT as usize), 0);
    Some(link_of(sum))
}

/// Returns the length, without padding, of the frame that starts with these bytes; `None` if no frame starts with them.
pub(crate) fn length(first: &[u8]) -> Option<usize> {
    let mut rest = Rest(first);
    if rest.array()? != MAGIC {
        return None;
    }
    usize::try_from(rest.long()?).ok().filter(|length| *length >= HEADER)
}

impl<'b> Frame<'b> {
    /// Decodes a frame at this offset of a segment; `None` if there is no valid frame.
    pub(crate) fn read(bytes: &'b [u8], salt: &Salt, offset: u64) -> Option<Self> {
        let length = length(bytes)?;
        let bytes = bytes.get(..length)?;
        let sum = checksum(bytes, salt, offset)?;
        let mut rest = Rest(bytes.get(8..)?);
        if rest.array()? != sum {
            return None;
        }
        let kind = match rest.word()? {
            1 => Kind::Commit,
            2 => Kind::Part,
            3 => Kind::TakeBack,
            4 => Kind::Direct,
            _ => return None,
        };
        let (record, time) = (rest.word()?, rest.word()?);
        let durable = Place { sequence: rest.word()?, offset: rest.word()? };
        let (checkpoint, link) = (rest.word()?, rest.word()?);
        let header = Header { kind, record, time, durable, checkpoint, link };
        Some(Self { header, body: rest.0, sum, length })
    }

    /// Returns the number by which the next frame refers to this frame.
    pub(crate) fn link(&self) -> u64 {
        link_of(self.sum)
    }

    /// Returns the offset of the next frame.
    pub(crate) const fn end(&self, offset: u64) -> u64 {
        offset + (self.length as u64).next_multiple_of(ALIGNMENT)
    }

    /// Returns the number of the record that a notice takes back.
    pub(crate) fn taken_back(&self) -> Option<u64> {
        let mut rest = Rest(self.body);
        let number = rest.word()?;
        (self.header.kind == Kind::TakeBack && rest.0.is_empty()).then_some(number)
    }

    /// Returns the number of LMDB's transaction that a direct record belongs to.
    pub(crate) fn direct(&self) -> Option<u64> {
        let section = self.sections().next().flatten()?;
        (self.header.kind == Kind::Direct).then_some(section.number)
    }

    /// Returns the sections. A malformed section is `None` and the last item.
    pub(crate) fn sections(&self) -> impl Iterator<Item = Option<Section<'b>>> + use<'b> {
        let has_sections = self.header.kind != Kind::TakeBack;
        let mut rest = Rest(if has_sections { self.body } else { &[] });
        std::iter::from_fn(move || {
            if rest.0.is_empty() {
                return None;
            }
            let section = section(&mut rest);
            if section.is_none() {
                rest = Rest(&[]);
            }
            Some(section)
        })
    }
}

fn section<'b>(rest: &mut Rest<'b>) -> Option<Section<'b>> {
    let (shard, number, length) = (rest.long()?, rest.word()?, rest.long()?);
    Some(Section { shard, number, changes: rest.take(usize::try_from(length).ok()?)? })
}

/// Returns the checksum of a frame. It covers the offset too, so that a copy of the frame elsewhere is invalid.
fn checksum(frame: &[u8], salt: &Salt, offset: u64) -> Option<[u8; 16]> {
    let mut hasher = blake3::Hasher::new_keyed(&salt.key());
    hasher.update(frame.get(..8)?);
    hasher.update(&offset.to_le_bytes());
    hasher.update(frame.get(24..)?);
    Some(first_half(hasher.finalize()))
}

fn link_of(sum: [u8; 16]) -> u64 {
    Rest(&sum).word().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{super::written::hex, *};

    const SALT: Salt = Salt { identity: [7; 16], epoch: 2, sequence: 5 };

    fn header() -> Header {
        Header {
            kind: Kind::Commit,
            record: 9,
            time: 1_700_000_000_000,
            durable: Place { sequence: 4, offset: 4096 },
            checkpoint: 4,
            link: 11,
        }
    }

    #[test]
    fn a_frame_is_valid_only_at_its_own_position() {
        let sections = [
            Section { shard: 0, number: 3, changes: &[1, 2, 3] },
            Section { shard: 1, number: 8, changes: &[] },
        ];
        let mut bytes = Vec::new();
        let link = write(&mut bytes, &SALT, 4096, &header(), Body::Sections(&sections));
        let frame = Frame::read(&bytes, &SALT, 4096).expect("a frame");
        assert_eq!(frame.header, header());
        assert_eq!(Some(frame.link()), link);
        assert_eq!(frame.end(4096), 4096 + bytes.len() as u64);
        assert_eq!(frame.sections().collect::<Option<Vec<_>>>(), Some(sections.to_vec()));
        assert_eq!(frame.taken_back(), None);

        assert_eq!(Frame::read(&bytes, &SALT, 4104), None);
        for other in [
            Salt { identity: [8; 16], ..SALT },
            Salt { epoch: 3, ..SALT },
            Salt { sequence: 8, ..SALT },
        ] {
            assert_eq!(Frame::read(&bytes, &other, 4096), None);
        }
        for at in 0..frame.length {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(Frame::read(&damaged, &SALT, 4096), None, "byte {at}");
            assert_eq!(Frame::read(&bytes[..at], &SALT, 4096), None, "truncated at {at}");
        }
    }

    #[test]
    fn a_notice_has_the_number_of_its_record() {
        let mut bytes = Vec::new();
        let header = Header { kind: Kind::TakeBack, ..header() };
        write(&mut bytes, &SALT, 0, &header, Body::Record(8)).expect("short enough");
        let frame = Frame::read(&bytes, &SALT, 0).expect("a frame");
        assert_eq!(frame.taken_back(), Some(8));
        assert_eq!(frame.sections().next(), None);
    }

    #[test]
    fn the_format_has_the_documented_bytes() {
        let documented = include_str!("../../../../../docs/FORMAT.md");
        let clear = Section { shard: 0, number: 3, changes: &[1, 1, 0, b't', 4] };
        for sections in [&[clear][..], &[clear, Section { shard: 2, number: 8, ..clear }]] {
            let mut bytes = Vec::new();
            let written = write(&mut bytes, &SALT, 4096, &header(), Body::Sections(sections));
            written.expect("short enough");
            let hex = hex(&bytes);
            assert!(documented.contains(&hex), "{hex}");
        }
        let (mut bytes, header) = (Vec::new(), Header { kind: Kind::Direct, ..header() });
        let body = Body::Sections(&[Section { changes: &[], ..clear }]);
        write(&mut bytes, &SALT, 4096, &header, body).expect("short enough");
        assert_eq!(Frame::read(&bytes, &SALT, 4096).and_then(|frame| frame.direct()), Some(3));
        assert!(documented.contains(&hex(&bytes)), "{}", hex(&bytes));
    }
}
