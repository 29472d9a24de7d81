//! Look-ups of many rows, one at a time and several at once.

use std::cell::Cell;

use serde::{Deserialize, Serialize};

use crate::{
    Error, Result, Store,
    model::{
        entity::Entity,
        error::EncodeError,
        key::{DecodeError, KeyBuf},
        maintain::EntryBuffer,
        row::{RowBody, RowOutput},
        schema::{FieldSchema, KeyField, TableSchema},
    },
    table::KeyedTable,
};

thread_local! {
    /// The row that can't be decoded.
    static DAMAGED: Cell<Option<u16>> = const { Cell::new(None) };
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) id: u16,
}

impl Entity for Row {
    type Key = u16;
    const TABLE: &'static TableSchema = &TableSchema {
        name: "rows",
        was: &[],
        version: 1,
        fields: &[FieldSchema::new::<u16>("id", "u16")],
        previous: None,
        changed: &[],
        aggregates: &[],
        primary_key: &[KeyField::new::<u16>("id")],
        indexes: &[],
    };

    fn encode(&self, out: RowOutput<'_>) -> Result<(), EncodeError> {
        crate::private::RowFormat::<Self>::encode(self, out)
    }

    fn decode(body: RowBody<'_>) -> Result<Self, DecodeError> {
        let row = crate::private::RowFormat::<Self>::decode(body)?;
        if DAMAGED.get() == Some(row.id) { Err(DecodeError::Short) } else { Ok(row) }
    }

    fn primary_key(&self, key: &mut KeyBuf) {
        key.push(&self.id);
    }

    fn entries(&self, _: usize, _: &mut EntryBuffer) -> Result<(), EncodeError> {
        Ok(())
    }
}

/// Runs a test on each engine, with a table of ten rows and the number of rows that the engine looks up at
/// once.
fn on_each(test: impl Fn(&KeyedTable<Row>, &Store, u64) -> Result<()>) -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let lmdb = Store::options().map_size(1 << 24).open(dir.path())?;
    #[cfg(feature = "memory")]
    let memory = Some((Store::in_memory(), 3));
    #[cfg(not(feature = "memory"))]
    let memory = None;
    for (store, at_once) in [Some((lmdb, 1)), memory].into_iter().flatten() {
        DAMAGED.set(None);
        let table = KeyedTable::<Row>::open(&store)?;
        store.transaction(|txn| (0..10).try_for_each(|id| table.insert(txn, &Row { id })))?;
        test(&table, &store, at_once)?;
    }
    Ok(())
}

#[test]
fn rows_before_a_damaged_row_are_returned_and_none_after_it() -> Result<()> {
    on_each(|table, store, at_once| {
        DAMAGED.set(Some(4));
        let txn = store.read()?;
        let mut rows = table.get_many(&txn, [0, 1, 99, 3, 4, 5, 6, 7]);
        for expected in [Some(0), Some(1), None, Some(3)] {
            assert!(rows.size_hint().1 >= Some(5));
            let row = rows.next().expect("a result for each key")?;
            assert_eq!(row.map(|row| row.id), expected);
        }
        assert!(matches!(rows.next(), Some(Err(Error::Corrupt { .. }))));
        assert!(rows.next().is_none());
        assert_eq!(rows.size_hint(), (0, Some(0)));
        assert_eq!(rows.stats().facts, 5_u64.next_multiple_of(at_once));
        Ok(())
    })
}

#[test]
fn get_many_takes_keys_only_when_the_engine_looks_them_up() -> Result<()> {
    on_each(|table, store, at_once| {
        let taken = Cell::new(0);
        let keys = (0_u16..8).inspect(|_| taken.set(taken.get() + 1));
        let txn = store.read()?;
        let mut rows = table.get_many(&txn, keys);
        for read in 1..=8_u64 {
            assert!(rows.next().is_some_and(|row| row.is_ok()));
            assert_eq!(taken.get(), read.next_multiple_of(at_once).min(8));
            assert_eq!(rows.stats().facts, taken.get());
        }
        assert!(rows.next().is_none());
        Ok(())
    })
}
