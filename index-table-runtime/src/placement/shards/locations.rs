//! The tables for which the store has no location of the rows.
//!
//! The shard map manager has the location of each table since its repository was first opened. Only the declaration of a table
//! gives this location. So a rebuilt manager lacks it, and so does a store that has grown, until the repository of the table
//! is opened.

use super::{Engine, FIRST};
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
            let tables = self.without_location(shard)?;
            let (table, its, it) = match tables.len() {
                0 => continue,
                1 => ("table", "its rows", "its repository"),
                _ => ("tables", "their rows", "their repositories"),
            };
            let (shard, tables) = (self.name(shard), listed(&tables));
            let reason = format!(
                "shard `{shard}` has {table} {tables}, and the store has no record of the distribution of {its}: open {it} first; \
                 if the program has no such table, give its shard with `Options::place` when the store is opened"
            );
            return Err(Error::ShardRefused { what: what(), reason });
        }
        Ok(())
    }

    /// Returns the names of the tables in a shard that have no location.
    fn without_location(&self, shard: ShardNumber) -> Result<Vec<String>> {
        let Some(open) = self.shard(shard)?.current() else { return Ok(Vec::new()) };
        let tables = open.catalog()?.iter().map(|(table, _)| table.clone()).collect::<Vec<_>>();
        let is_unknown = |table: &String| {
            // The names of indexes, and of the tables of the store itself, have a dot.
            !table.contains('.') && self.location_of(table).is_none() && !self.is_placed(table)
        };
        Ok(tables.into_iter().filter(is_unknown).collect())
    }

    /// Returns why the store has no shard map. A table of a store that has grown gives its map when its repository is opened.
    pub(crate) fn no_map(&self) -> Result<String> {
        let reason = "the store has no such map";
        let tables = if self.has_grown() { self.without_location(FIRST)? } else { Vec::new() };
        if tables.is_empty() {
            return Ok(reason.to_owned());
        }
        Ok(format!(
            "{reason}; open the repositories of its tables first: since the store has grown, {} {} not opened",
            listed(&tables),
            if tables.len() == 1 { "was" } else { "were" }
        ))
    }
}

/// Returns names for a message.
fn listed(names: &[String]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}
