//! `hash(field)`, as a program uses it, and with entries that share a hash.

use std::path::Path;

use heed::{CommitOrAbort, Database, EnvOpenOptions, types::Bytes};
use index_table::{Error, IndexKey, IndexTable, Result, Scan, Store};
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
    E: index_table::__private::IndexEntry<'txn, Row: index_table::__private::Entity<Key = u32>>,
{
    scan.keys().collect()
}

#[test]
fn texts_of_any_length_are_keys() -> Result<()> {
    for (store, _dir) in stores()? {
        let pages = PageRepository::open(&store)?;
        let long = |last: char| format!("host/{}{last}", "x\0".repeat(50 << 10));
        let mut rows = [page(1, &long('a')), page(2, &long('b')), page(3, "host/"), page(4, "")];
        for row in &mut rows {
            (row.text, row.blob) = (row.url.clone(), row.url.clone().into_bytes());
            row.tags = vec!["x".to_owned(), "y".to_owned(), "x".to_owned()];
            row.mirror = Some(Url(row.url.clone()));
            row.language = (row.id != 4).then(|| row.url.clone());
            row.live = true;
        }
        store.transaction(|txn| rows.iter().try_for_each(|row| pages.insert(txn, row)))?;
        let txn = store.read()?;
        for row in &rows {
            let (id, url, blob) = (vec![row.id], row.url.as_str(), row.blob.as_slice());
            assert_eq!(ids(pages.find_by_url(&txn, url))?, id);
            assert_eq!(ids(pages.find_by_url_year(&txn, url, 2000))?, id);
            assert_eq!(ids(pages.find_by_url_year(&txn, url, 2001))?, []);
            assert_eq!(ids(pages.find_by_url_year_range(&txn, url, 1999..))?, id);
            assert_eq!(ids(pages.find_by_url_year_range(&txn, url, ..2000))?, []);
            assert_eq!(pages.distinct_year_by_url(&txn, url).first()?, Some(2000));
            assert_eq!(pages.get_by_live(&txn, url)?.as_ref(), Some(row));
            assert_eq!(ids(pages.find_by_town_text(&txn, "Redmond", url))?, id);
            assert_eq!(ids(pages.find_by_town_text_year_range(&txn, "Redmond", url, ..))?, id);
            assert_eq!(ids(pages.find_by_town_text(&txn, "Rome", url))?, []);
            assert_eq!(ids(pages.find_by_text(&txn, url))?, [row.id; 2]);
            assert_eq!(ids(pages.find_by_text_tags(&txn, url, "y"))?, id);
            assert_eq!(ids(pages.find_by_text_tags_starting_with(&txn, url, "z"))?, []);
            assert_eq!(pages.get_by_mirror(&txn, row.mirror.as_ref())?.as_ref(), Some(row));
            assert_eq!(ids(pages.find_by_on_host(&txn, &row.host(), row.mirror.as_ref()))?, id);
            assert_eq!(ids(pages.find_by_blob(&txn, blob))?, id);
            assert_eq!(ids(pages.find_by_blob_url(&txn, blob, url))?, id);
            let three = || pages.find_by_three(&txn, blob, url, row.language.as_deref());
            assert_eq!(ids(three())?, id);
            for entry in three().entries() {
                let entry = entry?;
                assert_eq!((entry.blob, entry.url), (blob, url));
                assert_eq!(entry.language, row.language);
            }
        }
        assert_eq!(pages.find_by_url(&txn, &long('c')).count()?, 0);
        assert!(!pages.find_by_blob_url(&txn, rows[0].blob.as_slice(), "").exists()?);
        // A prefix before the hash, and the whole index: each row once, in whatever order.
        assert_eq!(pages.find_by_town(&txn, "Redmond").count()?, 4);
        assert_eq!(pages.distinct_town(&txn).counts().collect::<Result<Vec<_>>>()?, [("Redmond", 4)]);
        assert_eq!(pages.by_url_year(&txn).count()?, 4);
    }
    Ok(())
}

#[test]
fn a_covered_index_compares_without_the_fact_table() -> Result<()> {
    for (store, _dir) in stores()? {
        let pages = PageRepository::open(&store)?;
        let mut row = page(1, "host/");
        row.tags.push("x".to_owned());
        store.transaction(|txn| pages.insert(txn, &row))?;
        let facts = |ask: &dyn Fn(&index_table::ReadTxn<'_>) -> Result<()>| {
            let txn = store.read()?;
            ask(&txn)?;
            Ok::<_, Error>((txn.stats().seeks, txn.stats().entries, txn.stats().facts))
        };
        assert_eq!(facts(&|txn| pages.find_by_text(txn, "").entries().try_for_each(|e| e.map(drop)))?, (1, 1, 0));
        assert_eq!(facts(&|txn| pages.find_by_text(txn, "").count().map(drop))?, (1, 1, 0));
        assert_eq!(facts(&|txn| pages.find_by_text(txn, "").rows().try_for_each(|e| e.map(drop)))?, (1, 1, 1));
        assert_eq!(facts(&|txn| ids(pages.find_by_on_host(txn, "host", None)).map(drop))?, (1, 1, 0));
        // The row that was looked up to compare is the one that is asked for.
        assert_eq!(facts(&|txn| ids(pages.find_by_url(txn, "host/")).map(drop))?, (1, 1, 1));
        assert_eq!(facts(&|txn| pages.find_by_url(txn, "host/").rows().try_for_each(|e| e.map(drop)))?, (1, 1, 1));
        assert_eq!(facts(&|txn| pages.find_by_url(txn, "host/").rows_in_fact_order().try_for_each(|e| e.map(drop)))?, (1, 1, 1));
        assert_eq!(facts(&|txn| pages.find_by_url(txn, "host/").page(5).map(drop))?, (1, 1, 1));
        assert_eq!(facts(&|txn| pages.by_url_year(txn).count().map(drop))?.2, 0);
    }
    Ok(())
}
