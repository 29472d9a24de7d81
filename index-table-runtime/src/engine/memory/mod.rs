//! An engine in memory: a `BTreeMap` for each database. For tests, of this crate and of its
//! users; nothing is written to disk.
//!
//! A transaction works on a copy of the list of databases, which share their maps until one is
//! changed; a commit puts the list in place of the old one. So a reader keeps its snapshot.

use std::{
    collections::{BTreeMap, btree_map},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    engine::{Count, Piece, Query, Read, Records, Step, Write},
    model::{
        KeyRange,
        entry::RawEntry,
        error::Result,
        key::successor,
        maintain::{Change, Sink},
        schema::{IndexSchema, Source, TableSchema},
    },
};

/// (Index key, primary key) → the length of the index key, and the data.
type Map = BTreeMap<Vec<u8>, (usize, Vec<u8>)>;

/// The databases by name; the catalog's is [`CATALOG`], the sequences' is [`SEQUENCES`].
type Databases = BTreeMap<String, Arc<Map>>;

const CATALOG: &str = ".catalog";
const SEQUENCES: &str = ".sequences";
/// In front of the name of a table.
const QUEUE: &str = ".queue.";

/// A store in memory.
#[derive(Debug, Default)]
pub(crate) struct Engine {
    committed: Mutex<Committed>,
    /// Held by the one write transaction.
    writing: Mutex<()>,
}

/// What the last commit has left.
#[derive(Debug, Clone, Default)]
struct Committed {
    databases: Arc<Databases>,
    /// How many commits there were.
    number: u64,
}

impl Engine {
    fn committed(&self) -> MutexGuard<'_, Committed> {
        self.committed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn read(&self) -> Txn<'_> {
        let Committed { databases, number } = self.committed().clone();
        Txn { databases, number, target: Target::Nothing }
    }

    pub(crate) fn write(&self) -> Txn<'_> {
        let guard = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let Committed { databases, number } = self.committed().clone();
        Txn { databases, number: number + 1, target: Target::Store(self, guard) }
    }

    pub(crate) fn catalog(&self) -> Records {
        records(&self.committed().databases)
    }

    pub(crate) fn drop_indexes(
        &self,
        mut choose: impl FnMut(&Records) -> Vec<String>,
    ) -> Vec<String> {
        let mut txn = self.write();
        let dropped = choose(&records(&txn.databases));
        let databases = Arc::make_mut(&mut txn.databases);
        for name in &dropped {
            databases.remove(name);
            if let Some(catalog) = databases.get_mut(CATALOG) {
                Arc::make_mut(catalog).remove(name.as_bytes());
            }
        }
        txn.commit(|| ());
        dropped
    }

    pub(crate) fn open_table(
        &self,
        schema: &'static TableSchema,
        prepare: impl FnOnce(Writer<'_>) -> Result<()>,
    ) -> Result<Tables> {
        let tables = Tables {
            schema,
            facts: schema.name.to_owned(),
            queue: format!("{QUEUE}{}", schema.name),
            indexes: schema
                .indexes
                .iter()
                .map(|index| format!("{}.{}", schema.name, index.name))
                .collect(),
        };
        let mut txn = self.write();
        if let Some(writer) = txn.writer(&tables) {
            prepare(writer)?;
        }
        txn.commit(|| ());
        Ok(tables)
    }
}

/// All that the catalog has.
fn records(databases: &Databases) -> Records {
    let records = databases.get(CATALOG).into_iter().flat_map(|catalog| catalog.iter());
    let text = |name: &Vec<u8>| String::from_utf8_lossy(name).into_owned();
    records.map(|(name, (_, record))| (text(name), record.clone())).collect()
}

/// The names of one table's databases.
#[derive(Debug)]
pub(crate) struct Tables {
    schema: &'static TableSchema,
    facts: String,
    queue: String,
    indexes: Vec<String>,
}

impl Tables {
    fn name(&self, source: Source) -> &str {
        match source {
            Source::Facts => &self.facts,
            Source::Index(position) => self.indexes.get(position).map_or("", String::as_str),
        }
    }

    /// What the catalog has the table, or a part of it, under.
    fn record_name(&self, part: &str) -> Vec<u8> {
        let table = &self.facts;
        if part.is_empty() { table.clone() } else { format!("{table}.{part}") }.into_bytes()
    }
}

/// A transaction.
#[derive(Debug)]
pub(crate) struct Txn<'s> {
    databases: Arc<Databases>,
    number: u64,
    target: Target<'s>,
}

/// Where a commit puts the databases.
#[derive(Debug)]
enum Target<'s> {
    /// It reads.
    Nothing,
    Store(&'s Engine, MutexGuard<'s, ()>),
    /// The transaction that it is inside of.
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

    /// Begins a transaction inside of this one; `None`: this one doesn't write.
    pub(crate) fn nested(&mut self) -> Option<Txn<'_>> {
        self.writes()?;
        let (databases, number) = (Arc::clone(&self.databases), self.number);
        Some(Txn { databases, number, target: Target::Outer(&mut self.databases) })
    }

    const fn writes(&self) -> Option<()> {
        if matches!(self.target, Target::Nothing) { None } else { Some(()) }
    }

    /// The number of the commit whose snapshot it is, or, if it writes, that its own has.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Commits, and calls `committed` before another one can begin to write.
    pub(crate) fn commit(self, committed: impl FnOnce()) {
        let Self { databases, number, target } = self;
        match target {
            Target::Nothing => {}
            Target::Store(engine, _guard) => {
                *engine.committed() = Committed { databases, number };
                committed();
            }
            Target::Outer(outer) => *outer = databases,
        }
    }
}

/// Reads one table in one transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'t> {
    databases: &'t Databases,
    tables: &'t Tables,
}

impl<'t> Reader<'t> {
    fn queue(self) -> Option<&'t Map> {
        self.databases.get(&self.tables.queue).map(AsRef::as_ref)
    }

    fn map(self, source: Source) -> Option<&'t Map> {
        self.databases.get(self.tables.name(source)).map(AsRef::as_ref)
    }
}

impl<'t> Read<'t> for Reader<'t> {
    type Entries = Entries<'t>;
    type Pieces = Pieces<'t>;

    fn fact(self, primary_key: &[u8]) -> Result<Option<&'t [u8]>> {
        let row = self.map(Source::Facts).and_then(|facts| facts.get(primary_key));
        Ok(row.map(|(_, row)| row.as_slice()))
    }

    fn entry(self, index: usize, key: &[u8], primary_key: &[u8]) -> Result<Option<&'t [u8]>> {
        let Some(map) = self.map(Source::Index(index)) else { return Ok(None) };
        let found = map.get(&[key, primary_key].concat());
        Ok(found.filter(|(len, _)| *len == key.len()).map(|(_, data)| data.as_slice()))
    }

    fn unique(self, index: usize, key: &[u8]) -> Result<Option<RawEntry<'t>>> {
        let Some(map) = self.map(Source::Index(index)) else { return Ok(None) };
        let next = map.range::<[u8], _>((Bound::Included(key), Bound::Unbounded)).next();
        Ok(next.map(entry).filter(|entry| entry.key == key))
    }

    fn scan(self, query: Query) -> Result<Entries<'t>> {
        let Query { source, bounds, reverse, position, inclusive, .. } = query;
        let unique =
            self.tables.schema.index(source).is_some_and(IndexSchema::has_one_entry_per_key);
        // The place is before all that it comes before, forward, and behind it in reverse. In a
        // unique index it is the key's, whichever row has that.
        let place = position.map(|position| {
            let bytes = if unique { position.key } else { position.bytes() };
            if inclusive == reverse { behind(bytes, unique) } else { Bound::Included(bytes) }
        });
        let range = self.map(source).map(|map| {
            // A range whose ends are the wrong way round would panic, so only one is given.
            if reverse {
                let end = place.or_else(|| bounds.end().map(Bound::Included));
                let to = match &end {
                    Some(Bound::Included(end)) => Bound::Excluded(end.as_slice()),
                    _ => Bound::Unbounded,
                };
                map.range::<[u8], _>((Bound::Unbounded, to))
            } else {
                let from = match &place {
                    Some(Bound::Included(from)) => Bound::Included(from.as_slice()),
                    Some(_) => return btree_map::Range::default(),
                    None => Bound::Included(bounds.start()),
                };
                map.range::<[u8], _>((from, Bound::Unbounded))
            }
        });
        Ok(Entries { range: range.unwrap_or_default(), bounds, reverse })
    }

    fn count(self, query: Query) -> Result<Count> {
        let limit = usize::try_from(query.limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let found =
            self.scan(query)?.take(limit).try_fold(0, |count, entry| entry.map(|_| count + 1))?;
        Ok(Count { found, seeks: 1, steps: found })
    }

    fn pieces(self, index: usize, behind: Option<&[u8]>) -> Result<Pieces<'t>> {
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let map = self.map(Source::Index(index));
        let range = map.map(|map| map.range::<[u8], _>((from, Bound::Unbounded)));
        Ok(Pieces(range.unwrap_or_default()))
    }

    fn stored(self, source: Source) -> Result<u64> {
        Ok(self.map(source).map_or(0, |map| map.len() as u64))
    }

    fn record(self, part: &str) -> Result<Option<&'t [u8]>> {
        let record = self.databases.get(CATALOG);
        let record = record.and_then(|catalog| catalog.get(&self.tables.record_name(part)));
        Ok(record.map(|(_, record)| record.as_slice()))
    }

    fn recorded_parts(self) -> Result<Vec<String>> {
        let Some(catalog) = self.databases.get(CATALOG) else { return Ok(Vec::new()) };
        let prefix = format!("{}.", self.tables.facts).into_bytes();
        let names = catalog.keys().filter_map(|name| name.strip_prefix(prefix.as_slice()));
        Ok(names.map(|part| String::from_utf8_lossy(part).into_owned()).collect())
    }

    fn message(self, from: u64) -> Result<Option<(u64, &'t [u8])>> {
        let from = from.to_be_bytes();
        let mut messages = self.queue().into_iter().flat_map(|it| it.range(from.to_vec()..));
        Ok(messages.next().and_then(numbered))
    }

    fn message_below(self, below: u64) -> Result<Option<(u64, &'t [u8])>> {
        let below = below.to_be_bytes();
        let messages = self.queue().map(|it| it.range(..below.to_vec()));
        Ok(messages.and_then(|mut messages| messages.next_back()).and_then(numbered))
    }

    fn messages(self) -> Result<u64> {
        Ok(self.queue().map_or(0, |queue| queue.len() as u64))
    }
}

/// A message with its number.
fn numbered<'t>(
    (number, (_, message)): (&Vec<u8>, &'t (usize, Vec<u8>)),
) -> Option<(u64, &'t [u8])> {
    let number = number.as_slice().try_into().map(u64::from_be_bytes);
    number.ok().map(|number| (number, message.as_slice()))
}

/// The first place behind an entry, or behind all that begins with a key; unbounded: there is
/// none.
fn behind(mut bytes: Vec<u8>, all_of_key: bool) -> Bound<Vec<u8>> {
    if all_of_key {
        return if successor(&mut bytes) { Bound::Included(bytes) } else { Bound::Unbounded };
    }
    bytes.push(0);
    Bound::Included(bytes)
}

fn entry<'t>((bytes, (len, data)): (&'t Vec<u8>, &'t (usize, Vec<u8>))) -> RawEntry<'t> {
    let (key, primary_key) = bytes.split_at_checked(*len).unwrap_or_default();
    RawEntry { key, primary_key, data }
}

/// The answer to a scan.
#[derive(Debug)]
pub(crate) struct Entries<'t> {
    range: btree_map::Range<'t, Vec<u8>, (usize, Vec<u8>)>,
    bounds: KeyRange,
    reverse: bool,
}

impl<'t> Iterator for Entries<'t> {
    type Item = Step<'t>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = if self.reverse { self.range.next_back() } else { self.range.next() };
        let inside = |bytes: &[u8]| {
            if self.reverse { bytes >= self.bounds.start() } else { self.bounds.ends_behind(bytes) }
        };
        next.filter(|(bytes, _)| inside(bytes)).map(|found| Ok(entry(found)))
    }
}

/// An index, entry by entry: no two are together, and nothing can be wrong with how they lie.
#[derive(Debug)]
pub(crate) struct Pieces<'t>(btree_map::Range<'t, Vec<u8>, (usize, Vec<u8>)>);

impl<'t> Iterator for Pieces<'t> {
    type Item = Result<Piece<'t>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(at, _)| Ok(Piece { at, fault: None }))
    }
}

/// Writes one table in one transaction.
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
                    let bytes = [key, holder.primary_key].concat();
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

    fn remove_pieces(&mut self, index: usize, at: &[u8], all: bool) -> Result<bool> {
        let map = self.map(Source::Index(index));
        let before = map.len();
        map.retain(|bytes, _| if all { !bytes.starts_with(at) } else { bytes != at });
        Ok(map.len() < before)
    }

    fn clear(&mut self, index: usize) -> Result<()> {
        self.map(Source::Index(index)).clear();
        Ok(())
    }

    fn put_record(&mut self, part: &str, record: &[u8]) -> Result<()> {
        let name = self.tables.record_name(part);
        self.named(CATALOG).insert(name, (0, record.to_vec()));
        Ok(())
    }

    fn remove_record(&mut self, part: &str) -> Result<()> {
        let name = self.tables.record_name(part);
        self.named(CATALOG).remove(&name);
        Ok(())
    }

    fn sequence(&self) -> Result<Option<&[u8]>> {
        let sequences = self.databases.get(SEQUENCES);
        let last = sequences.and_then(|sequences| sequences.get(&self.tables.record_name("")));
        Ok(last.map(|(_, last)| last.as_slice()))
    }

    fn put_sequence(&mut self, sequence: &[u8]) -> Result<()> {
        let name = self.tables.record_name("");
        self.named(SEQUENCES).insert(name, (0, sequence.to_vec()));
        Ok(())
    }

    fn put_message(&mut self, number: u64, message: &[u8]) -> Result<()> {
        let message = (0, message.to_vec());
        self.named(&self.tables.queue).insert(number.to_be_bytes().to_vec(), message);
        Ok(())
    }

    fn remove_message(&mut self, number: u64) -> Result<()> {
        self.named(&self.tables.queue).remove(number.to_be_bytes().as_slice());
        Ok(())
    }

    fn clear_messages(&mut self) -> Result<()> {
        self.named(&self.tables.queue).clear();
        Ok(())
    }

    fn layout(&self, _: &IndexSchema) -> &'static str {
        "memory"
    }
}
