//! Messages that could not be applied.

use serde::Serialize;

use super::apply::{Drained, apply, poisoned};
use crate::write::queue::{DEAD_LETTERS, DeadLetterRecord, Message, QueueState, decode, encode};
use crate::{
    engine::{ReadRecords as _, Reader, WriteRecords as _},
    model::{error::Result, schema::TableSchema},
    store::{OpenTable, Store},
};

/// A message that could not be applied; see [`DeadLetters`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DeadLetter {
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
pub(crate) fn list(schema: &TableSchema, reader: Reader<'_>) -> Result<DeadLetters> {
    let (mut list, mut from) = (Vec::new(), DEAD_LETTERS);
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
        list.push(DeadLetter { number: number & !DEAD_LETTERS, row, indexes, error });
        let Some(next) = number.checked_add(1) else { break };
        from = next;
    }
    Ok(list)
}

/// Applies the dead letters again, in one transaction.
pub(crate) fn retry(store: &Store, table: &OpenTable) -> Result<Drained> {
    let (schema, rows) = (table.schema, table.rows);
    let drained = store.transaction(|txn| {
        let (mut writer, scratch, written) = txn.writer(table)?;
        let mut state = QueueState::read(schema, writer.reader())?;
        let (mut drained, mut from) = (Drained::default(), DEAD_LETTERS);
        while let Some((number, bytes)) = writer.reader().message(from)? {
            let message = decode::<DeadLetterRecord>(bytes)
                .map(|dead_letter| dead_letter.message)
                .unwrap_or_default();
            match apply(rows, &mut writer, &mut scratch.new, written, &message) {
                Ok(_) => {
                    writer.remove_message(number)?;
                    state.dead_letters = state.dead_letters.saturating_sub(1);
                    drained.applied += 1;
                }
                Err(error) => {
                    let dead_letter = DeadLetterRecord { error: poisoned(error)?, message };
                    writer.put_message(number, &encode(schema, &dead_letter)?)?;
                    drained.dead_letters += 1;
                }
            }
            let Some(next) = number.checked_add(1) else { break };
            from = next;
        }
        if drained.applied > 0 {
            state.write(schema, &mut writer)?;
        }
        drained.left = state.left(writer.reader())?;
        Ok(drained)
    })?;
    store.inner.signals.notify();
    Ok(drained)
}
