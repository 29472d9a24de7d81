use std::mem;

use serde::{Deserialize, Serialize, Serializer};

use super::{SLOTS, ShardNumber};

/// Sorted boundaries over encoded shard keys. Each boundary is the first key of a segment. The segment ends
/// before the next boundary, and belongs to one shard or to none.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Vec<Boundary>")]
pub(crate) struct Boundaries {
    list: Vec<Boundary>,
    /// The first bytes of each start. They decide most comparisons without the start itself.
    firsts: Vec<u64>,
}

impl From<Vec<Boundary>> for Boundaries {
    fn from(list: Vec<Boundary>) -> Self {
        let firsts = list.iter().map(|boundary| first_bytes(&boundary.start)).collect();
        Self { list, firsts }
    }
}

impl Serialize for Boundaries {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.list.serialize(serializer)
    }
}

/// The number of starts that are compared with a key one after the other.
const FEW: usize = 8;

/// Returns the first eight bytes as a number. Missing bytes are zeros.
#[inline]
pub(crate) fn first_bytes(bytes: &[u8]) -> u64 {
    if let Some(first) = bytes.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    // Two overlapping loads are faster than a loop.
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let [first, last] = [first, last].map(|four| u64::from(u32::from_be_bytes(*four)));
        return first << 32 | last << (8 * (8 - bytes.len()));
    }
    bytes.iter().rev().fold(0, |number, byte| number >> 8 | u64::from(*byte) << 56)
}

/// The start of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Boundary {
    start: Vec<u8>,
    /// The shard of the segment; `None` if no shard has these keys.
    shard: Option<ShardNumber>,
}

/// A segment: its first key, the first key after it, and its shard.
pub(crate) type Segment<'b> = (&'b [u8], Option<&'b [u8]>, Option<ShardNumber>);

impl Boundaries {
    /// Creates one segment with all keys.
    pub(crate) fn all_in(shard: Option<ShardNumber>) -> Self {
        Self::from(vec![Boundary { start: Vec::new(), shard }])
    }

    /// Assigns the keys from `start` up to but not including `end` to a shard. Replaces earlier assignments.
    pub(crate) fn assign(&mut self, start: &[u8], end: Option<&[u8]>, shard: Option<ShardNumber>) {
        if end.is_some_and(|end| end <= start) {
            return;
        }
        let after = end.map(|end| Boundary { start: end.to_vec(), shard: self.shard_of(end) });
        let inside = |key: &[u8]| key >= start && end.is_none_or(|end| key <= end);
        self.list.retain(|boundary| !inside(&boundary.start));
        let at = self.list.partition_point(|boundary| boundary.start.as_slice() < start);
        let added = [Some(Boundary { start: start.to_vec(), shard }), after];
        self.list.splice(at..at, added.into_iter().flatten());
        self.list.dedup_by(|next, before| next.shard == before.shard);
        *self = Self::from(mem::take(&mut self.list));
    }

    /// Returns the shard that has this key.
    #[inline]
    pub(crate) fn shard_of(&self, key: &[u8]) -> Option<ShardNumber> {
        self.list.get(self.segment_of(key)?)?.shard
    }

    /// Returns the position of the segment that has this key.
    #[inline]
    pub(crate) fn segment_of(&self, key: &[u8]) -> Option<usize> {
        let first = first_bytes(key);
        // A search of a few numbers costs more than their comparison.
        let next = if self.firsts.len() <= FEW {
            self.firsts.iter().take_while(|start| **start < first).count()
        } else {
            self.firsts.partition_point(|start| *start < first)
        };
        if self.firsts.get(next) == Some(&first) {
            return self.segment_among(next, first, key);
        }
        next.checked_sub(1)
    }

    /// Returns the position of the segment that has this key, if the start at `next` has the same first bytes, so that
    /// whole keys are compared.
    #[inline(never)]
    fn segment_among(&self, next: usize, first: u64, key: &[u8]) -> Option<usize> {
        let same = self.firsts.get(next..)?.partition_point(|start| *start == first);
        let same = self.list.get(next..next + same)?;
        let starts = same.partition_point(|boundary| boundary.start.as_slice() <= key);
        (next + starts).checked_sub(1)
    }

    /// Returns all segments, in the order of their keys.
    pub(crate) fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        let ends = self.list.iter().skip(1).map(|next| Some(next.start.as_slice())).chain([None]);
        self.list.iter().zip(ends).map(|(boundary, end)| (&*boundary.start, end, boundary.shard))
    }

    /// Returns the shards with keys from `start` up to but not including `end`, sorted and without
    /// duplicates.
    pub(crate) fn shards_within(&self, start: &[u8], end: Option<&[u8]>) -> Vec<ShardNumber> {
        let meets = |(first, segment_end, _): &Segment<'_>| {
            segment_end.is_none_or(|segment_end| segment_end > start)
                && end.is_none_or(|end| *first < end)
        };
        sorted(self.segments().filter(meets).filter_map(|(_, _, shard)| shard).collect())
    }

    /// Whether a shard has all keys from `start` up to but not including `end`.
    pub(crate) fn are_all_in(&self, start: &[u8], end: Option<&[u8]>, shard: ShardNumber) -> bool {
        let first = self.segment_of(start).unwrap_or_default();
        let within = self.list.iter().skip(first);
        let mut within =
            within.take_while(|next| end.is_none_or(|end| next.start.as_slice() < end));
        within.all(|segment| segment.shard == Some(shard))
    }

    /// Returns all shards with keys, sorted and without duplicates.
    pub(crate) fn shards(&self) -> Vec<ShardNumber> {
        sorted(self.list.iter().filter_map(|boundary| boundary.shard).collect())
    }

    /// Returns the segments of a shard: the first key of each, and the first key after it.
    pub(crate) fn of_shard(&self, shard: ShardNumber) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let segments = self.segments().filter(|(_, _, owner)| *owner == Some(shard));
        segments.map(|(start, end, _)| (start.to_vec(), end.map(<[u8]>::to_vec))).collect()
    }

    /// Returns the boundaries after each segment of a shard is assigned to the shard of a neighbouring segment; `None` if
    /// there is no other shard.
    pub(crate) fn without(&self, shard: ShardNumber) -> Option<Self> {
        let is_other = |owner: &ShardNumber| *owner != shard;
        let mut neighbour = self.segments().filter_map(|(_, _, owner)| owner).find(is_other)?;
        Some(self.with_owners(|owner| {
            let other = owner.filter(is_other);
            neighbour = other.unwrap_or(neighbour);
            other.or(owner.map(|_| neighbour))
        }))
    }

    /// Returns the boundaries with other owners of their segments.
    fn with_owners(
        &self,
        mut owner: impl FnMut(Option<ShardNumber>) -> Option<ShardNumber>,
    ) -> Self {
        let mut list = self.list.clone();
        for segment in &mut list {
            segment.shard = owner(segment.shard);
        }
        list.dedup_by(|next, before| next.shard == before.shard);
        Self::from(list)
    }

    /// Returns the boundaries after the segments of a shard are assigned to no shard.
    pub(crate) fn with_none_for(&self, shard: ShardNumber) -> Self {
        self.with_other_for(shard, None)
    }

    /// Returns the boundaries after the segments of a shard are assigned to another shard, or to none.
    pub(crate) fn with_other_for(&self, shard: ShardNumber, other: Option<ShardNumber>) -> Self {
        self.with_owners(|owner| if owner == Some(shard) { other } else { owner })
    }

    /// Returns the boundaries after the slots of a shard are distributed over the other shards of a hash map; `None` if
    /// there is no other shard.
    pub(crate) fn without_slots_of(&self, shard: ShardNumber) -> Option<Self> {
        let mut others = self.shards();
        others.retain(|other| *other != shard);
        let count = u16::try_from(others.len()).ok().filter(|count| *count > 0)?;
        let number = |slot: &[u8]| slot.first_chunk().map_or(0, |slot| u16::from_be_bytes(*slot));
        let mut next = self.clone();
        for (start, end) in self.of_shard(shard) {
            let (first, last) = (number(&start), end.as_deref().map_or(SLOTS, number));
            let slots = u32::from(last.saturating_sub(first));
            let at = |part: u16| {
                let slot = first.saturating_add(
                    u16::try_from(slots * u32::from(part) / u32::from(count)).unwrap_or(last),
                );
                slot.to_be_bytes()
            };
            next.assign(&start, end.as_deref(), others.last().copied());
            for (part, other) in (1..count).zip(&others).rev() {
                next.assign(&start, Some(&at(part)), Some(*other));
            }
        }
        Some(next)
    }

    /// Whether one shard has all keys.
    pub(crate) fn are_in_one_shard(&self) -> bool {
        matches!(self.list.as_slice(), [all] if all.shard.is_some())
    }

    /// Whether the boundaries ascend, starting with the empty key.
    pub(crate) fn is_sound(&self) -> bool {
        self.list.first().is_some_and(|first| first.start.is_empty())
            && self.list.is_sorted_by(|before, next| before.start < next.start)
    }
}

fn sorted(mut shards: Vec<ShardNumber>) -> Vec<ShardNumber> {
    shards.sort_unstable();
    shards.dedup();
    shards
}
