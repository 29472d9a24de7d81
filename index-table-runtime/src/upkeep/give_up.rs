//! Giving up the entries of an index whose pages are damaged, so that it is built again from the rows.

use crate::{
    engine::Records,
    model::{
        error::{Error, Result},
        index_state::Duplicates,
        schema::{Building, IndexRecord, StateRecord, TableRecord},
    },
    store::Store,
};

impl Store {
    /// Empties an index or an aggregate, so that it is built again from the rows: by a repository's `build`, or when a program opens
    /// the table next. Until then, queries of the index fail with [`Error::IndexNotReadable`].
    ///
    /// This is the remedy for a damaged page of an index, which loses no row. LMDB reads nothing of a damaged tree. Its pages are lost
    /// until the store is copied without free pages ([`Backup::compact`](crate::Backup)). In a sharded store, only the damaged
    /// parts of the index are emptied or, if none is damaged, all of them.
    ///
    /// The change is one commit in each shard, which the [journal](crate::Durability) and an archive have: a follower empties its
    /// index too, and gets its entries from the build.
    ///
    /// Cost: reads the pages of the index and of the lists of free pages.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownName`] for a table, an index or an aggregate that is not in the catalog, and for a change stream or a reference;
    /// [`Error::NotOffered`] if this process has the table open, if no data file has the index yet, and for a store in memory or on a
    /// server; [`Error::DamagedFile`] if the catalog or the lists of free pages are damaged; [`Error::MapFull`], because the map does
    /// not grow for it; the [errors of writing](crate::Error#common-errors). After an error, nothing has changed in the shard.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[index(town)]
    /// struct Person {
    ///     #[primary_key]
    ///     id: u32,
    ///     town: String,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// # let people = PersonRepository::open(&store)?;
    /// # store.transaction(|txn| people.insert(txn, &Person { id: 1, town: "Oslo".into() }))?;
    /// # drop(people);
    /// store.give_up_index("person", "town")?;
    /// let people = PersonRepository::open(&store)?;
    /// people.build(&store).run()?;
    /// assert_eq!(people.find_by_town(&store.read()?, "Oslo").count()?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn give_up_index(&self, table: &str, index: &str) -> Result<()> {
        let engines = &self.inner.engines;
        engines.refuse_forked()?;
        if engines.each().any(|engine| engine.lmdb().is_none()) {
            return Err(Error::NotOffered {
                what: "giving up an index, because its engine has no pages of LMDB",
            });
        }
        self.inner.while_closed(table, || {
            let mut parts = Vec::new();
            for engine in engines.each_lmdb() {
                if let Some(is_intact) = engine.has_intact_index(table, index)? {
                    parts.push((engine, is_intact));
                }
            }
            // A name that is not an index is refused before anything is emptied.
            plan(&engines.catalog()?, table, index)?;
            if parts.is_empty() {
                return Err(Error::NotOffered {
                    what: "giving up an index that is not built yet, and so has no entries",
                });
            }
            let is_damaged = parts.iter().any(|(_, is_intact)| !is_intact);
            for (engine, is_intact) in parts {
                if is_damaged && is_intact {
                    continue;
                }
                let plan = &mut |records: &Records| plan(records, table, index);
                engine.give_up_index(table, index, plan).map_err(|(error, _)| error)?;
            }
            Ok(())
        })
    }
}

/// Returns the record of the table with another number, and the state of the index.
fn plan(records: &Records, table: &str, index: &str) -> Result<Records> {
    let names = records.iter().map(|(name, _)| name.as_str());
    let unknown = |place: String, kind, name: &str, known: Vec<&str>| Error::UnknownName {
        place,
        kind,
        name: name.to_owned(),
        known: known.join(", "),
    };
    let Some((_, record)) = records.iter().find(|(name, _)| name == table) else {
        let known = names.filter(|name| !name.contains('.')).collect();
        return Err(unknown("the store".to_owned(), "table", table, known));
    };
    let mut record = TableRecord::decode("the table", record)?;
    let parts = record.indexes.iter().filter(|own| own.is_index() || own.is_aggregate());
    let Some(own) = parts.clone().find(|own| own.name == index) else {
        let known = parts.map(|own| own.name.as_str()).collect();
        return Err(unknown(format!("table `{table}`"), "index", index, known));
    };
    let state = emptied(own).encode("the table")?;
    // A process with the table open reads the states again.
    record.changes = record.changes.wrapping_add(1).max(1);
    let record = record.encode("the table")?;
    Ok(vec![(table.to_owned(), record), (format!("{table}.{index}"), state)])
}

/// Returns the state of an index without entries, which is to be built.
fn emptied(index: &IndexRecord) -> StateRecord {
    if index.is_eventual() {
        // Its messages are removed when it is built.
        return StateRecord::Disabled;
    }
    if index.options.iter().any(|option| option == IndexRecord::GLOBAL) {
        // It is built from the rows of all shards.
        return StateRecord::Emptied(Duplicates::default());
    }
    StateRecord::Building(Building::default())
}
