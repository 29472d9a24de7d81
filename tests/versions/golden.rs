//! A file whose rows were written by earlier releases of a program.

use std::path::{Path, PathBuf};

use heed::{CommitOrAbort, Database, EnvOpenOptions, types::Bytes};
use index_table::{Durability, Error, Store};

use crate::{CustomerRepository, TestResult, customer, fill_older, is_clean, store, version_of};

/// The number of rows in the file.
const ROWS: u32 = 12;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
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

/// Returns the version of a stored row: 1 if it begins with the number of its list, of one byte here. Otherwise it begins with
/// 8192 and the version, as a varint of two bytes.
pub(crate) fn row_version(row: &[u8]) -> u16 {
    match *row {
        [0..0x80, ..] => 1,
        [low, high @ 0x40..0x80, ..] => (u16::from(low & 0x7f) | u16::from(high) << 7) - 8192,
        _ => panic!("{row:?} has neither a list nor a version"),
    }
}

/// Writes the file again, after a change of the format: `cargo test --test versions -- --ignored`.
#[test]
#[ignore = "writes the file that the other test reads"]
fn an_older_file_is_written_again() -> TestResult {
    let dir = tempfile::tempdir()?;
    let small = Store::open(dir.path().join("store"))?;
    fill_older(&small, ROWS)?;
    small.compact_to(dir.path().join("copy"))?;
    std::fs::copy(dir.path().join("copy").join("data.mdb"), file("versions.mdb"))?;
    Ok(())
}

#[test]
fn a_file_of_earlier_versions_is_read_and_upgraded() -> TestResult {
    let dir = tempfile::tempdir()?;
    std::fs::copy(file("versions.mdb"), dir.path().join("data.mdb"))?;
    let mut versions = Vec::new();
    raw(dir.path(), "customers", |database, txn| {
        for row in database.iter(txn)? {
            versions.push(row_version(row?.1));
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

/// The release before format 2 has written the same rows.
#[test]
fn a_file_of_format_1_is_refused_and_not_changed() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (golden, path) = (std::fs::read(file("versions-1.mdb"))?, dir.path().join("data.mdb"));
    std::fs::write(&path, &golden)?;
    {
        let store = Store::options().durability(Durability::Full).reserve(0).open(dir.path())?;
        let error = CustomerRepository::open(&store).map(drop).err().ok_or("it opens")?;
        let Error::SchemaMismatch { table: "customers", difference, way_out } = &error else {
            return Err(error.into());
        };
        assert_eq!(difference, "the file has format 1, this release reads format 2");
        assert!(way_out.contains("`dump`") && way_out.contains("`load --no-changes`"), "{way_out}");
    }
    assert!(std::fs::read(&path)? == golden, "the file was changed");
    Ok(())
}
