use crate::{
    scan::Bounds,
    schema::{Source, TableSchema},
};

/// A question to an engine, as a plain value.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    /// Which database.
    pub(crate) source: Source,
    /// Which keys.
    pub(crate) bounds: Bounds,
    /// From the last key to the first.
    pub(crate) reverse: bool,
    /// At most this many entries.
    pub(crate) limit: Option<u64>,
    /// Only what comes behind this place, in the direction of the query.
    pub(crate) position: Option<Position>,
    /// With a position: the entry at the place itself as well, if there is one.
    pub(crate) inclusive: bool,
}

impl Query {
    /// Everything within the bounds, forward.
    pub(crate) const fn new(source: Source, bounds: Bounds) -> Self {
        Self { source, bounds, reverse: false, limit: None, position: None, inclusive: false }
    }
}

/// The place of one entry in the order of a database, whether the entry is still there or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position {
    /// The index key; empty for the fact table.
    pub(crate) key: Vec<u8>,
    /// The primary key.
    pub(crate) primary_key: Vec<u8>,
}

impl Position {
    /// Whether both keys are such as entries of `source` have.
    pub(crate) fn is_in(&self, schema: &TableSchema, source: Source) -> bool {
        let key_len = match schema.index(source) {
            Some(index) => index.key_len(&self.key),
            None => Ok(0),
        };
        key_len == Ok(self.key.len())
            && schema.primary_key_len(&self.primary_key) == Ok(self.primary_key.len())
    }

    /// Both keys one after the other: the order of entries is the order of these bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        [self.key.as_slice(), &self.primary_key].concat()
    }
}
