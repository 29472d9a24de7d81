//! Where rows are: in one engine, or in several shards, of which each is an engine. The types here are those of the
//! [seam](crate::engine) for both cases, and the code above doesn't tell them apart: a [`Txn`] has the [`Reader`] and the
//! [`Writer`] of a table, which read and write by the same queries and changes, and obey the same laws.
//!
//! Placement names no engine. It knows its members by the seam alone, so a shard can be in any of them.

pub(crate) mod dispatch;
pub(crate) mod shards;
#[cfg(test)]
mod tests;

pub(crate) use dispatch::{Entries, LentEntries, Reader, Tables, Txn, Writer};
