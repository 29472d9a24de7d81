//! Renaming tables when they are opened by their new names: `#[table(was = "…")]`. Renaming indexes whose definitions stay the same.

use std::collections::BTreeSet;

use crate::{
    engine::{Engine, Rename},
    model::{
        error::{Error, Result},
        key::kept_text,
        reference::{MARK, ReferenceSchema},
        row_vtable::TableRows,
        schema::{Parts, Renaming, TableRecord, TableSchema, renamed_to, version_of},
    },
    store::{Renewed, Shards, Store, transaction},
    upkeep::{
        opening::{self, ShardPart},
        readable,
    },
    usage::trace,
};

/// The results of renaming, for the opening of the table.
#[derive(Debug, Default)]
pub(super) struct Renamed {
    /// The new records of tables to which a renamed table refers.
    pub(super) renewed: Vec<Renewed>,
    /// A table that this new table resembles, and that this process has not opened.
    similar: Option<String>,
    /// The former and the new names of indexes and aggregates of the table.
    pub(super) indexes: Vec<(String, String)>,
}

impl Renamed {
    /// Logs a warning if the program may have changed the name of a table without `was`.
    pub(super) fn warn(&self, table: &str) {
        if let Some(other) = &self.similar {
            trace::similar_table(table, other);
        }
    }
}

/// Changes the records of the catalog before a table is opened: the table, its indexes, and the tables to which it refers, get
/// their new names. A global index is renamed if its shard map has been copied, and no index at the positions `delayed`.
///
/// # Errors
///
/// [`Error::SchemaMismatch`] if this process uses such a table by its former name, or if the table itself was renamed.
pub(super) fn rename(
    store: &Store,
    rows: &TableRows,
    (part, delayed): (Option<ShardPart<'_>>, &[usize]),
    renaming: &mut Renaming<'_>,
) -> Result<Renamed> {
    let (schema, is_shard) = (rows.schema, part.is_some());
    let referred = rows.references.iter().map(|reference| reference.to);
    let records = renaming.before;
    for table in [schema].into_iter().chain(referred.filter(|to| to.name != schema.name)) {
        let refuse = |name, was| {
            refuse_used(store, name, was)?;
            if name == schema.name { Ok(()) } else { refuse_referenced(store, records, name, was) }
        };
        renaming.rename(table, is_shard, &refuse)?;
    }
    if let Some(record) = renaming.record(schema.name)
        && let Some(to) = renamed_to(record)
    {
        if store.inner.table(to).is_none() {
            return TableRecord::decode(schema.name, record).map(|_| Renamed::default());
        }
        renaming.set(schema.name.to_owned(), None);
    }
    let engine = store.inner.engine()?;
    let declared =
        opening::declaration(rows, opening::global(rows, part), |it| engine.layout(schema, it));
    let part = part.unwrap_or_default();
    renaming.rename_indexes(schema.name, &declared, is_shard, &|index, to| {
        // A client of an earlier release maintains the index by its former name.
        if schema.position_of(to).is_some_and(|at| delayed.contains(&at)) {
            return false;
        }
        !index.is_global() || part.has_equal_maps(schema.name, &index.name, to)
    })?;
    let renewed = renaming.renewed().into_iter().map(|(table, before, after)| Renewed {
        table: kept_text(table),
        before: before.to_vec(),
        after: after.to_vec(),
    });
    let is_new = !is_shard && !renaming.has(schema.name);
    let similar = if is_new { similar(store, schema, renaming.before) } else { None };
    Ok(Renamed { renewed: renewed.collect(), similar, indexes: renaming.indexes.clone() })
}

/// Checks that this process does not use a table by its former name, or a table that refers to it by this name.
pub(super) fn refuse_used(store: &Store, table: &'static str, was: &str) -> Result<()> {
    let refers = |reference: &ReferenceSchema| reference.to.name == was;
    let tables = [store.inner.tables_in_use(), store.inner.recorded()].concat();
    let user =
        tables.iter().find(|it| it.schema.name == was || it.rows.references.iter().any(refers));
    let Some(user) = user else { return Ok(()) };
    let user = if user.rows.has_rows() { user.rows.type_name() } else { "JsonTable" };
    Err(Error::SchemaMismatch {
        table,
        difference: format!("its former table `{was}` is in use in this process by `{user}`"),
        way_out: "drop all repositories and all values of `JsonTable` with the former name before the table is opened by its new \
                  name",
    })
}

/// Checks that this process uses no table to which a table refers that is renamed without being opened. A transaction would not
/// find the rows that refer to a row.
fn refuse_referenced(
    store: &Store,
    records: &[(String, Vec<u8>)],
    table: &'static str,
    was: &str,
) -> Result<()> {
    let by = format!("{MARK}{was}.");
    let referenced = records.iter().filter_map(|(name, _)| {
        let (to, part) = name.split_once('.')?;
        part.starts_with(&by).then_some(to)
    });
    let used = referenced.filter(|to| *to != was).find(|to| store.inner.table(to).is_some());
    let Some(used) = used else { return Ok(()) };
    Err(Error::SchemaMismatch {
        table,
        difference: format!(
            "it still has its former name `{was}`, and refers to `{used}`, which is in use"
        ),
        way_out: "open its repository before those of the tables that refer to it",
    })
}

/// Returns a table that is not in use, with the same primary key and the same names of fields.
fn similar(store: &Store, schema: &TableSchema, records: &[(String, Vec<u8>)]) -> Option<String> {
    let own = TableRecord::of(schema, |_| "");
    let names = |record: &TableRecord| -> Vec<String> {
        record.fields.iter().map(|(name, _)| name.clone()).collect()
    };
    let is_similar = |record: &[u8]| {
        let record = TableRecord::read(record).ok();
        record.is_some_and(|record| {
            record.primary_key == own.primary_key && names(&record) == names(&own)
        })
    };
    let mut tables = records.iter().filter(|(name, _)| !name.contains('.'));
    let found =
        tables.find(|(name, record)| is_similar(record) && store.inner.table(name).is_none());
    found.map(|(name, _)| name.clone())
}

/// Renames a table, and the tables to which it refers, in all shards, if the store has them by former names.
///
/// # Errors
///
/// The errors of [`rename`], and of [`check_rename`](Shards::check_rename).
pub(super) fn rename_in_shards(store: &Store, shards: &Shards, rows: &TableRows) -> Result<()> {
    // In a forked process, the locks below may be held by a thread that does not exist.
    store.inner.engines.refuse_forked()?;
    let own = (rows.schema, rows.distribution);
    let referred = rows.references.iter().map(|reference| (reference.to, reference.distribution));
    for (schema, distribution) in [own].into_iter().chain(referred) {
        if shards.location_of(schema.name).is_some() {
            forget_former_maps(store, shards, schema)?;
            continue;
        }
        store.inner.refuse_nested_write()?;
        let _opening = store.inner.lock_opening();
        // Another thread may have renamed it.
        if shards.location_of(schema.name).is_some() {
            continue;
        }
        let mut records = Vec::new();
        for engine in shards.engines() {
            records.extend(engine.all_records()?);
        }
        let has = |table: &str| {
            let is_own =
                |(name, record): &(String, Vec<u8>)| name == table && renamed_to(record).is_none();
            shards.location_of(table).is_some() || records.iter().any(is_own)
        };
        if let Some(from) = schema.was.iter().find(|was| has(was)) {
            refuse_used(store, schema.name, from)?;
            if schema.name != rows.schema.name {
                refuse_referenced(store, &records, schema.name, from)?;
            }
            check_records(schema, from, &records)?;
            if schema.name == rows.schema.name {
                for engine in shards.engines() {
                    readable::check_named(store, engine, rows, from)?;
                }
            }
            shards.check_rename((from, schema.name), distribution)?;
            shards.add_renamed_maps((from, schema.name))?;
            let refuse_used = |table, was: &'static str| refuse_used(store, table, was);
            let rename =
                &mut |renaming: &mut Renaming<'_>| renaming.rename(schema, true, &refuse_used);
            for engine in shards.engines() {
                change_in(engine, schema, schema.was, rename)?;
            }
            shards.rename_location((from, schema.name))?;
            shards.forget_former_maps((from, schema.name))?;
        } else if schema.name == rows.schema.name && !has(schema.name) {
            create_in_shards(store, shards, schema, &records)?;
        }
    }
    Ok(())
}

/// Returns the former name of a global index of a table in shards, if one of them has the index by this name only.
pub(super) fn former_of_global(
    shards: &Shards,
    rows: &TableRows,
    index: &str,
) -> Result<Option<String>> {
    let (schema, global) = (rows.schema, rows.distribution.global());
    let declared = opening::declaration(rows, global, |it| shards.layout(schema, it));
    let mut former = BTreeSet::new();
    for engine in shards.engines() {
        let records = engine.all_records()?;
        let record = records.iter().find(|(name, _)| name == schema.name);
        let Some(Ok(file)) = record.map(|(_, record)| TableRecord::read(record)) else { continue };
        let renamed = file.renamed_indexes(&declared).into_iter();
        former.extend(renamed.filter(|(_, to)| *to == index).map(|(from, _)| from.name.clone()));
    }
    Ok(if former.len() == 1 { former.pop_first() } else { None })
}

/// Removes the former names of a table from the own records of the shards, which a process that ended while it renamed the table
/// has left.
fn forget_former_maps(store: &Store, shards: &Shards, schema: &TableSchema) -> Result<()> {
    if store.inner.table(schema.name).is_some() {
        return Ok(());
    }
    let mut former = schema.was.iter().filter(|was| shards.location_of(was).is_none());
    former.try_for_each(|was| shards.forget_former_maps((was, schema.name)))
}

/// Checks that a former table fits the declaration, before any shard is changed.
fn check_records(
    schema: &'static TableSchema,
    from: &str,
    records: &[(String, Vec<u8>)],
) -> Result<()> {
    for (name, record) in records {
        let (table, part) = name.split_once('.').unwrap_or((name, ""));
        if table != from {
            continue;
        }
        if let Some(version) = version_of(part) {
            schema.check_older(version)?;
        } else if part.is_empty() && renamed_to(record).is_none() {
            let file = TableRecord::decode(schema.name, record)?;
            file.compare(&TableRecord::of(schema, |_| ""), schema)?;
        }
    }
    Ok(())
}

/// Changes the catalog of one shard, if it has one of these tables. The databases of indexes are not created: the opening of the
/// table may rename an index.
fn change_in(
    engine: &Engine,
    schema: &'static TableSchema,
    tables: &[&str],
    change: &mut Rename<'_>,
) -> Result<()> {
    if !engine.all_records()?.iter().any(|(name, _)| tables.contains(&name.as_str())) {
        return Ok(());
    }
    let facts = readable::facts(schema, schema.name);
    let attempt = || engine.open_or_rename(facts, Parts::default(), false, change, &mut |_| Ok(()));
    transaction::run(attempt, |retry| engine.prepare(retry)).map(drop)
}

/// Prepares the creation of a table in shards. Its name can be the former name of a table that this process uses by its new name.
/// Logs a warning if the new table resembles another one.
fn create_in_shards(
    store: &Store,
    shards: &Shards,
    schema: &'static TableSchema,
    records: &[(String, Vec<u8>)],
) -> Result<()> {
    let mut own = records.iter().filter(|(name, _)| name == schema.name);
    if let Some((_, record)) = own.next() {
        if renamed_to(record).is_some_and(|to| store.inner.table(to).is_none()) {
            TableRecord::decode(schema.name, record)?;
        }
        for engine in shards.engines() {
            let remove = &mut |renaming: &mut Renaming<'_>| {
                renaming.set(schema.name.to_owned(), None);
                Ok(())
            };
            change_in(engine, schema, &[schema.name], remove)?;
        }
    }
    let renamed = Renamed { similar: similar(store, schema, records), ..Renamed::default() };
    renamed.warn(schema.name);
    Ok(())
}
