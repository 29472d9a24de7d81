//! All consumers of a change stream, and the removal of old changes.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    thread,
};

use super::{
    ChangeConsumer, Consumer, PAUSE, STEP, beside, lag, list, number, parts, shared::Keys,
};
use crate::{
    engine::{Space, Write as _},
    model::{
        error::{Error, Result},
        stream::{consumer_key, time_of},
    },
    placement::Reader,
    store::{OpenTable, ReadTxn, Store},
    write::changes,
};

/// Returns the number of the last change. In several shards, returns a number such that the snapshot has all changes up to
/// it.
pub(crate) fn last_change(txn: &ReadTxn<'_>, table: &OpenTable) -> Result<u64> {
    match parts(txn, table)?.as_slice() {
        [(_, only)] if table.shared.orders.get().is_none() => changes::last_number(*only),
        parts => {
            let last = parts.iter().map(|(_, reader)| changes::last_order(*reader));
            last.reduce(|least, last| Ok(least?.min(last?))).unwrap_or(Ok(0))
        }
    }
}

/// Returns all consumers, in the order of their names.
pub(crate) fn consumers(txn: &ReadTxn<'_>, table: &OpenTable) -> Result<Vec<ChangeConsumer>> {
    let mut consumers: BTreeMap<String, ChangeConsumer> = BTreeMap::new();
    for (_, reader) in parts(txn, table)? {
        let removed = changes::removed(reader)?;
        for (key, record) in changes::consumers(reader)? {
            let name = String::from_utf8_lossy(key.get(1..).unwrap_or_default()).into_owned();
            let (lag, missed) =
                (lag::of(reader, record.at)?, removed.number.saturating_sub(record.at.number));
            let (position, last_commit) = (record.at.number, time_of(record.time));
            match consumers.entry(name) {
                Entry::Vacant(vacant) => {
                    let name = vacant.key().clone();
                    vacant.insert(ChangeConsumer { name, position, last_commit, lag, missed });
                }
                Entry::Occupied(mut consumer) => {
                    let consumer = consumer.get_mut();
                    consumer.position += position;
                    consumer.last_commit = consumer.last_commit.max(last_commit);
                    consumer.lag.add(lag);
                    consumer.missed += missed;
                }
            }
        }
    }
    Ok(consumers.into_values().collect())
}

/// Creates consumers of another store, after the last change of the table.
pub(crate) fn continue_consumers(
    store: &Store,
    table: &Arc<OpenTable>,
    others: &[ChangeConsumer],
) -> Result<u64> {
    let left = others.iter().find(|other| other.lag.changes > 0 || other.missed > 0);
    if let Some(ChangeConsumer { name, lag, missed, .. }) = left {
        let (table, consumer) = (table.schema.name, name.clone());
        return Err(Error::ChangesLeft { table, consumer, changes: lag.changes.max(*missed) });
    }
    for other in others {
        let consumer = Consumer::open(store, table, &other.name)?;
        consumer.number(store)?;
        consumer.skip_before(store, &store.read()?)?;
    }
    Ok(others.len() as u64)
}

/// Removes a consumer. Returns false if there is none with this name.
pub(crate) fn remove_consumer(store: &Store, table: &OpenTable, name: &str) -> Result<bool> {
    table.check_store(store.inner.id)?;
    let (key, shared) = (consumer_key(name), Keys::of(name));
    store.transaction(|txn| {
        // A shard that is not available would still have the consumer when it comes back.
        parts(txn, table)?;
        let (mut writer, ..) = txn.writer(table)?;
        let mut existed = false;
        for shard in writer.with_changes() {
            existed |= beside(&mut writer, shard, |writer| {
                let exists = changes::consumer(writer.reader(), &key)?.is_some();
                if exists {
                    let group = shared.group(writer.reader())?;
                    shared.clear(writer, &group)?;
                    writer.remove(Space::Changes, &key)?;
                }
                Ok(exists)
            })?;
        }
        if existed {
            list::changed(&mut writer, table)?;
        }
        Ok(existed)
    })
}

/// Removes up to `limit` old changes, in transactions of limited size. Returns their number.
pub(crate) fn remove_old(store: &Store, table: &OpenTable, limit: u64) -> Result<u64> {
    table.check_store(store.inner.id)?;
    let Some(stream) = table.rows.changes else { return Ok(0) };
    number(store, table)?;
    let shards: Vec<_> = parts(&store.read()?, table)?.iter().map(|(shard, _)| *shard).collect();
    let mut removed = 0;
    for shard in shards {
        while removed < limit {
            let most = STEP.min(limit - removed);
            let step = store.transaction(|txn| {
                let (mut writer, ..) = txn.writer(table)?;
                if !writer.with_changes().contains(&shard) {
                    // The shard has left the store with its changes.
                    return Ok(0);
                }
                beside(&mut writer, shard, |writer| changes::remove_old(&stream, writer, most))
            })?;
            removed += step;
            if step < most {
                break;
            }
            thread::sleep(PAUSE);
        }
    }
    Ok(removed)
}

/// Returns a consumer that has not committed all changes of the stream in this shard.
pub(crate) fn lagging(reader: Reader<'_>) -> Result<Option<String>> {
    let last = changes::last(reader)?;
    let consumers = changes::consumers(reader)?.into_iter();
    let mut lagging = consumers.filter(|(_, record)| record.at.number < last.number);
    let name = |(key, _): (Vec<u8>, _)| {
        String::from_utf8_lossy(key.get(1..).unwrap_or_default()).into_owned()
    };
    Ok(lagging.next().map(name))
}
