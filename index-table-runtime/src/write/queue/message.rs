//! The records of a queue, as bytes.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{BOUND, DEAD_LETTERS, QUEUE_STATE, damage, totals};
use crate::{
    engine::{ReadRecords as _, WriteRecords as _},
    model::{
        error::{Error, Result},
        schema::TableSchema,
    },
    placement::{Reader, Writer},
    write::aggregates::Gathered,
};

/// A row, and the eventual indexes and aggregates in which its entries or its totals change.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Message {
    /// The time of the write, in milliseconds since 1970.
    pub(crate) time: u64,
    pub(crate) primary_key: Vec<u8>,
    pub(crate) indexes: Vec<Part>,
}

/// The part of a message about one index or aggregate.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) index: String,
    /// The keys of the row that the write removed; or the [changes](super::totals) of the totals of an aggregate.
    pub(crate) keys: Vec<Vec<u8>>,
}

/// A message that could not be applied.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeadLetterRecord {
    pub(crate) error: String,
    /// The bytes of the message, which may be damaged.
    pub(crate) message: Vec<u8>,
}

/// The progress of a queue.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QueueState {
    /// The number of the last message that was applied or became a dead letter.
    pub(crate) applied: u64,
    /// The number of dead letters.
    pub(crate) dead_letters: u64,
}

impl QueueState {
    pub(crate) fn read(schema: &TableSchema, reader: Reader<'_>) -> Result<Self> {
        match reader.message(QUEUE_STATE)? {
            Some((QUEUE_STATE, position)) => decode(position)
                .filter(|state: &Self| state.applied < BOUND && state.dead_letters < BOUND)
                .ok_or_else(|| damaged(schema)),
            _ => Ok(Self::default()),
        }
    }

    pub(crate) fn write(self, schema: &TableSchema, writer: &mut Writer<'_, '_>) -> Result<()> {
        writer.put_message(QUEUE_STATE, &encode(schema, &self)?)
    }

    /// Returns the number of pending messages in the queue.
    pub(crate) fn left(self, reader: Reader<'_>) -> Result<u64> {
        let state_records = u64::from(self != Self::default());
        let left = reader.messages()?.saturating_sub(state_records + self.dead_letters);
        // A damaged queue can have records that no worker would apply.
        Ok(if left > 0 && self.next(reader)?.is_none() { 0 } else { left })
    }

    /// Returns the number of the last message that was written.
    pub(crate) fn last(self, schema: &TableSchema, reader: Reader<'_>) -> Result<u64> {
        let last = reader.message_below(DEAD_LETTERS)?.map_or(0, |(number, _)| number);
        if last < BOUND { Ok(last.max(self.applied)) } else { Err(damaged(schema)) }
    }

    /// Returns the first message to apply.
    pub(crate) fn next(self, reader: Reader<'_>) -> Result<Option<(u64, &[u8])>> {
        let next = reader.message(self.applied + 1)?;
        Ok(next.filter(|(number, _)| *number < DEAD_LETTERS))
    }
}

/// The rows that messages in a queue name, by index, and the changes of totals that are not applied yet. Differences in
/// the entries of these rows are not damage.
#[derive(Debug, Default)]
pub(crate) struct Queued {
    rows: BTreeSet<(usize, Vec<u8>)>,
    totals: Gathered,
}

impl Queued {
    /// Reads the messages. If the queue is damaged, the result is empty, because a worker may never apply them.
    pub(crate) fn read(schema: &TableSchema, reader: Reader<'_>) -> Result<Self> {
        let mut queued = Self::default();
        if let Some(split) = reader.split() {
            for reader in split.with_queues() {
                let Self { rows, totals } = Self::read(schema, reader)?;
                queued.rows.extend(rows);
                queued.totals.merge(totals);
            }
            return Ok(queued);
        }
        if damage(schema, reader)?.is_some() {
            return Ok(Self::default());
        }
        let mut from = QUEUE_STATE + 1;
        while let Some((number, bytes)) = reader.message(from)? {
            let dead_letter =
                if number < DEAD_LETTERS { None } else { decode::<DeadLetterRecord>(bytes) };
            let bytes = dead_letter.as_ref().map_or(bytes, |dead_letter| &dead_letter.message);
            if let Some(Message { primary_key, indexes, .. }) = decode(bytes) {
                for part in indexes {
                    let Some(position) = schema.position_of(&part.index) else { continue };
                    if schema.aggregate(position).is_some() {
                        let changes = part.keys.iter().filter_map(|bytes| totals::decode(bytes));
                        let aggregate = position - schema.indexes.len();
                        changes.for_each(|change| queued.totals.add_change(aggregate, change));
                        continue;
                    }
                    queued.rows.insert((position, primary_key.clone()));
                }
            }
            let Some(next) = number.checked_add(1) else { break };
            from = next;
        }
        Ok(queued)
    }

    pub(crate) fn has(&self, index: usize, primary_key: &[u8]) -> bool {
        self.rows.contains(&(index, primary_key.to_vec()))
    }

    /// Returns the changes of totals that are not applied yet.
    pub(crate) const fn totals(&self) -> &Gathered {
        &self.totals
    }
}

pub(crate) fn encode(schema: &TableSchema, value: &impl Serialize) -> Result<Vec<u8>> {
    postcard::to_stdvec(value)
        .map_err(|error| Error::Codec { table: schema.name, reason: error.to_string() })
}

/// Decodes a record; `None` if the bytes are invalid.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Some(value),
        _ => None,
    }
}

#[cold]
fn damaged(schema: &TableSchema) -> Error {
    Error::Corrupt {
        table: schema.name,
        index: None,
        key: "of its queue".to_owned(),
        reason: "its progress can't be read".to_owned(),
    }
}

/// Returns the current time in milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
