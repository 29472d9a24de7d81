//! The reads of queries, which each query counts.

use std::ops::AddAssign;

/// The reads of a scan so far, or of all finished queries of a transaction. From the `stats` of
/// [`ReadTxn`](crate::ReadTxn::stats) and of everything that iterates, such as [`Rows`](crate::Rows::stats)
/// and [`Entries`](crate::Entries::stats).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Seeks in an index, or in a fact table as the index of its primary key: one for each scan or for each
    /// value of its list, for each value of a [`Distinct`](crate::Distinct), and for each seek of a
    /// [`Combined`](crate::Combined). A scan of several shards seeks in each of them.
    pub seeks: u64,
    /// Entries of indexes and of fact tables that were read. A scan counts each entry of a packed block.
    /// [`Scan::count`](crate::Scan::count) reads only the length of a block and counts it as one entry. It
    /// reads no entries if the total size is known.
    pub entries: u64,
    /// Facts that were looked up by their primary key: by `get` and `get_many`, and for the references of a
    /// normalized or partial index, or to compare a hashed field.
    pub facts: u64,
    /// Bytes that were decoded: the bytes of a row; the index key, the primary key and the data of an entry;
    /// the bytes of a key; the index key of a value of a [`Distinct`](crate::Distinct). Skipped and counted
    /// entries, and references to rows, are not included.
    pub bytes: u64,
    /// The number of different shards that a query or a transaction on a
    /// [`Store`](crate::Store) has read; 0 in a store with one shard.
    pub shards: u64,
}

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.seeks += other.seeks;
        self.entries += other.entries;
        self.facts += other.facts;
        self.bytes += other.bytes;
    }
}
