//! Loads beside other processes.

use serde::{Deserialize, Serialize};

use crate::{
    Error, Result, Store,
    model::{
        entity::Entity,
        error::EncodeError,
        key::{DecodeError, KeyBuf},
        lists::Lists,
        maintain::EntryBuffer,
        row::{RowBody, RowOutput},
        row_vtable::RowVtable,
        schema::{FieldSchema, KeyField, TableSchema},
    },
    table::KeyedTable,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Row {
    id: u16,
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
        crate::private::RowFormat::<Self>::decode(body)
    }

    fn primary_key(&self, key: &mut KeyBuf) {
        key.push(&self.id);
    }

    fn entries(&self, _: usize, _: &mut EntryBuffer) -> Result<(), EncodeError> {
        Ok(())
    }
}

/// Another process records lists while the rows of a load are read, so a number means another list than in these rows.
#[test]
fn a_load_fails_if_its_lists_are_lost() -> Result<()> {
    static ROWS: RowVtable = RowVtable::of::<Row>();
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::options().map_size(1 << 24).open(dir.path())?;
    let table = KeyedTable::<Row>::open(&store)?;
    let other = Lists::default();
    other.encode(&("other", "fields"), &mut Vec::new()).expect("a row");
    let (_, record) = other.record();
    let lists = store.rows_of(&ROWS)?.lists;
    let rows = || {
        (0..10_u16).map(|id| {
            if id == 5 {
                lists.see(&record).expect("a record");
            }
            Row { id }
        })
    };
    let error = table.bulk_load(&store, rows()).run().expect_err("the lists are lost");
    assert!(matches!(error, Error::TransactionFailed { .. }), "{error}");
    assert_eq!(table.all(&store.read()?).count()?, 0);
    // The record is known now.
    table.bulk_load(&store, rows()).run()?;
    let read: Vec<Row> = table.all(&store.read()?).rows().collect::<Result<_>>()?;
    assert_eq!(read, (0..10).map(|id| Row { id }).collect::<Vec<_>>());
    Ok(())
}
