//! An engine in memory, with a `BTreeMap` for each database. For tests of this crate and of its users.
//!
//! A transaction works on a copy of the list of databases. The copies share a map until it is changed. A commit
//! replaces the list, so a reader keeps its snapshot.

mod read;

pub(crate) use read::{Entries, LentEntries, Reader};

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    engine::{CommitFailure, Links, Read, Records, Rename, Retry, Space, Stamp, Write},
    locks::{Mutex, MutexGuard, RwLock, next_store, place, rank},
    model::{
        error::{Error, Result},
        key::MAX_KEY_LEN,
        lists::{LISTS, Registry},
        maintain::{Change, Sink},
        reference::Referrer,
        schema::{
            IndexSchema, Parts, QUEUE, Renaming, Source, TableSchema, both_exist, needs_catalog,
        },
        stream::STREAM,
    },
};

/// A database: (index key, primary key) → length of the index key, data.
type Map = BTreeMap<Vec<u8>, (usize, Vec<u8>)>;

/// The databases by name; the catalog's is [`CATALOG`], the sequences' is [`SEQUENCES`].
type Databases = BTreeMap<String, Arc<Map>>;

/// The layout of all indexes.
pub(crate) const LAYOUT: &str = "memory";

const CATALOG: &str = ".catalog.";
const SEQUENCE: &str = ".sequence.";

/// A store in memory.
#[derive(Debug)]
pub(crate) struct Engine {
    committed: Mutex<Committed>,
    /// The lock of the write transaction.
    writing: Mutex<(), rank::Turn>,
    /// The lists of the store's tables.
    lists: RwLock<Option<Arc<Registry>>>,
    /// The generation of the lists that the catalog has.
    kept: AtomicU64,
}

/// The state of the last commit.
#[derive(Debug, Clone, Default)]
struct Committed {
    databases: Arc<Databases>,
    /// The number of commits.
    number: u64,
}

impl Default for Engine {
    fn default() -> Self {
        Self {
            committed: Mutex::default(),
            writing: Mutex::numbered(place(next_store(), 0), ()),
            lists: RwLock::default(),
            kept: AtomicU64::new(0),
        }
    }
}

impl Engine {
    /// Sets the place of the turn to write among the turns of all shards.
    pub(crate) fn set_place(&self, place: u64) {
        self.writing.set_number(place);
    }

    /// Uses the lists of a store.
    pub(crate) fn use_lists(&self, lists: &Arc<Registry>) {
        *self.lists.write() = Some(Arc::clone(lists));
        self.kept.store(u64::MAX, Ordering::Release);
    }

    /// Writes the records of lists that the catalog lacks. With `all`, it may have got another table.
    fn keep_lists(&self, databases: &mut Arc<Databases>, all: bool) {
        let Some(lists) = self.lists.read().clone() else { return };
        let generation = lists.generation();
        if !all && self.kept.load(Ordering::Acquire) == generation {
            return;
        }
        for (table, lists) in lists.all() {
            let name = format!("{CATALOG}{table}");
            if databases.get(&name).is_some_and(|catalog| catalog.contains_key(&[][..]))
                && let Ok(Some((_, record))) = lists.to_keep(None)
            {
                let catalog = Arc::make_mut(databases).entry(name).or_default();
                Arc::make_mut(catalog).insert(LISTS.as_bytes().to_vec(), (0, record));
            }
        }
        self.kept.store(generation, Ordering::Release);
    }

    fn committed(&self) -> MutexGuard<'_, Committed> {
        self.committed.lock()
    }

    #[expect(clippy::unnecessary_wraps, reason = "as with other engines")]
    pub(crate) fn read(&self) -> Result<Txn<'_>> {
        let Committed { databases, number } = self.committed().clone();
        Ok(Txn { databases, number, target: Target::Nothing })
    }

    #[expect(clippy::unnecessary_wraps, reason = "as with other engines")]
    pub(crate) fn write(&self) -> Result<Txn<'_>> {
        Ok(self.begin())
    }

    /// Returns false: this engine has no reason to run a closure again.
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "as with other engines")]
    pub(crate) const fn prepare(&self, _: Retry) -> Result<bool> {
        Ok(false)
    }

    #[expect(clippy::unused_self, reason = "as with other engines")]
    pub(crate) const fn has_catalog(&self) -> bool {
        true
    }

    fn begin(&self) -> Txn<'_> {
        let guard = self.writing.lock();
        let Committed { databases, number } = self.committed().clone();
        Txn { databases, number: number + 1, target: Target::Store(self, guard) }
    }

    #[expect(clippy::unnecessary_wraps, reason = "as with other engines")]
    pub(crate) fn all_records(&self) -> Result<Records> {
        Ok(records(&self.committed().databases))
    }

    #[expect(clippy::unnecessary_wraps, reason = "as with other engines")]
    pub(crate) fn drop_indexes(
        &self,
        _: &BTreeSet<String>,
        choose: &mut dyn FnMut(&Records) -> Vec<String>,
    ) -> Result<Vec<String>, (Error, Option<Retry>)> {
        let mut txn = self.begin();
        let dropped = choose(&records(&txn.databases));
        let databases = Arc::make_mut(&mut txn.databases);
        for name in &dropped {
            databases.remove(name);
            if let Some((table, index)) = name.split_once('.')
                && let Some(catalog) = databases.get_mut(&format!("{CATALOG}{table}"))
            {
                Arc::make_mut(catalog).remove(index.as_bytes());
            }
        }
        txn.end(|| ());
        Ok(dropped)
    }

    pub(crate) fn open_table(
        &self,
        schema: &'static TableSchema,
        parts: Parts,
        rename: &mut Rename<'_>,
        prepare: impl FnOnce(Writer<'_>) -> Result<()>,
    ) -> Result<Tables, (Error, Option<Retry>)> {
        let tables = Tables::new(schema, parts);
        let mut txn = self.begin();
        let renamed = change_names(Arc::make_mut(&mut txn.databases), (schema, parts), rename);
        renamed.map_err(|error| (error, None))?;
        let catalog = txn.databases.get(&format!("{CATALOG}{}", schema.name));
        for (part, (_, record)) in catalog.into_iter().flat_map(|records| records.iter()) {
            let part = String::from_utf8_lossy(part);
            let by = Referrer::decode(schema.name, &part, record).map_err(|error| (error, None))?;
            if let Some(by) = by {
                tables.referrers.add(by, by.database());
            }
        }
        if let Some(writer) = txn.writer(&tables) {
            prepare(writer).map_err(|error| (error, None))?;
        }
        self.keep_lists(&mut txn.databases, true);
        txn.end(|| ());
        Ok(tables)
    }
}

/// Renames tables before a table is opened.
fn change_names(
    databases: &mut Databases,
    (schema, parts): (&'static TableSchema, Parts),
    rename: &mut Rename<'_>,
) -> Result<()> {
    let records = records(databases);
    let mut renaming = Renaming::of(&records);
    if !needs_catalog(schema, parts, |table| Ok(renaming.record(table)))? {
        return Ok(());
    }
    rename(&mut renaming)?;
    for (table, was) in &renaming.unused {
        if databases.get(*was).is_some_and(|facts| !facts.is_empty()) {
            return Err(both_exist(table, was));
        }
    }
    for (name, record) in renaming.changes() {
        let (table, part) = name.split_once('.').unwrap_or((name, ""));
        let catalog = Arc::make_mut(databases.entry(format!("{CATALOG}{table}")).or_default());
        match record {
            Some(record) => drop(catalog.insert(part.into(), (0, record.to_vec()))),
            None => drop(catalog.remove(part.as_bytes())),
        }
    }
    let sequences =
        |(from, to): &(&str, &str)| (format!("{SEQUENCE}{from}"), format!("{SEQUENCE}{to}"));
    let sequences: Vec<_> = renaming.tables.iter().map(sequences).collect();
    for (from, to) in renaming.databases.iter().chain(&sequences) {
        if let Some(database) = databases.remove(from) {
            databases.insert(to.clone(), database);
        }
    }
    Ok(())
}

/// Returns the contents of the catalog.
fn records(databases: &Databases) -> Records {
    let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    let catalogs = databases
        .iter()
        .filter_map(|(name, records)| Some((name.strip_prefix(CATALOG)?, records.as_ref())));
    let records = catalogs.flat_map(|(table, records)| {
        records.iter().map(move |(part, (_, record))| {
            let dot = if part.is_empty() { "" } else { "." };
            (format!("{table}{dot}{}", text(part)), record.clone())
        })
    });
    records.collect()
}

/// The names of one table's databases.
#[derive(Debug)]
pub(crate) struct Tables {
    schema: &'static TableSchema,
    parts: Parts,
    /// The references to the table, with the names of their indexes.
    referrers: Links<String>,
    facts: String,
    indexes: Vec<String>,
}

impl Tables {
    pub(crate) fn new(schema: &'static TableSchema, parts: Parts) -> Self {
        let indexes = schema.indexes.iter();
        Self {
            schema,
            parts,
            referrers: Links::default(),
            facts: schema.name.to_owned(),
            indexes: indexes.map(|index| format!("{}.{}", schema.name, index.name)).collect(),
        }
    }

    /// Adds a reference of the table `of` to this table.
    pub(crate) fn link(&self, by: Referrer, of: &Self, source: Source) {
        self.referrers.add(by, of.name(source).to_owned());
    }

    fn name(&self, source: Source) -> &str {
        match source {
            Source::Facts => &self.facts,
            Source::Index(position) => self.indexes.get(position).map_or("", String::as_str),
        }
    }

    /// Returns the name of the database of a space of small records; `None` if the table has no such space.
    fn space(&self, space: Space) -> Option<String> {
        let table = &self.facts;
        match space {
            Space::Catalog => Some(format!("{CATALOG}{table}")),
            Space::Sequence => Some(format!("{SEQUENCE}{table}")),
            Space::Queue => self.schema.has_eventual().then(|| format!("{QUEUE}{table}")),
            Space::Aggregate(aggregate) => {
                let aggregate = self.parts.aggregates.get(aggregate)?;
                Some(format!("{table}.{}", aggregate.name))
            }
            Space::ListCopies => None,
            Space::Changes => self.parts.has_changes.then(|| format!("{table}.{STREAM}")),
            Space::Referred(at) => Some(self.parts.references.get(at)?.to.name.to_owned()),
            Space::Referring(at) => Some(self.referrers.get(at)?.database.clone()),
            Space::CatalogOf(table) => Some(format!("{CATALOG}{table}")),
        }
    }
}

/// A transaction.
#[derive(Debug)]
pub(crate) struct Txn<'s> {
    databases: Arc<Databases>,
    number: u64,
    target: Target<'s>,
}

/// The destination to which a commit stores the databases.
#[derive(Debug)]
enum Target<'s> {
    /// The transaction only reads.
    Nothing,
    Store(&'s Engine, MutexGuard<'s, ()>),
    /// The outer transaction.
    Outer(&'s mut Arc<Databases>),
}

impl Txn<'_> {
    pub(crate) fn reader<'t>(&'t self, tables: &'t Tables) -> Reader<'t> {
        Reader { databases: &self.databases, tables }
    }

    pub(crate) fn writer<'t>(&'t mut self, tables: &'t Tables) -> Option<Writer<'t>> {
        self.writes()?;
        Some(Writer { databases: Arc::make_mut(&mut self.databases), tables })
    }

    /// Begins a nested transaction; `None` for a read transaction.
    pub(crate) fn nested(&mut self) -> Option<Txn<'_>> {
        self.writes()?;
        let (databases, number) = (Arc::clone(&self.databases), self.number);
        Some(Txn { databases, number, target: Target::Outer(&mut self.databases) })
    }

    const fn writes(&self) -> Option<()> {
        if matches!(self.target, Target::Nothing) { None } else { Some(()) }
    }

    /// Returns the stamp of the snapshot; for a write transaction, the stamp of its future commit.
    pub(crate) const fn stamp(&self) -> Stamp {
        Stamp::new(self.number)
    }

    /// Commits, and calls `committed` before another transaction can begin to write.
    #[expect(clippy::unnecessary_wraps, reason = "as with other engines")]
    pub(crate) fn commit(self, committed: impl FnOnce()) -> Result<(), CommitFailure> {
        self.end(committed);
        Ok(())
    }

    /// Commits in several stores, and calls `committed` before another transaction can begin to write in any of them.
    pub(crate) fn commit_all(txns: Vec<Self>, committed: &mut dyn FnMut()) {
        let mut guards = Vec::with_capacity(txns.len());
        for Self { mut databases, number, target } in txns {
            if let Target::Store(engine, guard) = target {
                engine.keep_lists(&mut databases, false);
                *engine.committed() = Committed { databases, number };
                guards.push(guard);
            }
        }
        committed();
    }

    fn end(self, committed: impl FnOnce()) {
        let Self { mut databases, number, target } = self;
        match target {
            Target::Nothing => {}
            Target::Store(engine, _guard) => {
                engine.keep_lists(&mut databases, false);
                *engine.committed() = Committed { databases, number };
                committed();
            }
            Target::Outer(outer) => *outer = databases,
        }
    }
}

/// A writer of one table in one transaction.
#[derive(Debug)]
pub(crate) struct Writer<'t> {
    databases: &'t mut Databases,
    tables: &'t Tables,
}

impl Writer<'_> {
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader { databases: self.databases, tables: self.tables }
    }

    fn map(&mut self, source: Source) -> &mut Map {
        self.named(self.tables.name(source))
    }

    fn named(&mut self, database: &str) -> &mut Map {
        Arc::make_mut(self.databases.entry(database.to_owned()).or_default())
    }

    fn is_unique(&self, index: usize) -> bool {
        self.tables.schema.indexes.get(index).is_some_and(IndexSchema::has_one_entry_per_key)
    }
}

impl Sink for Writer<'_> {
    fn change(&mut self, change: Change<'_>) -> Result<()> {
        match change {
            Change::PutFact { primary_key, row } => {
                self.map(Source::Facts).insert(primary_key.to_vec(), (0, row.to_vec()));
            }
            Change::DeleteFact { primary_key } => {
                self.map(Source::Facts).remove(primary_key);
            }
            Change::PutEntry { index, key, primary_key, data } => {
                if self.is_unique(index)
                    && let Some(holder) = self.reader().unique(index, key)?
                {
                    let bytes = [key, &holder.primary_key.to_vec()].concat();
                    self.map(Source::Index(index)).remove(&bytes);
                }
                let entry = (key.len(), data.to_vec());
                self.map(Source::Index(index)).insert([key, primary_key].concat(), entry);
            }
            Change::DeleteEntry { index, key, primary_key } => {
                self.map(Source::Index(index)).remove(&[key, primary_key].concat());
            }
        }
        Ok(())
    }
}

impl Write for Writer<'_> {
    fn insert_fact(&mut self, primary_key: &[u8], row: &[u8]) -> Result<bool> {
        if self.reader().fact(primary_key)?.is_some() {
            return Ok(false);
        }
        self.change(Change::PutFact { primary_key, row })?;
        Ok(true)
    }

    fn insert_entry(
        &mut self,
        index: usize,
        key: &[u8],
        primary_key: &[u8],
        data: &[u8],
    ) -> Result<bool> {
        if self.reader().unique(index, key)?.is_some() {
            return Ok(false);
        }
        self.change(Change::PutEntry { index, key, primary_key, data })?;
        Ok(true)
    }

    fn put_shared(
        &mut self,
        index: usize,
        key: &[u8],
        primary_key: &[u8],
        data: &[u8],
    ) -> Result<()> {
        // All entries of a key except the first are stored under key ‖ primary key, as on disk.
        let first = self.reader().unique(index, key)?.map(|first| first.primary_key.to_vec());
        if let Some(first) = first.filter(|first| first != primary_key) {
            let len = key.len() + first.as_slice().max(primary_key).len();
            if len > MAX_KEY_LEN {
                let (source, row) = (Source::Index(index), Some(primary_key));
                return Err(self.tables.schema.too_long(source, key, row, len));
            }
        }
        let entry = (key.len(), data.to_vec());
        self.map(Source::Index(index)).insert([key, primary_key].concat(), entry);
        Ok(())
    }

    fn remove_shared(&mut self, index: usize, key: &[u8], primary_key: &[u8]) -> Result<()> {
        self.map(Source::Index(index)).remove(&[key, primary_key].concat());
        Ok(())
    }

    fn clear(&mut self, index: usize) -> Result<()> {
        self.map(Source::Index(index)).clear();
        Ok(())
    }

    fn put(&mut self, space: Space, key: &[u8], record: &[u8]) -> Result<()> {
        if let Some(name) = self.tables.space(space) {
            self.named(&name).insert(key.to_vec(), (0, record.to_vec()));
        }
        Ok(())
    }

    fn remove(&mut self, space: Space, key: &[u8]) -> Result<()> {
        if let Some(name) = self.tables.space(space) {
            self.named(&name).remove(key);
        }
        Ok(())
    }

    fn clear_space(&mut self, space: Space) -> Result<()> {
        if let Some(name) = self.tables.space(space) {
            self.named(&name).clear();
        }
        Ok(())
    }

    fn layout(&self, _: &IndexSchema) -> &'static str {
        LAYOUT
    }
}
