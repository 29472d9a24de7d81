//! Manifests, heads of segments, and records of bases.
//!
//! This module does no input or output. `docs/FORMAT.md` fixes the bytes ("Archives").

use std::collections::BTreeMap;

use crate::engine::lmdb::journal::{
    frame::{Place, Salt},
    read::{Rest, first_half},
};

const MANIFEST: [u8; 8] = *b"itAM\0\0\0\x01";
const SEGMENT: [u8; 8] = *b"itAS\0\0\0\x01";
const BASE: [u8; 8] = *b"itAB\0\0\0\x01";
const SHARD_BASE: [u8; 8] = *b"itAB\0\0\0\x02";
const KNOWN_ARCHIVE: [u8; 8] = *b"itAK\0\0\0\x01";

/// The states of the record of an archive, beside 0.
const GIVEN_UP: u8 = 1;
const BEGUN: u8 = 2;

/// The number in the sections that have the records of the shard map manager.
pub(crate) const MANAGER: u32 = u32::MAX;

/// The database in the changes of such a section.
pub(crate) const MANAGER_RECORDS: &str = "manager";

/// The offset of the first frame of a segment.
pub(crate) const START: u64 = 80;

/// The names of files in an archive.
pub(crate) use crate::engine::files::MANIFEST_FILE;
pub(crate) const LOCK: &str = "lock";
pub(crate) const BASE_FILE: &str = "base";
pub(crate) const MANAGER_FILE: &str = "manager";
pub(crate) const PROMOTED: &str = "promoted";
pub(crate) const ENDED: &str = "ended";
pub(crate) const FOLLOWER: &str = "follower";
pub(crate) const FOLLOWED: &str = "follower.archive";
pub(crate) const KNOWN: &str = "archive.known";

/// Returns the time of a record or a base in nanoseconds since 1970. Earlier releases have written milliseconds: the commit
/// was made before the end of this millisecond.
pub(crate) const fn nanoseconds_of(time: u64) -> u64 {
    /// No store was written in the first day after 1970, or in the milliseconds of the year 5138.
    const LEAST: u64 = 100_000_000_000_000;
    if time < LEAST { time * 1_000_000 + 999_999 } else { time }
}

/// Returns the name of a complete segment.
pub(crate) fn segment_name(segment: u64) -> String {
    format!("segment.{segment:010}")
}

/// Returns the name of a segment to which records are still appended.
pub(crate) fn part_name(segment: u64) -> String {
    format!("segment.{segment:010}.part")
}

/// Returns the name of the directory of a base.
pub(crate) fn base_name(segment: u64) -> String {
    format!("base.{segment:010}")
}

/// Returns the name of the directory of a base of a shard.
pub(crate) fn shard_base_name(segment: u64, shard: u32) -> String {
    format!("base.{segment:010}.{shard}")
}

/// Returns whether this is the name of the directory of a base.
pub(crate) fn is_base(name: &str) -> bool {
    let (base, shard) = match name.splitn(3, '.').collect::<Vec<_>>()[..] {
        [_, _, shard] => (name.strip_suffix(shard).and_then(|it| it.strip_suffix('.')), shard),
        _ => (Some(name), "0"),
    };
    base.is_some_and(|base| number_of(base, "base").is_some()) && shard.parse::<u32>().is_ok()
}

/// Returns the number in a name with this prefix.
pub(crate) fn number_of(name: &str, prefix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?.strip_prefix('.')?;
    let is_number = digits.len() >= 10 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// The end of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// The identity of the archive.
    pub(crate) identity: [u8; 16],
    /// The identity of the journal.
    pub(crate) origin: [u8; 16],
    /// The number of promotions of followers.
    pub(crate) epoch: u64,
    /// The number of the generation, which is a sequence of segments without a gap.
    pub(crate) generation: u64,
    /// The epoch of the journal of the last record.
    pub(crate) journal: u64,
    /// The last complete segment.
    pub(crate) segment: u64,
    /// The number of the last commit.
    pub(crate) commit: u64,
    /// The link of the last frame, or 0.
    pub(crate) link: u64,
    /// The time of the last commit: see [`nanoseconds_of`].
    pub(crate) time: u64,
    /// The position of the last record in the journal.
    pub(crate) at: Place,
}

impl Manifest {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let Self { epoch, generation, journal, segment, commit, link, time, at, .. } = *self;
        let Place { sequence, offset } = at;
        let mut body = [self.identity, self.origin].concat();
        let words = [epoch, generation, journal, segment, commit, link, time, sequence, offset];
        body.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        sealed(MANIFEST, &body)
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut rest = opened(MANIFEST, bytes)?;
        let manifest = Self {
            identity: rest.array()?,
            origin: rest.array()?,
            epoch: rest.word()?,
            generation: rest.word()?,
            journal: rest.word()?,
            segment: rest.word()?,
            commit: rest.word()?,
            link: rest.word()?,
            time: rest.word()?,
            at: Place { sequence: rest.word()?, offset: rest.word()? },
        };
        rest.0.is_empty().then_some(manifest)
    }

    /// Returns the head of the next segment.
    pub(crate) const fn head(&self) -> Head {
        let Self { identity, generation, segment, commit, link, time, .. } = *self;
        Head { identity, generation, segment: segment + 1, commit, link, time }
    }
}

/// The first bytes of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) identity: [u8; 16],
    pub(crate) generation: u64,
    pub(crate) segment: u64,
    /// The number of the last commit before the segment.
    pub(crate) commit: u64,
    /// The link of the last frame of the previous segment, or 0 in the first segment of a generation.
    pub(crate) link: u64,
    /// The time of the last commit before the segment.
    pub(crate) time: u64,
}

impl Head {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let Self { identity, generation, segment, commit, link, time } = self;
        let mut body = identity.to_vec();
        let words = [generation, segment, commit, link, time];
        body.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        sealed(SEGMENT, &body)
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut rest = opened(SEGMENT, bytes.get(..START as usize)?)?;
        let head = Self {
            identity: rest.array()?,
            generation: rest.word()?,
            segment: rest.word()?,
            commit: rest.word()?,
            link: rest.word()?,
            time: rest.word()?,
        };
        rest.0.is_empty().then_some(head)
    }

    /// Returns the salt of the frames of the segment.
    pub(crate) const fn salt(&self) -> Salt {
        Salt { identity: self.identity, epoch: self.generation, sequence: self.segment }
    }
}

/// The description of a copy of the data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) identity: [u8; 16],
    pub(crate) generation: u64,
    /// The first segment that can have records after the base.
    pub(crate) segment: u64,
    /// The number of the last commit in the base.
    pub(crate) commit: u64,
    /// The time of the copy: see [`nanoseconds_of`].
    pub(crate) time: u64,
    /// The length of the data file, in bytes.
    pub(crate) length: u64,
    /// The BLAKE3 hash of the data file.
    pub(crate) hash: [u8; 32],
    /// The shard of a sharded store.
    pub(crate) shard: Option<ShardBase>,
}

/// The parts of a base that only bases of shards have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShardBase {
    /// The number of the shard.
    pub(crate) number: u32,
    /// The BLAKE3 hash of the records of the shard map manager.
    pub(crate) manager: [u8; 32],
}

impl Base {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let Self { identity, generation, segment, commit, time, length, hash, shard } = self;
        let mut body = identity.to_vec();
        let words = [generation, segment, commit, time, length];
        body.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        body.extend_from_slice(hash);
        let Some(ShardBase { number, manager }) = shard else { return sealed(BASE, &body) };
        body.extend_from_slice(&u64::from(*number).to_le_bytes());
        body.extend_from_slice(manager);
        sealed(SHARD_BASE, &body)
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let of_shard = opened(SHARD_BASE, bytes);
        let is_of_shard = of_shard.is_some();
        let mut rest = of_shard.or_else(|| opened(BASE, bytes))?;
        let base = Self {
            identity: rest.array()?,
            generation: rest.word()?,
            segment: rest.word()?,
            commit: rest.word()?,
            time: rest.word()?,
            length: rest.word()?,
            hash: rest.array()?,
            shard: None,
        };
        let shard = if is_of_shard {
            let number = u32::try_from(rest.word()?).ok()?;
            Some(ShardBase { number, manager: rest.array()? })
        } else {
            None
        };
        rest.0.is_empty().then_some(Self { shard, ..base })
    }

    /// Returns whether the base belongs to the generation of this manifest.
    pub(crate) fn is_of(&self, manifest: &Manifest) -> bool {
        self.identity == manifest.identity && self.generation == manifest.generation
    }

    /// Returns the name of the directory of the base.
    pub(crate) fn name(&self) -> String {
        match self.shard {
            None => base_name(self.segment),
            Some(shard) => shard_base_name(self.segment, shard.number),
        }
    }

    /// Returns the number of the shard, or 0 in a store without shards.
    pub(crate) fn shard(&self) -> u32 {
        self.shard.map_or(0, |shard| shard.number)
    }
}

/// The shards of which an archive has a base, each with the time of its last base in nanoseconds since 1970.
pub(crate) type Based = BTreeMap<u32, u64>;

/// Returns the shards with a base of the generation of a manifest.
pub(crate) fn based(bases: impl IntoIterator<Item = Base>, own: &Manifest) -> Based {
    let mut last = Based::new();
    for base in bases.into_iter().filter(|base| base.is_of(own)) {
        let time = last.entry(base.shard()).or_default();
        *time = nanoseconds_of(base.time).max(*time);
    }
    last
}

/// The record of the archive in the directory of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// Whether the store may be written without the archive, in which this has not been recorded yet.
    pub(crate) is_given_up: bool,
    /// Whether the directory has had the archive.
    pub(crate) has_begun: bool,
    /// The absolute path of the archive; `None` if a function gets its files.
    pub(crate) place: Option<Vec<u8>>,
}

impl Known {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let state = if self.is_given_up { GIVEN_UP } else { BEGUN * u8::from(self.has_begun) };
        let head = [state, u8::from(self.place.is_some())];
        sealed(KNOWN_ARCHIVE, &[&head, self.place.as_deref().unwrap_or_default()].concat())
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut rest = opened(KNOWN_ARCHIVE, bytes)?;
        let [state, place] = rest.array()?;
        let (is_given_up, has_begun) = (state == GIVEN_UP, state == BEGUN);
        Some(Self { is_given_up, has_begun, place: (place == 1).then(|| rest.0.to_vec()) })
    }
}

/// Returns the bytes after a magic number and their sum.
fn sealed(magic: [u8; 8], body: &[u8]) -> Vec<u8> {
    [&magic[..], &first_half(blake3::hash(body)), body].concat()
}

/// Checks the magic number and the sum, and returns the bytes after them.
fn opened(magic: [u8; 8], bytes: &[u8]) -> Option<Rest<'_>> {
    let mut rest = Rest(bytes);
    let is_right = rest.array()? == magic && rest.array()? == first_half(blake3::hash(rest.0));
    is_right.then_some(rest)
}
