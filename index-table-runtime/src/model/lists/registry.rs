//! The lists of all tables of a store.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::Lists;
use crate::locks::Mutex;

/// The lists by the names of their tables. All data files of a store share them.
#[derive(Default)]
pub(crate) struct Registry {
    tables: Mutex<BTreeMap<&'static str, Arc<Lists>>>,
    generation: Arc<AtomicU64>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("generation", &self.generation).finish_non_exhaustive()
    }
}

impl Registry {
    /// Returns a number that changes with each version of the lists of a table.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the lists of a table, which `new` completes if they are new.
    pub(crate) fn of(&self, table: &'static str, new: impl FnOnce(&mut Lists)) -> Arc<Lists> {
        let mut tables = self.tables.lock();
        let lists = tables.entry(table).or_insert_with(|| {
            let mut lists = Lists::counted(Arc::clone(&self.generation));
            new(&mut lists);
            Arc::new(lists)
        });
        Arc::clone(lists)
    }

    /// Returns the lists of all tables that this process has opened.
    pub(crate) fn all(&self) -> Vec<(&'static str, Arc<Lists>)> {
        let tables = self.tables.lock();
        tables.iter().map(|(table, lists)| (*table, Arc::clone(lists))).collect()
    }
}
