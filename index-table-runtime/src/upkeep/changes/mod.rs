//! The consumers of a change stream: their positions, and the removal of old changes.
//!
//! In a sharded store, each shard has a stream and the positions of the consumers in it. A consumer reads one snapshot of all
//! shards, and merges the streams by the places of their changes in the order of all shards. So it gets the changes of a
//! row in their order, also after the row has moved to another shard. Slots have a position in each shard; their holders
//! and the leases of the workers are in one shard (see [`with_leases`]).

mod lag;
mod list;
mod shared;
mod streams;
mod workers;

pub use lag::{ChangeConsumer, ChangeLag};
pub(crate) use list::{align, follow, forget_list, join, join_in};
pub(crate) use streams::{
    consumers, continue_consumers, lagging, last_change, remove_consumer, remove_old,
};

use std::{
    collections::{VecDeque, hash_map::RandomState},
    hash::BuildHasher as _,
    sync::Arc,
    time::Duration,
};

use self::shared::{Group, Keys, slot_of};
use crate::{
    engine::{Space, Write as _},
    model::{
        error::{Error, Result},
        shard::ShardNumber,
        stream::{ConsumerRecord, MAX_NAME, Mark, StoredChange, consumer_key, now},
    },
    placement::{Reader, Writer},
    store::{self, OpenTable, ReadTxn, Store, WriteTxn},
    write::changes,
};

/// The maximum number of changes that a transaction removes.
const STEP: u64 = 1024;

/// The pause after each transaction, in which other writers begin their transactions.
const PAUSE: Duration = Duration::from_millis(1);

/// A consumer of the change stream of a table.
pub(crate) struct Consumer {
    pub(crate) table: Arc<OpenTable>,
    pub(crate) name: String,
    key: Vec<u8>,
    shared: Keys,
}

/// The changes of a batch, in each shard that has changes of it.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    parts: Vec<PartSpan>,
    /// The worker that holds the slots; 0 if no worker does.
    worker: u64,
    /// The identity of the consumer.
    identity: u64,
}

impl Span {
    /// Whether the position stays the same.
    pub(crate) const fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

/// The changes of a batch in one shard: the position before them, and the position after them.
#[derive(Debug, Clone)]
struct PartSpan {
    shard: ShardNumber,
    from: u64,
    to: Mark,
    /// The slots, with their positions; none if the consumer is not shared.
    slots: Vec<(u8, u64)>,
}

/// The stream of one shard while a consumer reads it.
struct Part<'t> {
    shard: ShardNumber,
    reader: Reader<'t>,
    group: Group,
    /// The identity of the consumer; 0 without a record of it.
    identity: u64,
    /// The position of the consumer.
    at: Mark,
    /// The position before the first taken change.
    before: Mark,
    /// The position after the last read change.
    to: Mark,
    /// The changes after `to` that were read ahead.
    next: VecDeque<(u64, StoredChange<'t>)>,
}

/// The number of changes that are read ahead at once.
const AHEAD: u64 = 64;

impl<'t> Part<'t> {
    /// Begins to read at a position.
    fn begin(&mut self, at: Mark) -> Result<()> {
        (self.before, self.to) = (at, at);
        self.read_ahead()
    }

    fn read_ahead(&mut self) -> Result<()> {
        self.next = changes::some_after(self.reader, self.to.number, AHEAD)?.into();
        Ok(())
    }

    /// Returns the next change with its number, and reads the following change.
    fn take(&mut self) -> Result<Option<(u64, StoredChange<'t>)>> {
        let Some((number, change)) = self.next.pop_front() else { return Ok(None) };
        self.to = Mark { number, end: change.end };
        if self.next.is_empty() {
            self.read_ahead()?;
        }
        Ok(Some((number, change)))
    }
}

/// Returns the stream with the first change in the order of all shards.
fn first<'p, 't>(parts: &'p mut [Part<'t>]) -> Option<&'p mut Part<'t>> {
    let place = |part: &Part<'_>| part.next.front().map(|(number, change)| change.number(*number));
    let parts = parts.iter_mut().filter(|part| !part.next.is_empty());
    parts.min_by_key(|part| place(part))
}

/// Returns the part whose shard has the leases of the workers and the holders of the slots: the first with leases, or the
/// first. A shard that comes back has none (see [`list`]), so the leases stay where they are. If that shard leaves, the
/// leases begin again in another one.
fn with_leases<'p, 't>(parts: &'p [Part<'t>]) -> Option<&'p Part<'t>> {
    parts.iter().find(|part| part.group.has_workers()).or_else(|| parts.first())
}

/// Returns the identity of the consumer.
fn identity(parts: &[Part<'_>]) -> u64 {
    parts.iter().map(|part| part.identity).max().unwrap_or_default()
}

impl Consumer {
    /// Returns the consumer with this name, and creates it if it does not exist.
    pub(crate) fn open(store: &Store, table: &Arc<OpenTable>, name: &str) -> Result<Self> {
        table.check_store(store.inner.id)?;
        let table_name = table.schema.name;
        if name.len() > MAX_NAME {
            let (key, len) = (format!("of the consumer {name:?}"), name.len() + 1);
            return Err(Error::KeyTooLong { table: table_name, index: None, key, row: None, len });
        }
        let consumer = Self {
            table: Arc::clone(table),
            name: name.to_owned(),
            key: consumer_key(name),
            shared: Keys::of(name),
        };
        let exists = {
            let txn = store.read()?;
            let parts = parts(&txn, table)?;
            let mut found =
                parts.iter().map(|(_, reader)| changes::consumer(*reader, &consumer.key));
            found.try_fold(true, |all, found| found.map(|found| all && found.is_some()))?
        };
        if !exists {
            store.transaction(|txn| {
                let (mut writer, ..) = txn.writer(table)?;
                let (shards, mut identity) = (writer.with_changes(), None);
                for shard in &shards {
                    let own = beside(&mut writer, *shard, |writer| {
                        changes::consumer(writer.reader(), &consumer.key)
                    })?;
                    identity = identity.max(own.map(|own| own.identity));
                }
                let identity = identity.unwrap_or_else(random);
                for shard in shards {
                    beside(&mut writer, shard, |writer| {
                        if changes::consumer(writer.reader(), &consumer.key)?.is_some() {
                            return Ok(());
                        }
                        let at = changes::removed(writer.reader())?;
                        let record = ConsumerRecord { at, time: now(), identity };
                        writer.put(Space::Changes, &consumer.key, &record.encode())
                    })?;
                }
                list::changed(&mut writer, table)
            })?;
        }
        Ok(consumer)
    }

    fn set(&self, writer: &mut Writer<'_, '_>, at: Mark) -> Result<()> {
        let own = changes::consumer(writer.reader(), &self.key)?;
        let identity = own.map_or(0, |own| own.identity);
        let record = ConsumerRecord { at, time: now(), identity };
        writer.put(Space::Changes, &self.key, &record.encode())
    }

    /// Adds numbers to the changes that have none yet, if they can't be preceded by others. Changes have no number only
    /// on a server.
    pub(crate) fn number(&self, store: &Store) -> Result<()> {
        number(store, &self.table)
    }

    /// Returns the position in a stream. A stream that has no record of the consumer yet has none of its changes before the
    /// oldest change kept.
    fn position(&self, reader: Reader<'_>) -> Result<Mark> {
        let record = changes::consumer(reader, &self.key)?;
        record.map_or_else(|| changes::removed(reader), |record| Ok(record.at))
    }

    /// Returns the streams of all shards, at the positions of the consumer.
    fn streams<'t>(&'t self, txn: &'t ReadTxn<'_>) -> Result<Vec<Part<'t>>> {
        let (mut streams, mut exists) = (Vec::new(), false);
        for (shard, reader) in parts(txn, &self.table)? {
            let record = changes::consumer(reader, &self.key)?;
            exists |= record.is_some();
            let at = record.map_or_else(|| changes::removed(reader), |record| Ok(record.at))?;
            let group = self.shared.group(reader)?;
            streams.push(Part {
                shard,
                reader,
                group,
                identity: record.map_or(0, |record| record.identity),
                at,
                before: at,
                to: at,
                next: VecDeque::new(),
            });
        }
        if exists {
            return Ok(streams);
        }
        Err(Error::NoConsumer { table: self.table.schema.name, consumer: self.name.clone() })
    }

    /// Calls `each` with the next changes, in their order.
    pub(crate) fn next(
        &self,
        txn: &ReadTxn<'_>,
        limit: usize,
        mut each: impl FnMut(u64, StoredChange<'_>) -> Result<()>,
    ) -> Result<Span> {
        let (mut parts, mut taken) = (self.streams(txn)?, 0);
        if with_leases(&parts).is_some_and(|part| part.group.is_in_use(now())) {
            return Err(self.shared_error());
        }
        self.refuse_missed(parts.iter().map(|part| (part.reader, part.at)))?;
        parts.iter_mut().try_for_each(|part| part.begin(part.at))?;
        while taken < limit
            && let Some(part) = first(&mut parts)
            && let Some((number, change)) = part.take()?
        {
            // Workers may have committed later changes of some slots.
            let slot = part.group.slot(slot_of(change.primary_key));
            if slot.is_none_or(|slot| slot.at.number < number) {
                each(change.number(number), change)?;
                taken += 1;
            }
        }
        let read = parts.iter().filter(|part| part.to != part.at);
        let spans = read.map(|part| PartSpan {
            shard: part.shard,
            from: part.at.number,
            to: part.to,
            slots: part.group.slots.iter().map(|slot| (slot.number, slot.at.number)).collect(),
        });
        let identity = identity(&parts);
        Ok(Span { parts: spans.collect(), worker: 0, identity })
    }

    fn refuse_missed<'t>(&self, positions: impl Iterator<Item = (Reader<'t>, Mark)>) -> Result<()> {
        let mut missed = 0;
        for (reader, at) in positions {
            missed += changes::removed(reader)?.number.saturating_sub(at.number);
        }
        if missed == 0 {
            return Ok(());
        }
        let (table, consumer) = (self.table.schema.name, self.name.clone());
        Err(Error::ChangesMissed { table, consumer, missed })
    }

    #[cold]
    fn shared_error(&self) -> Error {
        Error::ConsumerShared { table: self.table.schema.name, consumer: self.name.clone() }
    }

    #[cold]
    fn superseded(&self) -> Error {
        Error::BatchSuperseded { table: self.table.schema.name, consumer: self.name.clone() }
    }

    /// Sets the positions after a batch.
    pub(crate) fn commit(&self, txn: &mut WriteTxn<'_>, span: &Span) -> Result<()> {
        let parts = self.streams(txn)?;
        let Some(leases) = with_leases(&parts).map(|part| &part.group) else { return Ok(()) };
        let is_present = |own: &PartSpan| parts.iter().any(|part| part.shard == own.shard);
        if !span.parts.iter().all(is_present) || span.identity != identity(&parts) {
            // A shard leaves when the consumer has committed its changes, so another handle has done so. Or the consumer was
            // removed, and created again.
            return Err(self.superseded());
        }
        if span.worker == 0 {
            if leases.is_in_use(now()) {
                return Err(self.shared_error());
            }
        } else {
            let held: Vec<u8> = leases.held(span.worker).map(|slot| slot.number).collect();
            let mut slots = span.parts.iter().flat_map(|part| &part.slots);
            if !slots.all(|(slot, _)| held.contains(slot)) {
                return Err(self.superseded());
            }
        }
        drop(parts);
        let (mut writer, ..) = txn.writer(&self.table)?;
        for part in &span.parts {
            beside(&mut writer, part.shard, |writer| {
                self.check(writer.reader(), span.worker, part)
            })?;
        }
        for part in &span.parts {
            beside(&mut writer, part.shard, |writer| self.commit_part(writer, span.worker, part))?;
        }
        Ok(())
    }

    /// Checks that no other changes of a shard were committed since the batch was read.
    fn check(&self, reader: Reader<'_>, worker: u64, part: &PartSpan) -> Result<()> {
        let (at, group) = (self.position(reader)?, self.shared.group(reader)?);
        let is_same = |(number, at): &(u8, u64)| {
            group.slot(*number).is_some_and(|slot| slot.at.number == *at)
        };
        let mut is_current = part.slots.iter().all(is_same);
        if worker == 0 {
            is_current &= group.slots.len() == part.slots.len() && at.number == part.from;
        }
        if is_current { Ok(()) } else { Err(self.superseded()) }
    }

    /// Sets the position in a shard.
    fn commit_part(&self, writer: &mut Writer<'_, '_>, worker: u64, part: &PartSpan) -> Result<()> {
        let at = self.position(writer.reader())?;
        let mut group = self.shared.group(writer.reader())?;
        if worker != 0 {
            let own: Vec<u8> = part.slots.iter().map(|(slot, _)| *slot).collect();
            self.advance(writer, &mut group, at, &own, part.to)?;
            // The time of the last commit shows whether a consumer is idle.
            let at = self.position(writer.reader())?;
            return self.set(writer, at);
        }
        // If a slot is ahead of the batch, the slots remain.
        let is_behind = group.slots.iter().all(|slot| slot.at.number <= part.to.number);
        if is_behind {
            self.shared.clear(writer, &group)?;
        } else {
            let all: Vec<u8> = group.slots.iter().map(|slot| slot.number).collect();
            self.advance(writer, &mut group, at, &all, part.to)?;
        }
        self.set(writer, part.to)
    }

    /// Moves the position forward to the change with this number, and at least to the oldest change kept. Returns the
    /// number of skipped changes.
    pub(crate) fn skip_to(&self, store: &Store, number: u64) -> Result<u64> {
        self.skip(store, |_, reader| changes::at_most(reader, number))
    }

    /// Moves the position forward, after all changes that are visible to a transaction. Returns the number of skipped changes.
    pub(crate) fn skip_before(&self, store: &Store, txn: &ReadTxn<'_>) -> Result<u64> {
        let mut ends = Vec::new();
        for (shard, reader) in parts(txn, &self.table)? {
            ends.push((shard, changes::last(reader)?));
        }
        self.skip(store, |shard, reader| {
            let end = ends.iter().find(|(other, _)| *other == shard).map(|(_, end)| *end);
            let (end, removed) = (end.unwrap_or_default(), changes::removed(reader)?);
            Ok(if end.number < removed.number { removed } else { end })
        })
    }

    fn skip(
        &self,
        store: &Store,
        target: impl Fn(ShardNumber, Reader<'_>) -> Result<Mark>,
    ) -> Result<u64> {
        store.transaction(|txn| {
            self.streams(txn)?;
            let (mut writer, ..) = txn.writer(&self.table)?;
            let mut skipped = 0;
            for shard in writer.with_changes() {
                skipped += beside(&mut writer, shard, |writer| {
                    let at = self.position(writer.reader())?;
                    let to = target(shard, writer.reader())?;
                    let mut group = self.shared.group(writer.reader())?;
                    let all: Vec<u8> = group.slots.iter().map(|slot| slot.number).collect();
                    self.advance(writer, &mut group, at, &all, to)?;
                    if to.number > at.number && all.is_empty() {
                        self.set(writer, to)?;
                    }
                    Ok(to.number.saturating_sub(at.number))
                })?;
            }
            Ok(skipped)
        })
    }

    /// Waits until there are changes that were not committed. Returns false after the timeout.
    pub(crate) fn wait(&self, store: &Store, timeout: Duration) -> Result<bool> {
        store::wait_for_commit(store, timeout, || self.has_changes(store))
    }

    /// Waits as [`wait`](Consumer::wait) does, without a thread that waits.
    #[cfg(feature = "async")]
    pub(crate) fn wait_async(
        self: &Arc<Self>,
        store: &Store,
        timeout: Duration,
    ) -> store::Call<bool> {
        let (own, inner) = (Arc::clone(self), Arc::downgrade(&store.inner));
        store::wait_for_signals(
            store,
            |store| &store.commits_seen,
            false,
            timeout,
            move || {
                // The call has the store open.
                let Some(inner) = inner.upgrade() else { return Ok(false) };
                own.has_changes(&Store { inner })
            },
        )
    }

    /// Whether there are changes that were not committed.
    fn has_changes(&self, store: &Store) -> Result<bool> {
        self.number(store)?;
        Ok(self.lag(&store.read()?)?.changes > 0)
    }

    pub(crate) fn lag(&self, txn: &ReadTxn<'_>) -> Result<ChangeLag> {
        let mut sum = ChangeLag::default();
        for part in self.streams(txn)? {
            sum.add(lag::of(part.reader, part.at)?);
        }
        Ok(sum)
    }
}

/// Adds numbers to the changes without numbers, of transactions below the oldest running transaction.
fn number(store: &Store, table: &OpenTable) -> Result<()> {
    let Some(stream) = table.rows.changes.filter(|_| store.inner.engines.has_other_writers())
    else {
        return Ok(());
    };
    let upto = {
        let txn = store.read()?;
        let upto = txn.commit_number().single().unwrap_or_default();
        let mut is_due = false;
        for (_, reader) in parts(&txn, table)? {
            is_due |= changes::is_due(reader, upto)?;
        }
        if !is_due {
            return Ok(());
        }
        upto
    };
    loop {
        let numbered = store.transaction(|txn| {
            let (mut writer, ..) = txn.writer(table)?;
            changes::number(&stream, &mut writer, upto)
        })?;
        if numbered < changes::AT_ONCE {
            return Ok(());
        }
    }
}

/// Returns a random number for a new worker or consumer; not 0.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(now()).max(1)
}

/// Returns the streams of a table, in each of its shards. A store without shards has the shard 0.
fn parts<'t>(txn: &'t ReadTxn<'_>, table: &'t OpenTable) -> Result<Vec<(ShardNumber, Reader<'t>)>> {
    // The stream follows the aggregates in the record.
    txn.reader_of_aggregate(table, table.rows.aggregates.len())?.with_changes()
}

/// Writes in the stream of one shard.
fn beside<T>(
    writer: &mut Writer<'_, '_>,
    shard: ShardNumber,
    mut write: impl FnMut(&mut Writer<'_, '_>) -> Result<T>,
) -> Result<T> {
    let mut outcome = None;
    writer.beside(shard, &mut |writer| {
        outcome = Some(write(writer)?);
        Ok(())
    })?;
    outcome.ok_or_else(|| Error::internal("a shard was not written"))
}
