//! The copies of a reference table: compares them, and fills empty copies.
//!
//! Each write of a reference table is one transaction across all shards, so the copies are always equal. A copy
//! is empty if its shard is new. It is old if its shard was restored from a
//! backup.

use std::sync::Arc;

use super::{recorded::described, shards::mismatch};
use crate::{
    engine::{
        Ascending, Cursor as _, Query, Read as _, ReadRecords as _, Space, Write as _,
        WriteRecords as _,
    },
    model::{
        KeyRange,
        entry::RawEntry,
        error::{Error, Result},
        maintain::{Change, Sink as _},
        row_vtable::TableRows,
        schema::Source,
    },
    placement::{Reader, Writer},
    store::{OpenTable, Shards, Store},
    write::references,
};

/// The number of rows of an old copy that are deleted at a time.
const BATCH: usize = 1024;

/// The copies of a reference table, with the stores of their shards.
#[derive(Default)]
pub(super) struct Copies {
    /// The first copy with rows.
    source: Option<(Store, Arc<OpenTable>)>,
    empty: Vec<(Store, Arc<OpenTable>)>,
}

impl Copies {
    /// Returns the copies in the available shards.
    pub(super) fn of(engine: &Shards, table: &OpenTable) -> Result<Self> {
        let mut copies = Self::default();
        for (number, shard) in engine.members() {
            if let Some(own) = table.in_shard(number).filter(|_| shard.opened().is_ok()) {
                copies.add(shard.store()?, &own)?;
            }
        }
        Ok(copies)
    }

    /// Adds a copy.
    pub(super) fn add(&mut self, store: Store, table: &Arc<OpenTable>) -> Result<()> {
        let copy = (store, Arc::clone(table));
        if is_empty(&copy)? {
            self.empty.push(copy);
        } else {
            self.source.get_or_insert(copy);
        }
        Ok(())
    }

    /// Checks that a copy with rows equals the previous copies.
    pub(super) fn check(&self, store: &Store, table: &OpenTable, shard: &str) -> Result<()> {
        let Some((source, original)) = &self.source else { return Ok(()) };
        let (source, copy) = (source.read()?, store.read()?);
        let all = || Query::new(Source::Facts, KeyRange::ALL);
        let mut originals = source.reader(original)?.cursor(all())?;
        let mut rows = copy.reader(table)?.cursor(all())?;
        let mut is_next = rows.advance()?;
        if !is_next {
            return Ok(());
        }
        while originals.advance()? {
            if !is_next || !is_same(originals.entry(), rows.entry()) {
                is_next = true;
                break;
            }
            is_next = rows.advance()?;
        }
        if !is_next {
            return Ok(());
        }
        let difference = format!("its copy in shard `{shard}` has other rows than another copy");
        Err(mismatch(table.schema, difference))
    }

    /// Copies the rows to each copy without rows.
    pub(super) fn fill(&self) -> Result<()> {
        if self.source.is_none() {
            return Ok(());
        }
        self.empty.iter().try_for_each(|(store, table)| self.replace(store, table))
    }

    /// Checks that no row of the shard of a copy refers to a row that the copy has and the other copies lack.
    ///
    /// Cost: a look-up for each row of the copy.
    ///
    /// # Errors
    ///
    /// [`Error::ShardRefused`] with one of the referring rows, for the shard `name`. `way_out` is the end of the message.
    pub(super) fn check_references(
        &self,
        (store, table): (&Store, &OpenTable),
        (name, way_out): (&str, &str),
    ) -> Result<()> {
        let Some((source, original)) = self.source.as_ref().or(self.empty.first()) else {
            return Ok(());
        };
        let (source, copy) = (source.read()?, store.read()?);
        let (source, reader) = (source.reader(original)?, copy.reader(table)?);
        let mut rows = reader.cursor(Query::new(Source::Facts, KeyRange::ALL))?;
        while rows.advance()? {
            let primary_key = rows.entry().primary_key;
            if source.fact(primary_key)?.is_some() {
                continue;
            }
            match references::check_rename(reader, primary_key) {
                Err(Error::Referenced { table, key, by, reference }) => {
                    let row = referring_row(store, reader, (by, reference), primary_key)?;
                    let row = row.map_or("a row".to_owned(), |row| format!("row {row}"));
                    let reason = format!(
                        "{row} of table `{by}` in it refers by `{reference}` to the row with primary key {key} of the \
                         reference table `{table}`, which the store no longer has: {way_out}"
                    );
                    return Err(Error::ShardRefused { what: format!("shard `{name}`"), reason });
                }
                checked => checked?,
            }
        }
        Ok(())
    }

    /// Replaces the rows of a copy.
    pub(super) fn replace(&self, store: &Store, table: &OpenTable) -> Result<()> {
        store.transaction(|txn| self.replace_in(table, &mut txn.writer(table)?.0))
    }

    /// Replaces the rows of a copy in a transaction of its shard.
    pub(super) fn replace_in(&self, table: &OpenTable, writer: &mut Writer<'_, '_>) -> Result<()> {
        let source = self.source.as_ref().or(self.empty.first());
        let Some((source, original)) = source else { return Ok(()) };
        let txn = source.read()?;
        copy(&table.rows, txn.reader(original)?, writer)
    }
}

/// Returns the primary key of the first row that refers to a row, as text; `None` if its table can't be read without its repository.
#[cold]
fn referring_row(
    store: &Store,
    reader: Reader<'_>,
    (by, reference): (&str, &str),
    primary_key: &[u8],
) -> Result<Option<String>> {
    let mut prefix = None;
    for referrer in references::referrers(reader) {
        let (_, own) = referrer?;
        if (own.table, own.reference) == (by, reference) {
            prefix = Some((own.index, own.prefix(primary_key)));
        }
    }
    let engine = store.inner.engine()?;
    let catalog = engine.catalog()?;
    let record = catalog.iter().find(|(table, _)| table == by);
    let described = record.and_then(|(_, record)| described(store, by, record).ok());
    let (Some((index, prefix)), Some(rows)) = (prefix, described) else { return Ok(None) };
    let source = rows.schema.position_of(index).map_or(Source::Facts, Source::Index);
    let Some(tables) = engine.find_table(rows.schema, rows.parts())? else { return Ok(None) };
    let txn = engine.read()?;
    let Some(reader) = txn.reader(&tables).map(Reader::One) else { return Ok(None) };
    let of_row = Query::new(source, KeyRange::beginning_with(&prefix));
    let mut found = reader.cursor(Query { limit: Some(1), ..of_row })?;
    let is_found = found.advance()?;
    Ok(is_found.then(|| rows.schema.show_primary_key(found.entry().primary_key)))
}

fn is_same(one: RawEntry<'_>, other: RawEntry<'_>) -> bool {
    (one.primary_key, one.data) == (other.primary_key, other.data)
}

fn is_empty((store, table): &(Store, Arc<OpenTable>)) -> Result<bool> {
    let txn = store.read()?;
    let first = Query { limit: Some(1), ..Query::new(Source::Facts, KeyRange::ALL) };
    Ok(txn.reader(table)?.count(&first)?.found == 0)
}

/// Copies a table with its indexes and their states, its sequence and its queue.
fn copy(rows: &TableRows, source: Reader<'_>, writer: &mut Writer<'_, '_>) -> Result<()> {
    clear(rows, writer)?;
    let indexes = 0..source.table().indexes.len();
    for source_of in std::iter::once(Source::Facts).chain(indexes.map(Source::Index)) {
        let entries = source.cursor(Query::new(source_of, KeyRange::ALL))?;
        writer.append(source_of, &mut Lent(entries))?;
    }
    if let Some(number) = source.sequence(&[])? {
        writer.put_sequence(&[], number)?;
    }
    copy_space(Space::Queue, source, writer)?;
    for name in rows.schema.positions().filter_map(|index| rows.schema.name_at(index)) {
        match source.record(name)? {
            Some(state) => writer.put_record(name, state)?,
            None => writer.remove_record(name)?,
        }
    }
    (0..rows.aggregates.len())
        .try_for_each(|aggregate| copy_space(Space::Aggregate(aggregate), source, writer))
}

fn copy_space(space: Space, source: Reader<'_>, writer: &mut Writer<'_, '_>) -> Result<()> {
    let mut from = vec![0];
    while let Some((key, record)) = source.at_or_above(space, &from)? {
        writer.put(space, key, record)?;
        key.clone_into(&mut from);
        from.push(0);
    }
    Ok(())
}

/// Removes everything except the records in the catalog.
fn clear(rows: &TableRows, writer: &mut Writer<'_, '_>) -> Result<()> {
    loop {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut rows = writer.reader().cursor(Query::new(Source::Facts, KeyRange::ALL))?;
        while keys.len() < BATCH && rows.advance()? {
            keys.push(rows.entry().primary_key.to_vec());
        }
        drop(rows);
        if keys.is_empty() {
            break;
        }
        for primary_key in &keys {
            writer.change(Change::DeleteFact { primary_key })?;
        }
    }
    for index in 0..writer.reader().table().indexes.len() {
        writer.clear(index)?;
    }
    writer.clear_space(Space::Sequence)?;
    writer.clear_space(Space::Queue)?;
    (0..rows.aggregates.len())
        .try_for_each(|aggregate| writer.clear_space(Space::Aggregate(aggregate)))
}

/// The entries of one copy, as input for another copy.
struct Lent<C>(C);

impl<C: crate::engine::Cursor> Ascending for Lent<C> {
    fn next(&mut self) -> Result<Option<RawEntry<'_>>> {
        Ok(if self.0.advance()? { Some(self.0.entry()) } else { None })
    }
}
