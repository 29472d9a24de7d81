//! Joins of entries with rows, and look-ups of many rows.

use super::*;
use crate::engine::LongLived as _;

/// Writes 30 rows, numbered from 0. Rows with greater numbers are not in the fact table.
fn facts(writer: &mut Writer<'_, '_>) -> Result<()> {
    (0..30).try_for_each(|id| put(writer, Source::Facts, 0, id, format!("row {id}").as_bytes()))
}

/// The entries of a cursor or a scan, with their rows.
type Joined = Vec<(Owned, Option<Vec<u8>>)>;

fn scanned(reader: Reader<'_>, query: &Query) -> Result<Joined> {
    let mut entries = reader.scan(query.clone())?;
    let mut found = Vec::new();
    while let Some(entry) = entries.next().transpose()? {
        found.push((entry, entries.row()));
    }
    // All entries and rows stay borrowed until the end of the scan.
    Ok(found.into_iter().map(|(entry, row)| (kept(entry), row.map(<[u8]>::to_vec))).collect())
}

fn lent(reader: Reader<'_>, query: &Query) -> Result<Joined> {
    let mut cursor = reader.cursor(query.clone())?;
    let mut found = Vec::new();
    while cursor.advance()? {
        found.push((owned(cursor.entry()), cursor.row().map(<[u8]>::to_vec)));
    }
    Ok(found)
}

fn check(reader: Reader<'_>, joins: bool) -> Result<()> {
    for source in SOURCES {
        for (reverse, rows) in [(false, false), (false, true), (true, false), (true, true)] {
            let query = Query { reverse, rows, ..Query::new(source, KeyRange::ALL) };
            let mut expected = Vec::new();
            for entry in scan(reader, &query)? {
                let row = reader.fact(&entry.1)?.map(<[u8]>::to_vec);
                let is_joined =
                    joins && rows && !matches!(source, Source::Facts | Source::Index(FULL));
                expected.push((entry, row.filter(|_| is_joined)));
            }
            assert_eq!(expected.len(), if source == Source::Facts { 30 } else { 40 });
            assert_eq!(scanned(reader, &query)?, expected, "{query:?}");
            assert_eq!(lent(reader, &query)?, expected, "{query:?}");
        }
    }
    Ok(())
}

#[test]
fn joined_rows_equal_looked_up_rows() {
    on_each(|harness| {
        let (engine, joins) = (harness.engine(), harness.joins);
        let tables = open(engine, TABLE);
        let mut txn = engine.write()?;
        let mut writer = writer(&mut txn, &tables);
        for source in SOURCES.into_iter().filter(|source| *source != Source::Facts) {
            for id in 0..40 {
                let key = if source == Source::Index(UNIQUE) { id as u8 } else { id as u8 % 4 };
                put(&mut writer, source, key, id, b"data")?;
            }
        }
        facts(&mut writer)?;
        check(writer.reader(), joins)?;
        commit(txn)?;
        check(reader(&engine.read()?, &tables), joins)
    });
}

#[test]
fn a_look_up_of_many_facts_finds_each_in_its_place() {
    on_each(|harness| {
        let engine = harness.engine();
        let tables = open(engine, TABLE);
        let mut txn = engine.write()?;
        facts(&mut writer(&mut txn, &tables))?;
        let check = |reader: Reader<'_>| -> Result<()> {
            assert!(reader.facts_at_once() > 0);
            let ids = [7_u16, 35, 3, 7, 29, 500, 0].map(u16::to_be_bytes);
            let mut keys: Vec<&[u8]> = ids.iter().map(<[u8; 2]>::as_slice).collect();
            keys.extend([&[][..], &[1; 600], &[0]]);
            let mut found = Vec::new();
            reader.facts(keys.iter().copied(), |fact| found.push(fact))?;
            let each = keys.iter().map(|key| reader.fact(key)).collect::<Result<Vec<_>>>()?;
            assert_eq!(found, each);
            let rows = [Some("row 7"), None, Some("row 3"), Some("row 7"), Some("row 29"), None];
            assert_eq!(found[..6], rows.map(|row| row.map(str::as_bytes)));
            reader.facts(std::iter::empty(), |fact| panic!("there is no key: {fact:?}"))
        };
        check(reader(&txn, &tables))?;
        commit(txn)?;
        check(reader(&engine.read()?, &tables))
    });
}
