//! Damaged rows, duplicates and wrong counts.

use std::path::Path;

use index_table::{Error, FindingKind, FindingKind::*, Result};

use crate::{Item, PlaceRepository, counts, filled, in_steps, item, open, raw};

fn be(id: u16) -> [u8; 2] {
    id.to_be_bytes()
}

/// Returns the bytes of a row in the file.
fn bytes(row: &Item) -> Vec<u8> {
    let dir = filled([row.clone()]);
    raw::on(dir.path(), "items", |raw| raw.entries().remove(0).1)
}

#[test]
fn an_unreadable_row_is_kept_without_delete_unreadable_rows() -> Result<()> {
    let other = bytes(&item(9));
    for (kind, damaged) in [
        (UndecodableRow, vec![]),
        (UndecodableRow, vec![1, 2, 0xff]),
        (UndecodableRow, [&other[..], &[0]].concat()),
        (WrongPrimaryKey, other),
    ] {
        let dir = filled((1..=6).map(item));
        raw::on(dir.path(), "items", |raw| raw.put(be(2), &damaged));
        let before = raw::dump(dir.path());
        let (store, items) = open(&dir)?;
        let mut txn = store.write()?;
        // Only `repair` can remove the row.
        for result in [items.put(&mut txn, &item(2)), items.delete(&mut txn, 2).map(drop)] {
            let Err(error @ Error::Corrupt { .. }) = result else { panic!("{result:?}") };
            assert!(error.to_string().contains("`repair`"), "{error}");
        }
        let found = items.verify(&txn).run()?;
        assert_eq!(counts(&found), [(kind, 1)], "{found}");
        assert_eq!(found.findings[0].primary_key.as_deref(), Some("2"));
        assert_eq!(in_steps(&items, &txn, 1)?.findings, found.findings);
        let repaired = items.repair(&mut txn).run()?;
        assert_eq!((counts(&repaired), repaired.left), (vec![(kind, 1)], 1));
        txn.commit()?;
        drop((store, items));
        assert_eq!(raw::dump(dir.path()), before, "nothing has changed");

        let (store, items) = open(&dir)?;
        let mut txn = store.write()?;
        let repaired = items.repair(&mut txn).delete_unreadable_rows().run()?;
        // The row has an entry in each index, and two in the index of tags.
        assert_eq!((counts(&repaired), repaired.left), (vec![(Dangling, 12), (kind, 1)], 0));
        assert!(items.verify(&txn).run()?.is_clean());
        assert_eq!(items.get(&txn, 2)?, None);
        items.insert(&mut txn, &item(2))?;
        txn.commit()?;
        drop((store, items));
        let healthy = filled((1..=6).map(item));
        assert_eq!(raw::dump(dir.path()), raw::dump(healthy.path()));
    }
    Ok(())
}

#[test]
fn a_row_that_was_changed_without_its_entries_is_found() -> Result<()> {
    let dir = filled((1..=6).map(item));
    let changed = Item { town: "Bonn".into(), code: 7, note: None, url: String::new(), ..item(2) };
    raw::on(dir.path(), "items", |raw| raw.put(be(2), bytes(&changed)));
    let (store, items) = open(&dir)?;
    let report = store.transaction(|txn| items.repair(txn).run())?;
    assert_eq!(report.left, 0, "{report}");
    drop((store, items));
    let rows = [item(1), changed, item(3), item(4), item(5), item(6)];
    assert_eq!(raw::dump(dir.path()), raw::dump(filled(rows).path()));
    Ok(())
}

#[test]
fn rows_inserted_and_deleted_without_entries_are_found() -> Result<()> {
    let dir = filled((1..=6).map(item));
    raw::on(dir.path(), "items", |raw| {
        raw.delete(be(2));
        raw.put(be(8), bytes(&item(8)));
    });
    let (store, items) = open(&dir)?;
    let found = items.verify(&store.read()?).run()?;
    assert_eq!(counts(&found), [(Missing, 12), (Dangling, 12)], "{found}");
    store.transaction(|txn| items.repair(txn).run())?;
    drop((store, items));
    let rows = [1, 3, 4, 5, 6, 8].map(item);
    assert_eq!(raw::dump(dir.path()), raw::dump(filled(rows).path()));
    Ok(())
}

#[test]
fn duplicates_of_a_unique_key_are_kept() -> Result<()> {
    let dir = filled((1..=6).map(item));
    // Row 2 gets the code and the url of row 1.
    raw::on(dir.path(), "items", |raw| {
        raw.put(be(2), bytes(&Item { code: item(1).code, ..item(2) }));
        raw.put(be(3), bytes(&Item { url: item(1).url, ..item(3) }));
    });
    let (store, items) = open(&dir)?;
    let mut txn = store.write()?;
    let repaired = items.repair(&mut txn).run()?;
    assert_eq!(repaired.left, repaired.count(Duplicate), "{repaired}");
    let found = items.verify(&txn).run()?;
    assert_eq!(counts(&found), [(Duplicate, 2)], "{found}");
    let indexes: Vec<_> = found.findings.iter().map(|finding| finding.index).collect();
    assert_eq!(indexes, [Some("code"), Some("once")]);
    assert_eq!(
        found.findings[0].to_string(),
        "table `items`, index `code`, key 101, row 2: the row 1 has the same key; change or \
         delete one of the two rows, then `repair`"
    );
    assert_eq!(items.get_by_code(&txn, 101)?.map(|item| item.id), Some(1));
    // The remedy in the message works.
    assert!(items.delete(&mut txn, 2)?);
    assert!(items.update(&mut txn, 3, |item| item.url.push('3'))?);
    assert_eq!(items.repair(&mut txn).run()?.left, 0);
    assert!(items.verify(&txn).run()?.is_clean());
    assert_eq!(items.get_by_code(&txn, 101)?.map(|item| item.id), Some(1));
    Ok(())
}

/// Changes the number of six entries in each record of a database in the file.
fn change_count(path: &Path, name: &str) {
    let file = path.join("data.mdb");
    let mut data = std::fs::read(&file).expect("the file");
    // The number of entries follows the flags, the depth and three numbers of pages.
    let (skipped, six) = (8 + 24, 6_u64.to_ne_bytes());
    let mut changed = 0;
    for at in 0..data.len() - 200 {
        let value = at + name.len() + skipped;
        if data[at..].starts_with(name.as_bytes()) && data[value..].starts_with(&six) {
            data[value..value + 8].copy_from_slice(&9_u64.to_ne_bytes());
            changed += 1;
        }
    }
    assert!(changed > 0, "{name}");
    std::fs::write(&file, data).expect("the file");
}

/// LMDB counts the entries of each database, and `count` of a whole index returns this number. heed can't
/// write it, so the test changes the file.
#[test]
fn a_wrong_count_is_found() -> Result<()> {
    for (name, kind) in [("items.code", Some("code")), ("items", None)] {
        let dir = filled((1..=6).map(item));
        change_count(dir.path(), name);
        let (store, items) = open(&dir)?;
        let report = items.verify(&store.read()?).run()?;
        assert_eq!(counts(&report), [(FindingKind::WrongCount, 1)], "{report}");
        assert_eq!(report.findings[0].index, kind);
        let repaired = store.transaction(|txn| items.repair(txn).run())?;
        assert_eq!(repaired.count(FindingKind::WrongCount), 1, "{repaired}");
        let report = items.verify(&store.read()?).run()?;
        assert_eq!(report.is_clean(), kind.is_some(), "{report}");
        if kind.is_some() {
            assert_eq!(items.by_code(&store.read()?).count()?, 6);
        }
    }
    Ok(())
}

#[test]
fn the_repair_of_a_wrong_count_keeps_the_entries_of_unreadable_rows() -> Result<()> {
    for index in ["code", "name", "once"] {
        let dir = filled((1..=6).map(item));
        raw::on(dir.path(), "items", |raw| raw.put(be(2), [1, 2, 0xff]));
        let before = raw::dump(dir.path());
        change_count(dir.path(), &format!("items.{index}"));
        let (store, items) = open(&dir)?;
        let repaired = store.transaction(|txn| items.repair(txn).run())?;
        assert_eq!(counts(&repaired), [(UndecodableRow, 1), (WrongCount, 1)], "{repaired}");
        drop((store, items));
        assert_eq!(raw::dump(dir.path()), before);
    }
    Ok(())
}

/// Primary keys of variable length have a terminator, and no index is packed.
#[test]
fn primary_keys_of_any_length_are_verified() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let place = |name: &str, code| crate::Place { name: name.into(), town: "Oz".into(), code };
    let opened = || -> Result<_> {
        let store = index_table::Store::options().map_size(1 << 24).open(dir.path())?;
        let places = PlaceRepository::open(&store)?;
        Ok((store, places))
    };
    {
        let (store, places) = opened()?;
        store.transaction(|txn| {
            places.insert(txn, &place("a", 1))?;
            places.insert(txn, &place("b\0", 2))
        })?;
        assert!(places.verify(&store.read()?).run()?.is_clean());
    }
    raw::on(dir.path(), "places.town", |raw| {
        raw.put(b"Oz\0c\0", []); // dangling
        raw.put(b"Oz\0a\0a\0", []); // bytes after the primary key
        raw.put(b"Oz", []); // no terminator
        raw.put(b"Rome\0a\0", []); // stale
        raw.put(b"Oz\0a\0", [7]); // unexpected data
    });
    raw::on(dir.path(), "places.code", |raw| {
        let (at, _) = raw.entries().remove(0);
        raw.put(at, b"a"); // the primary key has no terminator
    });
    let (store, places) = opened()?;
    let mut txn = store.write()?;
    let found = places.verify(&txn).run()?;
    let expected = [(Missing, 1), (Dangling, 1), (Stale, 2), (Malformed, 3)];
    assert_eq!(counts(&found), expected, "{found}");
    assert_eq!(places.repair(&mut txn).run()?.left, 0);
    assert!(places.verify(&txn).run()?.is_clean());
    assert_eq!(places.find_by_town(&txn, "Oz").count()?, 2);
    assert_eq!(places.get_by_code(&txn, 1)?, Some(place("a", 1)));
    Ok(())
}

#[test]
fn rows_that_have_exchanged_unique_keys_get_their_entries() -> Result<()> {
    let dir = filled((1..=6).map(item));
    // The entries of both rows are those from before the exchange.
    raw::on(dir.path(), "items", |raw| {
        raw.put(be(1), bytes(&Item { code: item(2).code, ..item(1) }));
        raw.put(be(2), bytes(&Item { code: item(1).code, ..item(2) }));
    });
    let (store, items) = open(&dir)?;
    let mut txn = store.write()?;
    assert!(!items.verify(&txn).run()?.is_clean());
    assert_eq!(items.repair(&mut txn).run()?.left, 0);
    assert_eq!(items.get_by_code(&txn, item(1).code)?.map(|item| item.id), Some(2));
    assert_eq!(items.get_by_code(&txn, item(2).code)?.map(|item| item.id), Some(1));
    assert_eq!(items.by_code(&txn).count()?, 6);
    assert!(items.verify(&txn).run()?.is_clean());
    Ok(())
}
