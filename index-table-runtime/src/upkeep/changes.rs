//! The consumers of a change stream: their positions, and the removal of old changes.

use std::{
    fmt,
    sync::Arc,
    thread,
    time::{Duration, SystemTime},
};

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
}

/// The changes of a batch: the position before them, and the position after them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) from: u64,
    pub(crate) to: Mark,
}

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
        let consumer =
            Self { table: Arc::clone(table), name: name.to_owned(), key: consumer_key(name) };
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
        let (record, removed) = (self.record(reader)?, changes::removed(reader)?);
        let from = record.at.number;
        if from < removed.number {
            return Err(Error::ChangesMissed {
                table: self.table.schema.name,
                consumer: self.name.clone(),
                missed: removed.number - from,
            });
        }
        let mut to = record.at;
        for _ in 0..limit {
            let Some((number, change)) = changes::next(reader, to.number)? else { break };
            to = Mark { number, end: change.end };
            each(number, change)?;
        }
        Ok(Span { from, to })
    }

    /// Sets the position after a batch.
    pub(crate) fn commit(&self, txn: &mut WriteTxn<'_>, span: Span) -> Result<()> {
        let (mut writer, ..) = txn.writer(&self.table)?;
        if self.record(writer.reader())?.at.number != span.from {
            return Err(Error::BatchSuperseded {
                table: self.table.schema.name,
                consumer: self.name.clone(),
            });
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
            if to.number > at.number {
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
