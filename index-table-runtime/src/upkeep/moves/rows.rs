//! Rows that are copied to another shard, with their entries in local indexes.

use crate::{
    engine::{Read as _, Write as _},
    model::{
        error::Result,
        maintain::{self, Change, Image, Sink},
        row,
        row_vtable::TableRows,
        schema::IndexSchema,
        shard::Routing,
    },
    placement::{Writer, shards::Tracked},
    store::OpenTable,
    write::aggregates::Gathered,
};

/// The entries of a copied row that are written in one pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Entries that the row no longer has.
    Removals,
    /// Entries that the row has.
    Additions,
}

/// Passes on the changes of local indexes in one pass. The entries of global indexes stay where they are.
///
/// The rows are copied from several snapshots, so a copy can give up a unique key after the copy of another row has taken it.
/// The entry then belongs to the other row, and stays.
struct Local<'a, 't, 's> {
    writer: &'a mut Writer<'t, 's>,
    routing: &'a Routing,
    pass: Pass,
}

impl Sink for Local<'_, '_, '_> {
    fn change(&mut self, change: Change<'_>) -> Result<()> {
        let (Change::PutEntry { index, .. } | Change::DeleteEntry { index, .. }) = change else {
            return self.writer.change(change);
        };
        if self.routing.global(index).is_some() {
            return Ok(());
        }
        match (self.pass, change) {
            (Pass::Removals, Change::DeleteEntry { key, primary_key, .. }) => {
                remove_entry(self.writer, self.routing, (index, key), primary_key)
            }
            (Pass::Additions, Change::PutEntry { .. }) => self.writer.change(change),
            _ => Ok(()),
        }
    }
}

/// Removes an entry of a copied row. If a key has at most one entry, an entry of another row stays.
pub(super) fn remove_entry(
    writer: &mut Writer<'_, '_>,
    routing: &Routing,
    (index, key): (usize, &[u8]),
    primary_key: &[u8],
) -> Result<()> {
    let declared = routing.schema().indexes.get(index);
    if declared.is_some_and(IndexSchema::has_one_entry_per_key) {
        return writer.remove_shared(index, key, primary_key);
    }
    writer.change(Change::DeleteEntry { index, key, primary_key })
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

/// A row with its primary key; `None` for a row that was deleted.
pub(super) type Wanted<'r> = (&'r [u8], Option<&'r [u8]>);

/// The two images of a copy that changes.
#[derive(Default)]
struct Images {
    old: Image,
    new: Image,
}

impl Copies<'_> {
    fn rows(&self) -> &TableRows {
        &self.table.rows
    }

    /// Makes the copies of some rows in this shard equal to the rows. All of them are from one snapshot.
    ///
    /// The entries that the rows have given up are removed before any entry is written, so that the rows can exchange
    /// unique keys. A copy that is equal to its row also gets the entries that it lacks: the copy of another row may have
    /// had a unique key of this row in the meantime.
    pub(super) fn set_all(
        &mut self,
        writer: &mut Writer<'_, '_>,
        wanted: &[Wanted<'_>],
    ) -> Result<()> {
        let mut images = Images::default();
        for one in wanted {
            self.remove_old(writer, &mut images, one)?;
        }
        wanted.iter().try_for_each(|one| self.set(writer, &mut images, one))?;
        writer.flush()
    }

    /// Removes the entries that a row has given up.
    fn remove_old(
        &self,
        writer: &mut Writer<'_, '_>,
        Images { old, new }: &mut Images,
        (primary_key, row): &Wanted<'_>,
    ) -> Result<()> {
        let rows = self.rows();
        let Some(copy) = writer.reader().fact(primary_key)? else { return Ok(()) };
        let renewed = row.map(|row| renewed(rows, primary_key, row)).transpose()?;
        if Some(copy) == renewed.as_deref() {
            return Ok(());
        }
        rows.load_stored(old, copy, primary_key)?;
        let mut local = Local { writer, routing: self.routing, pass: Pass::Removals };
        match &renewed {
            Some(row) => {
                rows.load_stored(new, row, primary_key)?;
                maintain::removed_entries(rows.schema, old, new, &mut local)
            }
            None => maintain::entry_changes(rows.schema, Some(old), None, &mut local),
        }
    }

    /// Makes the copy of a row equal to the row, after its obsolete entries were removed.
    fn set(
        &mut self,
        writer: &mut Writer<'_, '_>,
        Images { old, new }: &mut Images,
        (primary_key, row): &Wanted<'_>,
    ) -> Result<()> {
        let rows = self.rows();
        let renewed = row.map(|row| renewed(rows, primary_key, row)).transpose()?;
        let copy = writer.reader().fact(primary_key)?;
        let (has_copy, is_equal) = (copy.is_some(), copy == renewed.as_deref());
        if let Some(copy) = copy.filter(|_| !is_equal) {
            rows.load_stored(old, copy, primary_key)?;
        }
        let Some(row) = &renewed else {
            if has_copy {
                writer.change(Change::DeleteFact { primary_key })?;
                self.count(Some(old), None);
            }
            return Ok(());
        };
        rows.load_stored(new, row, primary_key)?;
        if is_equal {
            if !self.counts_found {
                self.count(None, Some(new));
            }
            return self.complete(writer, new);
        }
        let old = has_copy.then_some(&*old);
        writer.change(Change::PutFact { primary_key, row })?;
        let mut local = Local { writer, routing: self.routing, pass: Pass::Additions };
        maintain::entry_changes(rows.schema, old, Some(new), &mut local)?;
        if old.is_some() {
            self.complete(writer, new)?;
        }
        self.count(old, Some(new));
        Ok(())
    }

    /// Writes the entries that a copy lacks in local indexes.
    fn complete(&self, writer: &mut Writer<'_, '_>, new: &Image) -> Result<()> {
        let primary_key = new.primary_key();
        for (index, declared) in self.rows().schema.indexes.iter().enumerate() {
            if self.routing.global(index).is_some() || declared.eventual {
                continue;
            }
            let data = new.data(index, declared);
            for key in new.keys(index) {
                if writer.reader().entry(index, key, primary_key)? != Some(data) {
                    writer.change(Change::PutEntry { index, key, primary_key, data })?;
                }
            }
        }
        Ok(())
    }

    /// Adds a changed copy to the totals.
    fn count(&mut self, old: Option<&Image>, new: Option<&Image>) {
        let rows = &self.table.rows;
        if !rows.aggregates.is_empty() {
            self.totals.add(rows, old.filter(|_| self.counts_found), new);
        }
    }
}

/// Returns the bytes of a row in the current version.
pub(super) fn renewed(rows: &TableRows, primary_key: &[u8], bytes: &[u8]) -> Result<Vec<u8>> {
    if row::version(bytes) == Ok(rows.schema.version) {
        return Ok(bytes.to_vec());
    }
    rows.renew(bytes).map_err(|error| rows.corrupt(error, primary_key))
}

/// Returns the note of a change of a row.
pub(super) fn tracked(table: &OpenTable, primary_key: &[u8]) -> Tracked {
    Tracked::Row(table.schema.name, primary_key.to_vec())
}
