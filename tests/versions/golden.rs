//! A file whose rows were written by earlier releases of a program.

use std::path::{Path, PathBuf};

use heed::{CommitOrAbort, Database, EnvOpenOptions, types::Bytes};

use crate::{CustomerRepository, TestResult, customer, fill_older, is_clean, store, version_of};

/// The number of rows in the file.
const ROWS: u32 = 12;

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/versions.mdb")
}

/// Runs `work` on a database of the file in a write transaction.
pub(crate) fn raw(
    path: &Path,
    name: &str,
    work: impl FnOnce(Database<'_, Bytes, Bytes>, &mut heed::RwTxn<'_>) -> heed::Result<()>,
) -> TestResult {
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: nothing else has the files of this test open.
    let env = unsafe { EnvOpenOptions::new().max_dbs(40).map_size(1 << 26).open(path)? };
    let txn = env.write_txn()?;
    env.create_databases_and_commit(txn, |opener, txn| {
        if let Some(database) = opener.open_database(txn, Some(name))? {
            work(database, txn)?;
        }
        Ok::<_, heed::Error>(CommitOrAbort::<(), ()>::Commit(()))
    })?;
    Ok(())
}

/// Writes the file again, after a change of the format: `cargo test --test versions -- --ignored`.
#[test]
#[ignore = "writes the file that the other test reads"]
fn an_older_file_is_written_again() -> TestResult {
    let dir = tempfile::tempdir()?;
    let small = index_table::Store::open(dir.path().join("store"))?;
    fill_older(&small, ROWS)?;
    small.compact_to(dir.path().join("copy"))?;
    std::fs::copy(dir.path().join("copy").join("data.mdb"), file())?;
    Ok(())
}

#[test]
fn a_file_of_earlier_versions_is_read_and_upgraded() -> TestResult {
    let dir = tempfile::tempdir()?;
    std::fs::copy(file(), dir.path().join("data.mdb"))?;
    let mut versions = Vec::new();
    raw(dir.path(), "customers", |database, txn| {
        for row in database.iter(txn)? {
            versions.push(row?.1[0]);
        }
        Ok(())
    })?;
    assert_eq!(versions, [1, 2, 1, 2, 1, 2, 1, 2]);
    let store = store(dir.path())?;
    let customers = CustomerRepository::open(&store)?;
    let expected: Vec<_> =
        (0..ROWS).filter(|id| version_of(*id) < 3).map(|id| customer(id, version_of(id))).collect();
    for upgraded in [8, 0] {
        let txn = store.read()?;
        assert_eq!(customers.all(&txn).rows().collect::<Result<Vec<_>, _>>()?, expected);
        assert_eq!(customers.by_initials(&txn).count()?, 8);
        drop(txn);
        is_clean(&customers, &store)?;
        assert_eq!(customers.upgrade(&store).run()?.upgraded, upgraded);
    }
    Ok(())
}
