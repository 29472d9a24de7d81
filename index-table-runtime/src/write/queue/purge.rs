//! Purging messages about indexes that are rebuilt, or declared differently.

use super::{
    DEAD_LETTERS, QUEUE_STATE,
    message::{DeadLetterRecord, Message, QueueState, decode, encode},
};
use crate::{
    engine::{ReadRecords as _, WriteRecords as _},
    model::{
        error::{Error, Result},
        schema::TableSchema,
    },
    placement::Writer,
};

/// Removes all indexes except the indexes in `keep` from the messages of a queue. Messages that then name no index are
/// removed, to make room.
pub(crate) fn purge(
    schema: &TableSchema,
    writer: &mut Writer<'_, '_>,
    keep: impl Fn(&str) -> bool,
) -> Result<()> {
    let last = match last(schema, writer) {
        Ok(last) => Some(last),
        Err(Error::Corrupt { .. }) => None,
        Err(error) => return Err(error),
    };
    change(schema, writer, &|number, message| {
        let before = message.indexes.len();
        message.indexes.retain(|part| keep(&part.index));
        if message.indexes.is_empty() && last.is_some_and(|last| number < last) {
            Changed::Removed
        } else if message.indexes.len() < before {
            Changed::Other
        } else {
            Changed::Same
        }
    })?;
    last.map_or(Ok(()), |last| remove_last(schema, writer, last))
}

/// Gives the renamed indexes of a table their new names in the messages of its queue.
pub(crate) fn rename(
    schema: &TableSchema,
    writer: &mut Writer<'_, '_>,
    renamed: &[(String, String)],
) -> Result<()> {
    let is_eventual = |(_, to): &(String, String)| {
        schema.position_of(to).is_some_and(|position| schema.is_eventual(position))
    };
    if !renamed.iter().any(is_eventual) {
        return Ok(());
    }
    change(schema, writer, &|_, message| {
        let mut changed = Changed::Same;
        for part in &mut message.indexes {
            if let Some((_, to)) = renamed.iter().find(|(from, _)| *from == part.index) {
                to.clone_into(&mut part.index);
                changed = Changed::Other;
            }
        }
        changed
    })
}

/// The result of changing a message.
enum Changed {
    Same,
    Other,
    Removed,
}

/// Changes the messages of a queue, and those in its dead letters. Damaged messages stay as they are.
fn change(
    schema: &TableSchema,
    writer: &mut Writer<'_, '_>,
    change: &dyn Fn(u64, &mut Message) -> Changed,
) -> Result<()> {
    let mut from = QUEUE_STATE + 1;
    while let Some((number, bytes)) = writer.reader().message(from)? {
        let dead_letter =
            if number < DEAD_LETTERS { None } else { decode::<DeadLetterRecord>(bytes) };
        let inner = dead_letter.as_ref().map_or(bytes, |dead_letter| &dead_letter.message);
        if let Some(mut message) = decode::<Message>(inner) {
            match change(number, &mut message) {
                Changed::Same => {}
                Changed::Removed => writer.remove_message(number)?,
                Changed::Other => {
                    let message = encode(schema, &message)?;
                    let bytes = match dead_letter {
                        Some(dead_letter) => {
                            encode(schema, &DeadLetterRecord { message, ..dead_letter })?
                        }
                        None => message,
                    };
                    writer.put_message(number, &bytes)?;
                }
            }
        }
        let Some(next) = number.checked_add(1) else { break };
        from = next;
    }
    Ok(())
}

fn last(schema: &TableSchema, writer: &Writer<'_, '_>) -> Result<u64> {
    QueueState::read(schema, writer.reader())?.last(schema, writer.reader())
}

/// Removes the last message if it is the only one and names no index. Otherwise it stays, so that its number is
/// not reused.
fn remove_last(schema: &TableSchema, writer: &mut Writer<'_, '_>, last: u64) -> Result<()> {
    let mut state = QueueState::read(schema, writer.reader())?;
    let is_void = state.next(writer.reader())?.is_some_and(|(number, bytes)| {
        number == last && decode::<Message>(bytes).is_some_and(|it| it.indexes.is_empty())
    });
    if is_void {
        writer.remove_message(last)?;
        if !writer.reader().is_concurrent() {
            state.applied = last;
            state.write(schema, writer)?;
        }
    }
    Ok(())
}
