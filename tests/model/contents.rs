//! The databases of a store on disk and of a store on a server, byte for byte.

use index_table::{__private::admin::UntypedRange, Store};
use proptest::prelude::*;

use crate::fail;

/// The key, the primary key and the data of each entry.
type Entries = Vec<[Vec<u8>; 3]>;

/// Returns the entries of all tables and indexes of a read-only store, by the name of the database.
///
/// Not compared are the numbers of the layouts in the catalog, the sequences (a server assigns numbers in blocks), the
/// totals of groups (a server has them in stripes), and the messages and changes (a server numbers them by
/// transaction).
fn contents(store: &Store) -> Result<Vec<(String, Entries)>, TestCaseError> {
    let recorded = store.open_recorded().map_err(fail)?;
    prop_assert!(recorded.skipped.is_empty(), "{:?}", recorded.skipped);
    let txn = store.read().map_err(fail)?;
    let mut all = Vec::new();
    for table in &recorded.tables {
        let indexes = table.index_names().map(|name| Some(name.to_owned()));
        for index in [None].into_iter().chain(indexes) {
            let mut entries = Entries::new();
            let range = UntypedRange { index: index.clone(), ..UntypedRange::default() };
            let read = table.each_entry(&txn, &range, |entry| {
                let columns = [entry.key, entry.primary_key, entry.data];
                entries.push(columns.map(<[u8]>::to_vec));
                Ok::<_, index_table::Error>(true)
            });
            read.map_err(fail)?;
            all.push((format!("{}.{}", table.name(), index.unwrap_or_default()), entries));
        }
    }
    Ok(all)
}

/// Compares the databases of two read-only stores.
pub(crate) fn assert_equal(on_disk: &Store, on_server: &Store) -> Result<(), TestCaseError> {
    let [on_disk, on_server] = [contents(on_disk)?, contents(on_server)?];
    prop_assert!(!on_disk.is_empty());
    let names = |all: &[(String, Entries)]| all.iter().map(|it| it.0.clone()).collect::<Vec<_>>();
    prop_assert_eq!(names(&on_disk), names(&on_server));
    for ((name, disk), (_, server)) in on_disk.iter().zip(&on_server) {
        prop_assert_eq!(disk, server, "{}", name);
    }
    Ok(())
}
