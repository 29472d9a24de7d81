//! Recording the references of a table in the catalog, and checking the rows that exist when a reference is declared.

use crate::{
    engine::{Cursor as _, Query, Read as _, Space, Write as _, WriteRecords as _},
    model::{
        KeyRange,
        error::{Error, Result},
        key::kept_text,
        maintain::Image,
        reference::{self, MARK, ReferenceSchema, Referrer},
        row_vtable::TableRows,
        schema::{Source, TableRecord, TableSchema},
        shard::{Distribution, Routing},
    },
    placement::{Reader, Writer},
    store::Renewed,
    write::references,
};

/// Records the references of a table as parts of the referenced tables, and removes the records of references that are
/// in `file` but no longer declared. Checks all rows if a reference is at one of the positions `new`, which follow the
/// positions of the aggregates. A referenced table whose references change gets a new record, so that processes that
/// have it open detect the change.
///
/// # Errors
///
/// [`Error::SchemaMismatch`] if a referenced table has another primary key in the file; the errors of [`check_rows`].
pub(super) fn declare(
    rows: &TableRows,
    file: Option<&TableRecord>,
    (new, is_shard, has_main_rows_elsewhere): (&[usize], bool, bool),
    writer: &mut Writer<'_, '_>,
) -> Result<Vec<Renewed>> {
    let (schema, mut renewed) = (rows.schema, Vec::new());
    let gone = file.map(TableRecord::references).unwrap_or_default();
    for (name, to) in gone {
        if rows.references.iter().any(|it| it.name == name && it.to.name == to) {
            continue;
        }
        let (part, to) = (reference::part(schema.name, &name), kept_text(&to));
        if writer.reader().get(Space::CatalogOf(to), part.as_bytes())?.is_some() {
            writer.remove(Space::CatalogOf(to), part.as_bytes())?;
            if to != schema.name && !is_shard {
                renew(to, writer, &mut renewed)?;
            }
        }
    }
    for reference in rows.references {
        let to = reference.to;
        if let Some(record) = writer.reader().get(Space::CatalogOf(to.name), &[])? {
            check_primary_key((schema.name, reference.name), to, record)?;
        }
        if has_main_rows_elsewhere && reference.is_to_main_row() {
            // The manager of the shards has the reference. The data file of a store that has grown has the record.
            let (part, space) =
                (reference::part(schema.name, reference.name), Space::CatalogOf(to.name));
            if writer.reader().get(space, part.as_bytes())?.is_some() {
                writer.remove(space, part.as_bytes())?;
            }
            continue;
        }
        let by = Referrer::of(schema, reference);
        let (part, record) = (by.part(), by.encode()?);
        let space = Space::CatalogOf(to.name);
        if writer.reader().get(space, part.as_bytes())? != Some(record.as_slice()) {
            writer.put(space, part.as_bytes(), &record)?;
            // The own record changes with its references, and one process has a sharded store.
            if to.name != schema.name && !is_shard {
                renew(to.name, writer, &mut renewed)?;
            }
        }
    }
    let new =
        new.iter().filter_map(|at| rows.references.get(at.checked_sub(rows.first_reference())?));
    let mut has_new = false;
    for reference in new {
        // A release without references may have retired it as an index.
        writer.remove_record(&format!("{MARK}{}", reference.name))?;
        has_new = true;
    }
    if has_new {
        check_rows(rows, writer, has_main_rows_elsewhere)?;
    }
    Ok(renewed)
}

/// Checks that a table to which a reference refers has its declared primary key in the file.
///
/// # Errors
///
/// [`Error::SchemaMismatch`]
pub(super) fn check_primary_key(
    (table, reference): (&str, &str),
    to: &TableSchema,
    record: &[u8],
) -> Result<()> {
    if TableRecord::decode(to.name, record)?.has_primary_key_of(to) {
        return Ok(());
    }
    Err(Error::SchemaMismatch {
        table: to.name,
        difference: format!(
            "its primary key in the file is not the one to which the reference `{reference}` of table `{table}` \
             refers"
        ),
        way_out: "declare the struct of the rows as it is in the file",
    })
}

/// Checks that a row of a sharded store is always in the same shard as its referenced row. Only the main row of a part can be in
/// another shard, if the table of the parts `is_placed`. Returns the reference to such main rows.
///
/// # Errors
///
/// [`Error::SchemaMismatch`]
pub(super) fn check_shards(
    rows: &TableRows,
    routing: &Routing,
    is_placed: bool,
    routing_of: impl Fn(&'static TableSchema, Distribution) -> Result<Routing>,
) -> Result<Option<&'static ReferenceSchema>> {
    let (schema, mut whole) = (rows.schema, None);
    for reference in rows.references {
        let is_whole = rows.distribution == Distribution::Whole
            && reference.distribution == Distribution::Whole;
        let mut is_co_located = reference.is_co_located(schema, rows.distribution);
        if is_co_located && is_whole {
            let other = routing_of(reference.to, reference.distribution)?;
            is_co_located = other.all_shards() == routing.all_shards();
        }
        if !is_co_located
            && is_placed
            && rows.distribution == Distribution::Whole
            && reference.is_to_main_row()
        {
            whole = Some(reference);
        } else if !is_co_located {
            let (table, to) = (schema.name, reference.to.name);
            if reference.is_to_main_row() {
                return Err(Error::SchemaMismatch {
                    table,
                    difference: format!(
                        "a part and its main row in table `{to}` can be in different shards"
                    ),
                    way_out: "place both tables in the same shard, or give both the same `shard_by` and `shard_map`; or \
                              remove `shard_by` from the part, and choose its shard with `Options::place`",
                });
            }
            return Err(Error::SchemaMismatch {
                table,
                difference: format!(
                    "a row and its referenced row in table `{to}` (reference `{}`) can be in different shards",
                    reference.name
                ),
                way_out: "give both tables the same `shard_by` and `shard_map`, with the shard key as the first fields of \
                          the reference; or place both in the same shard; or make the referenced table a `#[table(reference)]`",
            });
        }
    }
    Ok(whole)
}

/// Counts a change in the record of a table, if it has one.
fn renew(
    table: &'static str,
    writer: &mut Writer<'_, '_>,
    renewed: &mut Vec<Renewed>,
) -> Result<()> {
    let space = Space::CatalogOf(table);
    let Some(before) = writer.reader().get(space, &[])?.map(<[u8]>::to_vec) else { return Ok(()) };
    let mut record = TableRecord::decode(table, &before)?;
    record.changes = record.changes.wrapping_add(1).max(1);
    let after = record.encode(table)?;
    writer.put(space, &[], &after)?;
    renewed.push(Renewed { table, before, after });
    Ok(())
}

/// Checks that all rows of the table are parts of rows that exist. The reader has all shards.
///
/// # Errors
///
/// [`Error::MissingReference`], and [`Error::Corrupt`] for a row that can't be read.
pub(super) fn check_main_rows(rows: &TableRows, reader: Reader<'_>) -> Result<()> {
    let mut image = Image::default();
    let mut facts = reader.cursor(Query::new(Source::Facts, KeyRange::ALL))?;
    while facts.advance()? {
        let fact = facts.entry();
        let loaded = rows.load_unchecked(&mut image, fact.data, None);
        loaded.map_err(|error| rows.corrupt(error, fact.primary_key))??;
        if let Some(error) = references::without_main_row(rows, reader, &image)? {
            return Err(error);
        }
    }
    Ok(())
}

/// Checks that all referenced rows of the table exist.
///
/// # Errors
///
/// [`Error::MissingReference`], and [`Error::Corrupt`] for a row that can't be read.
fn check_rows(
    rows: &TableRows,
    writer: &Writer<'_, '_>,
    has_main_rows_elsewhere: bool,
) -> Result<()> {
    let (reader, mut image) = (writer.reader(), Image::default());
    let mut facts = reader.cursor(Query::new(Source::Facts, KeyRange::ALL))?;
    while facts.advance()? {
        let fact = facts.entry();
        let loaded = rows.load_unchecked(&mut image, fact.data, None);
        loaded.map_err(|error| rows.corrupt(error, fact.primary_key))??;
        let orphaned = references::orphaned(rows, reader, &image, has_main_rows_elsewhere)?;
        if let Some(error) = orphaned.into_iter().next() {
            return Err(error);
        }
    }
    Ok(())
}
