//! The list of the consumers of a change stream, which is the same in all shards of a store.
//!
//! A consumer is created and removed in all shards in one transaction, which also increments the version of the list in each
//! of them. So a shard that was away meanwhile, because it was detached or its files are from a backup, has an earlier
//! version, and gets the current list when it comes back: a further consumer begins at the oldest change kept there, and
//! a consumer that was removed meanwhile is removed. A consumer that was removed and created again has another identity, and is
//! a further consumer. The leases of workers don't come back. A shard that was a plain store has no version, because consumers of the
//! plain store are not those of the sharded store.
//!
//! If no shard has a version, the list has the consumers of all shards: the store has grown, or the shard map manager
//! was rebuilt. Consumers with the same name then become one, which continues at its position in each shard.

use std::collections::BTreeMap;

use super::{beside, shared::Keys};
use crate::{
    engine::{Read as _, Space, Write as _},
    model::{
        error::{Error, Result},
        shard::ShardNumber,
        stream::{ConsumerRecord, LIST, now},
    },
    placement::{Reader, Writer},
    store::{OpenTable, Shards, Store},
    write::changes,
};

/// The consumers in one shard.
#[derive(Debug, Default)]
struct List {
    version: Option<u64>,
    /// The consumers, by their keys.
    consumers: BTreeMap<Vec<u8>, ConsumerRecord>,
}

impl List {
    fn read(reader: Reader<'_>) -> Result<Self> {
        let consumers = changes::consumers(reader)?.into_iter().collect();
        Ok(Self { version: version(reader)?, consumers })
    }

    fn of(store: &Store, table: &OpenTable) -> Result<Self> {
        Self::read(store.read()?.reader(table)?)
    }

    /// Returns the list of the latest version; without a version, of all shards. Of several consumers with the same name, it
    /// has the one with the latest commit.
    fn latest(lists: &[Self]) -> Self {
        let version = lists.iter().filter_map(|list| list.version).max();
        let mut consumers: BTreeMap<Vec<u8>, ConsumerRecord> = BTreeMap::new();
        for (key, record) in
            lists.iter().filter(|it| it.version == version).flat_map(|it| &it.consumers)
        {
            let latest = consumers.entry(key.clone()).or_insert(*record);
            if (latest.identity == 0, record.time) > (record.identity == 0, latest.time) {
                *latest = *record;
            }
        }
        Self { version, consumers }
    }

    /// The version of a list that is written.
    fn next_version(&self) -> u64 {
        self.version.unwrap_or_default()
    }

    /// Whether a shard has this list.
    fn is_in(&self, own: &Self) -> bool {
        let identities = |list: &Self| {
            let all = list.consumers.iter().map(|(key, record)| (key.clone(), record.identity));
            all.collect::<Vec<_>>()
        };
        own.version == Some(self.next_version()) && identities(own) == identities(self)
    }

    /// Makes the consumers of a shard those of this list.
    fn write(&self, writer: &mut Writer<'_, '_>) -> Result<()> {
        let own = Self::read(writer.reader())?;
        if self.is_in(&own) {
            return Ok(());
        }
        let was_away = self.version.is_some() && own.version != self.version;
        // Since the consumers of a plain store became those of this store, which is version 0, one was created or removed.
        let has_changed = was_away && self.version > Some(0);
        for (key, record) in &self.consumers {
            let at = match own.consumers.get(key) {
                Some(own) if own.identity == record.identity => None,
                Some(own) if !has_changed => Some((own.at, own.time)),
                known => {
                    if known.is_some() {
                        clear(key, writer)?;
                    }
                    Some((changes::removed(writer.reader())?, now()))
                }
            };
            if let Some((at, time)) = at {
                let record = ConsumerRecord { at, time, identity: record.identity };
                writer.put(Space::Changes, key, &record.encode())?;
            }
            if was_away {
                let shared = shared(key);
                let group = shared.group(writer.reader())?;
                shared.release(writer, &group)?;
            }
        }
        for key in own.consumers.keys().filter(|key| !self.consumers.contains_key(*key)) {
            clear(key, writer)?;
            writer.remove(Space::Changes, key)?;
        }
        set_version(writer, self.next_version())
    }

    fn write_in(&self, store: &Store, table: &OpenTable) -> Result<()> {
        store.transaction(|txn| {
            let (mut writer, ..) = txn.writer(table)?;
            self.write(&mut writer)
        })
    }
}

/// Returns the keys of the slots and workers of a consumer.
fn shared(key: &[u8]) -> Keys {
    Keys::of(&String::from_utf8_lossy(key.get(1..).unwrap_or_default()))
}

/// Removes the slots and workers of a consumer.
fn clear(key: &[u8], writer: &mut Writer<'_, '_>) -> Result<()> {
    let shared = shared(key);
    let group = shared.group(writer.reader())?;
    shared.clear(writer, &group)
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
    if table.shared.orders.get().is_none() {
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
        if !latest.is_in(&list) {
            latest.write_in(store, table)?;
        }
    }
    Ok(())
}

/// Gives a table in a further shard the consumers of the others. The caller prevents that consumers are created or removed.
pub(crate) fn join(
    shards: &Shards,
    table: &OpenTable,
    (store, own): (&Store, &OpenTable),
) -> Result<()> {
    joined(shards, table, (store, own))?.write_in(store, own)
}

/// Does this in a transaction of the shard.
pub(crate) fn join_in(
    shards: &Shards,
    table: &OpenTable,
    (store, own): (&Store, &OpenTable),
    writer: &mut Writer<'_, '_>,
) -> Result<()> {
    joined(shards, table, (store, own))?.write(writer)
}

/// Returns the consumers that a table in a further shard gets.
fn joined(shards: &Shards, table: &OpenTable, (store, own): (&Store, &OpenTable)) -> Result<List> {
    let mut lists = vec![List::of(store, own)?];
    for (number, shard) in shards.members() {
        if let (Ok(other), Some(in_other)) = (shard.store(), table.in_shard(number)) {
            lists.push(List::of(&other, &in_other)?);
        }
    }
    Ok(List::latest(&lists))
}

/// Gives the target of a move the consumers of its source, when the move switches.
pub(crate) fn follow(writer: &mut Writer<'_, '_>, [from, to]: [ShardNumber; 2]) -> Result<()> {
    let list = beside(writer, from, |writer| List::read(writer.reader()))?;
    beside(writer, to, |writer| list.write(writer))
}
