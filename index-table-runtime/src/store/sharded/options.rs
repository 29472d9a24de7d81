//! The options of stores with shards.

use std::path::Path;

use crate::{
    engine::{DeclaredShard, Options},
    model::shard::ShardMap,
};
#[cfg(feature = "memory")]
use crate::{model::error::Result, store::Store};

/// Shards, shard maps and places are given when the store is created. The store records them, so opening it needs none of
/// them. If they are given again, they must equal the recorded values. New maps and places can be added.
impl Options {
    /// Adds a shard in a directory of its own. The path is relative to the directory of the store, or absolute, for
    /// example on another disk. Tables without a shard key are in the first shard, unless they are
    /// [placed](Options::place) in another shard.
    ///
    /// If the shard has been [removed](Store::remove_shard) or [detached](Store::detach_shard), this has
    /// no effect, so that a program can keep its declaration. Its ranges in [`map`](Options::map) then have no
    /// effect either.
    ///
    /// If the store has the shard in another directory, because it was [attached](Store::attach_shard) or
    /// [relocated](Options::relocate) there, opening the store fails with [`Error::ShardRefused`](crate::Error::ShardRefused), which names both
    /// directories. Declare the current directory, or don't declare the shard: the store records its shards.
    pub fn shard(mut self, name: impl Into<String>, directory: impl AsRef<Path>) -> Self {
        let (name, place) = (name.into(), directory.as_ref().to_owned());
        self.declared.shards.push(DeclaredShard { name, place, options: None, added: false });
        self
    }

    /// Adds a shard, like [`shard`](Options::shard), with options of its own. Of the options, those of a single data file apply:
    /// `map_size`, `max_map_size`, `durability`, `max_databases`, `max_readers`, `reserve`, `index_queue`, `file_mode` and
    /// `directory_mode`. [`Durability::Full`](crate::Durability::Full) means the common journal here. A shard without options of
    /// its own has those of the store.
    pub fn shard_with(
        self,
        name: impl Into<String>,
        directory: impl AsRef<Path>,
        options: Self,
    ) -> Self {
        let mut own = self.shard(name, directory);
        if let Some(shard) = own.declared.shards.last_mut() {
            shard.options = Some(options);
        }
        own
    }

    /// Adds a shard to a store that may have been created without it, as its last shard. A store with one data file becomes a store
    /// with shards, as by [`Store::add_shard`]. If the store has the shard
    /// already, or has removed or detached it in this directory, this has no effect.
    ///
    /// To add a shard while the store is in use, see [`Store::add_shard`].
    ///
    /// No existing shard map has keys in the new shard. New shard maps and places can name it, and it gets a copy of each
    /// reference table when the repository of the table is opened. If the store can't be opened with the new shard, it is
    /// left without it.
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
    /// # let path = dir.path().join("shop");
    /// let north = Store::options().shard("north", "north");
    /// drop(north.open(&path)?);
    ///
    /// let store = Store::options()
    ///     .add_shard("south", "south")
    ///     .map("orders", ShardMap::ranges().to("north", ..100u32).to("south", 100u32..))
    ///     .open(&path)?;
    /// let orders = OrderRepository::open(&store)?;
    /// store.transaction(|txn| orders.insert(txn, &Order { tenant: 107, number: 1 }))?;
    /// assert_eq!(orders.shard_of(&store, 107)?.name(), "south");
    /// # Ok(())
    /// # }
    /// ```
    pub fn add_shard(self, name: impl Into<String>, directory: impl AsRef<Path>) -> Self {
        let mut own = self.shard(name, directory);
        if let Some(shard) = own.declared.shards.last_mut() {
            shard.added = true;
        }
        own
    }

    /// Changes the directory of a shard, for example because its disk was replaced. Move the files while the store is
    /// closed, and open the store once with the new directory, which is then recorded. If the new directory does not
    /// have this shard, opening fails, and the store keeps the old directory. After that, a program that declares the
    /// shard has to declare the new directory.
    pub fn relocate(mut self, name: impl Into<String>, directory: impl AsRef<Path>) -> Self {
        self.declared.relocated.push((name.into(), directory.as_ref().to_owned()));
        self
    }

    /// Adds a shard map. A table uses the map with its own name, unless its declaration has `shard_map`. A store that has been
    /// created without the map gets it when it is opened, for example for a table with another shard key.
    ///
    /// # Examples
    ///
    /// The shard key of a table can't be changed. So a second table gets the rows, while the program writes to both. Each of
    /// these writes is a transaction of up to two shards. The same steps copy a table into another store. But a transaction
    /// belongs to one store, so writes have to stop during such a copy.
    ///
    /// ```
    /// use index_table::{IndexTable, Result, ShardMap, Store, WriteTxn};
    /// use serde::{Deserialize, Serialize};
    ///
    /// /// By tenant: one tenant has become too large for a shard.
    /// #[derive(Clone, Serialize, Deserialize, IndexTable)]
    /// #[table(name = "orders", shard_by = tenant)]
    /// struct Order {
    ///     #[primary_key]
    ///     tenant: u32,
    ///     #[primary_key]
    ///     number: u64,
    ///     total: i64,
    /// }
    ///
    /// /// By a hash of the tenant and the number.
    /// #[derive(Clone, Serialize, Deserialize, IndexTable)]
    /// #[table(name = "orders_2", shard_by = hash(tenant, number))]
    /// struct SpreadOrder {
    ///     #[primary_key]
    ///     tenant: u32,
    ///     #[primary_key]
    ///     number: u64,
    ///     total: i64,
    /// }
    ///
    /// impl From<Order> for SpreadOrder {
    ///     fn from(Order { tenant, number, total }: Order) -> Self {
    ///         Self { tenant, number, total }
    ///     }
    /// }
    ///
    /// /// Step 2: each write goes to both tables. Do the same with deletions.
    /// fn put(txn: &mut WriteTxn<'_>, old: &OrderRepository, new: &SpreadOrderRepository, order: &Order) -> Result<()> {
    ///     old.put(txn, order)?;
    ///     new.put(txn, &order.clone().into())
    /// }
    ///
    /// # fn main() -> Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("shop");
    /// # {
    /// #     let store = Store::options()
    /// #         .shard("north", "north")
    /// #         .shard("south", "south")
    /// #         .map("orders", ShardMap::ranges().to("north", ..100u32).to("south", 100u32..))
    /// #         .open(&path)?;
    /// #     let orders = OrderRepository::open(&store)?;
    /// #     store.transaction(|txn| (0..50).try_for_each(|number| orders.insert(txn, &Order { tenant: 7, number, total: 1 })))?;
    /// # }
    /// // Step 1: the store gets a shard map for the new table.
    /// let store = Store::options()
    ///     .map("orders_2", ShardMap::hashed(["north", "south"]))
    ///     .open(&path)?;
    /// let (old, new) = (OrderRepository::open(&store)?, SpreadOrderRepository::open(&store)?);
    /// put_one(&store, &old, &new)?;
    ///
    /// // Step 3: copy the rows in batches. Each transaction reads the current rows of the old table, so changes made since the
    /// // page was read are copied, too.
    /// let mut cursor = None;
    /// loop {
    ///     let (keys, next) = {
    ///         let txn = store.read()?;
    ///         let scan = cursor.iter().fold(old.all(&txn), |scan, cursor| scan.after(cursor));
    ///         let page = scan.page(20)?;
    ///         (page.items.iter().map(|row| (row.tenant, row.number)).collect::<Vec<_>>(), page.next)
    ///     };
    ///     store.transaction(|txn| {
    ///         for (tenant, number) in &keys {
    ///             if let Some(order) = old.get(txn, *tenant, *number)? {
    ///                 new.put(txn, &order.into())?;
    ///             }
    ///         }
    ///         Ok(())
    ///     })?;
    ///     let Some(next) = next else { break };
    ///     cursor = Some(next);
    /// }
    ///
    /// // Step 4: compare the tables. After this step, the program reads the new table.
    /// let txn = store.read()?;
    /// assert_eq!(new.all(&txn).count()?, old.all(&txn).count()?);
    /// assert_eq!(new.find_by_tenant(&txn, 7).count()?, 51);
    /// drop(txn);
    ///
    /// // Step 5: write to the new table only, and empty the old table.
    /// let mut txn = store.write()?;
    /// old.all(&txn).query().delete(&mut txn)?;
    /// txn.commit()?;
    /// # assert_eq!(old.all(&store.read()?).count()?, 0);
    /// # Ok(())
    /// # }
    /// # fn put_one(store: &Store, old: &OrderRepository, new: &SpreadOrderRepository) -> Result<()> {
    /// #     store.transaction(|txn| put(txn, old, new, &Order { tenant: 7, number: 1000, total: 1 }))
    /// # }
    /// ```
    pub fn map(mut self, name: impl Into<String>, map: impl Into<ShardMap>) -> Self {
        self.declared.maps.push((name.into(), map.into()));
        self
    }

    /// Places a table without a shard key in a shard. The default is the first shard.
    ///
    /// A table of parts (`#[table(part_of = …)]`) can be placed in another shard than the main rows. Then, a transaction that
    /// writes a part, or deletes a main row, locks both shards.
    pub fn place(mut self, table: impl Into<String>, shard: impl Into<String>) -> Self {
        self.declared.places.push((table.into(), shard.into()));
        self
    }

    /// Opens only these shards. Queries that need other shards fail with
    /// [`Error::ShardUnavailable`](crate::Error::ShardUnavailable).
    ///
    /// The journal keeps the commits that the files of the other shards lack, in files `shards.journal.left.{number}`, as for
    /// a shard whose directory is missing. Such a file has the length of the journal at the time of the first opening without
    /// the shard.
    pub fn only<S: Into<String>>(mut self, shards: impl IntoIterator<Item = S>) -> Self {
        self.declared.only = Some(shards.into_iter().map(Into::into).collect());
        self
    }

    /// Returns a store in memory with these shards, maps and places, for tests. Directories and options of files are ignored.
    /// Without shards, the store is the same as [`Store::in_memory`]. Shards without any shard map distribute every table by a
    /// hash of its shard key.
    ///
    /// # Errors
    ///
    /// [`Error::ShardRefused`](crate::Error::ShardRefused): shards, maps or places are invalid.
    #[cfg(feature = "memory")]
    pub fn in_memory(&self) -> Result<Store> {
        if self.declared.is_empty() {
            return Ok(Store::in_memory());
        }
        super::memory::in_memory(self)
    }
}
