//! The entries of global indexes for the rows of a shard that is being attached: comparing their unique keys, and adding them
//! as [hidden entries](crate::placement::shards), in batches.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    thread,
};

use super::super::{build, hidden::PAUSE, opening, upgrade};
use crate::{
    engine::{Cursor as _, Query, Read as _, ReadRecords as _, Write as _},
    model::{
        KeyRange,
        entry::Position,
        error::{Error, Result},
        maintain::{Change, Image, Sink as _},
        schema::Source,
        shard::ShardNumber,
    },
    placement::{
        self,
        shards::{self, Locks, first_holder},
    },
    store::{OpenTable, Shards, Store, transaction},
    write::unique,
};

/// The limits of a batch, which reads one snapshot, and is one transaction.
const ROWS: usize = 1024;
const BYTES: usize = 1 << 20;

/// A table with rows in the shard that is being attached.
pub(super) struct ComingTable<'a> {
    pub(super) engine: &'a Shards,
    pub(super) table: Arc<OpenTable>,
    /// The name of the shard.
    pub(super) shard: &'a str,
    /// The shard as a plain store, with the table in it.
    pub(super) own: (Store, Arc<OpenTable>),
    /// The readable global indexes.
    pub(super) readable: Vec<usize>,
    /// The other global indexes, whose builds start again.
    pub(super) unreadable: Vec<usize>,
}

/// Returns the readable global indexes of a table, and then the others.
fn by_state(
    txn: &shards::Txn<'_>,
    table: &OpenTable,
    tables: &shards::Tables,
) -> Result<(Vec<usize>, Vec<usize>)> {
    let reader = placement::Reader::Several(txn.reader(tables));
    let (mut readable, mut unreadable) = (Vec::new(), Vec::new());
    for &index in table.rows.distribution.global() {
        let Some(name) = table.schema.name_at(index) else { continue };
        let is_readable = reader.record(name)?.is_none();
        if is_readable { readable.push(index) } else { unreadable.push(index) }
    }
    Ok((readable, unreadable))
}

/// An entry of a row in the shard.
struct Entry {
    index: usize,
    key: Vec<u8>,
    primary_key: Vec<u8>,
    data: Vec<u8>,
    hashed: Vec<u8>,
}

impl<'a> ComingTable<'a> {
    /// Returns a table of the shard; `None` if it has no global index, or no rows in the shard.
    pub(super) fn of(
        engine: &'a Shards,
        table: &Arc<OpenTable>,
        shard: &'a str,
        own: (Store, Arc<OpenTable>),
    ) -> Result<Option<Self>> {
        let Some(tables) = table.tables.several() else { return Ok(None) };
        let global = table.rows.distribution.global();
        let first = Query { limit: Some(1), ..Query::new(Source::Facts, KeyRange::ALL) };
        if global.is_empty() || own.0.read()?.reader(&own.1)?.count(&first)?.found == 0 {
            return Ok(None);
        }
        upgrade::renew_lists(&own.0, &own.1)?;
        let (readable, unreadable) = by_state(&engine.read()?, table, tables)?;
        let table = Arc::clone(table);
        Ok(Some(Self { engine, table, shard, own, readable, unreadable }))
    }

    /// Whether the same indexes are readable in this transaction. A build can end while entries are added.
    pub(super) fn is_current(&self, txn: &shards::Txn<'_>) -> Result<bool> {
        let (readable, unreadable) = by_state(txn, &self.table, self.tables()?)?;
        Ok(readable == self.readable && unreadable == self.unreadable)
    }

    /// Starts the builds of the other global indexes again.
    pub(super) fn restart_builds(&self, txn: &mut shards::Txn<'_>) -> Result<()> {
        if self.unreadable.is_empty() {
            return Ok(());
        }
        let missing = || Error::internal("a write transaction without a writer");
        let writer = txn.writer(self.tables()?).ok_or_else(missing)?;
        let mut writer = placement::Writer::Several(writer);
        let count = opening::count(&writer)?;
        build::declare(&self.table.rows, &mut writer, &self.unreadable, count.max(1))
    }

    fn tables(&self) -> Result<&shards::Tables> {
        let Some(tables) = self.table.tables.several() else {
            return Err(Error::internal("a table without shards"));
        };
        Ok(tables)
    }

    /// Returns the shard maps of the readable global indexes.
    pub(super) fn maps(&self) -> Result<Vec<String>> {
        let routing = self.tables()?.routing();
        let of_index = |index: &usize| Some(routing.global(*index)?.map().to_owned());
        Ok(self.readable.iter().filter_map(of_index).collect())
    }

    /// Checks that no row of the store has a unique key of a row of the shard.
    ///
    /// # Errors
    ///
    /// [`Error::ShardRefused`] with both rows.
    pub(super) fn check(&self) -> Result<()> {
        let rows = &self.table.rows;
        let is_unique = |index: usize| self.is_unique(index);
        if !self.readable.iter().any(|index| is_unique(*index)) {
            return Ok(());
        }
        self.each_batch(&mut |entries| {
            let txn = self.engine.read()?;
            let reader = placement::Reader::Several(txn.reader(self.tables()?));
            for entry in entries.iter().filter(|entry| is_unique(entry.index)) {
                let Entry { index, key, primary_key, hashed, .. } = entry;
                let holder = unique::holder(rows, reader, *index, key, primary_key, hashed)?;
                if let Some(holder) = holder {
                    return Err(self.taken(entry, &holder));
                }
            }
            Ok(())
        })
    }

    /// Adds the entries of the rows of the shard. They are hidden.
    ///
    /// # Errors
    ///
    /// Those of [`check`](Self::check), for a row that was written since; [`Error::NoShard`], [`Error::ShardUnavailable`].
    pub(super) fn add(&self) -> Result<()> {
        let tables = self.tables()?;
        self.each_batch(&mut |entries| {
            let mut by_shard: BTreeMap<ShardNumber, Vec<&Entry>> = BTreeMap::new();
            for entry in entries {
                let shard = tables.shard_of_entry(entry.index, &entry.key)?;
                by_shard.entry(shard).or_default().push(entry);
            }
            for entries in by_shard.values_mut() {
                entries.sort_by(|one, other| {
                    (one.index, &one.key, &one.primary_key).cmp(&(
                        other.index,
                        &other.key,
                        &other.primary_key,
                    ))
                });
            }
            let shards: BTreeSet<_> = by_shard.keys().copied().collect();
            let attempt = || {
                let locks = Locks::These(shards.clone());
                let txn = self.engine.write_with(&locks).map_err(|error| (error, None))?;
                let mut txn = placement::Txn::Several(txn);
                let written = self.write(&mut txn, &by_shard);
                written.map_err(|error| (error, txn.retry()))?;
                txn.commit(|| ()).map_err(|failure| {
                    let retry = failure.retry();
                    (Error::from(failure), retry)
                })
            };
            transaction::run(attempt, |retry| self.engine.prepare(retry))?;
            thread::sleep(PAUSE);
            Ok(())
        })
    }

    fn write(
        &self,
        txn: &mut placement::Txn<'_>,
        by_shard: &BTreeMap<ShardNumber, Vec<&Entry>>,
    ) -> Result<()> {
        let missing = || Error::internal("a write transaction without a writer");
        let mut writer = txn.writer(&self.table.tables).ok_or_else(missing)?;
        let sharded = writer.several().ok_or_else(missing)?;
        for (shard, entries) in by_shard {
            sharded.beside(*shard, &mut |writer| {
                for entry in entries {
                    let Entry { index, key, primary_key, data, .. } = *entry;
                    if self.is_unique(*index) {
                        let is_other = |holder: &[u8]| holder != primary_key.as_slice();
                        let holder = first_holder(writer.reader(), (*index, key), &is_other)?;
                        if let Some(holder) = holder {
                            return Err(self.taken(entry, &holder));
                        }
                    }
                    writer.change(Change::PutEntry { index: *index, key, primary_key, data })?;
                }
                writer.flush()
            })?;
        }
        Ok(())
    }

    fn is_unique(&self, index: usize) -> bool {
        self.table.schema.indexes.get(index).is_some_and(|declared| declared.unique)
    }

    /// Calls `each` with the entries of the next rows of the shard, until its end.
    fn each_batch(&self, each: &mut dyn FnMut(&[Entry]) -> Result<()>) -> Result<()> {
        let (store, own) = &self.own;
        let (mut image, mut position) = (Image::default(), None::<Position>);
        loop {
            let (mut entries, mut bytes, mut read) = (Vec::new(), 0, 0);
            let is_done = {
                let txn = store.read()?;
                let query =
                    Query { position: position.take(), ..Query::new(Source::Facts, KeyRange::ALL) };
                let mut facts = txn.reader(own)?.cursor(query)?;
                loop {
                    if read >= ROWS || bytes >= BYTES {
                        break false;
                    }
                    if !facts.advance()? {
                        break true;
                    }
                    let fact = facts.entry();
                    read += 1;
                    self.table.rows.load_stored(&mut image, fact.data, fact.primary_key)?;
                    image.check_lengths(self.table.schema)?;
                    for &index in &self.readable {
                        let Some(declared) = self.table.schema.indexes.get(index) else { continue };
                        let (data, hashed) = (image.data(index, declared), image.hashed(index));
                        for key in image.keys(index) {
                            bytes += key.len() + fact.primary_key.len() + data.len();
                            entries.push(Entry {
                                index,
                                key: key.to_vec(),
                                primary_key: fact.primary_key.to_vec(),
                                data: data.to_vec(),
                                hashed: hashed.to_vec(),
                            });
                        }
                    }
                    let primary_key = fact.primary_key.to_vec();
                    position = Some(Position { key: Vec::new(), primary_key });
                }
            };
            if !entries.is_empty() {
                each(&entries)?;
            }
            if is_done {
                return Ok(());
            }
        }
    }

    fn taken(&self, entry: &Entry, holder: &[u8]) -> Error {
        let Entry { index, key, primary_key, hashed, .. } = entry;
        let (schema, source) = (self.table.schema, Source::Index(*index));
        Error::ShardRefused {
            what: format!("shard `{}`", self.shard),
            reason: format!(
                "its row {} of table `{}` has key {} in the unique index `{}`, and row {} has this key too; change or \
                 delete one of the two rows",
                schema.show_primary_key(primary_key),
                schema.name,
                schema.show_hashed_key(source, key, hashed),
                schema.index_name(source).unwrap_or_default(),
                schema.show_primary_key(holder),
            ),
        }
    }
}
