//! Queries on `hash(field)`, with and without entries that share a hash.

mod forged;
mod found;
mod stored;

use std::path::Path;

use heed::{CommitOrAbort, Database, EnvOpenOptions, RwTxn, types::Bytes};
use index_table::{IndexKey, IndexTable, Result, Scan, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexKey)]
struct Url(String);

type Language = Option<String>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
#[index(hash(url), year)]
#[index(hash(url), unique, filter = is_live, name = "live")]
#[index(town, hash(text), desc(year))]
#[index(hash(text), each(tags), include = [year, text])]
#[index(hash(mirror), sparse, unique)]
#[index(computed(host: String), hash(mirror), strategy = "full", name = "on_host")]
#[index(hash(blob), hash(url), hash(language), include = [language, url, blob], name = "three")]
struct Page {
    #[primary_key]
    id: u32,
    url: String,
    year: u16,
    town: String,
    text: String,
    tags: Vec<String>,
    mirror: Option<Url>,
    language: Language,
    blob: Vec<u8>,
    live: bool,
}

impl Page {
    fn is_live(&self) -> bool {
        self.live
    }

    fn host(&self) -> String {
        self.url.split('/').next().unwrap_or_default().to_owned()
    }
}

fn page(id: u32, url: &str) -> Page {
    Page {
        id,
        url: url.to_owned(),
        year: 2000,
        town: "Redmond".to_owned(),
        text: String::new(),
        tags: Vec::new(),
        mirror: None,
        language: None,
        blob: Vec::new(),
        live: false,
    }
}

fn stores() -> Result<Vec<(Store, Option<tempfile::TempDir>)>> {
    let dir = tempfile::tempdir().expect("a directory");
    let lmdb = Store::options().map_size(1 << 26).open(dir.path())?;
    Ok(vec![(lmdb, Some(dir)), (Store::in_memory(), None)])
}

fn ids<'txn, E>(scan: Scan<'txn, E>) -> Result<Vec<u32>>
where
    E: index_table::IndexEntry<'txn, Row: index_table::__private::Entity<Key = u32>>,
{
    scan.keys().collect()
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "links")]
#[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
#[index(hash(url), name = "normalized")]
#[index(hash(url), year, include = [title], name = "partial")]
#[index(hash(url), hash(title), include = [title, url], name = "covered")]
#[index(hash(url), strategy = "full", name = "whole")]
#[index(hash(url), unique, name = "once")]
#[index(year, hash(url), unique, strategy = "full", name = "once_a_year", allow(doubled_full))]
#[index(year)]
struct Link {
    #[primary_key]
    id: u16,
    url: String,
    title: String,
    year: u8,
}

fn link(id: u16, url: &str) -> Link {
    Link { id, url: url.to_owned(), title: "A".to_owned(), year: 7 }
}

/// Runs `work` on the entries of each index in a write transaction.
fn raw(
    path: &Path,
    names: &[&str],
    mut work: impl FnMut(
        Database<Bytes, Bytes>,
        Vec<(Vec<u8>, Vec<u8>)>,
        &mut RwTxn<'_>,
    ) -> heed::Result<()>,
) {
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: nothing else has the files of this test open.
    let env = unsafe { EnvOpenOptions::new().max_dbs(20).map_size(1 << 24).open(path) };
    let env = env.expect("a file of LMDB");
    let txn = env.write_txn().expect("a transaction");
    let done = env.create_databases_and_commit(txn, |opener, txn| {
        for name in names {
            let name = format!("links.{name}");
            let database: Database<Bytes, Bytes> =
                opener.open_database(txn, Some(&name))?.expect("an index");
            let entries = database.iter(txn)?.map(|it| it.map(|(k, v)| (k.to_vec(), v.to_vec())));
            let entries = entries.collect::<heed::Result<Vec<_>>>()?;
            work(database, entries, txn)?;
        }
        Ok::<_, heed::Error>(CommitOrAbort::<(), ()>::Commit(()))
    });
    done.expect("heed can write");
}
