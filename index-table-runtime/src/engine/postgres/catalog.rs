//! The cached records of the catalog.
//!
//! The catalog has a counter of its changes, which every transaction reads when it begins. Every transaction that
//! changes the catalog increments the counter. So two snapshots with the same counter have the same catalog, except for
//! [lists](super::lists), and a record that was read in the first snapshot needs no round trip in the second.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    names::{CATALOG, CHANGES_KEY, COMMITS, Form, Relation},
    sql,
};
use crate::locks::{Mutex, MutexGuard};

/// A record of the catalog; `None` if the catalog has none with this key.
pub(super) type Record = Option<Box<[u8]>>;

/// The cached records of a store.
pub(super) struct Catalog {
    pub(super) relation: Relation,
    /// The table of the tokens of commits.
    pub(super) commits: Relation,
    known: Mutex<Known>,
}

/// The records that were read in snapshots with one counter.
#[derive(Default)]
struct Known {
    changes: u64,
    records: HashMap<Vec<u8>, Arc<Record>>,
    /// The records that a transaction has accepted: it has sent a statement after it used them.
    trusted: HashSet<Vec<u8>>,
}

impl Catalog {
    pub(super) fn new(schema: &str) -> Self {
        let relation = Relation::new(schema, CATALOG, Form::Pairs);
        let commits = Relation::new(schema, COMMITS, Form::Pairs);
        Self { relation, commits, known: Mutex::default() }
    }

    /// Returns an expression for the counter, as text.
    pub(super) fn changes(&self) -> String {
        format!(
            "coalesce((SELECT convert_from(v, 'UTF8') FROM {} WHERE k = '{CHANGES_KEY}'), '0')",
            self.relation.sql
        )
    }

    /// Returns the query for the number of a transaction and the counter, as one text.
    pub(super) fn numbers(&self, writes: bool) -> String {
        format!("SELECT {} || ' ' || {}", sql::number(writes), self.changes())
    }

    /// Returns the statement that increments the counter.
    pub(super) fn change(&self) -> String {
        format!(
            "INSERT INTO {} AS c (k, v) VALUES ('{CHANGES_KEY}', '1') ON CONFLICT (k) DO UPDATE \
             SET v = convert_to((convert_from(c.v, 'UTF8')::int8 + 1)::text, 'UTF8')",
            self.relation.sql
        )
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }

    /// Returns the record in the snapshots with this counter, if it is cached.
    pub(super) fn get(&self, changes: u64, key: &[u8]) -> Option<Arc<Record>> {
        let known = self.known();
        known.records.get(key).filter(|_| known.changes == changes).map(Arc::clone)
    }

    /// Returns the counter of the cached records.
    pub(super) fn changes_known(&self) -> u64 {
        self.known().changes
    }

    /// Returns the cached record with this counter if a transaction has accepted it.
    pub(super) fn trusted(&self, changes: u64, key: &[u8]) -> Option<Arc<Record>> {
        let known = self.known();
        let is_trusted = known.changes == changes && known.trusted.contains(key);
        known.records.get(key).filter(|_| is_trusted).map(Arc::clone)
    }

    /// Notes that a transaction has accepted the record.
    pub(super) fn trust(&self, key: &[u8]) {
        let mut known = self.known();
        if known.records.contains_key(key) && !known.trusted.contains(key) {
            known.trusted.insert(key.to_vec());
        }
    }

    /// Lets the next transactions read all records.
    pub(super) fn forget(&self) {
        self.known().trusted.clear();
    }

    /// Caches a record of a snapshot with this counter. Records of earlier snapshots are removed.
    pub(super) fn insert(&self, changes: u64, key: &[u8], record: &Arc<Record>) {
        let mut known = self.known();
        if known.changes < changes {
            *known = Known { changes, ..Known::default() };
        }
        if known.changes == changes {
            known.records.insert(key.to_vec(), Arc::clone(record));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_cached_for_the_greatest_counter_only() {
        let catalog = Catalog::new("shop");
        let [old, new] = [b"old", b"new"].map(|it| Arc::new(Some(Box::from(&it[..]))));
        catalog.insert(3, b"a", &old);
        assert_eq!(catalog.get(3, b"a"), Some(Arc::clone(&old)));
        assert_eq!(
            (catalog.get(2, b"a"), catalog.get(4, b"a"), catalog.get(3, b"b")),
            (None, None, None)
        );
        catalog.insert(5, b"b", &new);
        assert_eq!((catalog.get(3, b"a"), catalog.get(5, b"a")), (None, None));
        catalog.insert(3, b"b", &old);
        assert_eq!(catalog.get(5, b"b"), Some(new));
    }
}
