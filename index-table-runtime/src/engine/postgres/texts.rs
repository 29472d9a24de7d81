//! The statements of changes that are prepared.
//!
//! A batch of changes is one statement, whose text depends on the combination of changed SQL tables and on their order. A table with
//! several multi-valued indexes has thousands of combinations, and each prepared statement takes about 100 KB of the server's memory. So
//! only some of them are prepared: those that were used twice first, up to a number that depends on the declarations. The
//! others are sent with their text each time, in the same round trip. The server then parses and plans them again.

use std::collections::{BTreeMap, BTreeSet};

use crate::locks::Mutex;

/// The number of prepared statements of changes for each table, and for each of its indexes and aggregates.
const ROOM: (usize, usize) = (2, 2);

/// The maximum number of texts that are remembered as used once.
const MOST_SEEN: usize = 256;

/// The texts of the changes that are prepared.
#[derive(Default)]
pub(super) struct Texts(Mutex<State>);

#[derive(Default)]
struct State {
    /// The number of indexes and aggregates of each open table.
    tables: BTreeMap<&'static str, usize>,
    prepared: BTreeSet<Box<str>>,
    seen: BTreeSet<Box<str>>,
}

impl Texts {
    /// Makes room for the statements of a table.
    pub(super) fn add_table(&self, table: &'static str, parts: usize) {
        self.0.lock().tables.insert(table, parts);
    }

    /// Whether the statement is prepared.
    pub(super) fn is_prepared(&self, sql: &str) -> bool {
        let state = &mut *self.0.lock();
        if state.prepared.contains(sql) {
            return true;
        }
        let room: usize = state.tables.values().map(|parts| ROOM.0 + ROOM.1 * parts).sum();
        if state.prepared.len() >= room {
            return false;
        }
        if state.seen.remove(sql) {
            return state.prepared.insert(sql.into());
        }
        if state.seen.len() >= MOST_SEEN {
            state.seen.clear();
        }
        state.seen.insert(sql.into());
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_prepared_texts_depends_on_the_tables_alone() {
        let texts = Texts::default();
        texts.add_table("people", 3);
        texts.add_table("people", 3);
        let used =
            |first: u32| (first..first + 1_000).filter(|it| texts.is_prepared(&it.to_string()));
        // The first use of a text does not prepare it.
        assert_eq!(used(0).count(), 0);
        assert_eq!((0..2).filter(|_| texts.is_prepared("a")).count(), 1);
        for text in ["b", "c", "d", "e", "f", "g", "h", "i"] {
            assert_eq!(
                (0..3).filter(|_| texts.is_prepared(text)).count(),
                usize::from(text < "i") * 2
            );
        }
        assert!(texts.is_prepared("a"));
    }
}
