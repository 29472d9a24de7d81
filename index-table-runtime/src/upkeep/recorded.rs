//! Opening tables from the catalog, without a struct of their rows.

use std::{collections::BTreeMap, sync::Arc};

use super::opening;
use crate::{
    locks::{Mutex, OfProcess},
    model::{
        error::{Error, Result},
        key::kept_text,
        row_vtable::{RowVtable, TableRows},
        schema::{TableRecord, TableSchema, is_index},
        shard::{Distribution, ShardKey},
        stream::ChangeStream,
    },
    placement::shards::TableRecord as Location,
    store::{Declared, OpenTable, Store},
};

/// The name of a table, its location as text, and its record.
type Known = (String, String, Vec<u8>);

/// The row vtables of this process. They, and what reading a record leaves, are never dropped, so each record is read once.
static KNOWN: OfProcess<Mutex<BTreeMap<Known, Described>>> = OfProcess::new(Mutex::default);

/// A row vtable, or the reason why the record can't be read, with the name of the table.
type Described = Result<&'static RowVtable, (&'static str, String)>;

/// The tables of a store, opened from its catalog.
pub(crate) struct Recorded {
    pub(crate) tables: Vec<Arc<OpenTable>>,
    /// The tables that this release can't open, each with the reason.
    pub(crate) skipped: Vec<(String, String)>,
}

/// Opens all tables as the catalog describes them. Their indexes may not be readable.
pub(crate) fn open(store: &Store) -> Result<Recorded> {
    if !store.inner.engines.is_read_only() {
        return Err(Error::NotOffered {
            what: "opening tables without their structs in a store that can be written; open the \
                   store with `read_only(true)`",
        });
    }
    let records = store.inner.catalog()?;
    let mut recorded = Recorded { tables: Vec::new(), skipped: Vec::new() };
    for (table, record) in records.iter().filter(|(name, _)| !name.contains('.')) {
        let opened = described(store, table, record)
            .and_then(|rows| opening::open(store, rows).map_err(|error| error.to_string()));
        match opened {
            Ok(table) => recorded.tables.push(table),
            Err(reason) => recorded.skipped.push((table.clone(), reason)),
        }
    }
    Ok(recorded)
}

/// Opens a table as the catalog describes it, unless it is in use. Its indexes may not be readable.
#[cfg(feature = "json")]
pub(crate) fn table(store: &Store, name: &str) -> Result<Arc<OpenTable>> {
    if let Some(used) = store.inner.table(name) {
        return Ok(used);
    }
    let records = store.inner.catalog()?;
    let tables = || records.iter().filter(|(own, _)| !own.contains('.'));
    let Some((table, record)) = tables().find(|(own, _)| own == name) else {
        let known: Vec<_> = tables().map(|(name, _)| format!("`{name}`")).collect();
        return Err(Error::unknown_name(("the store", "table", name), &known));
    };
    let rows = described_once(store, table, record).map_err(|(table, reason)| Error::Codec {
        table,
        reason: format!("its record can't be read: {reason}"),
    })?;
    opening::open_online(store, rows)
}

/// Returns the row vtable of a table with this record, without a struct of its rows.
///
/// # Errors
///
/// The reason why the record can't be read.
pub(super) fn described(
    store: &Store,
    table: &str,
    record: &[u8],
) -> Result<&'static RowVtable, String> {
    described_once(store, table, record).map_err(|(_, reason)| reason)
}

fn described_once(store: &Store, table: &str, record: &[u8]) -> Described {
    let location = store.inner.engines.several().and_then(|shards| shards.location_of(table));
    let key = (table.to_owned(), format!("{location:?}"), record.to_vec());
    if let Some(described) = KNOWN.lock().get(&key) {
        return described.clone();
    }
    // Two threads may make the first one, and use the same.
    let described = describe(table, record, location.as_ref());
    let described = described.map_err(|reason| (kept_text(table), reason));
    KNOWN.lock().entry(key).or_insert(described).clone()
}

/// Makes the row vtable.
fn describe(
    table: &str,
    record: &[u8],
    location: Option<&Location>,
) -> Result<&'static RowVtable, String> {
    let file = TableRecord::read(record)?;
    let schema = Box::leak(Box::new(file.schema(table)?));
    let distribution = match location {
        None | Some(Location::Whole(_) | Location::Part { .. }) => Distribution::Whole,
        Some(Location::Reference) => Distribution::Reference,
        Some(Location::ByKey { fields, hashed, map }) => Distribution::ByKey(ShardKey {
            fields: *fields as usize,
            hashed: *hashed,
            map: kept_text(map),
            global: file.global(),
        }),
    };
    let changes = file.has_changes().then_some(ChangeStream::RECORDED);
    let rows = RowVtable::without_rows(schema, file.aggregates()?, changes, distribution);
    Ok(Box::leak(Box::new(rows)))
}

/// Opens the databases of a table that [`open`] has described, in a store or in one shard.
pub(super) fn find(
    store: &Store,
    rows: &TableRows,
    (global, is_shard): (&[usize], bool),
) -> Result<Arc<OpenTable>> {
    store.inner.open_once(rows, |_| {
        let (engine, schema) = (store.inner.engine()?, rows.schema);
        let is_read_only = engine.is_read_only();
        let records = engine.catalog()?;
        let Some((_, record)) = records.iter().find(|(name, _)| name == schema.name) else {
            return Err(differs(schema));
        };
        let file = TableRecord::decode(schema.name, record)?;
        let described = TableRecord::of(schema, |index| engine.layout(schema, index));
        let described = described.with_global(global).with_aggregates(schema, rows.aggregates);
        let described = described.with_references_of(&file).with_changes(rows.changes);
        let described = TableRecord { changes: file.changes, ..described };
        if file != described {
            return Err(differs(schema));
        }
        let readable = schema.positions().filter_map(|at| schema.name_at(at)).map(|part| {
            let state = format!("{}.{part}", schema.name);
            !records.iter().any(|(name, _)| is_index(part) && *name == state)
        });
        super::lists::find(engine, rows, &records, is_shard)?;
        let declared = Declared {
            record: described.encode(schema.name)?,
            // In a store that can be written, each query looks in the catalog whether its index is readable.
            readable: readable.map(|is_readable| is_readable && is_read_only).collect(),
            ..Declared::default()
        };
        let tables = engine.find_table(schema, rows.parts())?.ok_or_else(|| differs(schema))?;
        if !is_read_only {
            super::foreign::number_if_any(store, engine, rows, &tables)?;
        }
        Ok((tables.into(), declared))
    })
}

fn differs(schema: &TableSchema) -> Error {
    Error::SchemaMismatch {
        table: schema.name,
        difference:
            "another process is changing its declaration, or a shard has a different declaration"
                .to_owned(),
        way_out: "open it again; if that doesn't help, open the table once with the program that \
                  declares it",
    }
}
