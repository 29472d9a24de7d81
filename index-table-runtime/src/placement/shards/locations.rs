//! The tables for which the store has no location of the rows.
//!
//! The shard map manager has the location of each table since its repository was first opened. Only the declaration of a table
//! gives this location. So a rebuilt manager lacks it, and so does a store that has grown, until the repository of the table
//! is opened.

use super::Engine;
use crate::model::{
    error::{Error, Result},
    shard::ShardNumber,
};

impl Engine {
    /// Checks that the store has the location of each table in those of these shards that are available. Otherwise, rows of a table could belong to a map
    /// that changes, without being moved.
    ///
    /// Cost: reads the catalogs of these shards.
    ///
    /// # Errors
    ///
    /// [`Error::ShardRefused`]
    pub(crate) fn refuse_without_location(
        &self,
        shards: &[ShardNumber],
        what: impl Fn() -> String,
    ) -> Result<()> {
        for &shard in shards {
            let Some(open) = self.shard(shard)?.current() else { continue };
            for (table, _) in open.catalog()? {
                // The names of indexes, and of the tables of the store itself, have a dot.
                if table.contains('.')
                    || self.location_of(&table).is_some()
                    || self.is_placed(&table)
                {
                    continue;
                }
                let shard = self.name(shard);
                let reason = format!(
                    "shard `{shard}` has table `{table}`, and the store has no record of the distribution of its rows: open \
                     its repository first; if the program has no such table, give its shard with `Options::place` \
                     when the store is opened"
                );
                return Err(Error::ShardRefused { what: what(), reason });
            }
        }
        Ok(())
    }
}
