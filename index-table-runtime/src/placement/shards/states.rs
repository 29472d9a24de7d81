//! The states of indexes in single shards. Each shard has records of its own about the indexes of a table.

use super::Reader;
use crate::{
    engine::ReadRecords as _,
    model::{error::Result, shard::ShardNumber},
    placement,
};

impl<'t> Reader<'t> {
    fn is_split(self) -> bool {
        self.routing().is_split()
    }

    /// Returns the name of a shard.
    pub(crate) fn name(self, shard: ShardNumber) -> Result<&'t str> {
        Ok(self.txn.engine().shard(shard)?.name())
    }

    /// Returns readers of all available shards with rows or entries.
    pub(crate) fn available_parts(self) -> Result<Vec<placement::Reader<'t>>> {
        let shards = self.routing().all_shards().iter();
        let available = shards.filter(|shard| self.txn.available(self.tables(), **shard).is_ok());
        available.map(|shard| self.of_shard(*shard)).collect()
    }

    /// Returns readers of the available shards that can have a queue of the table.
    pub(crate) fn with_queues(self) -> Vec<placement::Reader<'t>> {
        let shards = self.numbers_with_queues().into_iter();
        shards.filter_map(|shard| self.of_shard(shard).ok()).collect()
    }

    /// Returns the shards that can have a queue of the table.
    pub(crate) fn numbers_with_queues(self) -> Vec<ShardNumber> {
        self.tables().with_queues()
    }

    /// Whether a shard belongs to the store in this transaction.
    pub(crate) fn has_present(self, shard: ShardNumber) -> bool {
        self.tables().present.contains(&shard)
    }

    /// Returns the records about an index in all shards with rows, or `None` if all of them have the same record: the
    /// index is global, or the rows are not in several shards. Shards that are not available are left out, and the other
    /// shards of a transaction of one shard.
    fn states(self, index: usize, name: &str) -> Result<Option<Vec<&'t [u8]>>> {
        if !self.is_split() || self.routing().global(index).is_some() {
            return Ok(None);
        }
        let mut records = Vec::new();
        for (_, reader) in placement::Reader::Several(self).shards_of_rows()? {
            records.extend(reader.record(name)?);
        }
        Ok(Some(records))
    }
}

impl<'t> placement::Reader<'t> {
    /// Whether the rows are in several shards.
    pub(crate) fn is_split(self) -> bool {
        matches!(self, Self::Several(reader) if reader.is_split())
    }

    /// Returns the reader of a table whose rows are in several shards.
    pub(crate) fn split(self) -> Option<Reader<'t>> {
        match self {
            Self::Several(reader) if reader.is_split() => Some(reader),
            _ => None,
        }
    }

    /// Whether this transaction reads a single shard of a table in several shards.
    pub(crate) fn is_limited(self) -> bool {
        matches!(self, Self::Several(reader) if reader.txn.alone().is_some() && reader.is_split())
    }

    /// Returns the records about an index in all shards; `None` if there is one record for all rows.
    pub(crate) fn states(self, index: usize, name: &str) -> Result<Option<Vec<&'t [u8]>>> {
        let Self::Several(reader) = self else { return Ok(None) };
        reader.states(index, name)
    }

    /// Returns the shard of a row, with a reader of the shard; `None` if the rows are not in several shards.
    pub(crate) fn shard_of_row(self, primary_key: &[u8]) -> Result<Option<(ShardNumber, Self)>> {
        let Self::Several(reader) = self else { return Ok(None) };
        let Some(shard) = self.number_of_shard(primary_key) else { return Ok(None) };
        let reader = reader.txn.reader(reader.tables(), shard, Some(primary_key))?;
        Ok(Some((shard, Self::One(reader))))
    }

    /// Returns the number of the shard of a row; `None` if the rows are not in several shards.
    pub(crate) fn number_of_shard(self, primary_key: &[u8]) -> Option<ShardNumber> {
        match self {
            Self::Several(reader) if reader.is_split() => reader.routing().shard_of(primary_key),
            _ => None,
        }
    }

    /// Returns the available shards with rows, each with its reader; none if the rows are not in several shards. In a
    /// transaction of one shard, returns this shard.
    pub(crate) fn shards_of_rows(self) -> Result<Vec<(ShardNumber, Self)>> {
        match self {
            Self::Several(reader) if reader.is_split() => {
                let alone = reader.txn.alone();
                let is_usable = |shard: &&ShardNumber| {
                    alone.is_none_or(|alone| alone == **shard)
                        && reader.txn.available(reader.tables(), **shard).is_ok()
                };
                let shards = reader.routing().shards().iter().filter(is_usable);
                shards.map(|shard| Ok((*shard, reader.of_shard(*shard)?))).collect()
            }
            _ => Ok(Vec::new()),
        }
    }
}
