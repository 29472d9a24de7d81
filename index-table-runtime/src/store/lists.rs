//! The lists of the tables of a store. All data files of a store share them.

use std::sync::{Arc, OnceLock, Weak};

use super::Store;
#[cfg(feature = "postgres")]
use crate::model::lists::LISTS;
use crate::{
    engine,
    locks::Mutex,
    model::{
        error::Result,
        lists::{Lists, Records, Registry, choose},
        row_vtable::{RowVtable, TableRows},
    },
    placement::shards::Manager,
};

/// The lists, and where they are recorded.
///
/// A version of a store with several data files is recorded by the shard map manager before a row has it, because a number
/// must mean the same list in all files, also in those that are not open. A server has it in a record of its own. A store
/// with one data file has claims, which the commit records.
#[derive(Default)]
pub(crate) struct TableLists {
    registry: Arc<Registry>,
    places: Arc<Places>,
    /// The lists of the store, if this is one of its shards.
    of_store: OnceLock<Arc<Self>>,
}

#[derive(Default)]
struct Places {
    engines: Mutex<Vec<Weak<engine::Engine>>>,
    manager: Mutex<Option<Weak<Manager>>>,
}

impl TableLists {
    /// Uses the lists of the store to which this shard belongs.
    pub(super) fn share(&self, of_store: &Arc<Self>) {
        let _ = self.of_store.set(Arc::clone(of_store));
    }

    /// Records versions with this shard map manager from now on.
    pub(super) fn set_manager(&self, manager: Weak<Manager>) {
        *self.places.manager.lock() = Some(manager);
        for (_, lists) in self.registry.all() {
            lists.unsettle();
        }
    }

    /// Adds a data file, which gets the records of lists, and from which they can be read again.
    fn add(&self, engine: &Arc<engine::Engine>) {
        if let Some(of_store) = self.of_store.get() {
            of_store.add(engine);
            return;
        }
        engine.use_lists(&self.registry);
        let mut engines = self.places.engines.lock();
        engines.retain(|own| own.strong_count() > 0);
        if !engines.iter().any(|own| own.as_ptr() == Arc::as_ptr(engine)) {
            engines.push(Arc::downgrade(engine));
        }
    }

    /// Returns the lists of a table.
    ///
    /// # Errors
    ///
    /// The errors of the shard map manager.
    fn of(&self, table: &'static str) -> Result<Arc<Lists>> {
        if let Some(of_store) = self.of_store.get() {
            return of_store.of(table);
        }
        let lists = self.registry.of(table, |lists| {
            let places = Arc::clone(&self.places);
            lists.set_exchange(Box::new(move |before, after| {
                places.exchange(table, before, after).transpose()
            }));
            let places = Arc::clone(&self.places);
            lists.set_source(Box::new(move || places.records(table)));
        });
        if lists.version() == 0 && self.places.manager().is_some() {
            lists.refresh()?;
        }
        Ok(lists)
    }
}

impl Places {
    fn engines(&self) -> Vec<Arc<engine::Engine>> {
        self.engines.lock().iter().filter_map(Weak::upgrade).collect()
    }

    fn manager(&self) -> Option<Arc<Manager>> {
        self.manager.lock().as_ref().and_then(Weak::upgrade)
    }

    /// Replaces the record of a table's lists. `None` if its versions are claimed.
    fn exchange(&self, table: &str, before: Option<&[u8]>, after: &[u8]) -> Result<Option<bool>> {
        if let Some(manager) = self.manager() {
            return manager.exchange_lists(table, after).map(Some);
        }
        let engines = self.engines();
        let Some(engine) = engines.first() else { return Ok(None) };
        #[cfg(feature = "postgres")]
        if let Some(engine) = engine.postgres() {
            // It has the record that this process has read.
            if before == Some(after) {
                return Ok(Some(true));
            }
            return engine.exchange_record((table, LISTS), before, after).map(Some);
        }
        // Nothing outlives a store in memory.
        let _ = before;
        Ok(engine.is_in_memory().then_some(true))
    }

    /// Reads the records of a table's lists.
    fn records(&self, table: &str) -> Result<Records> {
        let manager = self.manager().map(|manager| manager.lists(table)).transpose()?.flatten();
        let mut files = Vec::new();
        for engine in self.engines() {
            match record(&engine, table) {
                // Another store has the lists of its rows.
                Err(error) if engine::is_of_left_shard(&error) => {}
                found => files.extend(found?),
            }
        }
        Ok(Records { manager, files })
    }
}

/// Reads the record of a table's lists, from the copy that has most of them.
///
/// The second copy may be read in a later snapshot, because an unreadable page ends the transaction that reads it. Lists only grow, and a
/// commit writes both copies, so the later copy has the lists of the earlier one, and is used. If another process has
/// replaced the table by one with the same name in between, the copies contradict each other, and nothing is taken: the commit or the
/// next reading finds the lists.
fn record(engine: &engine::Engine, table: &str) -> Result<Option<Vec<u8>>> {
    #[cfg(feature = "postgres")]
    if let Some(engine) = engine.postgres() {
        return engine.record_now(table, LISTS);
    }
    let [first, second] = engine.list_records(table)?;
    let found = choose(first.as_deref(), second.as_deref());
    // Copies that can't be used are reported when the table is opened, and by `check`.
    Ok(found.ok().flatten().map(|found| found.record.to_vec()))
}

impl Store {
    /// Returns the rows of a type with the lists of its table in this store.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`](crate::Error::Forked): a thread of the parent can hold the locks of the lists. The errors of the shard map
    /// manager.
    pub(crate) fn rows_of(&self, rows: &'static RowVtable) -> Result<TableRows> {
        self.inner.engines.refuse_forked()?;
        self.note_data_file();
        Ok(TableRows::new(rows, self.inner.lists.of(rows.schema.name)?))
    }

    /// Returns the same rows with the lists of a table with another name.
    ///
    /// # Errors
    ///
    /// The errors of the shard map manager.
    pub(crate) fn rows_of_former(&self, rows: &TableRows, name: &'static str) -> Result<TableRows> {
        Ok(rows.with_lists(self.inner.lists.of(name)?))
    }

    /// Notes the only data file of this store.
    pub(crate) fn note_data_file(&self) {
        if let Some(engine) = self.inner.engines.one() {
            self.inner.lists.add(engine);
        }
    }
}
