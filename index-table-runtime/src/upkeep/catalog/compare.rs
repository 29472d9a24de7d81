//! What opening tables with declarations from a [document](StoreSchema) would do to a store. Nothing is written.
//!
//! The parts of an opening that decide are called: [`Renaming`], [`TableRecord::compare_all`] and
//! [`readable::check`], with the records of the catalog and a reader instead of a writer.

use std::{cell::RefCell, collections::BTreeMap, ptr};

use serde::Serialize;

use super::{
    super::{readable, references},
    document::{Declaration, SchemaDistribution, SchemaTable, StoreSchema},
};
use crate::{
    engine::{Cursor as _, Engine, Query, Read as _, Records},
    model::{
        KeyRange,
        error::{Error, Result},
        lists::{Found, LISTS, choose},
        row,
        schema::{
            Comparison, IndexRecord, Parts, Renaming, Source, StateRecord, TableRecord,
            TableSchema, VersionRecord, both_exist, is_index, lacking, renamed_to, version_of,
        },
        shard::{Distribution, map_of},
    },
    placement::{
        Reader,
        shards::{FIRST, TableRecord as Location},
    },
    store::Store,
};

/// The number of unreadable rows whose keys are kept.
const KEYS: usize = 20;

/// The number of rows of a batch, which is read in one snapshot.
const BATCH: u64 = 1 << 20;

/// What opening the tables of a document would do to a store. From [`Store::compare_schema`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SchemaChanges {
    /// The declared tables, in the order of the document.
    pub tables: Vec<TableChange>,
    /// The tables of the store that the document does not name, by name.
    pub undeclared: Vec<String>,
}

/// What opening a table would do; see [`SchemaChanges`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TableChange {
    /// Its declared name.
    pub table: String,
    /// The error of the opening.
    pub refused: Option<String>,
    /// Whether the store lacks the table.
    pub created: bool,
    /// Its former name, which changes.
    pub was: Option<String>,
    /// The indexes and aggregates that are built, and whether the store has one by this name now.
    pub built: Vec<BuiltPart>,
    /// The former and the new names of indexes and aggregates.
    pub renamed: Vec<(String, String)>,
    /// The indexes and aggregates that the store keeps without maintaining them.
    pub retired: Vec<String>,
    /// The new references, which all rows must have.
    pub references: Vec<String>,
    /// The versions of the rows in the store and in the declaration, if they differ.
    pub version: Option<(u32, u32)>,
    /// The names of new fields.
    pub fields_added: Vec<String>,
    /// The names of fields that the struct lacks.
    pub fields_removed: Vec<String>,
    /// The names of fields with other types, with the type in the store and in the declaration.
    pub fields_changed: Vec<(String, String, String)>,
    /// What the store loses: the values of removed fields when their rows are written, or the change stream.
    pub lost: Vec<String>,
    /// The number of its rows.
    pub rows: u64,
    /// The bytes of the pages of its rows; 0 for a store in memory.
    pub bytes: u64,
    /// The rows that can't be read, if all rows were read.
    pub unreadable: Option<UnreadableRows>,
}

/// An index or an aggregate that is built; see [`TableChange`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BuiltPart {
    /// Its name.
    pub name: String,
    /// Whether the store has an index by this name, with another declaration or unfinished.
    pub again: bool,
}

/// Rows that can't be read; see [`TableChange`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct UnreadableRows {
    /// Their number.
    pub rows: u64,
    /// The primary keys of the first of them, each with the reason, at most 20.
    pub first: Vec<(String, String)>,
}

impl SchemaChanges {
    /// Whether a table is refused, or loses data, or has no declaration.
    #[must_use]
    pub fn has_losses(&self) -> bool {
        !self.undeclared.is_empty() || self.tables.iter().any(TableChange::has_losses)
    }
}

impl TableChange {
    /// Whether the table is refused, or loses data.
    #[must_use]
    pub fn has_losses(&self) -> bool {
        let unreadable = self.unreadable.as_ref().is_some_and(|found| found.rows > 0);
        self.refused.is_some() || !self.lost.is_empty() || unreadable
    }

    /// Whether opening the table changes nothing.
    #[must_use]
    pub fn is_same(&self) -> bool {
        let Self { table, rows, bytes, unreadable, .. } = self.clone();
        *self == Self { table, rows, bytes, unreadable, ..Self::default() }
    }

    /// Adds what opening the table does in another shard, which has the same rows if `is_copy`.
    fn join(&mut self, other: Self, is_copy: bool) {
        fn add<T: PartialEq>(own: &mut Vec<T>, other: Vec<T>) {
            for it in other {
                if !own.contains(&it) {
                    own.push(it);
                }
            }
        }
        self.refused = self.refused.take().or(other.refused);
        self.created &= other.created;
        self.was = self.was.take().or(other.was);
        self.version = self.version.or(other.version);
        add(&mut self.built, other.built);
        add(&mut self.renamed, other.renamed);
        add(&mut self.retired, other.retired);
        add(&mut self.references, other.references);
        add(&mut self.fields_added, other.fields_added);
        add(&mut self.fields_removed, other.fields_removed);
        add(&mut self.fields_changed, other.fields_changed);
        add(&mut self.lost, other.lost);
        self.rows = if is_copy { self.rows.max(other.rows) } else { self.rows + other.rows };
        self.bytes += other.bytes;
        if let Some(other) = other.unreadable {
            let own = self.unreadable.get_or_insert_default();
            if is_copy {
                if other.rows > own.rows {
                    *own = other;
                }
                return;
            }
            own.rows += other.rows;
            own.first.extend(other.first);
            own.first.truncate(KEYS);
        }
    }
}

impl Store {
    /// Returns the tables of the store as a document.
    ///
    /// # Errors
    ///
    /// The errors of [`catalog`](Store::catalog).
    #[doc(hidden)]
    pub fn recorded_schema(&self) -> Result<StoreSchema> {
        let records = self.inner.catalog()?;
        let tables = records.iter().filter(|(name, _)| !name.contains('.'));
        let tables = tables.filter_map(|(name, record)| {
            let record = TableRecord::read(record).ok()?;
            let older = parts(&records, name).filter_map(|(part, record)| {
                let version = version_of(part)?;
                let record = VersionRecord::decode("", version, record).ok()?;
                Some((version, record.fields))
            });
            let global = record.indexes.iter().filter(|index| index.is_global());
            let global = global.map(|index| index.name.clone()).collect();
            let shards = self.inner.engines.several();
            let distribution = match shards.and_then(|shards| shards.location_of(name)) {
                None | Some(Location::Whole(_) | Location::Part { .. }) => {
                    SchemaDistribution::Whole
                }
                Some(Location::Reference) => SchemaDistribution::Reference,
                Some(Location::ByKey { fields, hashed, map }) => {
                    SchemaDistribution::ByKey { fields: fields as usize, hashed, map, global }
                }
            };
            let older = older.collect();
            Some(SchemaTable::recorded(name, record, older, distribution))
        });
        Ok(StoreSchema::of_store(tables.collect()))
    }

    /// Returns the lists of the rows of a table, oldest first; none for a table without rows, and for one with damaged lists.
    ///
    /// # Errors
    ///
    /// The errors of [`catalog`](Store::catalog).
    #[doc(hidden)]
    pub fn row_lists(&self, table: &str) -> Result<Vec<index_table_rows::RowList>> {
        let records = self.inner.catalog()?;
        let copy = self.inner.engines.one().map(|engine| engine.list_copy(table)).transpose()?;
        Ok(lists(table, &records, copy.flatten().as_deref()).unwrap_or_default())
    }

    /// Returns what opening the tables of a document would do. With `all_rows`, all rows are read, as far as they can be without
    /// their types: by the names and the kinds of their fields.
    ///
    /// With shards, each available shard is compared. Shard maps, places, and duplicates for new unique indexes are not.
    ///
    /// Cost: the catalog and some rows of each table with other fields; with `all_rows`, all rows once. Each declaration stays in
    /// memory until the process ends.
    ///
    /// # Errors
    ///
    /// The errors of [`read`](Store::read). [`Error::NotOffered`]: the document has another form. What an opening refuses is in the
    /// result.
    #[doc(hidden)]
    pub fn compare_schema(&self, document: &StoreSchema, all_rows: bool) -> Result<SchemaChanges> {
        self.inner.engines.refuse_forked()?;
        if document.check_form().is_err() {
            return Err(Error::NotOffered {
                what: "a schema of another form; write it with the release of this tool",
            });
        }
        let mut changes = SchemaChanges { tables: Vec::new(), undeclared: Vec::new() };
        for table in &document.tables {
            let is_copy = matches!(table.distribution, SchemaDistribution::Reference);
            let mut change: Option<TableChange> = None;
            for engine in self.inner.engines.each() {
                let is_shard = self.inner.engines.several().is_some();
                let of_engine =
                    self.compare_table(engine, (document, table), is_shard, all_rows)?;
                match &mut change {
                    None => change = Some(of_engine),
                    Some(change) => change.join(of_engine, is_copy),
                }
            }
            changes.tables.extend(change);
        }
        let is_named = |name: &str| {
            document
                .tables
                .iter()
                .any(|it| it.table == name || it.was.iter().any(|was| was == name))
        };
        let records = self.inner.catalog()?;
        let undeclared = records.iter().map(|(name, _)| name);
        let undeclared = undeclared.filter(|name| !name.contains('.') && !is_named(name));
        changes.undeclared = undeclared.cloned().collect();
        Ok(changes)
    }

    fn compare_table(
        &self,
        engine: &Engine,
        (document, table): (&StoreSchema, &SchemaTable),
        is_shard: bool,
        all_rows: bool,
    ) -> Result<TableChange> {
        let mut change = TableChange { table: table.table.clone(), ..TableChange::default() };
        let layout = |schema: &TableSchema, index: &_| engine.layout(schema, index);
        let declaration = match table.declaration(layout) {
            Ok(declaration) => declaration,
            Err(reason) => {
                change.refused = Some(reason);
                return Ok(change);
            }
        };
        let planned = Plan { store: self, engine, document, declaration: &declaration, is_shard };
        match planned.compare(&mut change, (table, all_rows)) {
            Ok(()) => {}
            Err(
                error @ (Error::SchemaMismatch { .. }
                | Error::Corrupt { .. }
                | Error::Conversion { .. }),
            ) => change.refused = Some(error.to_string()),
            Err(error) => return Err(error),
        }
        Ok(change)
    }
}

/// The comparison of a table in one data file.
struct Plan<'p> {
    store: &'p Store,
    engine: &'p Engine,
    document: &'p StoreSchema,
    declaration: &'p Declaration,
    is_shard: bool,
}

impl Plan<'_> {
    fn compare(&self, change: &mut TableChange, (table, all): (&SchemaTable, bool)) -> Result<()> {
        let Declaration { schema, record, distribution } = self.declaration;
        let schema = *schema;
        let before = self.engine.all_records()?;
        let former = |was: &&&str| {
            before.iter().any(|(name, record)| name == **was && renamed_to(record).is_none())
        };
        let is_own = |(name, record): &(String, Vec<u8>)| {
            name == schema.name && renamed_to(record).is_none()
        };
        let stored = if before.iter().any(is_own) {
            Some(schema.name)
        } else {
            schema.was.iter().find(former).copied()
        };
        let read = |name| self.read_rows(&before, name, all, change);
        let refused = stored.map(read).transpose();
        let global: &[usize] = if self.is_shard { distribution.global() } else { &[] };
        let declared = record.clone().grown(schema, global);
        let mut renaming = Renaming::of(&before);
        renaming.rename(schema, self.is_shard, &|_, _| Ok(()))?;
        change.was = renaming.tables.first().map(|(from, _)| (*from).to_owned());
        if let Some(own) = renaming.record(schema.name).filter(|own| renamed_to(own).is_some()) {
            return TableRecord::decode(schema.name, own).map(drop);
        }
        for (_, was) in &renaming.unused {
            if self.count(schema, was)?.is_some_and(|(rows, _)| rows > 0) {
                return Err(both_exist(schema.name, was));
            }
        }
        if let Some(shards) = self.store.inner.engines.several() {
            shards.compare_distribution(stored.unwrap_or(schema.name), *distribution)?;
        }
        refused?;
        self.compare_references(&declared, &renaming)?;
        renaming.rename_indexes(schema.name, &declared, self.is_shard, &|index, _| {
            !index.is_global()
        })?;
        change.renamed.clone_from(&renaming.indexes);
        let Some(own) = renaming.record(schema.name) else {
            change.created = true;
            return Ok(());
        };
        let file = TableRecord::decode(schema.name, own)?;
        let is_from_one_file = self.is_from_one_file(stored.unwrap_or(schema.name))?;
        let file = if is_from_one_file { file.grown(schema, global) } else { file };
        let records: Records =
            renaming.records().map(|(name, record)| (name.to_owned(), record.to_vec())).collect();
        // The copy has the name that the table has now.
        let copy = self.engine.list_copy(stored.unwrap_or(schema.name)).unwrap_or_default();
        lists(schema.name, &records, copy.as_deref())?;
        let declared = TableRecord { changes: file.changes, ..declared };
        let older = parts(&records, schema.name)
            .filter_map(|(part, record)| Some((version_of(part)?, record.to_vec())))
            .collect::<Vec<_>>();
        let (comparison, _) = file.compare_all(&declared, schema, &older)?;
        let mut built = match comparison {
            Comparison::Same => Vec::new(),
            Comparison::Build(positions) => positions,
        };
        for (part, state) in parts(&records, schema.name).filter(|(part, _)| is_index(part)) {
            let Some(state) = StateRecord::decode(state) else {
                return Err(StateRecord::unreadable(schema.name, part));
            };
            let position = schema.position_of(part);
            if let Some(position) = position
                && matches!(
                    state,
                    StateRecord::Building(_) | StateRecord::Emptied(_) | StateRecord::Disabled
                )
                && !built.contains(&position)
            {
                built.push(position);
            }
        }
        built.sort_unstable();
        change.note(&file, &declared, &built);
        change.note_fields(&file, &declared, table);
        Ok(())
    }

    /// Whether the table is from the time before the store has grown, in the first of its shards, and an opening gives this shard
    /// all keys: the indexes of one data file then have all entries of its global indexes.
    fn is_from_one_file(&self, table: &str) -> Result<bool> {
        let Declaration { schema, distribution: Distribution::ByKey(key), .. } = self.declaration
        else {
            return Ok(false);
        };
        let Some(shards) = self.store.inner.engines.several() else { return Ok(false) };
        let mut engines = shards.engines_by_number();
        let is_own = engines
            .any(|(number, engine)| shards.is_first_file(number) && ptr::eq(engine, self.engine));
        let has_all = |map: &str| {
            shards.boundaries(map).is_none_or(|boundaries| boundaries.shards() == [FIRST])
        };
        let mut global = key.global.iter().filter_map(|index| schema.indexes.get(*index));
        Ok(is_own
            && shards.is_from_one_file(table)?
            && has_all(key.map)
            && global.all(|index| has_all(&map_of(schema.name, index.name))))
    }

    /// Checks the primary keys of the tables to which the declaration refers.
    fn compare_references(&self, declared: &TableRecord, renaming: &Renaming<'_>) -> Result<()> {
        for (name, to) in declared.references() {
            let Some(other) = self.document.tables.iter().find(|it| it.table == to) else {
                continue;
            };
            let layout = |schema: &TableSchema, index: &_| self.engine.layout(schema, index);
            let Ok(other) = other.declaration(layout) else { continue };
            let Some(record) = renaming.record(&to).filter(|own| renamed_to(own).is_none()) else {
                continue;
            };
            references::check_primary_key(
                (self.declaration.schema.name, &name),
                other.schema,
                record,
            )?;
        }
        Ok(())
    }

    /// Reads rows of the table, under its name or a former one, as an opening does, or all of them.
    fn read_rows(
        &self,
        records: &Records,
        name: &'static str,
        all: bool,
        change: &mut TableChange,
    ) -> Result<()> {
        let schema = self.declaration.schema;
        let facts = readable::facts(schema, name);
        if let Some((rows, bytes)) = self.count(schema, name)? {
            (change.rows, change.bytes) = (rows, bytes);
        }
        let is_declared = readable::is_declared(schema, name, records);
        if (is_declared && !all) || change.rows == 0 {
            return Ok(());
        }
        let copy = self.engine.list_copy(name).unwrap_or_default();
        let lists = lists(name, records, copy.as_deref())?;
        // Each list once: the reason why its rows can't be read.
        let known = RefCell::new(BTreeMap::new());
        let damaged = || Some("damaged".to_owned());
        let reason = |list: (u32, u32)| -> Option<String> {
            let new = || {
                let (version, number) = list;
                let fields = if version == schema.version {
                    schema.fields
                } else {
                    schema.older(version)?.schema.fields
                };
                lists.get(number as usize).map_or_else(damaged, |list| lacking(fields, list))
            };
            known.borrow_mut().entry(list).or_insert_with(new).clone()
        };
        let is_known = |(_, number): &(u32, u32)| lists.get(*number as usize).is_some();
        let list = |row: &[u8]| row::list(row).ok().filter(is_known);
        let read = |primary_key: &[u8], row: &[u8]| match list(row).map(reason) {
            None => Ok(false),
            Some(None) => Ok(true),
            Some(Some(reason)) => Err(readable::unreadable_row(schema, primary_key, &reason)),
        };
        let Some(tables) = self.engine.find_table(facts, Parts::default())? else { return Ok(()) };
        if all {
            let mut unreadable = UnreadableRows::default();
            let mut from = None;
            loop {
                let txn = self.engine.read()?;
                let Some(reader) = txn.reader(&tables) else { break };
                let query = Query {
                    position: from.take(),
                    limit: Some(BATCH),
                    ..Query::new(Source::Facts, KeyRange::ALL)
                };
                let (mut rows, mut count) = (Reader::One(reader).cursor(query)?, 0);
                while rows.advance()? {
                    let row = rows.entry();
                    count += 1;
                    if let Some(reason) = list(row.data).map_or_else(damaged, reason) {
                        unreadable.rows += 1;
                        if unreadable.first.len() < KEYS {
                            let key = schema.show_primary_key(row.primary_key);
                            unreadable.first.push((key, reason));
                        }
                    }
                    if count == BATCH {
                        from = Some(row.position());
                    }
                }
                if from.is_none() {
                    break;
                }
            }
            change.unreadable = Some(unreadable);
        }
        if is_declared {
            return Ok(());
        }
        let txn = self.engine.read()?;
        let Some(reader) = txn.reader(&tables) else { return Ok(()) };
        readable::check(&read, Reader::One(reader))
    }

    /// Returns the number of rows and their bytes; `None` if there is no such table.
    fn count(
        &self,
        schema: &'static TableSchema,
        name: &'static str,
    ) -> Result<Option<(u64, u64)>> {
        let facts = readable::facts(schema, name);
        let Some(tables) = self.engine.find_table(facts, Parts::default())? else {
            return Ok(None);
        };
        let txn = self.engine.read()?;
        let Some(reader) = txn.reader(&tables) else { return Ok(None) };
        let reader = Reader::One(reader);
        let rows = reader.count(&Query::new(Source::Facts, KeyRange::ALL))?.found;
        Ok(Some((rows, reader.bytes_of(Source::Facts)?)))
    }
}

impl TableChange {
    /// Notes the indexes, with the positions of those that are built.
    fn note(&mut self, file: &TableRecord, declared: &TableRecord, built: &[usize]) {
        for index in built.iter().filter_map(|at| declared.indexes.get(*at)) {
            if index.is_reference() {
                self.references.push(index.described());
            } else if index.is_index() || index.is_aggregate() {
                let again = file.indexes.iter().any(|own| own.name == index.name);
                self.built.push(BuiltPart { name: index.name.clone(), again });
            }
        }
        for retired in file.retired(declared) {
            let IndexRecord { name, .. } = &retired.index;
            if retired.index.is_index() || retired.index.is_aggregate() {
                self.retired.push(name.clone());
            } else {
                self.lost.push(retired.index.described());
            }
        }
    }

    fn note_fields(&mut self, file: &TableRecord, declared: &TableRecord, table: &SchemaTable) {
        let find = |record: &TableRecord, name: &str| {
            record.fields.iter().find(|(own, _)| own == name).map(|(_, ty)| ty.clone())
        };
        let is_alias = |name: &str| {
            table.rows.fields.iter().any(|field| field.aliases.iter().any(|alias| alias == name))
        };
        for (name, ty) in &declared.fields {
            match find(file, name) {
                None => self.fields_added.push(name.clone()),
                Some(own) if own != *ty => {
                    self.fields_changed.push((name.clone(), own, ty.clone()));
                }
                Some(_) => {}
            }
        }
        let removed = file.fields.iter().map(|(name, _)| name);
        let removed = removed.filter(|name| find(declared, name).is_none());
        self.fields_removed = removed.cloned().collect();
        if file.version != declared.version {
            self.version = Some((file.version, declared.version));
        } else if !table.keeps_unknown && !table.rows.fields.iter().any(|field| field.flatten) {
            let lost = self.fields_removed.iter().filter(|name| !is_alias(name));
            self.lost.extend(lost.map(|name| format!("field `{name}`")));
        }
    }
}

/// Returns the records of the parts of a table, by their names without that of the table.
fn parts<'r>(
    records: &'r Records,
    table: &'r str,
) -> impl Iterator<Item = (&'r str, &'r [u8])> + 'r {
    records.iter().filter_map(move |(name, record)| {
        Some((name.strip_prefix(table)?.strip_prefix('.')?, record.as_slice()))
    })
}

/// Returns the lists of the rows of a table.
///
/// # Errors
///
/// [`Error::Corrupt`] if they can't be read.
fn lists(
    table: &str,
    records: &Records,
    second: Option<&[u8]>,
) -> Result<Vec<index_table_rows::RowList>> {
    let first = parts(records, table).find(|(part, _)| *part == LISTS).map(|(_, record)| record);
    let found = choose(first, second);
    let found = found.map_err(|unusable| unusable.error(crate::model::key::kept_text(table)))?;
    Ok(found.map(|Found { catalog, .. }| catalog.row_lists()).unwrap_or_default())
}
