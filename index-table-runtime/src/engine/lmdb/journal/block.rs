//! The block at the start of a segment. It contains the checkpoint that the records of the segment follow.
//!
//! This module does no input or output. `docs/FORMAT.md` fixes the bytes ("Checkpoints").

use super::{
    frame::Salt,
    read::{Rest, first_half},
};

const MAGIC: [u8; 8] = *b"itJC\0\0\0\x01";

/// The number of bytes before the first frame of a segment is a multiple of this number.
pub(crate) const HEAD: u64 = 4096;

/// The length of a checkpoint without its shards.
const FIXED: usize = 88;
/// The length of the state of a shard.
const SHARD: usize = 360;

/// The maximum number of shards of a journal.
const SHARDS: usize = 1 << 12;

/// The maximum number of bytes before the first frame of a segment.
pub(super) const LONGEST_HEAD: u64 = head_of(SHARDS);

/// How many shards can be added to a journal before it is started again.
const SPARE: usize = 64;

/// The number in the placeholder of a shard that may be added.
const SPARE_NUMBER: u32 = u32::MAX;

/// Returns the number of states in the blocks of a journal that is started with this number of shards. With placeholders
/// for shards that may be added, all segments of the journal have their first frames at the same offset.
pub(crate) fn room_of(shards: usize) -> usize {
    (shards + SPARE).min(SHARDS).max(shards)
}

/// Returns the number of bytes before the first frame of a segment, in a journal with this number of shards.
pub(crate) const fn head_of(shards: usize) -> u64 {
    ((FIXED + shards * SHARD) as u64).next_multiple_of(HEAD)
}

/// The number of bytes of a meta page that LMDB writes.
pub(crate) const META: usize = 152;

/// The state of a shard's data file at a checkpoint. All pages of the state are on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Saved {
    /// The number of the shard; 0 in a store without shards.
    pub(crate) shard: u32,
    /// The page size of the data file, in bytes.
    pub(crate) page_size: u32,
    /// The number of the LMDB transaction that created the state.
    pub(crate) number: u64,
    /// The size of the map, in bytes.
    pub(crate) map_size: u64,
    /// The first bytes of both meta pages.
    pub(crate) metas: [[u8; META]; 2],
    /// The checksums of two root pages by [`root_sum`]: the roots of the free list and of the names of databases.
    pub(crate) roots: [[u8; 16]; 2],
}

/// A checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// The salt of the segment that starts after the checkpoint.
    pub(crate) salt: Salt,
    /// The number of the next record.
    pub(crate) record: u64,
    /// The link of the last frame before the checkpoint.
    pub(crate) link: u64,
    /// The time of the checkpoint, in milliseconds since 1970.
    pub(crate) time: u64,
    /// The states of all shards.
    pub(crate) shards: Vec<Saved>,
}

/// Returns the checksum of a root page. An empty database has no root page.
pub(crate) fn root_sum(page: Option<&[u8]>) -> [u8; 16] {
    page.map_or([0; 16], |page| first_half(blake3::hash(page)))
}

impl Saved {
    /// Returns the placeholder of a shard whose state is no longer in the journal. `number` is the number of its last
    /// commit if its data file was closed as complete; otherwise 0.
    pub(crate) const fn gone(shard: u32, number: u64) -> Self {
        let (metas, roots) = ([[0; META]; 2], [[0; 16]; 2]);
        Self { shard, page_size: 0, number, map_size: 0, metas, roots }
    }

    /// Adds placeholders for shards that may be added to the journal, up to this number of states.
    pub(crate) fn pad(states: &mut Vec<Self>, room: usize) {
        let room = room.max(states.len());
        states.resize(room, Self::gone(SPARE_NUMBER, 0));
    }

    const fn is_gone(&self) -> bool {
        self.page_size == 0
    }
}

impl Block {
    /// Encodes the block; `None` if there are too many shards.
    pub(crate) fn bytes(&self) -> Option<Vec<u8>> {
        let Self { salt, record, link, time, shards } = self;
        if shards.len() > SHARDS {
            return None;
        }
        let mut bytes = Vec::with_capacity(self.head() as usize);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[0; 16]);
        bytes.extend_from_slice(&salt.identity);
        for word in [salt.epoch, salt.sequence, *record, *link, *time, shards.len() as u64] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for saved in shards {
            bytes.extend_from_slice(&saved.shard.to_le_bytes());
            bytes.extend_from_slice(&saved.page_size.to_le_bytes());
            bytes.extend_from_slice(&saved.number.to_le_bytes());
            bytes.extend_from_slice(&saved.map_size.to_le_bytes());
            saved.metas.iter().for_each(|meta| bytes.extend_from_slice(meta));
            saved.roots.iter().for_each(|root| bytes.extend_from_slice(root));
        }
        bytes.resize(self.head() as usize, 0);
        let sum = first_half(blake3::hash(bytes.get(24..)?));
        bytes.get_mut(8..24)?.copy_from_slice(&sum);
        Some(bytes)
    }

    /// Decodes a block; `None` if the bytes are not a block, or damaged.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..Self::length(bytes)?)?;
        let mut rest = Rest(bytes);
        if rest.array()? != MAGIC || rest.array()? != first_half(blake3::hash(bytes.get(24..)?)) {
            return None;
        }
        let identity = rest.array()?;
        let (epoch, sequence) = (rest.word()?, rest.word()?);
        let (record, link, time) = (rest.word()?, rest.word()?, rest.word()?);
        let count = rest.word()?;
        let shards = (0..count).map(|_| saved(&mut rest)).collect::<Option<_>>()?;
        Some(Self { salt: Salt { identity, epoch, sequence }, record, link, time, shards })
    }

    /// Returns the length of the block that starts with these bytes; `None` if no block starts with them.
    pub(crate) fn length(first: &[u8]) -> Option<usize> {
        let mut rest = Rest(first.get(FIXED - 8..FIXED)?);
        let shards = usize::try_from(rest.word()?).ok().filter(|shards| *shards <= SHARDS)?;
        Some(head_of(shards) as usize)
    }

    /// Returns the offset of the first frame in each segment of the journal.
    pub(crate) const fn head(&self) -> u64 {
        head_of(self.shards.len())
    }

    /// Returns the state of a shard; `None` if the journal does not have it.
    pub(crate) fn saved(&self, shard: u32) -> Option<&Saved> {
        self.shards.iter().find(|saved| saved.shard == shard && !saved.is_gone())
    }

    /// Returns the number of the last commit of a shard whose data file was closed as complete before the checkpoint.
    pub(crate) fn closed(&self, shard: u32) -> Option<u64> {
        let found = self.shards.iter().find(|saved| saved.shard == shard && saved.is_gone())?;
        (found.number > 0).then_some(found.number)
    }

    /// Returns the shards whose states are in the journal.
    pub(crate) fn present(&self) -> impl Iterator<Item = u32> {
        self.shards.iter().filter(|saved| !saved.is_gone()).map(|saved| saved.shard)
    }
}

fn saved(rest: &mut Rest<'_>) -> Option<Saved> {
    Some(Saved {
        shard: rest.long()?,
        page_size: rest.long()?,
        number: rest.word()?,
        map_size: rest.word()?,
        metas: [rest.array()?, rest.array()?],
        roots: [rest.array()?, rest.array()?],
    })
}

#[cfg(test)]
mod tests {
    use super::{super::written::block, *};

    #[test]
    fn blocks_round_trip_and_damage_is_detected() {
        let bytes = block().bytes().expect("few shards");
        assert_eq!(bytes.len() as u64, HEAD);
        assert_eq!(Block::read(&bytes), Some(block()));
        assert_eq!(block().saved(0).map(|saved| saved.number), Some(33));
        assert_eq!(block().saved(1), None);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert_eq!(Block::read(&damaged), None, "byte {at}");
        }
        assert_eq!(Block::read(&bytes[..bytes.len() - 1]), None);
    }

    #[test]
    fn the_number_of_shards_is_limited() {
        let with = |count: usize| {
            let saved = block().shards.first().expect("one").clone();
            Block { shards: vec![saved; count], ..block() }
        };
        for (count, pages) in [(1, 1), (11, 1), (12, 2), (100, 9), (SHARDS, 361)] {
            let block = with(count);
            let bytes = block.bytes().expect("few enough shards");
            assert_eq!((bytes.len() as u64, block.head()), (pages * HEAD, pages * HEAD));
            assert_eq!(Block::length(&bytes[..HEAD as usize]), Some(bytes.len()));
            assert_eq!(Block::read(&bytes[..bytes.len() - 1]), None);
            assert_eq!(Block::read(&bytes), Some(block));
        }
        assert_eq!(with(SHARDS + 1).bytes(), None);
    }

    #[test]
    fn a_removed_shard_has_no_state() {
        let block = Block { shards: vec![Saved::gone(0, 0), Saved::gone(1, 7)], ..block() };
        let read = block.bytes().and_then(|bytes| Block::read(&bytes)).expect("few shards");
        assert_eq!(read, block);
        assert_eq!((read.saved(0), read.saved(1), read.present().count()), (None, None, 0));
        assert_eq!((read.closed(0), read.closed(1), read.closed(2)), (None, Some(7), None));
    }

    #[test]
    fn the_format_has_the_documented_bytes() {
        let mut shared = block();
        shared.shards.push(Saved { shard: 2, ..shared.shards[0].clone() });
        shared.shards.push(Saved::gone(5, 0));
        for block in [block(), shared] {
            let bytes = block.bytes().expect("few shards");
            let used = &bytes[..=bytes.iter().rposition(|byte| *byte != 0).expect("some")];
            let hex = blake3::hash(used).to_hex();
            let documented = include_str!("../../../../../docs/FORMAT.md");
            assert!(documented.contains(hex.as_str()), "{hex}");
        }
    }
}
