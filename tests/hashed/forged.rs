//! Entries that share a hash.

use std::path::Path;

use index_table::{Error, Result, Scan, Store};

use super::{Link, LinkRepository, link, raw};

const FORGED: [&str; 6] = ["normalized", "partial", "covered", "whole", "once", "once_a_year"];

/// In each index, gives row 2 an entry with the key of row 1, as if their urls had the same hash.
fn forge(path: &Path) {
    raw(path, &FORGED, |database, entries, txn| {
        let (one, two) = (1_u16.to_be_bytes(), 2_u16.to_be_bytes());
        // A block of one primary key, which lacks one byte.
        if let Some((key, _)) = entries.iter().find(|(_, value)| *value == [1, 1]) {
            return database.put(txn, key, &[1, 1, 2]);
        }
        let entry_of = |id| entries.iter().find(move |(key, _)| key.ends_with(id));
        let ((first, _), (_, data)) =
            entry_of(&one).zip(entry_of(&two)).expect("both have entries");
        let key = first.strip_suffix(&one).expect("the primary key of row 1");
        database.put(txn, &[key, &two].concat(), data)
    });
}

/// Returns a file in which rows 1 and 2 have entries with the same keys.
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

/// Checks that every query for a url finds this row only.
fn assert_only<'txn, E>(scan: impl Fn() -> Scan<'txn, E>, row: &Link) -> Result<()>
where
    E: index_table::IndexEntry<'txn, Row = Link>,
{
    assert_eq!(scan().keys().collect::<Result<Vec<_>>>()?, [row.id]);
    assert_eq!(scan().rev().keys().collect::<Result<Vec<_>>>()?, [row.id]);
    assert_eq!(scan().rows().collect::<Result<Vec<_>>>()?, std::slice::from_ref(row));
    assert_eq!(scan().entries().count(), 1);
    assert_eq!((scan().count()?, scan().rev().limit(2).count()?), (1, 1));
    assert!(scan().exists()?);
    assert_eq!(scan().rev().first()?.as_ref(), Some(row));
    for rev in [false, true] {
        let scan = || if rev { scan().rev() } else { scan() };
        let page = scan().page(1)?;
        assert_eq!(page.items, std::slice::from_ref(row));
        // The next entry has the same hash, but another url.
        assert_eq!(page.next, None);
        assert_eq!(scan().limit(1).page(5)?.items, std::slice::from_ref(row));
    }
    Ok(())
}

#[test]
fn rows_that_only_share_a_hash_are_not_found() -> Result<()> {
    let (_dir, store, links) = forged();
    let txn = store.read()?;
    // A count of the whole index includes the forged entries.
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
fn rows_that_only_share_a_hash_do_not_conflict() -> Result<()> {
    let (_dir, store, links) = forged();
    let mut txn = store.write()?;
    // Row 2 has entries with the keys of row 1, and another url.
    links.put(&mut txn, &Link { title: "B".to_owned(), ..link(1, "https://a") })?;
    links.update(&mut txn, 3, |row| row.title.push('!'))?;
    assert!(links.delete(&mut txn, 1)?);
    links.insert(&mut txn, &link(4, "https://a"))?;
    assert_eq!(links.get_by_once(&txn, "https://a")?.map(|row| row.id), Some(4));
    let result = links.insert(&mut txn, &link(5, "https://a"));
    match result {
        Err(Error::UniqueViolation { table: "links", index: "once", key, holder }) => {
            assert_eq!((key.as_str(), holder.as_str()), ("\"https://a\"", "4"));
        }
        other => panic!("{other:?}"),
    }
    let result = links.update(&mut txn, 2, |row| row.url = "https://c".to_owned());
    assert!(matches!(result, Err(Error::UniqueViolation { .. })), "{result:?}");
    Ok(())
}
