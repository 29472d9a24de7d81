use crate::model::{
    key::{KeyReader, KeyShape, Unescaped, hash},
    schema::{KeyField, Source, TableSchema},
};

use super::{HASHED, SLOTS, map_of};

/// The distribution of a table's rows among shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    /// All rows are in one shard: the table has no shard key.
    Whole,
    /// The shard key of a row determines its shard.
    ByKey(ShardKey),
    /// Every shard has a copy of all rows.
    Reference,
}

/// The shard key of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardKey {
    /// The number of leading fields of the primary key.
    pub fields: usize,
    /// Whether rows are distributed by a hash of these fields.
    pub hashed: bool,
    /// The name of the shard map.
    pub map: &'static str,
    /// The positions of the global indexes, which are sharded by their own keys.
    pub global: &'static [usize],
}

impl Distribution {
    /// Returns the positions of the global indexes.
    pub(crate) const fn global(self) -> &'static [usize] {
        match self {
            Self::Whole | Self::Reference => &[],
            Self::ByKey(key) => key.global,
        }
    }
}

impl Distribution {
    /// Returns what has this shard map: the rows, or the entries of a global index.
    pub(crate) fn source_with(self, schema: &TableSchema, map: &str) -> Option<Source> {
        let Self::ByKey(key) = self else { return None };
        if key.map == map {
            return Some(Source::Facts);
        }
        let named = |index: &&usize| {
            let name = schema.indexes.get(**index).map(|index| index.name);
            name.is_some_and(|name| map_of(schema.name, name) == map)
        };
        key.global.iter().find(named).map(|index| Source::Index(*index))
    }
}

impl ShardKey {
    /// Returns the fields of the shard key.
    pub(crate) fn of(self, primary_key: &'static [KeyField]) -> &'static [KeyField] {
        primary_key.get(..self.fields).unwrap_or(primary_key)
    }

    /// Returns the name of the key type that the shard map must have.
    pub(crate) fn type_name(self, primary_key: &'static [KeyField]) -> String {
        if self.hashed {
            return HASHED.to_owned();
        }
        type_name(self.of(primary_key))
    }
}

/// Returns the name of the type of the shard keys with these fields.
pub(super) fn type_name(fields: &[KeyField]) -> String {
    match fields {
        [one] => one.shape.to_string(),
        several => {
            let shapes: Vec<_> = several.iter().map(|field| field.shape.to_string()).collect();
            format!("({})", shapes.join(","))
        }
    }
}

/// Returns the length of the values with these shapes at the start of `key`; `None` if `key` is too short or
/// not such a key.
pub(super) fn len_of<'s>(
    shapes: impl IntoIterator<Item = &'s KeyShape>,
    key: &[u8],
) -> Option<usize> {
    let unescaped = Unescaped::default();
    let mut reader = KeyReader::new(key, &unescaped);
    shapes.into_iter().try_for_each(|shape| shape.skip(&mut reader)).ok()?;
    key.len().checked_sub(reader.rest().len())
}

/// Returns the slot of a shard key, which replaces the key in hash maps.
pub(crate) fn slot(encoding: &[u8]) -> [u8; 2] {
    let [first, second, ..] = hash(encoding);
    let slot = u16::from_be_bytes([first, second]) / (u16::MAX / SLOTS + 1);
    slot.to_be_bytes()
}

/// Returns a boundary of a hash map as text: the number of a slot.
pub(super) fn show_slot(boundary: &[u8]) -> String {
    boundary.first_chunk().map_or(0, |slot| u16::from_be_bytes(*slot)).to_string()
}
