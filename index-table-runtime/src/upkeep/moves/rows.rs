//! Rows that are copied to another shard, with their entries in local indexes.

use crate::{
    engine::{Read as _, Space, Write as _, Writer, shards::Tracked},
    model::{
        error::Result,
        maintain::{self, Change, Image, Sink},
        row,
        row_vtable::RowVtable,
        shard::Routing,
    },
    store::OpenTable,
    write::aggregates::Gathered,
};

/// Passes on the changes of rows and of local indexes. The entries of global indexes stay where they are.
struct Local<'a, 't, 's> {
    writer: &'a mut Writer<'t, 's>,
    routing: &'a Routing,
}

impl Sink for Local<'_, '_, '_> {
    fn change(&mut self, change: Change<'_>) -> Result<()> {
        match change {
            Change::PutEntry { index, .. } | Change::DeleteEntry { index, .. }
                if self.routing.global(index).is_some() =>
            {
                Ok(())
            }
            change => self.writer.change(change),
        }
    }
}

/// The copies of a table's rows in one shard.
pub(super) struct Copies<'a> {
    pub(super) table: &'a OpenTable,
    pub(super) routing: &'a Routing,
    /// The totals of the copied rows.
    pub(super) totals: &'a mut Gathered,
    /// Whether `totals` has the copies that are found, and not only those that are made.
    pub(super) counts_found: bool,
}

impl Copies<'_> {
    fn rows(&self) -> &'static RowVtable {
        self.table.rows
    }

    /// Makes the copy of a row in this shard equal to `row`. Returns whether it has changed.
    pub(super) fn set(
        &mut self,
        writer: &mut Writer<'_, '_>,
        primary_key: &[u8],
        row: Option<&[u8]>,
    ) -> Result<bool> {
        let rows = self.rows();
        let renewed = row.map(|row| renewed(rows, primary_key, row)).transpose()?;
        let copy = writer.reader().fact(primary_key)?;
        if copy == renewed.as_deref() {
            return Ok(false);
        }
        let (mut old, mut new) = (Image::default(), Image::default());
        let old = match copy {
            Some(copy) => {
                rows.load_stored(&mut old, copy, primary_key)?;
                Some(&old)
            }
            None => None,
        };
        let new = match &renewed {
            Some(row) => {
                rows.load_stored(&mut new, row, primary_key)?;
                Some(&new)
            }
            None => None,
        };
        match &renewed {
            Some(row) => writer.change(Change::PutFact { primary_key, row })?,
            None => writer.change(Change::DeleteFact { primary_key })?,
        }
        let mut local = Local { writer, routing: self.routing };
        maintain::entry_changes(rows.schema, old, new, &mut local)?;
        if !rows.aggregates.is_empty() {
            self.totals.add(rows, old.filter(|_| self.counts_found), new);
        }
        writer.flush()?;
        Ok(true)
    }

    /// Notes a copy that is already equal to its row.
    pub(super) fn note(&mut self, primary_key: &[u8], row: &[u8]) -> Result<()> {
        let rows = self.rows();
        if rows.aggregates.is_empty() {
            return Ok(());
        }
        let mut image = Image::default();
        rows.load_stored(&mut image, row, primary_key)?;
        self.totals.add(rows, None, Some(&image));
        Ok(())
    }
}

/// Returns the bytes of a row in the current version.
pub(super) fn renewed(rows: &RowVtable, primary_key: &[u8], bytes: &[u8]) -> Result<Vec<u8>> {
    if row::version(bytes) == Ok(rows.schema.version) {
        return Ok(bytes.to_vec());
    }
    rows.renew(bytes).map_err(|error| rows.corrupt(error, primary_key))
}

/// Makes the number that `insert_with` has assigned after these leading fields equal in this shard. Returns whether it has
/// changed.
pub(super) fn set_sequence(
    writer: &mut Writer<'_, '_>,
    key: &[u8],
    record: Option<&[u8]>,
) -> Result<bool> {
    if writer.reader().get(Space::Sequence, key)? == record {
        return Ok(false);
    }
    match record {
        Some(record) => writer.put(Space::Sequence, key, record)?,
        None => writer.remove(Space::Sequence, key)?,
    }
    Ok(true)
}

/// Returns the note of a change of a row.
pub(super) fn tracked(table: &OpenTable, primary_key: &[u8]) -> Tracked {
    Tracked::Row(table.schema.name, primary_key.to_vec())
}
