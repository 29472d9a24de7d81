//! The shards, shard maps and places that the options of a store declare.

use std::path::PathBuf;

use super::Options;
use crate::model::shard::ShardMap;

/// The declarations of a store with shards. Without any, the store has one data file, or those that it has recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Declarations {
    pub(crate) shards: Vec<DeclaredShard>,
    /// The new places of shards.
    pub(crate) relocated: Vec<(String, PathBuf)>,
    pub(crate) maps: Vec<(String, ShardMap)>,
    /// The shards of tables without a shard key.
    pub(crate) places: Vec<(String, String)>,
    /// The shards that are opened; `None` for all.
    pub(crate) only: Option<Vec<String>>,
}

/// A declared shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeclaredShard {
    pub(crate) name: String,
    pub(crate) place: PathBuf,
    /// The options of this shard, or `None` for those of the store.
    pub(crate) options: Option<Options>,
    /// The store may have been created without it.
    pub(crate) added: bool,
}

impl Declarations {
    /// Whether shards are added, and all other declarations can follow when the store has them.
    pub(crate) fn only_adds(&self) -> bool {
        let Self { shards, relocated, only, maps: _, places: _ } = self;
        let is_new = !shards.is_empty() && shards.iter().all(|shard| shard.added);
        is_new && relocated.is_empty() && only.is_none()
    }

    /// Whether nothing is declared.
    pub(crate) const fn is_empty(&self) -> bool {
        let Self { shards, relocated, maps, places, only } = self;
        shards.is_empty()
            && relocated.is_empty()
            && maps.is_empty()
            && places.is_empty()
            && only.is_none()
    }
}
