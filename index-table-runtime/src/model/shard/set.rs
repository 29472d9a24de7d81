use std::collections::BTreeSet;

use super::ShardNumber;

/// A set of shards. A set of one shard needs no allocation.
#[derive(Debug, Clone, Default)]
pub(crate) enum ShardSet {
    #[default]
    None,
    One(ShardNumber),
    Several(BTreeSet<ShardNumber>),
}

impl ShardSet {
    /// Adds a shard, unless it is in the set.
    pub(crate) fn insert(&mut self, shard: ShardNumber) {
        match self {
            Self::None => *self = Self::One(shard),
            Self::One(one) if *one == shard => {}
            Self::One(one) => *self = Self::Several(BTreeSet::from([*one, shard])),
            Self::Several(several) => {
                several.insert(shard);
            }
        }
    }

    /// Adds the shards of another set.
    pub(crate) fn extend(&mut self, other: &Self) {
        match other {
            Self::None => {}
            Self::One(one) => self.insert(*one),
            Self::Several(several) => several.iter().for_each(|shard| self.insert(*shard)),
        }
    }

    /// Returns the number of different shards.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::One(_) => 1,
            Self::Several(several) => several.len() as u64,
        }
    }
}
