//! Shard maps and routing. Pure: nothing here reads or writes a store.
//!
//! | in | is |
//! |---|---|
//! | [`map`] | a map as an application declares it: [`ShardMap`] |
//! | [`boundaries`] | the same as sorted boundaries over encoded shard keys, which is what is stored and looked up |
//! | [`key`] | the shard key of a table, and where it is in a primary key |
//! | [`routing`] | the shard of a row by its primary key, and the shards that a query needs |
//!
//! The shard key is the first field or fields of the primary key. The encoding of a primary key begins with the
//! encodings of these fields, and each of them ends by itself. So the shard of a row is a pure function of the
//! bytes of its primary key, and every change that maintenance makes carries those bytes.
//!
//! A hash map has 4,096 slots. The slot of a row is the first twelve bits of the BLAKE3 hash of its shard key. The
//! number of the slot, in two bytes, takes the place of the shard key in the boundaries, so that all three kinds
//! of map are looked up in the same way.

mod boundaries;
mod key;
mod map;
mod routing;
#[cfg(test)]
mod tests;

pub(crate) use boundaries::Boundaries;
pub use key::{Distribution, ShardKey};
pub(crate) use map::{Declared, MapKind};
pub use map::{ListMap, RangeMap, ShardKeyValue, ShardMap};
pub(crate) use routing::Routing;

/// The number of a shard in its manager. It stays the same for as long as the shard is there.
pub(crate) type ShardNumber = u32;

/// The slots of a hash map.
pub(crate) const SLOTS: u16 = 4096;

/// The name of the key type of hash maps.
pub(crate) const HASHED: &str = "hash";
