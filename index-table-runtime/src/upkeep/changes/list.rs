//! The list of the consumers of a change stream, which is the same in all shards of a store.
//!
//! A consumer is created and removed in all shards in one transaction, which also increments the version of the list in each
//! of them. So a shard that was away meanwhile, because it was detached or its files are from a backup, has an earlier
//! version, and gets the current list when it comes back: a further consumer begins at the oldest change kept there, and
//! a consumer that was removed meanwhile is removed. A shard that was a plain store has no version, because consumers of the
//! plain store are not those of the sharded store.
//!
//! If no shard has a version, the list has the consumers of all shards: a plain store was adopted, or the shard map
//! manager was rebuilt.

use std::collections::BTreeSet;

use super::{beside, shared::Keys};
use crate::{
    engine::{Read as _, Reader, Space, Write as _, Writer, shards},
    model::{
        error::{Error, Result},
        shard::ShardNumber,
        stream::{ConsumerRecord, LIST, now},
    },
    store::{OpenTable, Store, store_of, table_of},
    write::changes,
};

/// The consumers in one shard.
#[derive(Debug, Default, PartialEq, Eq)]
struct List {
    version: Option<u64>,
    /// The keys of the consumers.
    keys: BTreeSet<Vec<u8>>,
}

impl List {
    fn read(reader: Reader<'_>) -> Result<Self> {
        let keys = changes::consumers(reader)?.into_iter().map(|(key, _)| key).collect();
        Ok(Self { version: version(reader)?, keys })
    }

    fn of(store: &Store, table: &OpenTable) -> Result<Self> {
        Self::read(store.read()?.reader(table)?)
    }

    /// Returns the list of the latest version.
    fn latest(lists: &[Self]) -> Self {
        let version = lists.iter().filter_map(|list| list.version).max();
        let latest = lists.iter().filter(|list| list.version == version);
        let keys = latest.flat_map(|list| list.keys.iter().cloned()).collect();
        Self { version: version.or(Some(0)), keys }
    }

    /// Makes the consumers of a shard those of this list.
    fn write(&self, writer: &mut Writer<'_, '_>) -> Result<()> {
        let own = Self::read(writer.reader())?;
        if own == *self {
            return Ok(());
        }
        for key in self.keys.difference(&own.keys) {
            let record = ConsumerRecord { at: changes::removed(writer.reader())?, time: now() };
            writer.put(Space::Changes, key, &record.encode())?;
        }
        for key in own.keys.difference(&self.keys) {
            let name = String::from_utf8_lossy(key.get(1..).unwrap_or_default());
            let shared = Keys::of(&name);
            let group = shared.group(writer.reader())?;
            shared.clear(writer, &group)?;
            writer.remove(Space::Changes, key)?;
        }
        set_version(writer, self.version.unwrap_or_default())
    }

    fn write_in(&self, store: &Store, table: &OpenTable) -> Result<()> {
        store.transaction(|txn| {
            let (mut writer, ..) = txn.writer(table)?;
            self.write(&mut writer)
        })
    }
}

fn version(reader: Reader<'_>) -> Result<Option<u64>> {
    let Some(record) = reader.get(Space::Changes, &LIST)? else { return Ok(None) };
    let version = record.try_into().map_err(|_| Error::Corrupt {
        table: reader.table().name,
        index: None,
        key: "of the list of consumers of its change stream".to_owned(),
        reason: "the record is damaged, or from a later release".to_owned(),
    });
    version.map(|version| Some(u64::from_be_bytes(version)))
}

fn set_version(writer: &mut Writer<'_, '_>, version: u64) -> Result<()> {
    writer.put(Space::Changes, &LIST, &version.to_be_bytes())
}

/// Forgets the version in a shard that was elsewhere.
pub(crate) fn forget_list(writer: &mut Writer<'_, '_>) -> Result<()> {
    if writer.reader().get(Space::Changes, &LIST)?.is_some() {
        writer.remove(Space::Changes, &LIST)?;
    }
    Ok(())
}

/// Increments the version in all shards, in the transaction that creates or removes a consumer.
pub(super) fn changed(writer: &mut Writer<'_, '_>, table: &OpenTable) -> Result<()> {
    if table.shared.orders.is_none() {
        return Ok(());
    }
    let mut latest = 0;
    for shard in writer.with_changes() {
        let own = beside(writer, shard, |writer| version(writer.reader()))?;
        latest = latest.max(own.unwrap_or_default());
    }
    for shard in writer.with_changes() {
        beside(writer, shard, |writer| set_version(writer, latest.saturating_add(1)))?;
    }
    Ok(())
}

/// Makes the list the same in all shards in which a table was opened. No other thread has the table yet.
pub(crate) fn align(shards: &[(Store, &OpenTable)]) -> Result<()> {
    let lists = shards.iter().map(|(store, table)| List::of(store, table));
    let lists = lists.collect::<Result<Vec<_>>>()?;
    let latest = List::latest(&lists);
    for ((store, table), list) in shards.iter().zip(lists) {
        if list != latest {
            latest.write_in(store, table)?;
        }
    }
    Ok(())
}

/// Gives a table in a further shard the consumers of the others. The caller prevents that consumers are created or removed.
pub(crate) fn join(
    shards: &shards::Engine,
    tables: &shards::Tables,
    (store, own): (&Store, &OpenTable),
) -> Result<()> {
    joined(shards, tables, (store, own))?.write_in(store, own)
}

/// Does this in a transaction of the shard.
pub(crate) fn join_in(
    shards: &shards::Engine,
    tables: &shards::Tables,
    (store, own): (&Store, &OpenTable),
    writer: &mut Writer<'_, '_>,
) -> Result<()> {
    joined(shards, tables, (store, own))?.write(writer)
}

/// Returns the consumers that a table in a further shard gets.
fn joined(
    shards: &shards::Engine,
    tables: &shards::Tables,
    (store, own): (&Store, &OpenTable),
) -> Result<List> {
    let mut lists = vec![List::of(store, own)?];
    for (number, shard) in shards.shards() {
        if let (Ok(other), Some(table)) = (store_of(shard), table_of(tables, number)) {
            lists.push(List::of(&other, &table)?);
        }
    }
    Ok(List::latest(&lists))
}

/// Gives the target of a move the consumers of its source, when the move switches.
pub(crate) fn follow(writer: &mut Writer<'_, '_>, [from, to]: [ShardNumber; 2]) -> Result<()> {
    let list = beside(writer, from, |writer| List::read(writer.reader()))?;
    beside(writer, to, |writer| list.write(writer))
}
