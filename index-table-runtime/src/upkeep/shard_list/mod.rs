//! Adding shards to an open store, removing them, attaching detached ones, and restoring lost ones.

mod attach;
mod copy;
mod entries;
mod grow;
mod leave;
mod plan;
mod restore;
#[cfg(test)]
mod tests;

use std::{path::Path, sync::Arc};

use super::{
    all_shards,
    copies::Copies,
    opening::{self, ShardPart},
};
use crate::{
    model::error::{Error, Result},
    placement::shards::{Locks, Shard},
    store::{MAIN, ShardId, Store, engine_to_change, open_added, shard_id},
};

impl Store {
    /// Adds a shard in a directory of its own, while the store is open. The path is relative to the directory of the store,
    /// or absolute. The new shard has the options of the first shard.
    ///
    /// A store with one data file becomes a store with shards: the data file is its first shard, `main`, with all keys of all
    /// tables. Handles, repositories and running transactions stay valid. Transactions that began before keep their snapshot.
    /// Processes that have the store open for reading get [`Error::ReopenNeeded`] at their next transaction. An archive continues,
    /// and a restore to a time before gives one data file. A follower fails with `ReopenNeeded`, and goes on
    /// when it is opened again, without another copy of `main`. A follower of a store with shards takes the new shard by itself. `main`
    /// can be emptied, but not removed, detached or restored alone.
    ///
    /// No shard map assigns keys to the new shard yet: move keys to it with [`move_range`](Store::move_range),
    /// [`move_slots`](Store::move_slots) or [`move_keys`](Store::move_keys). It gets a copy of each
    /// reference table. To add a shard when the store is opened, use
    /// [`Options::add_shard`](crate::Options::add_shard).
    ///
    /// Other processes that have the store open for reading don't see the new shard until they open the store again.
    /// After 64 shards have been added, the store has to be opened again before another shard can be added.
    ///
    /// Cost: the cost of creating a store, and one checkpoint of the journal. Write transactions of all shards wait while
    /// the reference tables are copied. For a store with one data file also the creation of the shard map manager, and a
    /// checkpoint during which write transactions wait. No rows are read.
    ///
    /// # Errors
    ///
    /// [`Error::NotOffered`]: the store is in memory without shards, on a server, or has [`Durability::Full`](crate::Durability).
    /// [`Error::ShardRefused`]: a shard has this name, or the directory has a store. [`Error::WriteInProgress`] if this
    /// thread has a write transaction; the errors of [`Store::open`](crate::Store::open). The store is left without the
    /// shard.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, ShardMap, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(name = "orders", shard_by = tenant)]
    /// struct Order {
    ///     #[primary_key]
    ///     tenant: u32,
    ///     #[primary_key]
    ///     number: u64,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = Store::options()
    ///     .shard("north", "north")
    ///     .map("orders", ShardMap::ranges().to("north", 0u32..))
    ///     .open(dir.path().join("shop"))?;
    /// let orders = OrderRepository::open(&store)?;
    /// store.transaction(|txn| orders.insert(txn, &Order { tenant: 107, number: 1 }))?;
    ///
    /// store.add_shard("south", "south")?;
    /// store.move_range("orders", 100u32.., "south").run()?;
    /// assert_eq!(orders.shard_of(&store, 107)?.name(), "south");
    /// # Ok(())
    /// # }
    /// ```
    pub fn add_shard(&self, name: impl AsRef<str>, directory: impl AsRef<Path>) -> Result<ShardId> {
        let (inner, name) = (&self.inner, name.as_ref());
        let refused = |reason: &str| Error::ShardRefused {
            what: format!("shard `{name}`"),
            reason: reason.to_owned(),
        };
        inner.engines.refuse_forked()?;
        inner.engines.refuse_read_only()?;
        inner.refuse_nested_write()?;
        let _opening = inner.lock_opening();
        if inner.engines.several().is_none() {
            if name == MAIN {
                return Err(refused("the store has it already"));
            }
            grow::grow(self)?;
        }
        let shards = engine_to_change(self)?;
        let _held = shards.hold_moves();
        if shards.number(name).is_some() {
            return Err(refused("the store has it already"));
        }
        let number = shards.next_number();
        let added = open_added(shards, name, directory.as_ref())?;
        let own = Store { inner: added.open()? };
        shards.share_lists(&own.inner);
        let shard = Shard::open(Arc::from(name), Arc::clone(own.inner.engine()?));
        let in_use = inner.tables_in_use();
        let (mut references, mut others) = (Vec::new(), Vec::new());
        for table in &in_use {
            let Some(tables) = table.tables.several() else { continue };
            if tables.routing().is_reference() {
                let opened =
                    opening::open_with(&own, &table.rows, Some(ShardPart::default()), false)?;
                references.push((table, tables, opened));
            } else {
                others.push(tables);
            }
        }
        let all = shards.write_with(&Locks::All)?;
        let mut in_shard = Vec::new();
        for (table, tables, opened) in &references {
            in_shard.push((tables, table.keep(opened)?));
            Copies::of(shards, table)?.replace(&own, opened)?;
        }
        shards.keep_store(&own.inner);
        shards.add_shard(&all, shard, |name| {
            for (tables, opened) in in_shard {
                tables.add(number, name, opened);
            }
            for tables in &others {
                tables.add_name(number, name);
            }
        })?;
        drop(all);
        added.keep();
        for (table, ..) in references {
            all_shards::align(&inner.engines, &table.tables, &table.rows, Some(table))?;
        }
        shards.record_shards()?;
        shard_id(self, number)
    }
}
