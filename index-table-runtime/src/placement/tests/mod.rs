//! The suite that every engine passes: the laws of the seam (see [`engine`](crate::engine)), as functions over any
//! engine.
//!
//! An engine is added to `engines`, which opens it empty. [`Harness::reopen`] gives the same store again
//! after all handles to it are dropped, for an engine with files.

mod append;
mod joins;
mod reading;
mod records;
mod transactions;

use std::path::{Path, PathBuf};

#[cfg(feature = "memory")]
use std::sync::Arc;

#[cfg(feature = "memory")]
use super::shards::{self, OpenTables, Shard};
use super::{Reader, Tables, Txn, Writer};
use crate::engine::{self, Cursor as _, DataFile, Options, Query, Read as _, Write as _};
#[cfg(feature = "memory")]
use crate::model::shard::Distribution;
use crate::model::{
    KeyRange,
    entry::{KeyBuffer, RawEntry, ShortEntry},
    error::Result,
    maintain::{Change, Sink as _},
    schema::{IndexSchema, KeyField, Parts, Source, Strategy as Carried, TableSchema},
};

/// An engine under test.
struct Harness {
    name: &'static str,
    engine: Option<Engine>,
    /// Whether it joins the rows of entries.
    joins: bool,
    /// Whether the engine has several shards, with their own catalogs and stamps.
    is_sharded: bool,
    /// Whether several write transactions run at the same time, so that the order of commits is not known in advance.
    has_several_writers: bool,
    /// The directory of its files, and the temporary directory that contains it.
    directory: Option<(tempfile::TempDir, PathBuf)>,
}

impl Harness {
    fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("an engine")
    }

    /// Closes the engine and opens it again; `false`: it keeps nothing.
    fn reopen(&mut self) -> bool {
        #[cfg(feature = "postgres")]
        if let Some(engine) = self.engine.take_if(|_| self.has_several_writers) {
            let Engine::One(engine) = engine else { panic!("several shards") };
            let engine::Engine::Postgres(engine) = *engine else { panic!("no server") };
            self.engine = Some(engine::Engine::Postgres(engine.reopened()).into());
            return true;
        }
        let Some((_, path)) = &self.directory else { return false };
        self.engine = None;
        DataFile(path).wait_until_closed();
        self.engine = Some(on_disk(path));
        true
    }
}

/// Drops the schema on the server.
#[cfg(feature = "postgres")]
impl Drop for Harness {
    fn drop(&mut self) {
        if let Some(Engine::One(engine)) = &self.engine
            && let Some(engine) = engine.postgres()
        {
            engine.drop_schema();
        }
    }
}

fn on_disk(path: &Path) -> Engine {
    let options = Options::default().map_size(1 << 24);
    engine::Engine::open(&options, path).expect("a store").into()
}

/// Returns all engines, without rows.
fn engines() -> Vec<Harness> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_owned();
    let lmdb = Harness {
        name: "LMDB",
        engine: Some(on_disk(&path)),
        joins: false,
        is_sharded: false,
        has_several_writers: false,
        directory: Some((directory, path)),
    };
    #[cfg_attr(not(feature = "postgres"), expect(unused_mut, reason = "extended with the feature"))]
    let mut engines = vec![
        lmdb,
        #[cfg(feature = "memory")]
        Harness {
            name: "memory",
            engine: Some(engine::Engine::in_memory().into()),
            joins: true,
            is_sharded: false,
            has_several_writers: false,
            directory: None,
        },
        #[cfg(feature = "memory")]
        Harness {
            name: "shards",
            engine: Some(sharded()),
            joins: true,
            is_sharded: true,
            has_several_writers: false,
            directory: None,
        },
    ];
    #[cfg(feature = "postgres")]
    engines.extend(engine::postgres::tests::empty().map(|engine| Harness {
        name: "PostgreSQL",
        engine: Some(engine::Engine::Postgres(engine).into()),
        joins: true,
        is_sharded: false,
        has_several_writers: true,
        directory: None,
    }));
    engines
}

/// One engine, or several shards.
enum Engine {
    One(Box<engine::Engine>),
    #[cfg(feature = "memory")]
    Several(Box<shards::Engine>),
}

impl From<engine::Engine> for Engine {
    fn from(engine: engine::Engine) -> Self {
        Self::One(Box::new(engine))
    }
}

impl Engine {
    fn one(&self) -> &engine::Engine {
        match self {
            Self::One(engine) => engine,
            #[cfg(feature = "memory")]
            Self::Several(_) => panic!("several shards"),
        }
    }

    fn read(&self) -> Result<Txn<'_>> {
        match self {
            Self::One(engine) => engine.read().map(Txn::One),
            #[cfg(feature = "memory")]
            Self::Several(shards) => shards.read().map(Txn::Several),
        }
    }

    fn write(&self) -> Result<Txn<'_>> {
        match self {
            Self::One(engine) => engine.write().map(Txn::One),
            #[cfg(feature = "memory")]
            Self::Several(shards) => shards.write().map(Txn::Several),
        }
    }
}

/// Returns an engine of two shards. All tables are in the second shard.
#[cfg(feature = "memory")]
fn sharded() -> Engine {
    let shard = |name: &str| Shard::open(Arc::from(name), Arc::new(engine::Engine::in_memory()));
    let places = [TABLE.name, OTHER.name].map(|name| (name.to_owned(), 1)).into();
    let shards = vec![shard("a"), shard("b")];
    Engine::Several(Box::new(shards::Engine::new(shards, [], places, None, None, false)))
}

#[cfg(feature = "memory")]
fn open_in_shards(engine: &shards::Engine, schema: &'static TableSchema) -> Tables {
    let routing = engine.routing(schema, Distribution::Whole).expect("a place");
    let tables = engine.engines().map(|engine| {
        let tables = Arc::new(open_one(engine, schema));
        Some(OpenTables { tables, record: Arc::default() })
    });
    Tables::Several(shards::Tables::new(routing, engine, tables.collect()))
}

/// Runs a test on each engine.
fn on_each(test: impl Fn(&mut Harness) -> Result<()>) {
    for mut harness in engines() {
        let name = harness.name;
        test(&mut harness).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

const fn index(name: &'static str, strategy: Carried, unique: bool, eventual: bool) -> IndexSchema {
    const KEY: &[KeyField] = &[KeyField::new::<u8>("key")];
    IndexSchema { name, key: KEY, strategy, unique, eventual, conditions: &[], findings: &[] }
}

/// A table with an index of each layout, and a queue.
const TABLE: &TableSchema = &TableSchema {
    name: "things",
    was: &[],
    version: 1,
    fields: &[],
    previous: None,
    changed: &[],
    aggregates: &[],
    primary_key: &[KeyField::new::<u16>("id")],
    indexes: &[
        index("blocks", Carried::Normalized, false, false),
        index("entries", Carried::Partial(&["name"]), false, false),
        index("unique", Carried::Normalized, true, false),
        index("late", Carried::Normalized, false, true),
        index("full", Carried::Full, false, false),
    ],
};

/// The name of another table begins with the name of the first.
const OTHER: &TableSchema = &TableSchema { name: "things_too", ..*TABLE };

const BLOCKS: usize = 0;
const ENTRIES: usize = 1;
const UNIQUE: usize = 2;
const FULL: usize = 4;

const SOURCES: [Source; 5] = [
    Source::Facts,
    Source::Index(BLOCKS),
    Source::Index(ENTRIES),
    Source::Index(UNIQUE),
    Source::Index(FULL),
];

/// Whether entries of this source store the data with which they are written.
const fn carries_data(source: Source) -> bool {
    matches!(source, Source::Facts | Source::Index(ENTRIES | FULL))
}

fn open(engine: &Engine, schema: &'static TableSchema) -> Tables {
    match engine {
        Engine::One(engine) => open_one(engine, schema).into(),
        #[cfg(feature = "memory")]
        Engine::Several(shards) => open_in_shards(shards, schema),
    }
}

fn open_one(engine: &engine::Engine, schema: &'static TableSchema) -> engine::Tables {
    let opened = engine.open_table(schema, Parts::default(), false, &mut |_| Ok(()));
    opened.unwrap_or_else(|(error, _)| panic!("a table: {error}"))
}

fn reader<'t>(txn: &'t Txn<'_>, tables: &'t Tables) -> Reader<'t> {
    txn.reader(tables).expect("a transaction of the same engine")
}

fn writer<'t, 's>(txn: &'t mut Txn<'s>, tables: &'t Tables) -> Writer<'t, 's> {
    txn.writer(tables).expect("a write transaction of the same engine")
}

/// Index key, primary key, data.
type Owned = (Vec<u8>, Vec<u8>, Vec<u8>);

fn owned(RawEntry { key, primary_key, data }: RawEntry<'_>) -> Owned {
    (key.to_vec(), primary_key.to_vec(), data.to_vec())
}

fn kept(entry: ShortEntry<'_>) -> Owned {
    owned(entry.in_buffer(&mut KeyBuffer::new()))
}

/// Returns the entries of a scan, after checking that a cursor has the same entries, and that the engine
/// counts the same number.
fn scan(reader: Reader<'_>, query: &Query) -> Result<Vec<Owned>> {
    let entries = reader.scan(query.clone())?;
    let entries = entries.map(|entry| Ok(kept(entry?))).collect::<Result<Vec<_>>>()?;
    let (mut lent, mut cursor) = (Vec::new(), reader.cursor(query.clone())?);
    while cursor.advance()? {
        lent.push(owned(cursor.entry()));
    }
    assert_eq!(lent, entries, "{query:?}");
    assert_eq!(reader.count(query)?.found, entries.len() as u64, "{query:?}");
    Ok(entries)
}

fn all(reader: Reader<'_>, source: Source) -> Result<Vec<Owned>> {
    scan(reader, &Query::new(source, KeyRange::ALL))
}

/// Writes an entry in the form that this source can have.
fn put(writer: &mut Writer<'_, '_>, source: Source, key: u8, id: u16, data: &[u8]) -> Result<()> {
    let data = if carries_data(source) { data } else { &[] };
    let (key, primary_key) = (&[key][..], &id.to_be_bytes()[..]);
    let key = if source == Source::Facts { &[] } else { key };
    writer.change(RawEntry { key, primary_key, data }.put(source))
}

fn delete(writer: &mut Writer<'_, '_>, source: Source, key: u8, id: u16) -> Result<()> {
    let (key, primary_key) = (&[key][..], &id.to_be_bytes()[..]);
    writer.change(match source {
        Source::Facts => Change::DeleteFact { primary_key },
        Source::Index(index) => Change::DeleteEntry { index, key, primary_key },
    })
}

fn commit(txn: Txn<'_>) -> Result<()> {
    Ok(txn.commit(|| ())?)
}
