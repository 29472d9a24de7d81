//! The seam between what decides and what stores.
//!
//! Pure code asks with a [`Query`], a plain value, and writes with [`Change`]s, plain values too;
//! an engine executes both. How it lays entries out is its own affair: it keeps the order
//! (index key, then primary key) and gives each entry back as a [`RawEntry`].
//!
//! The engines are an enum and not a type parameter: repositories stay free of generics, all of
//! this is compiled once, in this crate, and with one engine built in the `match`es are free.

mod dispatch;
pub(crate) mod files;
pub(crate) mod lmdb;
#[cfg(feature = "memory")]
pub(crate) mod memory;
mod options;
mod query;
#[cfg(test)]
mod tests;

pub(crate) use dispatch::{Engine, Entries, Pieces, Reader, Tables, Txn, Writer};
pub(crate) use options::{CopyKind, DEFAULT_MAP_SIZE, Limit, MOST};
pub use options::{Durability, Options, WhenFull};
pub(crate) use query::Query;

use crate::model::entry::RawEntry;
use crate::model::{
    error::{Boxed, Result},
    maintain::Sink,
    schema::{IndexSchema, Source},
};

/// Records of the catalog by their names, in order: a table's has its name, what belongs to a part of
/// it has `{table}.{part}`.
pub(crate) type Records = Vec<(String, Vec<u8>)>;

/// A part of an index as the engine keeps it, with one entry in it or several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece<'t> {
    /// Its place in the order of the pieces: what the engine stores it under.
    pub(crate) at: &'t [u8],
    /// What is wrong with it.
    pub(crate) fault: Option<Fault>,
}

/// How a [`Piece`] breaks the rules of the engine's layout, whatever the rows say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    /// In what way.
    pub(crate) reason: &'static str,
    /// How many bytes of [`Piece::at`] are the index key, if all pieces of that key are to be
    /// written anew; `None`: the piece can go by itself.
    pub(crate) key: Option<usize>,
}

/// What a scan steps on.
pub(crate) type Step<'t> = Result<RawEntry<'t>, Boxed>;

/// Reading one table in one transaction.
pub(crate) trait Read<'t>: Copy {
    /// The answer to a scan, entry by entry.
    type Entries: Iterator<Item = Step<'t>>;
    /// An index, piece by piece.
    type Pieces: Iterator<Item = Result<Piece<'t>>>;

    /// The bytes of the row with this primary key.
    fn fact(self, primary_key: &[u8]) -> Result<Option<&'t [u8]>>;

    /// What the entry with these keys carries. In a unique index that is the entry of its key, if
    /// it refers to this row.
    fn entry(self, index: usize, key: &[u8], primary_key: &[u8]) -> Result<Option<&'t [u8]>>;

    /// The entry with this key in a unique index.
    fn unique(self, index: usize, key: &[u8]) -> Result<Option<RawEntry<'t>>>;

    /// All entries that the query asks for, but for its limit, which is the caller's.
    fn scan(self, query: Query) -> Result<Self::Entries>;

    /// How many entries the query asks for, up to its limit.
    fn count(self, query: Query) -> Result<Count>;

    /// The pieces of an index behind a place.
    fn pieces(self, index: usize, behind: Option<&[u8]>) -> Result<Self::Pieces>;

    /// How many facts, or pieces of an index, there are by the engine's own account.
    fn stored(self, source: Source) -> Result<u64>;

    /// What the catalog has for a part of the table, or under the empty name for the table itself.
    fn record(self, part: &str) -> Result<Option<&'t [u8]>>;

    /// The parts of the table that the catalog has something for, in the order of their names.
    fn recorded_parts(self) -> Result<Vec<String>>;

    /// What the table's queue has under the least number from this one on. A table without an eventual
    /// index has no queue, and nothing in it.
    fn message(self, from: u64) -> Result<Option<(u64, &'t [u8])>>;

    /// What the table's queue has under the greatest number below this one.
    fn message_below(self, below: u64) -> Result<Option<(u64, &'t [u8])>>;

    /// How many numbers the table's queue has something under.
    fn messages(self) -> Result<u64>;
}

/// The answer to a count, and what it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Count {
    /// How many entries there are.
    pub(crate) found: u64,
    /// How many places were looked for: none where the size is known.
    pub(crate) seeks: u64,
    /// How many entries were stepped on; a packed block is one.
    pub(crate) steps: u64,
}

/// Entries in the order of their database, one at a time.
pub(crate) trait Ascending {
    /// The next entry.
    fn next(&mut self) -> Result<Option<RawEntry<'_>>>;
}

/// Writing one table in one transaction.
pub(crate) trait Write: Sink {
    /// Writes many entries of an index, or facts, which come in the order of the database; how many
    /// there were. What it leaves is what the same entries leave one by one, as [`Change`]s, and an
    /// engine may be quicker about it. Of entries that don't come in order the same holds, without
    /// the speed.
    fn append(&mut self, source: Source, entries: &mut dyn Ascending) -> Result<u64> {
        let mut count = 0;
        while let Some(entry) = entries.next()? {
            self.change(entry.put(source))?;
            count += 1;
        }
        Ok(count)
    }

    /// Writes a fact unless its primary key is taken; `false`: it is, and nothing has changed.
    fn insert_fact(&mut self, primary_key: &[u8], row: &[u8]) -> Result<bool>;

    /// Writes the entry of a key in an index whose keys have one at most, unless there is one;
    /// `false`: there is, and nothing has changed.
    fn insert_entry(
        &mut self,
        index: usize,
        key: &[u8],
        primary_key: &[u8],
        data: &[u8],
    ) -> Result<bool>;

    /// Removes the piece of an index at this place, or all that begin with these bytes; `false`:
    /// there was none.
    fn remove_pieces(&mut self, index: usize, at: &[u8], all: bool) -> Result<bool>;

    /// Empties an index.
    fn clear(&mut self, index: usize) -> Result<()>;

    /// Replaces what the catalog has for a part of the table, see [`Read::record`].
    fn put_record(&mut self, part: &str, record: &[u8]) -> Result<()>;

    /// Removes what the catalog has for a part of the table.
    fn remove_record(&mut self, part: &str) -> Result<()>;

    /// What the table's sequence has in the file.
    fn sequence(&self) -> Result<Option<&[u8]>>;

    /// Replaces what the table's sequence has in the file.
    fn put_sequence(&mut self, sequence: &[u8]) -> Result<()>;

    /// Replaces what the table's queue has under a number.
    fn put_message(&mut self, number: u64, message: &[u8]) -> Result<()>;

    /// Removes what the table's queue has under a number.
    fn remove_message(&mut self, number: u64) -> Result<()>;

    /// Empties the table's queue.
    fn clear_messages(&mut self) -> Result<()>;

    /// The name of the layout that the engine gives an index; part of its record.
    fn layout(&self, index: &IndexSchema) -> &'static str;
}
