//! Structs as services have them: attributes of serde, and types of other crates. Each kind is written, found, changed, deleted and
//! opened again, and its rows in the file have at most one byte more than postcard's bytes of the same value. The byte is the number
//! of the list.
//!
//! postcard has no names, so it writes some forms in a way that it can't read: tagged and untagged enums, flattened and skipped
//! fields, `serde_json::Value`. These rows are compared with postcard's bytes of a plain value with the same content. What such a
//! row has more is said at its kind.
#![expect(clippy::struct_field_names, reason = "the names are those of services")]
#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::ref_option,
    clippy::unnecessary_wraps,
    reason = "arbitrary values, and signatures of serde"
)]

mod accounts;
mod documents;
mod forms;
mod lists;
mod measures;

use std::path::Path;

use heed::types::Bytes;
use serde::Serialize;

pub(crate) type TestResult = Result<(), Box<dyn std::error::Error>>;

/// Returns postcard's bytes.
pub(crate) fn postcard_len(value: &impl Serialize) -> usize {
    postcard::to_stdvec(value).expect("a value that postcard writes").len()
}

/// Calls a function with a database of a closed store.
fn with_database<T>(
    path: &Path,
    name: &str,
    work: impl FnOnce(&heed::Database<Bytes, Bytes>, &heed::RwTxn<'_>) -> heed::Result<T>,
) -> heed::Result<T> {
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: nothing else has the files of this test open.
    let env = unsafe { heed::EnvOpenOptions::new().max_dbs(4).map_size(1 << 28).open(path)? };
    let mut result = None;
    env.create_databases_and_commit(env.write_txn()?, |opener, txn| {
        let database = opener.open_database(txn, Some(name))?.expect("the database");
        result = Some(work(&database, txn)?);
        Ok::<_, heed::Error>(heed::CommitOrAbort::<(), ()>::Abort(()))
    })?;
    Ok(result.expect("a result"))
}

/// Returns the lengths of the rows of a closed store, in the order of their keys.
pub(crate) fn stored_lens(path: &Path, table: &str) -> heed::Result<Vec<usize>> {
    with_database(path, table, |rows, txn| rows.iter(txn)?.map(|row| Ok(row?.1.len())).collect())
}

/// Returns a record of a closed store.
pub(crate) fn stored(path: &Path, database: &str, key: &[u8]) -> heed::Result<Option<Vec<u8>>> {
    with_database(path, database, |all, txn| Ok(all.get(txn, key)?.map(<[u8]>::to_vec)))
}

/// Defines the test of a kind. `key` are the arguments of `get`, `unique` and `many` the look-ups by each index, `change` a change of
/// a row, and `plain` the value whose bytes of postcard are the measure, plus `more` bytes.
macro_rules! kind {
    (
        $test:ident: $repository:ident($table:literal), $row:ident in $rows:expr,
        key: ($($key:expr),+),
        $(unique: $get:ident($($unique:expr),+),)*
        $(many: $find:ident($($many:expr),+),)*
        change: $change:expr,
        plain: $plain:expr,
        more: $more:expr $(,)?
    ) => {
        #[test]
        fn $test() -> crate::TestResult {
            let dir = tempfile::tempdir()?;
            let open = || -> index_table::Result<_> {
                let store = index_table::Store::options().map_size(1 << 28).open(dir.path())?;
                let table = $repository::open(&store)?;
                Ok((store, table))
            };
            let mut rows = Vec::from($rows);
            let deleted = {
                let (store, table) = open()?;
                store.transaction(|txn| rows.iter().try_for_each(|row| table.insert(txn, row)))?;
                for row in rows.iter_mut().step_by(2) {
                    let mut changed = row.clone();
                    {
                        let $row = &mut changed;
                        $change;
                    }
                    let $row = &*row;
                    assert!(store.transaction(|txn| {
                        table.update(txn, $($key,)+ |row| row.clone_from(&changed))
                    })?);
                    *row = changed;
                }
                let $row = rows.remove(1);
                let $row = &$row;
                assert!(store.transaction(|txn| table.delete(txn, $($key),+))?);
                $row.clone()
            };
            {
                let (store, table) = open()?;
                let txn = store.read()?;
                let all = table.all(&txn).rows().collect::<index_table::Result<Vec<_>>>()?;
                assert_eq!(all, rows);
                for $row in &rows {
                    assert_eq!(table.get(&txn, $($key),+)?.as_ref(), Some($row));
                    $(assert_eq!(table.$get(&txn, $($unique),+)?.as_ref(), Some($row));)*
                    $({
                        let found = table.$find(&txn, $($many),+).rows();
                        assert!(found.collect::<index_table::Result<Vec<_>>>()?.contains($row));
                    })*
                }
                let $row = &deleted;
                assert_eq!(table.get(&txn, $($key),+)?, None);
                $(assert_eq!(table.$get(&txn, $($unique),+)?, None);)*
                let report = table.verify(&txn).run()?;
                assert!(report.is_clean(), "{report}");
            }
            let lens = crate::stored_lens(dir.path(), $table)?;
            assert_eq!(lens.len(), rows.len());
            for ($row, len) in rows.iter().zip(lens) {
                let plain = crate::postcard_len(&$plain);
                assert!(len <= plain + 1 + $more, "{len} bytes, postcard {plain}: {:?}", $row);
            }
            Ok(())
        }
    };
}

pub(crate) use kind;
