//! The lists of the tables of a store. All data files of a store share them.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock, Weak},
};

use super::Store;
use crate::{
    engine,
    locks::Mutex,
    model::{
        error::Result,
        lists::{LISTS, Lists},
        row_vtable::{RowVtable, TableRows},
    },
};

/// The lists by the names of their tables.
#[derive(Default)]
pub(crate) struct TableLists {
    tables: Mutex<BTreeMap<&'static str, Arc<Lists>>>,
    /// The data files.
    engines: Arc<Mutex<Vec<Weak<engine::Engine>>>>,
    /// The lists of the store, if this is one of its shards.
    of_store: OnceLock<Arc<Self>>,
}

impl TableLists {
    /// Uses the lists of the store to which this shard belongs.
    pub(super) fn share(&self, of_store: &Arc<Self>) {
        let _ = self.of_store.set(Arc::clone(of_store));
    }

    /// Adds a data file, from which lists can be read again.
    fn add(&self, engine: &Arc<engine::Engine>) {
        if let Some(of_store) = self.of_store.get() {
            return of_store.add(engine);
        }
        let mut engines = self.engines.lock();
        engines.retain(|own| own.strong_count() > 0);
        if !engines.iter().any(|own| own.as_ptr() == Arc::as_ptr(engine)) {
            engines.push(Arc::downgrade(engine));
        }
    }

    /// Returns the lists of a table.
    fn of(&self, table: &'static str) -> Arc<Lists> {
        if let Some(of_store) = self.of_store.get() {
            return of_store.of(table);
        }
        let mut tables = self.tables.lock();
        let lists = tables.entry(table).or_insert_with(|| {
            let lists = Lists::default();
            let engines = Arc::clone(&self.engines);
            #[cfg(feature = "postgres")]
            lists.set_exchange({
                let engines = Arc::clone(&engines);
                Box::new(move |before, after| {
                    let engine = engines.lock().first().and_then(Weak::upgrade);
                    let engine = engine.as_deref().and_then(engine::Engine::postgres);
                    engine.map(|it| it.exchange_record((table, LISTS), before, after))
                })
            });
            lists.set_source(Box::new(move || {
                let engines: Vec<_> = engines.lock().iter().filter_map(Weak::upgrade).collect();
                engines.iter().filter_map(|engine| record(engine, table)).collect()
            }));
            Arc::new(lists)
        });
        Arc::clone(lists)
    }
}

/// Reads the record of a table's lists; `None` also if that fails.
fn record(engine: &engine::Engine, table: &str) -> Option<Vec<u8>> {
    #[cfg(feature = "postgres")]
    if let Some(engine) = engine.postgres() {
        return engine.record_now(table, LISTS).ok().flatten();
    }
    let records = engine.catalog().ok()?;
    let own = format!("{table}.{LISTS}");
    records.into_iter().find(|(name, _)| *name == own).map(|(_, record)| record)
}

impl Store {
    /// Returns the rows of a type with the lists of its table in this store.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`](crate::Error::Forked)
    pub(crate) fn rows_of(&self, rows: &'static RowVtable) -> Result<TableRows> {
        // In a forked process, the lock below may be held by a thread that does not exist.
        self.inner.engines.refuse_forked()?;
        Ok(TableRows::new(rows, self.inner.lists.of(rows.schema.name)))
    }

    /// Notes that a table is opened in the only data file of this store.
    pub(crate) fn note_data_file(&self) {
        if let Some(engine) = self.inner.engines.one() {
            self.inner.lists.add(engine);
        }
    }
}
