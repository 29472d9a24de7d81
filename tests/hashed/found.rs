//! Queries for values of any length.

use index_table::{Error, Result};

use super::{Page, PageRepository, Url, ids, page, stores};

#[test]
fn hashed_texts_of_any_length_are_keys() -> Result<()> {
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
            assert_eq!(ids(pages.find_by_url_year(&txn, url, 2001))?, [0; 0]);
            assert_eq!(ids(pages.find_by_url_year_range(&txn, url, 1999..))?, id);
            assert_eq!(ids(pages.find_by_url_year_range(&txn, url, ..2000))?, [0; 0]);
            assert_eq!(pages.distinct_year_by_url(&txn, url).first()?, Some(2000));
            assert_eq!(pages.get_by_live(&txn, url)?.as_ref(), Some(row));
            assert_eq!(ids(pages.find_by_town_text(&txn, "Redmond", url))?, id);
            assert_eq!(ids(pages.find_by_town_text_year_range(&txn, "Redmond", url, ..))?, id);
            assert_eq!(ids(pages.find_by_town_text(&txn, "Rome", url))?, [0; 0]);
            assert_eq!(ids(pages.find_by_text(&txn, url))?, [row.id; 2]);
            assert_eq!(ids(pages.find_by_text_tags(&txn, url, "y"))?, id);
            assert_eq!(ids(pages.find_by_text_tags_starting_with(&txn, url, "z"))?, [0; 0]);
            let mirror = row.mirror.as_ref().expect("each row has one");
            assert_eq!(pages.get_by_mirror(&txn, mirror)?.as_ref(), Some(row));
            assert_eq!(ids(pages.find_by_on_host(&txn, &row.host(), row.mirror.as_ref()))?, id);
            assert_eq!(ids(pages.find_by_three_blob(&txn, blob))?, id);
            assert_eq!(ids(pages.find_by_three_blob_url(&txn, blob, url))?, id);
            let three = || pages.find_by_three(&txn, blob, url, row.language.as_deref());
            assert_eq!(ids(three())?, id);
            for entry in three().entries() {
                let entry = entry?;
                assert_eq!((entry.blob, entry.url), (blob, url));
                assert_eq!(entry.language, row.language);
            }
        }
        assert_eq!(pages.find_by_url(&txn, &long('c')).count()?, 0);
        assert!(!pages.find_by_three_blob_url(&txn, rows[0].blob.as_slice(), "").exists()?);
        // Queries for a prefix before the hash and for the whole index return each row once, in any order.
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
        let facts = |query: &dyn Fn(&index_table::ReadTxn<'_>) -> Result<()>| {
            let txn = store.read()?;
            query(&txn)?;
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
        // The result is the row that was looked up for the comparison: there is no second look-up.
        assert_eq!(facts(&|txn| ids(pages.find_by_url(txn, "host/")).map(drop))?, (1, 1, 1));
        assert_eq!(
            facts(&|txn| pages.find_by_url(txn, "host/").rows().try_for_each(|e| e.map(drop)))?,
            (1, 1, 1)
        );
        assert_eq!(facts(&|txn| pages.find_by_url(txn, "host/").page(5).map(drop))?, (1, 1, 1));
        assert_eq!(facts(&|txn| pages.by_url_year(txn).count().map(drop))?.2, 0);
    }
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
        let result = pages.insert(&mut txn, &Page { mirror: None, id: 3, ..row.clone() });
        let Err(Error::UniqueViolation { index: "live", key, holder, .. }) = result else {
            panic!("{result:?}");
        };
        assert!(key.starts_with("\"host/longlonglong"), "{key}");
        assert!(key.ends_with("… (4006 bytes)"), "{key}");
        assert_eq!(holder, "1");
        let result = pages.insert(&mut txn, &Page { live: false, id: 4, ..row.clone() });
        let Err(Error::UniqueViolation { index: "mirror", key, .. }) = result else {
            panic!("{result:?}");
        };
        assert_eq!(key, "Some(\"m\")");
        // The refused rows have no entries.
        assert_eq!(pages.by_live(&txn).count()?, 1);
        assert_eq!(pages.by_mirror(&txn).count()?, 1);
        // A row doesn't conflict with itself, even with another primary key.
        pages.put(&mut txn, &Page { year: 1, ..row.clone() })?;
        assert!(pages.update(&mut txn, 1, |row| row.id = 9)?);
        assert_eq!(pages.get_by_live(&txn, &url)?.map(|row| row.id), Some(9));
    }
    Ok(())
}
