//! The small records of a table, in addition to its facts and entries.

use super::{Read, Write};
use crate::model::{
    error::{Error, Result},
    schema::Renaming,
};

/// Records of the catalog by their names, in order: `{table}` for a table, `{table}.{part}` for a part of it.
pub(crate) type Records = Vec<(String, Vec<u8>)>;

/// The record of a table's lists, and its second copy.
pub(crate) type ListRecords = [Option<Vec<u8>>; 2];

/// A function that changes the records of the catalog before a table is opened.
pub(crate) type Rename<'f> = dyn FnMut(&mut Renaming<'_>) -> Result<()> + 'f;

/// A space of small records of one table, ordered by the bytes of their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    /// The catalog's records, by the names of the table's parts. The record of the table has the empty name.
    Catalog,
    /// The last number that `insert_with` has assigned, under the empty key; in a table with a shard key, under each
    /// shard key.
    Sequence,
    /// The messages for eventual indexes, by their numbers in eight bytes, big-endian. A table without an
    /// eventual index has none: a read finds nothing, and a write has no effect.
    Queue,
    /// The totals of the groups of the aggregate at this position, by the keys of the groups.
    Aggregate(usize),
    /// The change stream; see [`crate::write::changes`]. A table without one has no such space.
    Changes,
    /// The facts of the table to which the reference at this position refers, by their primary keys. It is only read.
    Referred(usize),
    /// The index of the table that refers to this one, by the reference at this position. A key begins with the
    /// index key, and the rest depends on the engine. It is only read.
    Referring(usize),
    /// The second copies of the records of lists, of all tables, by their names. Only an engine with files has them, and only
    /// while their pages are intact.
    ListCopies,
    /// [`Catalog`](Space::Catalog) of another table.
    CatalogOf(&'static str),
}

#[cfg(feature = "postgres")]
impl Space {
    /// Whether the records are in the catalog.
    pub(crate) const fn is_catalog(self) -> bool {
        matches!(self, Self::Catalog | Self::CatalogOf(_))
    }
}

/// The meaning of the small records of a table, for all engines.
pub(crate) trait ReadRecords<'t>: Read<'t> {
    /// Returns the catalog's record of a part of the table, or of the table itself under the empty name.
    fn record(self, part: &str) -> Result<Option<&'t [u8]>> {
        self.get(Space::Catalog, part.as_bytes())
    }

    /// Returns the parts of the table for which the catalog has records, in the order of their names.
    fn recorded_parts(self) -> Result<Vec<String>> {
        let mut parts = Vec::new();
        let mut from = vec![0];
        while let Some((part, _)) = self.at_or_above(Space::Catalog, &from)? {
            parts.push(String::from_utf8_lossy(part).into_owned());
            from.clear();
            from.extend_from_slice(part);
            from.push(0);
        }
        Ok(parts)
    }

    /// Returns the first message with this number or a greater one.
    fn message(self, from: u64) -> Result<Option<(u64, &'t [u8])>> {
        numbered(self, self.at_or_above(Space::Queue, &from.to_be_bytes())?)
    }

    /// Returns the last message with a smaller number.
    fn message_below(self, below: u64) -> Result<Option<(u64, &'t [u8])>> {
        numbered(self, self.below(Space::Queue, &below.to_be_bytes())?)
    }

    /// Returns the number of messages.
    fn messages(self) -> Result<u64> {
        self.len(Space::Queue)
    }

    /// Returns the sequence of the table, or of a shard key.
    fn sequence(self, leading: &[u8]) -> Result<Option<&'t [u8]>> {
        self.get(Space::Sequence, leading)
    }
}

impl<'t, R: Read<'t>> ReadRecords<'t> for R {}

fn numbered<'t>(
    reader: impl Read<'t>,
    found: Option<(&[u8], &'t [u8])>,
) -> Result<Option<(u64, &'t [u8])>> {
    let Some((number, message)) = found else { return Ok(None) };
    let number = number.try_into().map(u64::from_be_bytes);
    number.map(|number| Some((number, message))).map_err(|_| Error::Corrupt {
        table: reader.table().name,
        index: None,
        key: "of its queue".to_owned(),
        reason: "a message has a key that is not a number".to_owned(),
    })
}

/// Writing the small records of a table.
pub(crate) trait WriteRecords: Write {
    /// Replaces the catalog's record of a part of the table; see [`ReadRecords::record`].
    fn put_record(&mut self, part: &str, record: &[u8]) -> Result<()> {
        self.put(Space::Catalog, part.as_bytes(), record)
    }

    /// Removes the catalog's record of a part of the table.
    fn remove_record(&mut self, part: &str) -> Result<()> {
        self.remove(Space::Catalog, part.as_bytes())
    }

    /// Replaces the sequence of the table.
    fn put_sequence(&mut self, leading: &[u8], sequence: &[u8]) -> Result<()> {
        self.put(Space::Sequence, leading, sequence)
    }

    /// Replaces a message.
    fn put_message(&mut self, number: u64, message: &[u8]) -> Result<()> {
        self.put(Space::Queue, &number.to_be_bytes(), message)
    }

    /// Writes a new message; see [`Write::put_new`].
    fn put_new_message(&mut self, number: u64, message: &[u8]) -> Result<()> {
        self.put_new(Space::Queue, &number.to_be_bytes(), message)
    }

    /// Removes a message.
    fn remove_message(&mut self, number: u64) -> Result<()> {
        self.remove(Space::Queue, &number.to_be_bytes())
    }

    /// Empties the queue of the table.
    fn clear_messages(&mut self) -> Result<()> {
        self.clear_space(Space::Queue)
    }
}

impl<W: Write> WriteRecords for W {}
