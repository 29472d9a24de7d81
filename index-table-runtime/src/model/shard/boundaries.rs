use serde::{Deserialize, Serialize};

use super::ShardNumber;

/// Sorted boundaries over encoded shard keys. Each boundary is the first key of a segment, which ends before the
/// next boundary and belongs to one shard or to none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Boundaries(Vec<Boundary>);

/// The beginning of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Boundary {
    start: Vec<u8>,
    /// `None`: no shard has these keys.
    shard: Option<ShardNumber>,
}

/// A segment: its first key, the first key behind it, and its shard.
pub(crate) type Segment<'b> = (&'b [u8], Option<&'b [u8]>, Option<ShardNumber>);

impl Boundaries {
    /// One segment with all keys.
    pub(crate) fn all_in(shard: Option<ShardNumber>) -> Self {
        Self(vec![Boundary { start: Vec::new(), shard }])
    }

    /// Gives the keys from `start` on and before `end` to a shard, whichever shard had them.
    pub(crate) fn assign(&mut self, start: &[u8], end: Option<&[u8]>, shard: Option<ShardNumber>) {
        if end.is_some_and(|end| end <= start) {
            return;
        }
        let behind = end.map(|end| Boundary { start: end.to_vec(), shard: self.shard_of(end) });
        let inside = |key: &[u8]| key >= start && end.is_none_or(|end| key <= end);
        self.0.retain(|boundary| !inside(&boundary.start));
        let at = self.0.partition_point(|boundary| boundary.start.as_slice() < start);
        let added = [Some(Boundary { start: start.to_vec(), shard }), behind];
        self.0.splice(at..at, added.into_iter().flatten());
        self.0.dedup_by(|next, before| next.shard == before.shard);
    }

    /// The shard that has this key.
    #[inline]
    pub(crate) fn shard_of(&self, key: &[u8]) -> Option<ShardNumber> {
        let behind = self.0.partition_point(|boundary| boundary.start.as_slice() <= key);
        self.0.get(behind.checked_sub(1)?)?.shard
    }

    /// All segments, in the order of their keys.
    pub(crate) fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        let ends = self.0.iter().skip(1).map(|next| Some(next.start.as_slice())).chain([None]);
        self.0.iter().zip(ends).map(|(boundary, end)| (&*boundary.start, end, boundary.shard))
    }

    /// The shards that have keys from `start` on and before `end`, each once and in order.
    pub(crate) fn shards_within(&self, start: &[u8], end: Option<&[u8]>) -> Vec<ShardNumber> {
        let meets = |(first, behind, _): &Segment<'_>| {
            behind.is_none_or(|behind| behind > start) && end.is_none_or(|end| *first < end)
        };
        sorted(self.segments().filter(meets).filter_map(|(_, _, shard)| shard).collect())
    }

    /// All shards that have keys, each once and in order.
    pub(crate) fn shards(&self) -> Vec<ShardNumber> {
        sorted(self.0.iter().filter_map(|boundary| boundary.shard).collect())
    }

    /// The segments of a shard: the first key of each, and the first key behind it.
    pub(crate) fn of_shard(&self, shard: ShardNumber) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let own = self.segments().filter(|(_, _, owner)| *owner == Some(shard));
        own.map(|(start, end, _)| (start.to_vec(), end.map(<[u8]>::to_vec))).collect()
    }

    /// Whether one segment has all keys.
    pub(crate) fn is_one_segment(&self) -> bool {
        self.0.len() == 1
    }

    /// Whether the boundaries ascend from the empty key on.
    pub(crate) fn is_sound(&self) -> bool {
        self.0.first().is_some_and(|first| first.start.is_empty())
            && self.0.is_sorted_by(|before, next| before.start < next.start)
    }
}

fn sorted(mut shards: Vec<ShardNumber>) -> Vec<ShardNumber> {
    shards.sort_unstable();
    shards.dedup();
    shards
}
