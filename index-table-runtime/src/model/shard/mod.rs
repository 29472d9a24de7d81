//! Shard maps and routing. This code is pure: it neither reads nor writes a store.
//!
//! | module | contents |
//! |---|---|
//! | [`map`] | the declaration of a map by an application: [`ShardMap`] |
//! | [`boundaries`] | the stored form of a map: sorted boundaries over encoded shard keys |
//! | [`key`] | the shard key of a table, and its position in a primary key |
//! | [`global`] | the shard of an entry of a global index by its key |
//! | [`placed`] | the map of a table without a shard key, after its first move |
//! | [`load`] | the shard keys with the most requests |
//! | [`routing`] | the shard of a row by its primary key, and the shards that a query needs |
//!
//! The shard key is the first field or fields of the primary key. The encoding of a primary key begins with
//! the encodings of these fields, and each encoding is self-delimiting. So the shard of a row is a pure function
//! of the bytes of its primary key, which every [`Change`](crate::model::maintain::Change) contains.
//!
//! A hash map has 4,096 slots. The slot of a row is the first twelve bits of the BLAKE3 hash of its shard
//! key. The number of the slot, in two bytes, replaces the shard key in the boundaries, so that look-ups are
//! the same for all three kinds of map.

mod boundaries;
mod global;
mod key;
mod load;
mod map;
mod placed;
mod routing;
mod set;
#[cfg(test)]
mod tests;

pub(crate) use boundaries::{Boundaries, first_bytes};
pub(crate) use global::{GlobalIndex, can_distribute, map_of};
pub(crate) use key::slot;
pub use key::{Distribution, ShardKey};
pub(crate) use load::{KeyRequests, Sketch};
pub(crate) use map::{Declared, MapKind, Span};
pub use map::{ListMap, RangeMap, ShardKeyValue, ShardMap};
pub(crate) use placed::{placed_map, placed_table};
pub(crate) use routing::{Routing, Shards};
pub(crate) use set::ShardSet;

/// The number of a shard in its manager. It never changes while the shard exists.
pub(crate) type ShardNumber = u32;

/// The number of slots of a hash map.
pub(crate) const SLOTS: u16 = 4096;

/// The name of the key type of hash maps.
pub(crate) const HASHED: &str = "hash";
