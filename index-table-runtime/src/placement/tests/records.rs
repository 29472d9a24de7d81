//! Small records: the catalog, sequences and queues.

use std::collections::BTreeSet;

use super::*;
use crate::engine::{ReadRecords as _, Space, WriteRecords as _};

const SPACES: [Space; 3] = [Space::Catalog, Space::Sequence, Space::Queue];

#[test]
fn records_of_a_table_are_its_own() {
    on_each(|harness| {
        let engine = harness.engine();
        let (tables, others) = (open(engine, TABLE), open(engine, OTHER));
        let mut txn = engine.write()?;
        for space in SPACES {
            writer(&mut txn, &tables).put(space, b"", b"own").or_else(|error| {
                // A queue has no record under the empty key.
                if space == Space::Queue { Ok(()) } else { Err(error) }
            })?;
            writer(&mut txn, &others).put(space, b"\0\0\0\0\0\0\0\x01", b"other")?;
        }
        for space in SPACES {
            let reader = reader(&txn, &others);
            assert_eq!(reader.get(space, b"")?, None, "{space:?}");
            let only = Some((&b"\0\0\0\0\0\0\0\x01"[..], &b"other"[..]));
            assert_eq!(reader.at_or_above(space, b"\0")?, only, "{space:?}");
            assert_eq!(reader.below(space, b"\xFF")?, only, "{space:?}");
            assert_eq!(reader.len(space)?, 1, "{space:?}");
            writer(&mut txn, &others).clear_space(space)?;
            assert_eq!(self::reader(&txn, &others).len(space)?, 0, "{space:?}");
        }
        for space in [Space::Catalog, Space::Sequence] {
            assert_eq!(reader(&txn, &tables).get(space, b"")?, Some(&b"own"[..]), "{space:?}");
        }
        Ok(())
    });
}

#[test]
fn the_catalog_has_the_table_and_its_parts_in_order() {
    on_each(|harness| {
        if harness.is_sharded {
            return Ok(());
        }
        let engine = harness.engine();
        let (tables, others) = (open(engine, TABLE), open(engine, OTHER));
        let mut txn = engine.write()?;
        writer(&mut txn, &others).put_record("", b"another table")?;
        let mut writer = writer(&mut txn, &tables);
        for part in ["town", "", "email", "2"] {
            writer.put_record(part, part.as_bytes())?;
        }
        writer.put_record("gone", b"")?;
        writer.remove_record("gone")?;
        let reader = writer.reader();
        assert_eq!(reader.recorded_parts()?, ["2", "email", "town"]);
        assert_eq!(reader.record("email")?, Some(&b"email"[..]));
        assert_eq!(reader.record("")?, Some(&b""[..]));
        assert_eq!(reader.record("gone")?, None);
        commit(txn)?;
        let names: Vec<_> = engine.one().catalog()?.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["things", "things.2", "things.email", "things.town", "things_too"]);
        Ok(())
    });
}

#[test]
fn dropped_indexes_and_their_records_are_removed() {
    on_each(|harness| {
        if harness.is_sharded {
            return Ok(());
        }
        let tables = open(harness.engine(), TABLE);
        let mut txn = harness.engine().write()?;
        let mut writer = writer(&mut txn, &tables);
        writer.put_record("", b"table")?;
        writer.put_record("entries", b"state")?;
        put(&mut writer, Source::Index(ENTRIES), 1, 1, b"")?;
        commit(txn)?;
        drop(tables);
        let engine = harness.engine();
        let dropped = engine.one().drop_indexes(&BTreeSet::new(), &mut |records| {
            assert!(records.iter().any(|(name, _)| name == "things.entries"));
            vec!["things.entries".to_owned()]
        });
        assert_eq!(dropped.map_err(|(error, _)| error)?, ["things.entries"]);
        let tables = open(engine, TABLE);
        let txn = engine.read()?;
        assert_eq!(reader(&txn, &tables).record("entries")?, None);
        assert_eq!(all(reader(&txn, &tables), Source::Index(ENTRIES))?, []);
        Ok(())
    });
}

#[test]
fn messages_are_ordered_by_their_numbers() {
    on_each(|harness| {
        let engine = harness.engine();
        let tables = open(engine, TABLE);
        let mut txn = engine.write()?;
        let mut writer = writer(&mut txn, &tables);
        for number in [300, 0, 1 << 63, 2] {
            writer.put_message(number, &number.to_le_bytes())?;
        }
        writer.remove_message(2)?;
        let reader = writer.reader();
        assert_eq!(reader.messages()?, 3);
        assert_eq!(reader.message(0)?.map(|it| it.0), Some(0));
        assert_eq!(reader.message(1)?.map(|it| it.0), Some(300));
        assert_eq!(reader.message(301)?.map(|it| it.0), Some(1 << 63));
        assert_eq!(reader.message(u64::MAX)?, None);
        assert_eq!(reader.message_below(1 << 63)?.map(|it| it.0), Some(300));
        assert_eq!(reader.message_below(0)?, None);
        writer.clear_messages()?;
        assert_eq!(writer.reader().messages()?, 0);
        Ok(())
    });
}

#[test]
fn a_table_without_eventual_indexes_has_no_queue() {
    const PLAIN: &TableSchema = &TableSchema { name: "plain", indexes: &[], ..*TABLE };
    on_each(|harness| {
        let engine = harness.engine();
        let tables = open(engine, PLAIN);
        let mut txn = engine.write()?;
        let mut writer = writer(&mut txn, &tables);
        writer.put_message(1, b"message")?;
        writer.remove_message(1)?;
        writer.clear_messages()?;
        assert_eq!((writer.reader().message(0)?, writer.reader().messages()?), (None, 0));
        Ok(())
    });
}

#[test]
fn a_sequence_is_one_record_of_the_table() {
    on_each(|harness| {
        let engine = harness.engine();
        let (tables, others) = (open(engine, TABLE), open(engine, OTHER));
        let mut txn = engine.write()?;
        assert_eq!(reader(&txn, &tables).sequence(&[])?, None);
        writer(&mut txn, &tables).put_sequence(&[], b"7")?;
        writer(&mut txn, &tables).put_sequence(&[], b"8")?;
        assert_eq!(reader(&txn, &tables).sequence(&[])?, Some(&b"8"[..]));
        assert_eq!(reader(&txn, &others).sequence(&[])?, None);
        Ok(())
    });
}
