//! Tables without the type of their rows, for tools: their keys as plain values.

use std::{fmt, io, path::PathBuf, sync::Arc, time::SystemTime};

use super::Table;
use crate::{
    engine::{Cursor as _, Query, Read as _, ReaderSlots},
    model::{
        End, KeyRange,
        entity::Entity,
        entry::Position,
        error::{Error, Result},
        key::KeyShape,
        row,
        row_vtable::RowVtable,
        schema::{KeyField, KeyForm, Source, TableSchema},
        shard::{Distribution, Span},
    },
    placement::shards::{ShardRecord, place_of},
    store::{OpenTable, ReadTxn, Store, WriteTxn, engine_of},
    upkeep::{
        changes::{self, ChangeConsumer},
        expiry::{self, Expired, Pass},
        moves::Move,
        recorded,
        verify::{Repair, Verify, VerifyReport},
    },
    usage::{Latency, Progress},
    write::queue::{self, Lag},
};

/// All tables of a store, opened from its catalog. From [`Store::open_recorded`].
///
/// Until this value is dropped, its tables are in use, so that methods such as [`Store::sizes`] include them.
#[derive(Debug)]
pub struct RecordedTables {
    /// The tables, by name.
    pub tables: Vec<UntypedTable>,
    /// The tables that this release can't open, each with the reason.
    pub skipped: Vec<(String, String)>,
}

/// A table without the type of its rows.
#[derive(Clone)]
pub struct UntypedTable {
    open: Arc<OpenTable>,
}

/// A field of a key.
#[derive(Debug, Clone, Copy)]
pub struct UntypedField {
    /// The name of the field, or of the method that computes it.
    pub name: &'static str,
    /// The shape of its encoding.
    pub shape: KeyShape,
    /// Whether the key has a hash of the value.
    pub is_hash: bool,
}

/// The entries that [`UntypedTable::each_entry`] reads: keys from `start` up to `end`.
#[derive(Debug, Clone, Default)]
pub struct UntypedRange {
    /// The index by its name; `None` is the fact table.
    pub index: Option<String>,
    /// The encoded first key, or the common prefix of all keys if `is_prefix`.
    pub start: Vec<u8>,
    /// The encoded key before which the range ends; `None` has no upper bound.
    pub end: Option<Vec<u8>>,
    /// Whether only keys that begin with `start` are in the range.
    pub is_prefix: bool,
    /// Only entries after these encoded keys: index key (empty in the fact table) and primary key.
    pub after: Option<(Vec<u8>, Vec<u8>)>,
    /// Whether the entries are in descending order.
    pub reverse: bool,
}

/// One entry, as bytes.
#[derive(Debug, Clone, Copy)]
pub struct UntypedEntry<'e> {
    /// The encoded index key; empty in the fact table.
    pub key: &'e [u8],
    /// The encoded primary key.
    pub primary_key: &'e [u8],
    /// The data of the entry; in the fact table, the row.
    pub data: &'e [u8],
}

impl Store {
    /// Opens all tables as the catalog describes them, in a store that was opened with `read_only(true)`. Their rows
    /// can't be decoded. For tools that have no structs.
    ///
    /// Cost: a read of the catalog; a few hundred bytes for each table stay in memory until the process ends.
    ///
    /// # Errors
    ///
    /// [`Error::NotOffered`]: the store can be written. The [errors of reading](crate::Error#common-errors).
    #[doc(hidden)]
    pub fn open_recorded(&self) -> Result<RecordedTables> {
        let recorded::Recorded { tables, skipped } = recorded::open(self)?;
        let tables = tables.into_iter().map(|open| UntypedTable { open }).collect();
        Ok(RecordedTables { tables, skipped })
    }

    /// Whether the store can't be written by this handle.
    #[doc(hidden)]
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.inner.engines.is_read_only()
    }

    /// Whether the data file is one of LMDB with entries of another program.
    ///
    /// Cost: a read transaction, if the file has no catalog.
    ///
    /// # Errors
    ///
    /// The [errors of reading](crate::Error#common-errors).
    #[doc(hidden)]
    pub fn is_foreign(&self) -> Result<bool> {
        let Some(engine) = self.inner.engines.lmdb() else { return Ok(false) };
        engine.is_foreign()
    }

    /// Returns the directory of the store; `None` if it has no files.
    #[doc(hidden)]
    #[must_use]
    pub fn directory(&self) -> Option<PathBuf> {
        let engine = &self.inner.engines;
        let has_files = engine.lmdb().is_some() || engine.each_lmdb().next().is_some();
        has_files.then(|| engine.directory())
    }

    /// Whether the store has shards.
    #[doc(hidden)]
    #[must_use]
    pub fn has_shards(&self) -> bool {
        self.inner.engines.several().is_some()
    }

    /// Returns the reader slots of all processes, of the store or of each available shard by its name; none for a store
    /// without a lock file.
    #[doc(hidden)]
    #[must_use]
    pub fn reader_slots(&self) -> Vec<(Option<String>, io::Result<ReaderSlots>)> {
        if let Ok(engine) = engine_of(self) {
            let shards = engine.shards().filter_map(|(_, shard)| {
                let slots = shard.opened().ok()?.reader_slots()?;
                Some((Some(shard.name().to_string()), slots))
            });
            return shards.collect();
        }
        let slots = self.inner.engines.one().and_then(|engine| engine.reader_slots());
        slots.map(|slots| (None, slots)).into_iter().collect()
    }

    /// Returns the durations of some of the commits of this process.
    #[doc(hidden)]
    #[must_use]
    pub fn commit_latency(&self) -> Latency {
        self.inner.commits.report()
    }

    /// Returns how often an index worker of this process has failed after a success, or has panicked.
    #[doc(hidden)]
    #[must_use]
    pub fn index_worker_failures(&self) -> u64 {
        self.inner.signals.failures()
    }

    /// Returns the tables that this process has in use, by name.
    #[doc(hidden)]
    #[must_use]
    pub fn untyped_tables(&self) -> Vec<UntypedTable> {
        self.inner.tables_in_use().into_iter().map(|open| UntypedTable { open }).collect()
    }
}

impl Store {
    /// Returns the names of the shard maps, with those of global indexes, in order.
    #[doc(hidden)]
    #[must_use]
    pub fn map_names(&self) -> Vec<String> {
        engine_of(self).map(|shards| shards.maps()).unwrap_or_default()
    }

    /// Returns the names and the directories of all shards, in the order in which they were declared.
    #[doc(hidden)]
    #[must_use]
    pub fn shard_directories(&self) -> Vec<(String, PathBuf)> {
        let Ok(engine) = engine_of(self) else { return Vec::new() };
        let records = engine.manager().and_then(|manager| manager.read().ok().flatten());
        let shards = records.map(|records| records.shards).unwrap_or_default();
        let directory = |shard: ShardRecord| {
            let place = place_of(&engine.directory(), &shard.place);
            (shard.name, place)
        };
        shards.into_iter().map(directory).collect()
    }
}

/// The keys of a shard map.
#[derive(Debug, Clone)]
pub struct MapKeys {
    /// The fields of the shard key.
    pub fields: Vec<UntypedField>,
    /// Whether the keys of the map are the slots of hashes.
    pub is_hashed: bool,
}

impl Store {
    /// Returns the keys of a shard map of rows or of a global index; `None`: no table with this map is open.
    #[doc(hidden)]
    #[must_use]
    pub fn keys_of_map(&self, map: &str) -> Option<MapKeys> {
        self.inner.tables_in_use().iter().find_map(|table| {
            if let Distribution::ByKey(key) = table.rows.distribution
                && key.map == map
            {
                let own = fields(key.of(table.schema.primary_key));
                return Some(MapKeys { fields: own, is_hashed: key.hashed });
            }
            let tables = table.tables.several()?;
            let routing = tables.routing();
            let global = routing.global_with(map)?;
            Some(MapKeys { fields: fields(global.map_fields()), is_hashed: global.is_hashed() })
        })
    }

    /// Moves the keys from `start` up to `end`, as encoded for the map, to a shard; see
    /// [`move_range`](Store::move_range).
    #[doc(hidden)]
    pub fn move_encoded(
        &self,
        map: &str,
        (start, end): (Vec<u8>, Option<Vec<u8>>),
        to: &str,
    ) -> Move<'_> {
        let found = engine_of(self).ok().and_then(|engine| engine.map(map));
        let key_type = found.map(|found| found.key_type).unwrap_or_default();
        let is_empty = end.as_ref().is_some_and(|end| *end <= start);
        let mut span = Span { start, end };
        if let Some([field]) = self.keys_of_map(map).as_ref().map(|keys| keys.fields.as_slice()) {
            span = span.with_first_key(&field.shape);
        }
        self.new_move(map, key_type, vec![(!is_empty).then_some(span)], to)
    }

    /// Returns the end of the range of a shard map that has this encoded key; `None`: no shard has the key.
    #[doc(hidden)]
    #[must_use]
    pub fn end_of_range(&self, map: &str, key: &[u8]) -> Option<Option<Vec<u8>>> {
        let found = engine_of(self).ok()?.map(map)?;
        let mut segments = found.boundaries.segments();
        let own = segments.find(|(start, end, _)| *start <= key && end.is_none_or(|end| key < end));
        own.filter(|(.., shard)| shard.is_some()).map(|(_, end, _)| end.map(<[u8]>::to_vec))
    }
}

impl<R: Entity> Table<R> {
    /// Returns the row of an entry of the fact table.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`]
    #[doc(hidden)]
    pub fn decoded(&self, entry: &UntypedEntry<'_>) -> Result<R> {
        row::decode(&self.open.rows.lists, entry.data)
            .map_err(|error| self.open.corrupt(Source::Facts, entry.primary_key, error))
    }

    /// Verifies the table, as [`verify`](Table::verify) does, with borrowed closures. When `stop` returns true, the report has the position
    /// to continue from.
    ///
    /// # Errors
    ///
    /// The errors of [`Verify::run`](crate::Verify::run).
    #[doc(hidden)]
    pub fn verified(
        &self,
        txn: &ReadTxn<'_>,
        progress: &mut dyn FnMut(Progress),
        stop: &dyn Fn() -> bool,
    ) -> Result<VerifyReport> {
        Verify::of(&self.open, txn).progress(progress).stop_when(stop).run()
    }

    /// Repairs the table, as [`repair`](Table::repair) does, with borrowed closures.
    ///
    /// # Errors
    ///
    /// The errors of [`Repair::run`](crate::Repair::run). [`Error::Io`](crate::Error::Io) with the kind `Interrupted` when `stop` has
    /// returned true: drop the transaction.
    #[doc(hidden)]
    pub fn repaired(
        &self,
        txn: &mut WriteTxn<'_>,
        delete_unreadable: bool,
        (progress, stop): (&mut dyn FnMut(Progress), &dyn Fn() -> bool),
    ) -> Result<VerifyReport> {
        let repair = Repair::new(txn, &self.open).progress(progress).stop_when(stop);
        if delete_unreadable { repair.delete_unreadable_rows().run() } else { repair.run() }
    }

    /// Returns the table without its type.
    #[doc(hidden)]
    #[must_use]
    pub fn untyped(&self) -> UntypedTable {
        UntypedTable { open: Arc::clone(&self.open) }
    }
}

impl UntypedTable {
    /// Shows the bytes of a primary key, or in hex if they can't be decoded.
    #[must_use]
    pub fn show_primary_key(&self, key: &[u8]) -> String {
        self.open.schema.show_primary_key(key)
    }

    /// Returns the name of the table.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.schema().name
    }

    /// Returns the names of the indexes, in the order of their declaration.
    pub fn index_names(&self) -> impl Iterator<Item = &'static str> {
        self.schema().indexes.iter().map(|index| index.name)
    }

    /// Returns the durations of some of the queries of an index; `None` is the fact table.
    #[must_use]
    pub fn latency(&self, index: Option<&str>) -> Option<Latency> {
        let source = self.source(index).ok()?;
        Some(self.open.shared.usage.of(source).durations().report())
    }

    /// Returns the row of an entry of the fact table; `None` if the rows of the table have another type.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`]
    pub fn decoded<R: Entity>(&self, entry: &UntypedEntry<'_>) -> Result<Option<R>> {
        if !self.open.rows.is_same_type(&RowVtable::of::<R>()) {
            return Ok(None);
        }
        let row = row::decode(&self.open.rows.lists, entry.data);
        row.map(Some).map_err(|error| self.open.corrupt(Source::Facts, entry.primary_key, error))
    }

    /// Appends the row of an entry of the fact table in the exact form, in one line, without its type. After an error, `out` may have
    /// a part of it.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`]
    #[cfg(feature = "json")]
    pub fn append_json(&self, entry: &UntypedEntry<'_>, out: &mut String) -> Result<()> {
        super::json::append(&self.open, entry.primary_key, entry.data, out)
    }

    /// Returns the version of a row, and the position of its list in [`Store::row_lists`].
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`]
    pub fn list_of(&self, entry: &UntypedEntry<'_>) -> Result<(u32, u32)> {
        row::list(entry.data)
            .map_err(|error| self.open.corrupt(Source::Facts, entry.primary_key, error))
    }

    /// Returns the fields of the primary key.
    #[must_use]
    pub fn primary_key(&self) -> Vec<UntypedField> {
        fields(self.schema().primary_key)
    }

    /// Returns the fields of the key of an index; `None`: the table has no such index.
    #[must_use]
    pub fn key_of(&self, index: &str) -> Option<Vec<UntypedField>> {
        let index = self.schema().indexes.iter().find(|own| own.name == index)?;
        Some(fields(index.key))
    }

    /// Whether an index is eventual. Then an entry can be without its row, which was deleted since.
    #[must_use]
    pub fn is_eventual(&self, index: &str) -> bool {
        self.schema().position_of(index).is_some_and(|at| self.schema().is_eventual(at))
    }

    /// Calls `each` with the entries of a range, in the order of their keys, until it returns false.
    ///
    /// Cost: a seek, and a step for each entry. With shards, all shards of the table are merged.
    ///
    /// # Errors
    ///
    /// [`Error::IndexNotReadable`]; the [errors of reading](crate::Error#common-errors), and the errors of `each`.
    pub fn each_entry<E: From<Error>>(
        &self,
        txn: &ReadTxn<'_>,
        range: &UntypedRange,
        mut each: impl FnMut(UntypedEntry<'_>) -> Result<bool, E>,
    ) -> Result<(), E> {
        let source = self.source(range.index.as_deref())?;
        let (reader, _) = txn.reader_to_scan(&self.open, source)?;
        let query = Query {
            reverse: range.reverse,
            position: range.after.clone().map(|(key, primary_key)| Position { key, primary_key }),
            ..Query::new(source, range.bounds())
        };
        let mut cursor = reader.cursor(query)?;
        while cursor.advance().map_err(Error::from)? {
            let entry = cursor.entry();
            let (key, primary_key, data) = (entry.key, entry.primary_key, entry.data);
            if !each(UntypedEntry { key, primary_key, data })? {
                break;
            }
        }
        Ok(())
    }

    /// Returns the number of entries of a range.
    ///
    /// Cost: the cost of [`Scan::count`](crate::Scan::count).
    ///
    /// # Errors
    ///
    /// The errors of [`each_entry`](UntypedTable::each_entry).
    pub fn count(&self, txn: &ReadTxn<'_>, range: &UntypedRange) -> Result<u64> {
        let source = self.source(range.index.as_deref())?;
        let (reader, _) = txn.reader_to_scan(&self.open, source)?;
        Ok(reader.count(&Query::new(source, range.bounds()))?.found)
    }

    /// Returns the bytes of the row with this encoded primary key.
    ///
    /// # Errors
    ///
    /// The [errors of reading](crate::Error#common-errors).
    pub fn row<'t>(&'t self, txn: &'t ReadTxn<'_>, primary_key: &[u8]) -> Result<Option<&'t [u8]>> {
        txn.fact(&self.open, primary_key)
    }

    /// Returns the consumers of the table's change stream, in the order of their names; none without a change stream.
    ///
    /// # Errors
    ///
    /// The [errors of reading](crate::Error#common-errors).
    pub fn change_consumers(&self, txn: &ReadTxn<'_>) -> Result<Vec<ChangeConsumer>> {
        if self.open.rows.changes.is_none() {
            return Ok(Vec::new());
        }
        changes::consumers(txn, &self.open)
    }

    /// Returns the lag of the eventual indexes; `None`: the table has none.
    ///
    /// # Errors
    ///
    /// The [errors of reading](crate::Error#common-errors).
    pub fn lag(&self, txn: &ReadTxn<'_>) -> Result<Option<Lag>> {
        if !self.schema().has_eventual() {
            return Ok(None);
        }
        queue::lag_of(self.schema(), txn.reader(&self.open)?).map(Some)
    }

    /// Returns the number of rows that have expired at this time; 0 for a table whose rows don't expire.
    ///
    /// # Errors
    ///
    /// The [errors of reading](crate::Error#common-errors).
    pub fn expired(&self, txn: &ReadTxn<'_>, now: SystemTime) -> Result<u64> {
        let Some(expiry) = self.open.rows.expiry else { return Ok(0) };
        let source = Source::Index(expiry.index);
        let (reader, _) = txn.reader_to_scan(&self.open, source)?;
        Ok(reader.count(&Query::new(source, expiry.expired(now)))?.found)
    }

    /// Deletes the rows that have expired, up to `limit` of them; none if the rows of the table don't expire. See
    /// [`Table::expire_report`].
    ///
    /// # Errors
    ///
    /// The errors of the repository's `expire`.
    pub fn expire(&self, store: &Store, now: SystemTime, limit: u64) -> Result<Expired> {
        expiry::expire(store, &self.open, now, limit, &mut Pass::default())
    }

    #[cfg(feature = "json")]
    pub(super) const fn of(open: Arc<OpenTable>) -> Self {
        Self { open }
    }

    pub(super) const fn open_table(&self) -> &Arc<OpenTable> {
        &self.open
    }

    fn schema(&self) -> &'static TableSchema {
        self.open.schema
    }

    fn source(&self, index: Option<&str>) -> Result<Source> {
        let Some(name) = index else { return Ok(Source::Facts) };
        let position = self.schema().indexes.iter().position(|own| own.name == name);
        let missing = Error::NotOffered { what: "reading an index that the table doesn't have" };
        position.map(Source::Index).ok_or(missing)
    }
}

impl UntypedRange {
    /// Whether an encoded key is in the range.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.bounds().contains(key)
    }

    fn bounds(&self) -> KeyRange {
        let mut bounds = KeyRange::beginning_with(&self.start);
        bounds.end = match &self.end {
            Some(end) => End::Before(end.clone()),
            None if self.is_prefix => End::Prefix,
            None => End::Open,
        };
        bounds
    }
}

fn fields(key: &[KeyField]) -> Vec<UntypedField> {
    let fields = key.iter().map(|field| UntypedField {
        name: field.name,
        shape: field.shape,
        is_hash: matches!(field.form, KeyForm::Hash | KeyForm::HashComputed),
    });
    fields.collect()
}

impl fmt::Debug for UntypedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UntypedTable").field("name", &self.name()).finish_non_exhaustive()
    }
}
