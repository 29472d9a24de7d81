//! The block at the beginning of a segment: the checkpoint from which its records go on.
//!
//! Pure. `docs/FORMAT.md` fixes the bytes ("Checkpoints").

use super::{
    frame::Salt,
    read::{Rest, first_half},
};

const MAGIC: [u8; 8] = *b"itJC\0\0\0\x01";

/// The bytes of a segment before its first frame are a multiple of it, and at least so many.
pub(crate) const HEAD: u64 = 4096;

/// The bytes of a checkpoint without its shards, and those of each shard.
const FIXED: usize = 88;
const SHARD: usize = 360;

/// The most shards of a journal.
const SHARDS: usize = 1 << 12;

/// The bytes before the first frame of a segment, in a journal of so many shards.
pub(crate) const fn head_of(shards: usize) -> u64 {
    ((FIXED + shards * SHARD) as u64).next_multiple_of(HEAD)
}

/// The bytes of a meta page that LMDB writes.
pub(crate) const META: usize = 152;

/// The state of one shard's data file at a checkpoint, which is whole on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Saved {
    /// Which shard; 0 in a store that has none.
    pub(crate) shard: u32,
    /// The bytes of a page of the data file.
    pub(crate) page_size: u32,
    /// The number of LMDB's transaction that has left the state.
    pub(crate) number: u64,
    /// The bytes of the map.
    pub(crate) map_size: u64,
    /// The first bytes of both meta pages.
    pub(crate) metas: [[u8; META]; 2],
    /// See [`root_sum`]: of the list of free pages, and of the names of databases.
    pub(crate) roots: [[u8; 16]; 2],
}

/// A checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// Of the segment whose first frame is the first one behind the checkpoint.
    pub(crate) salt: Salt,
    /// The number of the next record.
    pub(crate) record: u64,
    /// The link of the last frame before the checkpoint.
    pub(crate) link: u64,
    /// When it was made, in milliseconds since 1970.
    pub(crate) time: u64,
    pub(crate) shards: Vec<Saved>,
}

/// The checksum of a root page; `None`: there is no page.
pub(crate) fn root_sum(page: Option<&[u8]>) -> [u8; 16] {
    page.map_or([0; 16], |page| first_half(blake3::hash(page)))
}

impl Saved {
    /// The place of a shard whose state is not in the journal any more.
    pub(crate) const fn gone(shard: u32) -> Self {
        let (metas, roots) = ([[0; META]; 2], [[0; 16]; 2]);
        Self { shard, page_size: 0, number: 0, map_size: 0, metas, roots }
    }

    const fn is_gone(&self) -> bool {
        self.page_size == 0
    }
}

impl Block {
    /// The bytes. `None`: there are too many shards.
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

    /// The checkpoint with these bytes. `None`: they are none, or damaged.
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

    /// How many bytes a checkpoint has that begins with these. `None`: none begins so.
    pub(crate) fn length(first: &[u8]) -> Option<usize> {
        let mut rest = Rest(first.get(FIXED - 8..FIXED)?);
        let shards = usize::try_from(rest.word()?).ok().filter(|shards| *shards <= SHARDS)?;
        Some(head_of(shards) as usize)
    }

    /// Where the first frame is in each segment of the journal.
    pub(crate) const fn head(&self) -> u64 {
        head_of(self.shards.len())
    }

    /// The state of a shard. `None`: the journal does not have it.
    pub(crate) fn saved(&self, shard: u32) -> Option<&Saved> {
        self.shards.iter().find(|saved| saved.shard == shard && !saved.is_gone())
    }

    /// The shards of which the journal has the state.
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
    fn a_block_is_read_as_it_was_written() {
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
    fn there_is_room_for_shards_and_not_for_any_number() {
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
    fn a_shard_that_is_gone_has_no_state() {
        let block = Block { shards: vec![Saved::gone(0), Saved::gone(1)], ..block() };
        let read = block.bytes().and_then(|bytes| Block::read(&bytes)).expect("few shards");
        assert_eq!(read, block);
        assert_eq!((read.saved(0), read.saved(1), read.present().count()), (None, None, 0));
    }

    #[test]
    fn bytes_of_the_format() {
        let mut shared = block();
        shared.shards.push(Saved { shard: 2, ..shared.shards[0].clone() });
        shared.shards.push(Saved::gone(5));
        for block in [block(), shared] {
            let bytes = block.bytes().expect("few shards");
            let used = &bytes[..=bytes.iter().rposition(|byte| *byte != 0).expect("some")];
            let hex = blake3::hash(used).to_hex();
            let documented = include_str!("../../../../../docs/FORMAT.md");
            assert!(documented.contains(hex.as_str()), "{hex}");
        }
    }
}
