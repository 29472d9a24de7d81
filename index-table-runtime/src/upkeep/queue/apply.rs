//! Applies messages to eventual indexes and aggregates.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
    time::Duration,
};

use serde::Serialize;

use crate::write::queue::{
    DEAD_LETTERS, DeadLetterRecord, Message, QueueState, decode, encode, in_queue, queues_of,
    reader_if_present, reader_of,
};
use crate::{
    engine::{Read as _, ReadRecords as _, WriteRecords as _},
    model::{
        error::{Error, Result},
        maintain::{Change, Image, Sink as _},
        row_vtable::TableRows,
        schema::TableSchema,
        shard::ShardNumber,
    },
    placement::{Reader, Writer},
    store::{OpenTable, Store},
    write::{Counting, Written, aggregates::Gathered, queue::totals},
};

/// The maximum number of messages in a batch.
const MESSAGES: u64 = 1024;

/// The size of messages and rows, in bytes, at which a batch ends.
const BYTES: usize = 1 << 20;

/// The pause between two batches, in which waiting writers get the lock. Without it, this thread would lock again
/// before a waiting thread wakes up.
pub(super) const PAUSE: Duration = Duration::from_millis(1);

/// The result of applying the messages of a queue. From the `drain` of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Drained {
    /// The number of applied messages.
    pub applied: u64,
    /// The number of messages that could not be applied, and became dead letters.
    pub dead_letters: u64,
    /// The number of remaining messages.
    pub left: u64,
}

/// Applies up to `most` messages, in batches. Each batch is a transaction. An error in the queue of one shard is returned after the
/// messages of the other shards were applied.
pub(crate) fn drain(store: &Store, table: &OpenTable, most: u64) -> Result<Drained> {
    store.inner.refuse_nested_write()?;
    let mut drained = Drained::default();
    loop {
        let most = most - drained.applied - drained.dead_letters;
        let (batch, failed) = batch_of(store, table, most);
        drained.applied += batch.applied;
        drained.dead_letters += batch.dead_letters;
        drained.left = batch.left;
        if batch.left == 0 || most == batch.applied + batch.dead_letters {
            // The other queues are empty.
            return failed.map_or(Ok(drained), Err);
        }
        thread::sleep(PAUSE);
    }
}

/// Applies a batch of each queue of a table, together up to `most` messages. Each batch is a transaction. Also returns the first
/// error of a queue, whose messages are not counted. It does not stop the other queues: its shard may not be available.
pub(super) fn batch_of(store: &Store, table: &OpenTable, most: u64) -> (Drained, Option<Error>) {
    let (mut drained, mut failed) = (Drained::default(), None);
    for queue in queues_of(&table.tables) {
        let most = most - drained.applied - drained.dead_letters;
        match batch_of_queue(store, table, queue, most) {
            Ok(batch) => {
                drained.applied += batch.applied;
                drained.dead_letters += batch.dead_letters;
                drained.left += batch.left;
            }
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    (drained, failed)
}

/// Applies a batch of a queue.
fn batch_of_queue(
    store: &Store,
    table: &OpenTable,
    queue: Option<ShardNumber>,
    most: u64,
) -> Result<Drained> {
    let left = left(store, table, queue)?;
    if left == 0 || most == 0 {
        return Ok(Drained { left, ..Drained::default() });
    }
    let batch = store.transaction(|txn| {
        let (mut writer, scratch, written) = txn.writer(table)?;
        let most = most.min(MESSAGES);
        batch((&table.rows, queue), &mut writer, &mut scratch.new, written, most)
    })?;
    store.inner.signals.notify();
    Ok(batch)
}

/// Returns the number of messages in a queue. Without messages, no write transaction is needed.
fn left(store: &Store, table: &OpenTable, queue: Option<ShardNumber>) -> Result<u64> {
    let txn = store.read()?;
    let Some(reader) = reader_if_present(txn.reader(table)?, queue)? else { return Ok(0) };
    QueueState::read(table.schema, reader)?.left(reader)
}

/// Applies messages of a queue and records the progress, in one transaction.
fn batch(
    (rows, queue): (&TableRows, Option<ShardNumber>),
    writer: &mut Writer<'_, '_>,
    image: &mut Image,
    written: &mut Written,
    most: u64,
) -> Result<Drained> {
    let Some(reader) = reader_if_present(writer.reader(), queue)? else {
        return Ok(Drained::default());
    };
    let mut state = QueueState::read(rows.schema, reader)?;
    let (before, is_concurrent) = (state, writer.reader().is_concurrent());
    let (mut batch, mut bytes) = (Drained::default(), 0);
    while batch.applied + batch.dead_letters < most && bytes < BYTES {
        let Some((number, message)) = state.next(reader_of(writer.reader(), queue)?)? else {
            break;
        };
        let message = message.to_vec();
        match apply((rows, queue), writer, image, written, &message) {
            Ok(read) => {
                bytes += message.len() + read;
                batch.applied += 1;
            }
            Err(error) => {
                let error = poisoned(error)?;
                let dead_letter = encode(rows.schema, &DeadLetterRecord { error, message })?;
                let free = free_number(reader_of(writer.reader(), queue)?, DEAD_LETTERS | number)?;
                in_queue(writer, queue, &mut |writer| writer.put_new_message(free, &dead_letter))?;
                state.dead_letters += 1;
                batch.dead_letters += 1;
            }
        }
        in_queue(writer, queue, &mut |writer| writer.remove_message(number))?;
        state.applied = number;
    }
    if is_concurrent {
        // Messages with smaller numbers may be committed later.
        state.applied = before.applied;
    }
    if state != before {
        in_queue(writer, queue, &mut |writer| state.write(rows.schema, writer))?;
    }
    batch.left = state.left(reader_of(writer.reader(), queue)?)?;
    Ok(batch)
}

/// Returns the first free number of a dead letter at or above that of its message. After a dump of a server was restored, a dead letter of
/// the other cluster can have the same number.
fn free_number(reader: Reader<'_>, mut number: u64) -> Result<u64> {
    while reader.message(number)?.is_some_and(|(own, _)| own == number) {
        number = number.saturating_add(1);
    }
    Ok(number)
}

/// Returns the reason why a message can't be applied, if the message or its row is at fault.
///
/// # Errors
///
/// Any other error, which does not concern the message.
pub(super) fn poisoned(error: Error) -> Result<String> {
    match error {
        Error::Corrupt { .. }
        | Error::NewerRow { .. }
        | Error::Conversion { .. }
        | Error::Codec { .. }
        | Error::KeyTooLong { .. }
        | Error::AggregateOverflow { .. }
        | Error::Panicked { .. } => Ok(error.to_string()),
        error => Err(error),
    }
}

/// Updates the entries of the message's row to its current content, and applies its changes of totals. Returns the size of
/// the row.
pub(super) fn apply(
    (rows, queue): (&TableRows, Option<ShardNumber>),
    writer: &mut Writer<'_, '_>,
    image: &mut Image,
    Written { tally, plan, .. }: &mut Written,
    message: &[u8],
) -> Result<usize> {
    let schema = rows.schema;
    let Message { primary_key, indexes, .. } =
        decode(message).ok_or_else(|| undecodable(schema))?;
    let (totals, mut indexes): (Vec<_>, Vec<_>) = indexes.into_iter().partition(|part| {
        let position = schema.position_of(&part.index);
        position.is_some_and(|position| schema.aggregate(position).is_some())
    });
    let reader = writer.reader();
    if reader.is_split() && reader.number_of_shard(&primary_key).is_none() {
        // The row has moved to a shard that was detached with the row and its entries.
        indexes.clear();
    }
    let fact = if indexes.is_empty() { None } else { writer.reader().fact(&primary_key)? };
    if let Some(fact) = fact {
        load(rows, image, fact, &primary_key)?;
        image.check_lengths(schema)?;
    }
    let (exists, read) = (fact.is_some(), fact.map_or(0, <[u8]>::len));
    if let Some(plan) = plan
        && let Some((shard, reader)) = writer.reader().shard_of_row(&primary_key)?
    {
        plan.turn_to_shard(schema, shard, reader)?;
    }
    let mut sink = Counting::new(tally, writer);
    for part in indexes {
        let named = schema.indexes.iter().enumerate().find(|(_, index)| index.name == part.index);
        let Some((index, declared)) = named.filter(|(_, index)| index.eventual) else { continue };
        if plan.as_ref().is_some_and(|plan| !plan.maintains(index)) {
            continue;
        }
        let primary_key = primary_key.as_slice();
        for key in &part.keys {
            if !(exists && image.keys(index).any(|existing| existing == key)) {
                sink.change(Change::DeleteEntry { index, key, primary_key })?;
            }
        }
        if exists {
            let data = image.data(index, declared);
            for key in image.keys(index) {
                if sink.sink().reader().entry(index, key, primary_key)? != Some(data) {
                    sink.change(Change::PutEntry { index, key, primary_key, data })?;
                }
            }
        }
    }
    if !totals.is_empty() {
        let mut gathered = Gathered::default();
        for part in totals {
            let position = schema.position_of(&part.index).filter(|at| schema.is_eventual(*at));
            let Some(position) = position else { continue };
            if plan.as_ref().is_some_and(|plan| !plan.maintains(position)) {
                continue;
            }
            for bytes in &part.keys {
                let change = totals::decode(bytes).ok_or_else(|| undecodable(schema))?;
                gathered.add_change(position - schema.indexes.len(), change);
            }
        }
        in_queue(writer, queue, &mut |writer| gathered.clone().write(rows, writer))?;
    }
    Ok(read)
}

#[cold]
fn undecodable(schema: &TableSchema) -> Error {
    Error::Corrupt {
        table: schema.name,
        index: None,
        key: "of a message in its queue".to_owned(),
        reason: "the message can't be decoded".to_owned(),
    }
}

/// Loads the image of a row. A method of the row may compute a key; if it panics, the worker must continue.
fn load(rows: &TableRows, image: &mut Image, fact: &[u8], primary_key: &[u8]) -> Result<()> {
    catch_unwind(AssertUnwindSafe(|| rows.load_stored(image, fact, primary_key)))
        .unwrap_or_else(|panic| Err(Error::panicked(&*panic)))
}
