//! The consumers of a change stream: their positions, and the removal of old changes.

mod shared;

use std::{
    collections::hash_map::RandomState,
    fmt,
    hash::BuildHasher as _,
    sync::Arc,
    thread,
    time::{Duration, SystemTime},
};

use self::shared::{Group, Keys, slot_of};
use crate::{
    engine::{Reader, Space, Write as _, Writer},
    model::{
        error::{Error, Result},
        stream::{ConsumerRecord, MAX_NAME, Mark, StoredChange, consumer_key, now, time_of},
    },
    store::{OpenTable, ReadTxn, Store, WriteTxn},
    write::changes,
};

/// The maximum number of changes that a transaction removes.
const STEP: u64 = 1024;

/// The pause after each transaction, in which other writers begin theirs.
const PAUSE: Duration = Duration::from_millis(1);

/// A consumer of the change stream of a table.
pub(crate) struct Consumer {
    pub(crate) table: Arc<OpenTable>,
    pub(crate) name: String,
    key: Vec<u8>,
    shared: Keys,
}

/// The changes of a batch: the position before them, and the position after them.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    from: u64,
    to: Mark,
    /// The slots, with their positions; none if the consumer is not shared.
    slots: Vec<(u8, u64)>,
    /// The worker that holds the slots; 0 if no worker does.
    worker: u64,
}

/// Receives the changes of a worker, after `None` for each attempt.
pub(crate) type Each<'e> = dyn FnMut(Option<(u64, StoredChange<'_>)>) -> Result<()> + 'e;

/// The maximum number of changes that a worker reads in one transaction to find changes of its slots.
const MOST_READ: usize = 4096;

/// The changes that a consumer has not committed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ChangeLag {
    /// The number of changes.
    pub changes: u64,
    /// Their bytes in the file, without overhead.
    pub bytes: u64,
    /// The time of the oldest of these changes that is kept; `None` if there are none.
    pub since: Option<SystemTime>,
}

impl fmt::Display for ChangeLag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} changes ({} bytes)", self.changes, self.bytes)?;
        let age = self.since.and_then(|since| SystemTime::now().duration_since(since).ok());
        age.map_or(Ok(()), |age| write!(f, ", the oldest {age:.1?} old"))
    }
}

/// A consumer of a change stream, as in [`Table::change_consumers`](crate::Table::change_consumers).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangeConsumer {
    /// The name.
    pub name: String,
    /// The number of the last committed change; 0 if there is none.
    pub position: u64,
    /// The time of the last commit, or of the creation of the consumer. A consumer that has a lag, and has not
    /// committed for long, is idle.
    pub last_commit: SystemTime,
    /// The changes that it has not committed.
    pub lag: ChangeLag,
    /// The number of changes that were removed before the consumer committed them. If it is not 0, the consumer gets
    /// [`Error::ChangesMissed`](crate::Error::ChangesMissed).
    pub missed: u64,
}

impl Consumer {
    /// Returns the consumer with this name, and creates it if it does not exist.
    pub(crate) fn open(store: &Store, table: &Arc<OpenTable>, name: &str) -> Result<Self> {
        table.check_store(store.inner.id)?;
        let table_name = table.schema.name;
        if name.len() > MAX_NAME {
            let (key, len) = (format!("of the consumer {name:?}"), name.len() + 1);
            return Err(Error::KeyTooLong { table: table_name, index: None, key, len });
        }
        let consumer = Self {
            table: Arc::clone(table),
            name: name.to_owned(),
            key: consumer_key(name),
            shared: Keys::of(name),
        };
        let exists = {
            let txn = store.read()?;
            changes::consumer(reader(&txn, table)?, &consumer.key)?.is_some()
        };
        if !exists {
            store.transaction(|txn| {
                let (mut writer, ..) = txn.writer(table)?;
                if changes::consumer(writer.reader(), &consumer.key)?.is_some() {
                    return Ok(());
                }
                let at = changes::removed(writer.reader())?;
                consumer.set(&mut writer, at)
            })?;
        }
        Ok(consumer)
    }

    fn set(&self, writer: &mut Writer<'_, '_>, at: Mark) -> Result<()> {
        let record = ConsumerRecord { at, time: now() };
        writer.put(Space::Changes, &self.key, &record.encode())
    }

    fn record(&self, reader: Reader<'_>) -> Result<ConsumerRecord> {
        let record = changes::consumer(reader, &self.key)?;
        record.ok_or_else(|| Error::NoConsumer {
            table: self.table.schema.name,
            consumer: self.name.clone(),
        })
    }

    /// Calls `each` with the next changes, in their order.
    pub(crate) fn next(
        &self,
        txn: &ReadTxn<'_>,
        limit: usize,
        mut each: impl FnMut(u64, StoredChange<'_>) -> Result<()>,
    ) -> Result<Span> {
        let reader = reader(txn, &self.table)?;
        let (record, group) = (self.record(reader)?, self.shared.group(reader)?);
        if group.is_in_use(now()) {
            return Err(self.shared_error());
        }
        self.refuse_missed(reader, record.at)?;
        let (mut to, mut taken) = (record.at, 0);
        while taken < limit
            && let Some((number, change)) = changes::next(reader, to.number)?
        {
            // Workers may have committed later changes of some slots.
            let slot = group.slot(slot_of(change.primary_key));
            if slot.is_none_or(|slot| slot.at.number < number) {
                each(number, change)?;
                taken += 1;
            }
            to = Mark { number, end: change.end };
        }
        let slots = group.slots.iter().map(|slot| (slot.number, slot.at.number)).collect();
        Ok(Span { from: record.at.number, to, slots, worker: 0 })
    }

    /// Calls `each` with the next changes in the slots of a worker, in their order, and extends its lease. `restart` is
    /// called before each attempt.
    pub(crate) fn next_of_worker(
        &self,
        store: &Store,
        (worker, lease): (u64, Duration),
        limit: usize,
        restart_and_each: &mut Each<'_>,
    ) -> Result<Span> {
        loop {
            let (span, is_at_end) = store.transaction(|txn| {
                restart_and_each(None)?;
                let (mut writer, ..) = txn.writer(&self.table)?;
                let record = self.record(writer.reader())?;
                let mut group = self.shared.group(writer.reader())?;
                let now = now();
                let lease = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
                let times = (now, now.saturating_add(lease));
                self.shared.join(&mut writer, &mut group, record.at, worker, times)?;
                let first = group.held(worker).map(|slot| slot.at).min_by_key(|at| at.number);
                let Some(first) = first else {
                    return Ok((
                        Span { from: 0, to: Mark::default(), slots: Vec::new(), worker },
                        true,
                    ));
                };
                let reader = writer.reader();
                self.refuse_missed(reader, first)?;
                // The position before the first taken change, and the position after the last one.
                let (mut before, mut to, mut taken, mut read) = (first, first, 0, 0);
                let mut is_at_end = true;
                while let Some((number, change)) = changes::next(reader, to.number)? {
                    if taken == limit || read == MOST_READ {
                        is_at_end = false;
                        break;
                    }
                    read += 1;
                    let slot = group.slot(slot_of(change.primary_key));
                    to = Mark { number, end: change.end };
                    if slot.is_some_and(|slot| slot.holder == worker && slot.at.number < number) {
                        restart_and_each(Some((number, change)))?;
                        taken += 1;
                    } else if taken == 0 {
                        before = to;
                    }
                }
                // The slots of the worker have no changes before the first taken one.
                let own: Vec<u8> = group.held(worker).map(|slot| slot.number).collect();
                self.advance(&mut writer, &mut group, record.at, &own, before)?;
                let slots = group.held(worker).map(|slot| (slot.number, slot.at.number));
                let span = Span { from: before.number, to, slots: slots.collect(), worker };
                Ok((span, is_at_end || taken > 0))
            })?;
            if is_at_end || limit == 0 {
                return Ok(span);
            }
        }
    }

    /// Moves these slots forward, and the consumer to the least position of all slots.
    fn advance(
        &self,
        writer: &mut Writer<'_, '_>,
        group: &mut Group,
        at: Mark,
        slots: &[u8],
        to: Mark,
    ) -> Result<()> {
        let is_moved =
            |slot: &&mut shared::Slot| slots.contains(&slot.number) && slot.at.number < to.number;
        for slot in group.slots.iter_mut().filter(is_moved) {
            slot.at = to;
            self.shared.set_slot(writer, *slot)?;
        }
        let least = group.slots.iter().map(|slot| slot.at).min_by_key(|at| at.number);
        match least {
            Some(least) if least.number > at.number => self.set(writer, least),
            _ => Ok(()),
        }
    }

    /// Ends the lease of a worker.
    pub(crate) fn leave(&self, store: &Store, worker: u64) -> Result<()> {
        store.transaction(|txn| {
            let (mut writer, ..) = txn.writer(&self.table)?;
            self.shared.leave(&mut writer, worker)
        })
    }

    fn refuse_missed(&self, reader: Reader<'_>, at: Mark) -> Result<()> {
        let removed = changes::removed(reader)?;
        if at.number >= removed.number {
            return Ok(());
        }
        Err(Error::ChangesMissed {
            table: self.table.schema.name,
            consumer: self.name.clone(),
            missed: removed.number - at.number,
        })
    }

    #[cold]
    fn shared_error(&self) -> Error {
        Error::ConsumerShared { table: self.table.schema.name, consumer: self.name.clone() }
    }

    #[cold]
    fn superseded(&self) -> Error {
        Error::BatchSuperseded { table: self.table.schema.name, consumer: self.name.clone() }
    }

    /// Sets the position after a batch.
    pub(crate) fn commit(&self, txn: &mut WriteTxn<'_>, span: &Span) -> Result<()> {
        let (mut writer, ..) = txn.writer(&self.table)?;
        let reader = writer.reader();
        let (record, mut group) = (self.record(reader)?, self.shared.group(reader)?);
        let is_same = |(number, at): &(u8, u64)| {
            let slot = group.slot(*number);
            let is_held = |slot: &shared::Slot| span.worker == 0 || slot.holder == span.worker;
            slot.is_some_and(|slot| slot.at.number == *at && is_held(slot))
        };
        let is_current = span.slots.iter().all(is_same);
        if span.worker != 0 {
            if !is_current {
                return Err(self.superseded());
            }
            let own: Vec<u8> = span.slots.iter().map(|(slot, _)| *slot).collect();
            self.advance(&mut writer, &mut group, record.at, &own, span.to)?;
            // An idle consumer is recognized by the time of its last commit.
            let at = self.record(writer.reader())?.at;
            return self.set(&mut writer, at);
        }
        if group.is_in_use(now()) {
            return Err(self.shared_error());
        }
        let is_current = is_current && group.slots.len() == span.slots.len();
        if !is_current || record.at.number != span.from {
            return Err(self.superseded());
        }
        // Slots may be ahead of a batch, and only then remain.
        let is_behind = group.slots.iter().all(|slot| slot.at.number <= span.to.number);
        if is_behind {
            self.shared.clear(&mut writer, &group)?;
        } else {
            let all: Vec<u8> = group.slots.iter().map(|slot| slot.number).collect();
            self.advance(&mut writer, &mut group, record.at, &all, span.to)?;
        }
        self.set(&mut writer, span.to)
    }

    /// Moves the position forward to the change with this number, and at least to the oldest change kept. Returns the
    /// number of skipped changes.
    pub(crate) fn skip_to(&self, store: &Store, number: u64) -> Result<u64> {
        store.transaction(|txn| {
            let (mut writer, ..) = txn.writer(&self.table)?;
            let reader = writer.reader();
            let (at, removed, last) =
                (self.record(reader)?.at, changes::removed(reader)?, changes::last(reader)?);
            let to = if number <= removed.number {
                removed
            } else if number >= last.number {
                last
            } else {
                match changes::next(reader, number - 1)? {
                    Some((number, change)) => Mark { number, end: change.end },
                    None => last,
                }
            };
            let mut group = self.shared.group(writer.reader())?;
            let all: Vec<u8> = group.slots.iter().map(|slot| slot.number).collect();
            self.advance(&mut writer, &mut group, at, &all, to)?;
            if to.number > at.number && all.is_empty() {
                self.set(&mut writer, to)?;
            }
            Ok(to.number.saturating_sub(at.number))
        })
    }

    pub(crate) fn lag(&self, txn: &ReadTxn<'_>) -> Result<ChangeLag> {
        let reader = reader(txn, &self.table)?;
        lag(reader, self.record(reader)?.at)
    }
}

/// Returns the number of a new worker; not 0.
pub(crate) fn new_worker() -> u64 {
    RandomState::new().hash_one(now()).max(1)
}

/// Returns a reader of the stream in a transaction.
fn reader<'t>(txn: &'t ReadTxn<'_>, table: &'t OpenTable) -> Result<Reader<'t>> {
    // The stream follows the aggregates in the record.
    txn.reader_of_aggregate(table, table.rows.aggregates.len())
}

fn lag(reader: Reader<'_>, at: Mark) -> Result<ChangeLag> {
    let last = changes::last(reader)?;
    let next = changes::next(reader, at.number)?;
    Ok(ChangeLag {
        changes: last.number.saturating_sub(at.number),
        bytes: last.end.saturating_sub(at.end),
        since: next.map(|(_, change)| time_of(change.time)),
    })
}

/// Returns the number of the last change.
pub(crate) fn last_change(txn: &ReadTxn<'_>, table: &OpenTable) -> Result<u64> {
    changes::last(reader(txn, table)?).map(|last| last.number)
}

/// Returns all consumers.
pub(crate) fn consumers(txn: &ReadTxn<'_>, table: &OpenTable) -> Result<Vec<ChangeConsumer>> {
    let reader = reader(txn, table)?;
    let removed = changes::removed(reader)?;
    let consumers = changes::consumers(reader)?.into_iter().map(|(key, record)| {
        Ok(ChangeConsumer {
            name: String::from_utf8_lossy(key.get(1..).unwrap_or_default()).into_owned(),
            position: record.at.number,
            last_commit: time_of(record.time),
            lag: lag(reader, record.at)?,
            missed: removed.number.saturating_sub(record.at.number),
        })
    });
    consumers.collect()
}

/// Removes a consumer. Returns false if there is none with this name.
pub(crate) fn remove_consumer(store: &Store, table: &OpenTable, name: &str) -> Result<bool> {
    table.check_store(store.inner.id)?;
    let key = consumer_key(name);
    store.transaction(|txn| {
        let (mut writer, ..) = txn.writer(table)?;
        let exists = changes::consumer(writer.reader(), &key)?.is_some();
        if exists {
            let shared = Keys::of(name);
            let group = shared.group(writer.reader())?;
            shared.clear(&mut writer, &group)?;
            writer.remove(Space::Changes, &key)?;
        }
        Ok(exists)
    })
}

/// Removes up to `limit` old changes, in transactions of limited size. Returns their number.
pub(crate) fn remove_old(store: &Store, table: &OpenTable, limit: u64) -> Result<u64> {
    table.check_store(store.inner.id)?;
    let Some(stream) = table.rows.changes else { return Ok(0) };
    let mut removed = 0;
    while removed < limit {
        let most = STEP.min(limit - removed);
        let step = store.transaction(|txn| {
            let (mut writer, ..) = txn.writer(table)?;
            changes::remove_old(&stream, &mut writer, most)
        })?;
        removed += step;
        if step < most {
            break;
        }
        thread::sleep(PAUSE);
    }
    Ok(removed)
}
