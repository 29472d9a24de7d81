//! Order, ranges, positions and look-ups, in every layout.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::model::{End, entry::Position, key::KeyBuf};

/// The expected entries of a source, in the order of their database.
type Model = BTreeMap<Vec<u8>, Owned>;

/// Returns the bytes that identify an entry.
fn identity(source: Source, shared: bool, key: &[u8], primary_key: &[u8]) -> Vec<u8> {
    let is_key = source == Source::Index(UNIQUE) && !shared;
    if is_key { key.to_vec() } else { [key, primary_key].concat() }
}

/// Writes and deletes the same in the engine and in a model; `shared`: each row has an entry of its own for a
/// unique key.
fn filled(
    writer: &mut Writer<'_, '_>,
    source: Source,
    changes: &[(bool, u8, u16)],
    shared: bool,
) -> Result<Model> {
    let mut model = Model::new();
    for &(keep, key, id) in changes {
        let data = [key, id as u8];
        let entry = match source {
            Source::Facts => (vec![], id.to_be_bytes().to_vec(), data.to_vec()),
            Source::Index(_) if carries_data(source) => {
                (vec![key], id.to_be_bytes().to_vec(), data.to_vec())
            }
            Source::Index(_) => (vec![key], id.to_be_bytes().to_vec(), vec![]),
        };
        let at = identity(source, shared, &entry.0, &entry.1);
        if shared {
            if keep {
                writer.put_shared(UNIQUE, &entry.0, &entry.1, &entry.2)?;
                model.insert(at, entry);
            } else {
                writer.remove_shared(UNIQUE, &entry.0, &entry.1)?;
                model.remove(&at);
            }
        } else if keep {
            put(writer, source, key, id, &data)?;
            model.insert(at, entry);
        } else {
            // An entry of another row with a unique key is not this row's to remove.
            if source == Source::Index(UNIQUE) && model.get(&at).is_some_and(|it| it.1 != entry.1) {
                continue;
            }
            delete(writer, source, key, id)?;
            model.remove(&at);
        }
    }
    Ok(model)
}

fn range(start: &[u8], end: End) -> KeyRange {
    let mut key = KeyBuf::new();
    key.extend(start);
    KeyRange { start: key, end }
}

/// Returns the entries of the model for a query.
fn expected(model: &Model, query: &Query) -> Vec<Owned> {
    let own = |(key, primary_key, _): &Owned| match query.source {
        Source::Facts => primary_key.clone(),
        Source::Index(_) => key.clone(),
    };
    let mut entries: Vec<_> =
        model.iter().filter(|(_, it)| query.bounds.contains(&own(it))).collect();
    if query.reverse {
        entries.reverse();
    }
    // The position of the only entry of a unique key is the position of the key.
    let is_only = |position: &Position| {
        query.source == Source::Index(UNIQUE)
            && model.values().filter(|(key, ..)| *key == position.key).count() == 1
    };
    let alone = query.position.as_ref().is_some_and(is_only);
    let place = |key: &[u8], primary_key: &[u8]| {
        if alone { key.to_vec() } else { [key, primary_key].concat() }
    };
    let position = query.position.as_ref().map(|it| place(&it.key, &it.primary_key));
    let is_after = |(key, primary_key, _): &Owned| match &position {
        None => true,
        Some(position) if place(key, primary_key) == *position => query.inclusive,
        Some(position) => (place(key, primary_key) > *position) != query.reverse,
    };
    let entries = entries.into_iter().map(|(_, entry)| entry);
    entries.filter(|entry| is_after(entry)).cloned().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn scans_have_the_order_range_and_position_of_a_map(
        writes in vec((prop::bool::weighted(0.8), 0_u8..4, 0_u16..600), 0..300),
        first in 0_u8..4,
        last in 0_u8..5,
        at in (0_u8..4, 0_u16..600),
    ) {
        on_each(|harness| {
            let engine = harness.engine();
            let tables = open(engine, TABLE);
            let mut txn = engine.write()?;
            for (source, shared) in
                SOURCES.map(|it| (it, false)).into_iter().chain([(Source::Index(UNIQUE), true)])
            {
                let mut writer = writer(&mut txn, &tables);
                if let (Source::Index(index), true) = (source, shared) {
                    writer.clear(index)?;
                }
                let model = filled(&mut writer, source, &writes, shared)?;
                let reader = reader(&txn, &tables);
                let position = Position {
                    key: if source == Source::Facts { vec![] } else { vec![at.0] },
                    primary_key: at.1.to_be_bytes().to_vec(),
                };
                let ranges = [
                    KeyRange::ALL,
                    KeyRange::beginning_with(&[first]),
                    range(&[first], End::Before(vec![last])),
                    range(&[first], End::Open),
                    range(&[], End::Before(vec![])),
                ];
                for bounds in ranges {
                    for (reverse, position, inclusive) in [
                        (false, None, false), (true, None, false),
                        (false, Some(&position), false), (false, Some(&position), true),
                        (true, Some(&position), false), (true, Some(&position), true),
                    ] {
                        // A position is within the bounds, like the position of a cursor.
                        let inside = position.is_none_or(|it| {
                            let own = if source == Source::Facts { &it.primary_key } else { &it.key };
                            bounds.contains(own)
                        });
                        if !inside {
                            continue;
                        }
                        let query = Query {
                            available: false,
                            reverse, inclusive, position: position.cloned(),
                            ..Query::new(source, bounds.clone())
                        };
                        assert_eq!(scan(reader, &query)?, expected(&model, &query), "{query:?}");
                        let limited = Query { limit: Some(3), ..query };
                        let found = reader.count(&limited)?.found;
                        assert_eq!(found, expected(&model, &limited).len().min(3) as u64);
                    }
                }
            }
            Ok(())
        });
    }
}

#[test]
fn look_ups_find_exactly_the_written_entries() {
    on_each(|harness| {
        let engine = harness.engine();
        let tables = open(engine, TABLE);
        let mut txn = engine.write()?;
        let mut writer = writer(&mut txn, &tables);
        for source in SOURCES {
            put(&mut writer, source, 1, 7, b"seven")?;
        }
        let reader = reader(&txn, &tables);
        let (id, other) = (7_u16.to_be_bytes(), 8_u16.to_be_bytes());
        assert_eq!(reader.fact(&id)?, Some(&b"seven"[..]));
        for index in [BLOCKS, ENTRIES, UNIQUE, FULL] {
            let data: &[u8] = if carries_data(Source::Index(index)) { b"seven" } else { b"" };
            assert_eq!(reader.entry(index, &[1], &id)?, Some(data));
            assert_eq!(reader.entry(index, &[1], &other)?, None);
            assert_eq!(reader.entry(index, &[2], &id)?, None);
        }
        let holder = reader.unique(UNIQUE, &[1])?.map(|entry| entry.primary_key.to_vec());
        assert_eq!(holder, Some(id.to_vec()));
        assert!(reader.unique(UNIQUE, &[2])?.is_none());
        Ok(())
    });
}

#[test]
fn keys_that_no_entry_can_have_find_nothing() {
    on_each(|harness| {
        let engine = harness.engine();
        let tables = open(engine, TABLE);
        let mut txn = engine.write()?;
        for source in SOURCES {
            put(&mut writer(&mut txn, &tables), source, 1, 7, b"seven")?;
        }
        let reader = reader(&txn, &tables);
        let long = [1; 600];
        for key in [&[][..], &long] {
            assert_eq!(reader.fact(key)?, None);
            assert!(reader.unique(UNIQUE, key)?.is_none());
            assert_eq!(reader.entry(ENTRIES, key, &[])?, None);
        }
        for source in SOURCES {
            let found = scan(reader, &Query::new(source, KeyRange::beginning_with(&long)))?;
            assert_eq!(found, []);
            let bounds = range(&[], End::Before(long.to_vec()));
            let before = scan(reader, &Query::new(source, bounds))?;
            assert_eq!(before.len(), 1, "{source:?}");
        }
        Ok(())
    });
}

#[test]
fn a_position_is_found_again_after_its_entry_is_removed() {
    on_each(|harness| {
        let engine = harness.engine();
        let tables = open(engine, TABLE);
        for source in SOURCES {
            let mut txn = engine.write()?;
            for id in 0..300 {
                put(&mut writer(&mut txn, &tables), source, (id / 100) as u8, id, b"")?;
            }
            let before = all(reader(&txn, &tables), source)?;
            let (key, primary_key, _) = before[before.len() / 2].clone();
            let (of, id) = (
                key.first().copied().unwrap_or(0),
                u16::from_be_bytes([primary_key[0], primary_key[1]]),
            );
            delete(&mut writer(&mut txn, &tables), source, of, id)?;
            let position = Some(Position { key, primary_key });
            let query = Query { position, ..Query::new(source, KeyRange::ALL) };
            assert_eq!(scan(reader(&txn, &tables), &query)?, before[before.len() / 2 + 1..]);
            let back = Query { reverse: true, inclusive: true, ..query };
            let mut expected = before[..before.len() / 2].to_vec();
            expected.reverse();
            assert_eq!(scan(reader(&txn, &tables), &back)?, expected);
        }
        Ok(())
    });
}

#[test]
fn entries_of_a_scan_live_as_long_as_the_transaction() {
    on_each(|harness| {
        let engine = harness.engine();
        let tables = open(engine, TABLE);
        let mut txn = engine.write()?;
        for id in 0..2_000 {
            put(&mut writer(&mut txn, &tables), Source::Facts, 0, id, &id.to_be_bytes())?;
        }
        commit(txn)?;
        let txn = engine.read()?;
        let entries = reader(&txn, &tables).scan(Query::new(Source::Facts, KeyRange::ALL))?;
        let entries = entries.collect::<std::result::Result<Vec<_>, _>>()?;
        assert_eq!(entries.len(), 2_000);
        assert!(entries.iter().all(|entry| entry.primary_key.is(entry.data)));
        Ok(())
    });
}
