//! Messages that could not be applied.

use serde::Serialize;

use super::apply::{Drained, apply, poisoned};
use crate::write::queue::{
    DEAD_LETTERS, DeadLetterRecord, Message, QueueState, decode, encode, in_queue, queues_in,
    reader_of,
};
use crate::{
    engine::{ReadRecords as _, WriteRecords as _},
    model::{
        error::Result, maintain::Image, row_vtable::TableRows, schema::TableSchema,
        shard::ShardNumber,
    },
    placement::{Reader, Writer},
    store::{OpenTable, Store},
    write::Written,
};

/// A message that could not be applied; see [`DeadLetters`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The shard of the message's queue; `None` if the table has one queue.
    pub shard: Option<String>,
    /// The number of the message.
    pub number: u64,
    /// The primary key of the message's row, as shown in errors; `None` if the message can't be decoded.
    pub row: Option<String>,
    /// The indexes that the message names.
    pub indexes: Vec<String>,
    /// The reason why it could not be applied.
    pub error: String,
}

/// The messages of a table's queue that could not be applied. From the `dead_letters` of a repository.
pub type DeadLetters = Vec<DeadLetter>;

/// Returns the dead letters of a table.
pub(crate) fn list(table: &OpenTable, reader: Reader<'_>) -> Result<DeadLetters> {
    let mut list = Vec::new();
    for queue in queues_in(reader) {
        let shard = match reader.split().zip(queue) {
            Some((split, shard)) => Some(split.name(shard)?.to_string()),
            None => None,
        };
        list_queue(table.schema, reader_of(reader, queue)?, shard.as_ref(), &mut list)?;
    }
    Ok(list)
}

fn list_queue(
    schema: &TableSchema,
    reader: Reader<'_>,
    shard: Option<&String>,
    list: &mut DeadLetters,
) -> Result<()> {
    let mut from = DEAD_LETTERS;
    while let Some((number, bytes)) = reader.message(from)? {
        let DeadLetterRecord { error, message } =
            decode(bytes).unwrap_or_else(|| DeadLetterRecord {
                error: "the dead letter can't be decoded".to_owned(),
                message: Vec::new(),
            });
        let message: Option<Message> = decode(&message);
        let row = message.as_ref().map(|message| schema.show_primary_key(&message.primary_key));
        let indexes = message.into_iter().flat_map(|message| message.indexes);
        let indexes = indexes.map(|part| part.index).collect();
        let (shard, number_of) = (shard.cloned(), number & !DEAD_LETTERS);
        list.push(DeadLetter { shard, number: number_of, row, indexes, error });
        let Some(next) = number.checked_add(1) else { break };
        from = next;
    }
    Ok(())
}

/// Applies the dead letters again, in one transaction.
pub(crate) fn retry(store: &Store, table: &OpenTable) -> Result<Drained> {
    let drained = store.transaction(|txn| {
        let (mut writer, scratch, written) = txn.writer(table)?;
        let mut drained = Drained::default();
        for queue in queues_in(writer.reader()) {
            let again = retry_queue((&table.rows, queue), &mut writer, &mut scratch.new, written)?;
            drained.applied += again.applied;
            drained.dead_letters += again.dead_letters;
            drained.left += again.left;
        }
        Ok(drained)
    })?;
    store.inner.signals.notify();
    Ok(drained)
}

/// Removes the dead letter with this number, of the queue of a shard or of the only queue. Returns false if there is none.
pub(crate) fn remove(
    store: &Store,
    table: &OpenTable,
    (shard, number): (Option<&str>, u64),
) -> Result<bool> {
    if number >= DEAD_LETTERS {
        return Ok(false);
    }
    let number = number | DEAD_LETTERS;
    let removed = store.transaction(|txn| {
        let (mut writer, ..) = txn.writer(table)?;
        for queue in queues_in(writer.reader()) {
            let reader = writer.reader();
            let is_own = match reader.split().zip(queue) {
                Some((split, own)) => shard == Some(&*split.name(own)?.to_string()),
                None => shard.is_none(),
            };
            // Another shard may not be available.
            if !is_own {
                continue;
            }
            let found = reader_of(reader, queue)?.message(number)?.map(|(own, _)| own);
            if found != Some(number) {
                continue;
            }
            let mut state = QueueState::read(table.schema, reader_of(reader, queue)?)?;
            state.dead_letters = state.dead_letters.saturating_sub(1);
            in_queue(&mut writer, queue, &mut |writer| {
                writer.remove_message(number)?;
                state.write(table.schema, writer)
            })?;
            return Ok(true);
        }
        Ok(false)
    })?;
    store.inner.signals.notify();
    Ok(removed)
}

fn retry_queue(
    (rows, queue): (&TableRows, Option<ShardNumber>),
    writer: &mut Writer<'_, '_>,
    image: &mut Image,
    written: &mut Written,
) -> Result<Drained> {
    let mut state = QueueState::read(rows.schema, reader_of(writer.reader(), queue)?)?;
    let (mut drained, mut from) = (Drained::default(), DEAD_LETTERS);
    while let Some((number, bytes)) = reader_of(writer.reader(), queue)?.message(from)? {
        let message = decode::<DeadLetterRecord>(bytes)
            .map(|dead_letter| dead_letter.message)
            .unwrap_or_default();
        match apply((rows, queue), writer, image, written, &message) {
            Ok(_) => {
                in_queue(writer, queue, &mut |writer| writer.remove_message(number))?;
                state.dead_letters = state.dead_letters.saturating_sub(1);
                drained.applied += 1;
            }
            Err(error) => {
                let dead_letter = DeadLetterRecord { error: poisoned(error)?, message };
                let dead_letter = encode(rows.schema, &dead_letter)?;
                in_queue(writer, queue, &mut |writer| writer.put_message(number, &dead_letter))?;
                drained.dead_letters += 1;
            }
        }
        let Some(next) = number.checked_add(1) else { break };
        from = next;
    }
    if drained.applied > 0 {
        in_queue(writer, queue, &mut |writer| state.write(rows.schema, writer))?;
    }
    drained.left = state.left(reader_of(writer.reader(), queue)?)?;
    Ok(drained)
}
