//! Stores that had one data file, and have grown.
//!
//! The first data file has all keys of a table that was never given a shard map, and all entries of its global indexes. So its
//! maps begin with this shard alone, and nothing is read to find where the rows are.

use super::Engine;
use crate::model::{
    error::Result,
    schema::TableSchema,
    shard::{Boundaries, Declared, Distribution, HASHED, MapKind, ShardNumber, map_of},
};

/// The number of the shard in the first data file.
pub(crate) const FIRST: ShardNumber = 0;

/// The place of the first data file.
pub(crate) const HERE: &str = ".";

impl Engine {
    /// Whether the store had one data file, which is its first shard now: its shard map manager has a directory of its own.
    pub(crate) fn has_grown(&self) -> bool {
        let manager = self.manager.as_ref().map(|manager| manager.engine().directory());
        manager.is_some_and(|manager| manager != self.directory())
    }

    /// Whether a shard is in the directory of a store that has grown.
    pub(crate) fn is_first_file(&self, shard: ShardNumber) -> bool {
        shard == FIRST && self.has_grown()
    }

    /// Whether a table is from the time before the store has grown, and no writer has opened it since.
    ///
    /// Cost: none if this writer has opened the table since; otherwise reads the manager or the catalog of the first shard.
    pub(crate) fn is_from_one_file(&self, table: &str) -> Result<bool> {
        if !self.has_grown() {
            return Ok(false);
        }
        let is_known = match self.manager.as_ref().filter(|_| self.is_read_only()) {
            // A reader has the locations of the tables that it has opened before a writer.
            Some(manager) => manager.read()?.is_some_and(|own| own.tables.contains_key(table)),
            None => self.location_of(table).is_some(),
        };
        if is_known {
            return Ok(false);
        }
        let Some(first) = self.shard(FIRST)?.current() else { return Ok(false) };
        Ok(first.catalog()?.iter().any(|(name, _)| name == table))
    }

    /// Adds the missing shard maps of a table, if the store has grown: the first shard has all keys.
    pub(crate) fn add_first_maps(
        &self,
        schema: &'static TableSchema,
        distribution: Distribution,
    ) -> Result<()> {
        let Distribution::ByKey(key) = distribution else { return Ok(()) };
        if !self.has_grown() {
            return Ok(());
        }
        let all = |kind, key_type| Declared {
            kind,
            key_type,
            boundaries: Boundaries::all_in(Some(FIRST)),
        };
        let kind = if key.hashed { MapKind::Hashed } else { MapKind::Ranges };
        self.add_missing_map(key.map, || Ok(all(kind, key.type_name(schema.primary_key))))?;
        if self.is_from_one_file(schema.name)? {
            for index in key.global.iter().filter_map(|index| schema.indexes.get(*index)) {
                let name = map_of(schema.name, index.name);
                self.add_missing_map(&name, || Ok(all(MapKind::Hashed, HASHED.to_owned())))?;
            }
        }
        Ok(())
    }
}
