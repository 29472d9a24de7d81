//! The search for damage in a queue, and its repair.

use super::{BOUND, DEAD_LETTERS, QUEUE_STATE, message::QueueState};
use crate::{
    engine::{ReadRecords as _, WriteRecords as _},
    model::{
        error::{Error, Result},
        schema::TableSchema,
    },
    placement::{Reader, Writer},
};

/// Empties a queue with invalid numbers, with which writers or workers could not continue. Returns the damage;
/// `None` if there is none. Afterwards, the rows of the removed messages may have wrong entries.
pub(crate) fn repair(schema: &TableSchema, writer: &mut Writer<'_, '_>) -> Result<Option<String>> {
    let mut applied = 0;
    let Some(damage) = look(schema, writer.reader(), &mut applied)? else { return Ok(None) };
    writer.clear_messages()?;
    // Ends the waiting for the removed messages.
    if applied > 0 && !writer.reader().is_concurrent() {
        QueueState { applied, dead_letters: 0 }.write(schema, writer)?;
    }
    Ok(Some(damage))
}

/// Returns the damage for which a repair would empty the queue; `None` if there is none. The queues of shards are examined
/// one by one, with the readers of the shards.
pub(crate) fn damage(schema: &TableSchema, reader: Reader<'_>) -> Result<Option<String>> {
    if reader.is_split() {
        return Ok(None);
    }
    look(schema, reader, &mut 0)
}

fn look(schema: &TableSchema, reader: Reader<'_>, greatest: &mut u64) -> Result<Option<String>> {
    match compare(schema, reader, greatest) {
        Err(Error::Corrupt { reason, .. }) => Ok(Some(reason)),
        looked => looked,
    }
}

/// Compares the records of a queue with its state. Sets `greatest` to the greatest number of a record.
fn compare(schema: &TableSchema, reader: Reader<'_>, greatest: &mut u64) -> Result<Option<String>> {
    let state = QueueState::read(schema, reader);
    let applied = state.as_ref().map_or(0, |state| state.applied);
    *greatest = applied;
    let (mut left, mut dead_letters, mut from) = (0, 0, QUEUE_STATE + 1);
    while let Some((number, _)) = reader.message(from)? {
        let own = number & !DEAD_LETTERS;
        if own >= BOUND {
            return Ok(Some(format!("a message has the number {own}, which is too great")));
        }
        *greatest = own.max(*greatest);
        left += u64::from(number < DEAD_LETTERS && number > applied);
        dead_letters += u64::from(number >= DEAD_LETTERS);
        let Some(next) = number.checked_add(1) else { break };
        from = next;
    }
    let state = state?;
    if dead_letters != state.dead_letters {
        let counted = state.dead_letters;
        return Ok(Some(format!(
            "its state counts {counted} dead letters, and it has \
                                {dead_letters}"
        )));
    }
    let own = u64::from(state != QueueState::default());
    let (there, known) = (reader.messages()?, own + left + dead_letters);
    Ok((there != known).then(|| {
        format!(
            "it has {there} records, and only {known} of them are its state, messages to \
                 apply, or dead letters"
        )
    }))
}
