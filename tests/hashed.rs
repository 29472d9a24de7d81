//! `hash(field)`, as a program uses it, and with entries that share a hash.

use std::path::Path;

use heed::{CommitOrAbort, Database, EnvOpenOptions, RwTxn, types::Bytes};
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
    E: index_table::IndexEntry<'txn, Row: index_table::__private::Entity<Key = u32>>,
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
        assert_eq!(
            pages.distinct_town(&txn).counts().collect::<Result<Vec<_>>>()?,
            [("Redmond", 4)]
        );
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
        assert_eq!(
            facts(&|txn| pages.find_by_text(txn, "").entries().try_for_each(|e| e.map(drop)))?,
            (1, 1, 0)
        );
        assert_eq!(facts(&|txn| pages.find_by_text(txn, "").count().map(drop))?, (1, 1, 0));
        assert_eq!(
            facts(&|txn| pages.find_by_text(txn, "").rows().try_for_each(|e| e.map(drop)))?,
            (1, 1, 1)
        );
        assert_eq!(
            facts(&|txn| ids(pages.find_by_on_host(txn, "host", None)).map(drop))?,
            (1, 1, 0)
        );
        // The row that was looked up to compare is the one that is asked for.
        assert_eq!(facts(&|txn| ids(pages.find_by_url(txn, "host/")).map(drop))?, (1, 1, 1));
        assert_eq!(
            facts(&|txn| pages.find_by_url(txn, "host/").rows().try_for_each(|e| e.map(drop)))?,
            (1, 1, 1)
        );
        assert_eq!(
            facts(&|txn| pages
                .find_by_url(txn, "host/")
                .rows_in_fact_order()
                .try_for_each(|e| e.map(drop)))?,
            (1, 1, 1)
        );
        assert_eq!(facts(&|txn| pages.find_by_url(txn, "host/").page(5).map(drop))?, (1, 1, 1));
        assert_eq!(facts(&|txn| pages.by_url_year(txn).count().map(drop))?.2, 0);
    }
    Ok(())
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

const FORGED: [&str; 6] = ["normalized", "partial", "covered", "whole", "once", "once_a_year"];

fn link(id: u16, url: &str) -> Link {
    Link { id, url: url.to_owned(), title: "A".to_owned(), year: 7 }
}

/// Runs `work` on the entries of each of these indexes in a write transaction.
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

/// Gives the row 2 an entry like its own under the key of the row 1 in each index, as if their
/// urls had the same hash.
fn forge(path: &Path) {
    raw(path, &FORGED, |database, entries, txn| {
        let (one, two) = (1_u16.to_be_bytes(), 2_u16.to_be_bytes());
        if let Some((key, _)) = entries.iter().find(|(_, value)| *value == one) {
            // Primary keys in a block.
            return database.put(txn, key, &[one, two].concat());
        }
        let of = |id| entries.iter().find(move |(key, _)| key.ends_with(id));
        let ((first, _), (_, data)) = of(&one).zip(of(&two)).expect("both have entries");
        let key = first.strip_suffix(&one).expect("its primary key");
        database.put(txn, &[key, &two].concat(), data)
    });
}

/// A file in which the rows 1 and 2 have entries under the same keys.
fn forged() -> (tempfile::TempDir, Store, LinkRepository) {
    let dir = tempfile::tempdir().expect("a directory");
    let open = || {
        let store = Store::options().map_size(1 << 24).open(dir.path())?;
        LinkRepository::open(&store).map(|links| (store, links))
    };
    {
        let (store, links) = open().expect("a new store");
        let write = store.transaction(|txn| {
            links.insert(txn, &link(1, "https://a"))?;
            links.insert(txn, &link(2, "https://b"))?;
            links.insert(txn, &link(3, "https://c"))
        });
        write.expect("three rows");
    }
    forge(dir.path());
    let (store, links) = open().expect("the same declaration");
    (dir, store, links)
}

/// All that can be asked of the rows with a url finds the row with this primary key alone.
fn assert_only<'txn, E>(scan: impl Fn() -> Scan<'txn, E>, row: &Link) -> Result<()>
where
    E: index_table::IndexEntry<'txn, Row = Link>,
{
    assert_eq!(scan().keys().collect::<Result<Vec<_>>>()?, [row.id]);
    assert_eq!(scan().rev().keys().collect::<Result<Vec<_>>>()?, [row.id]);
    assert_eq!(scan().rows().collect::<Result<Vec<_>>>()?, std::slice::from_ref(row));
    assert_eq!(scan().rows_in_fact_order().collect::<Result<Vec<_>>>()?, std::slice::from_ref(row));
    assert_eq!(scan().entries().count(), 1);
    assert_eq!((scan().count()?, scan().rev().limit(2).count()?), (1, 1));
    assert!(scan().exists()?);
    assert_eq!(scan().rev().first()?.as_ref(), Some(row));
    for rev in [false, true] {
        let scan = || if rev { scan().rev() } else { scan() };
        let page = scan().page(1)?;
        assert_eq!(page.items, std::slice::from_ref(row));
        // What comes behind has only the hash.
        assert_eq!(page.next, None);
        assert_eq!(scan().limit(1).page(5)?.items, std::slice::from_ref(row));
    }
    Ok(())
}

#[test]
fn what_only_shares_a_hash_is_never_found() -> Result<()> {
    let (_dir, store, links) = forged();
    let txn = store.read()?;
    // They are there.
    for count in [
        links.by_normalized(&txn).count()?,
        links.by_partial(&txn).count()?,
        links.by_covered(&txn).count()?,
        links.by_whole(&txn).count()?,
        links.by_once(&txn).count()?,
        links.by_once_a_year(&txn).count()?,
    ] {
        assert_eq!(count, 4);
    }
    for (id, url) in [(1, "https://a"), (2, "https://b"), (3, "https://c")] {
        let row = &link(id, url);
        macro_rules! only {
            ($($scan:expr),+ $(,)?) => {$( assert_only(|| $scan, row)?; )+};
        }
        only![
            links.find_by_normalized(&txn, url),
            links.find_by_partial(&txn, url, 7),
            links.find_by_partial_range(&txn, url, 0..),
            links.find_by_covered(&txn, url, "A"),
            links.find_by_whole(&txn, url),
            links.find_by_once(&txn, url),
            links.find_by_once_a_year(&txn, 7, url),
        ];
        assert_eq!(links.get_by_once(&txn, url)?.as_ref(), Some(row));
        assert_eq!(links.get_by_once_a_year(&txn, 7, url)?.as_ref(), Some(row));
        let years = || links.distinct_partial_by_url(&txn, url);
        assert_eq!(years().counts().collect::<Result<Vec<_>>>()?, [(7, 1)]);
        assert_eq!(years().rev().counts().collect::<Result<Vec<_>>>()?, [(7, 1)]);

        let by_url = || links.find_by_normalized(&txn, url);
        let keys =
            |combined: index_table::Combined<'_, Link>| combined.keys().collect::<Result<Vec<_>>>();
        assert_eq!(keys(by_url().and(links.find_by_year(&txn, 7)))?, [id]);
        assert_eq!(keys(links.find_by_year(&txn, 7).and(by_url()))?, [id]);
        assert_eq!(keys(by_url().or(links.find_by_covered(&txn, url, "A")))?, [id]);
        assert_eq!(by_url().or(links.find_by_whole(&txn, url)).count()?, 1);
        assert_eq!(by_url().and(links.find_by_id(&txn, 2)).exists()?, id == 2);
    }
    assert_eq!(links.find_by_covered(&txn, "https://a", "B").count()?, 0);
    Ok(())
}

#[test]
fn what_only_shares_a_hash_is_not_in_the_way() -> Result<()> {
    let (_dir, store, links) = forged();
    let mut txn = store.write()?;
    // The row 2 has entries under the keys of the row 1, and another url.
    links.put(&mut txn, &Link { title: "B".to_owned(), ..link(1, "https://a") })?;
    links.update(&mut txn, 3, |row| row.title.push('!'))?;
    assert!(links.delete(&mut txn, 1)?);
    links.insert(&mut txn, &link(4, "https://a"))?;
    assert_eq!(links.get_by_once(&txn, "https://a")?.map(|row| row.id), Some(4));
    let refused = links.insert(&mut txn, &link(5, "https://a"));
    match refused {
        Err(Error::UniqueViolation { table: "links", index: "once", key, holder }) => {
            assert_eq!((key.as_str(), holder.as_str()), ("\"https://a\"", "4"));
        }
        other => panic!("{other:?}"),
    }
    let refused = links.update(&mut txn, 2, |row| row.url = "https://c".to_owned());
    assert!(matches!(refused, Err(Error::UniqueViolation { .. })), "{refused:?}");
    Ok(())
}

#[test]
fn an_error_shows_the_value_and_not_its_hash() -> Result<()> {
    for (store, _dir) in stores()? {
        let pages = PageRepository::open(&store)?;
        let mut txn = store.write()?;
        let url = format!("host/{}", "long".repeat(1000));
        let mut row = page(1, &url);
        (row.live, row.mirror) = (true, Some(Url("m".to_owned())));
        pages.insert(&mut txn, &row)?;
        pages.insert(&mut txn, &Page { live: false, mirror: None, id: 2, ..row.clone() })?;
        let refused = pages.insert(&mut txn, &Page { mirror: None, id: 3, ..row.clone() });
        let Err(Error::UniqueViolation { index: "live", key, holder, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert!(key.starts_with("\"host/longlonglong"), "{key}");
        assert!(key.ends_with("… (4006 bytes)"), "{key}");
        assert_eq!(holder, "1");
        let refused = pages.insert(&mut txn, &Page { live: false, id: 4, ..row.clone() });
        let Err(Error::UniqueViolation { index: "mirror", key, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(key, "Some(\"m\")");
        // Nothing of them was written.
        assert_eq!(pages.by_live(&txn).count()?, 1);
        assert_eq!(pages.by_mirror(&txn).count()?, 1);
        // A row is not in its own way, under another primary key either.
        pages.put(&mut txn, &Page { year: 1, ..row.clone() })?;
        assert!(pages.update(&mut txn, 1, |row| row.id = 9)?);
        assert_eq!(pages.get_by_live(&txn, &url)?.map(|row| row.id), Some(9));
    }
    Ok(())
}

/// `docs/FORMAT.md` has this hash among its test vectors.
#[test]
fn the_bytes_of_a_hashed_key() -> Result<()> {
    const HASH: [u8; 16] = [
        0xf6, 0x57, 0x09, 0x21, 0x83, 0x80, 0x74, 0xb6, 0x32, 0x02, 0xe7, 0xc2, 0x8d, 0x68, 0x0f,
        0xe2,
    ];
    let dir = tempfile::tempdir().expect("a directory");
    {
        let store = Store::options().map_size(1 << 24).open(dir.path())?;
        let links = LinkRepository::open(&store)?;
        store.transaction(|txn| links.insert(txn, &link(9, "https://example.com/")))?;
    }
    let (year, id) = (&[7][..], &[0, 9][..]);
    let entries = |name| {
        let mut found = Vec::new();
        raw(dir.path(), &[name], |_, entries, _| {
            found = entries;
            Ok(())
        });
        found
    };
    // A unique index lies as one that isn't, since two values may have the hash.
    assert_eq!(entries("normalized"), [(HASH.to_vec(), id.to_vec())]);
    assert_eq!(entries("once"), [(HASH.to_vec(), id.to_vec())]);
    assert_eq!(entries("partial"), [([&HASH, year, id].concat(), b"\x01A".to_vec())]);
    let [(key, _)] = &entries("once_a_year")[..] else { panic!("one entry") };
    assert_eq!(*key, [year, &HASH, id].concat());
    Ok(())
}

mod plain {
    use super::{Deserialize, IndexTable, Serialize};

    /// The same rows with another declaration of an index.
    #[derive(Debug, Serialize, Deserialize, IndexTable)]
    #[table(name = "links")]
    #[index(url, name = "normalized")]
    pub(super) struct Link {
        #[primary_key]
        pub(super) id: u16,
        pub(super) url: String,
        pub(super) title: String,
        pub(super) year: u8,
    }
}

#[test]
fn an_index_is_built_anew_when_it_becomes_hashed() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let open = || Store::options().map_size(1 << 24).open(dir.path());
    let a = "https://a";
    {
        let store = open()?;
        let links = plain::LinkRepository::open(&store)?;
        let row = plain::Link { id: 1, url: a.to_owned(), title: "A".to_owned(), year: 7 };
        store.transaction(|txn| links.insert(txn, &row))?;
        let long = plain::Link { url: "x".repeat(600), id: 2, ..row };
        match store.transaction(|txn| links.insert(txn, &long)) {
            Err(error @ Error::KeyTooLong { .. }) => {
                assert!(error.to_string().contains("`hash(field)`"), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
    {
        let store = open()?;
        let links = LinkRepository::open(&store)?;
        let txn = store.read()?;
        assert_eq!(links.find_by_normalized(&txn, a).count()?, 1);
        assert_eq!(links.get_by_once(&txn, a)?, Some(link(1, a)));
    }
    let store = open()?;
    let links = plain::LinkRepository::open(&store)?;
    let txn = store.read()?;
    assert_eq!(links.find_by_normalized_starting_with(&txn, "https").count()?, 1);
    Ok(())
}
