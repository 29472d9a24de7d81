//! Direct access to the files of a store.

use std::path::Path;

use heed::{CommitOrAbort, Database, EnvFlags, EnvOpenOptions, RwTxn, types::Bytes};

pub(crate) type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// One database in a write transaction.
pub(crate) struct Raw<'a, 'e> {
    database: Database<'a, Bytes, Bytes>,
    txn: &'a mut RwTxn<'e>,
}

impl Raw<'_, '_> {
    pub(crate) fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.database.put(self.txn, key.as_ref(), value.as_ref()).expect("heed can write");
    }

    pub(crate) fn delete(&mut self, key: impl AsRef<[u8]>) {
        assert!(self.database.delete(self.txn, key.as_ref()).expect("heed can write"));
    }

    pub(crate) fn entries(&self) -> Entries {
        let entries = self.database.iter(self.txn).expect("heed can read");
        entries.map(|it| it.map(|(k, v)| (k.to_vec(), v.to_vec())).expect("an entry")).collect()
    }
}

/// Runs `work` on one database while the store is closed.
pub(crate) fn on<T>(path: &Path, name: &str, work: impl FnOnce(&mut Raw<'_, '_>) -> T) -> T {
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: nothing else has the files of this test open.
    let env = unsafe {
        EnvOpenOptions::new().max_dbs(20).map_size(1 << 24).flags(EnvFlags::NO_SYNC).open(path)
    };
    let env = env.expect("a file of LMDB");
    let txn = env.write_txn().expect("a transaction");
    let mut result = None;
    let done = env.create_databases_and_commit(txn, |opener, txn| {
        let database = opener.open_database(txn, Some(name))?.expect("a database");
        result = Some(work(&mut Raw { database, txn }));
        Ok::<_, heed::Error>(CommitOrAbort::<(), ()>::Commit(()))
    });
    done.expect("heed can write");
    result.expect("a result")
}

/// Returns the entries of all databases of the table.
pub(crate) fn dump(path: &Path) -> Vec<(String, Entries)> {
    let indexes = super::INDEXES.iter().map(|index| format!("items.{index}"));
    ["items".to_owned()]
        .into_iter()
        .chain(indexes)
        .map(|name| {
            let entries = on(path, &name, |raw| raw.entries());
            (name, entries)
        })
        .collect()
}
