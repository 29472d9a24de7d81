//! Queues that are damaged.

use super::{ASIDE, BOUND, POSITION, message::Position};
use crate::{
    engine::{ReadRecords as _, Reader, WriteRecords as _, Writer},
    model::{
        error::{Error, Result},
        schema::TableSchema,
    },
};

/// Empties a queue whose numbers can't be, with which writers or workers could not go on, and says what
/// was wrong with it; `None`: nothing was. Rows that messages were about may have wrong entries from
/// then on.
pub(crate) fn repair(schema: &TableSchema, writer: &mut Writer<'_, '_>) -> Result<Option<String>> {
    let mut applied = 0;
    let Some(damage) = look(schema, writer.reader(), &mut applied)? else { return Ok(None) };
    writer.clear_messages()?;
    // Whoever waits for one of the messages is done.
    if applied > 0 {
        Position { applied, aside: 0 }.write(schema, writer)?;
    }
    Ok(Some(damage))
}

/// What is wrong with a queue that a repair would empty; `None`: nothing is.
pub(crate) fn damage(schema: &TableSchema, reader: Reader<'_>) -> Result<Option<String>> {
    look(schema, reader, &mut 0)
}

fn look(schema: &TableSchema, reader: Reader<'_>, greatest: &mut u64) -> Result<Option<String>> {
    match compare(schema, reader, greatest) {
        Err(Error::Corrupt { reason, .. }) => Ok(Some(reason)),
        looked => looked,
    }
}

/// Compares what is in a queue with its position; `greatest`: of the numbers that were met.
fn compare(schema: &TableSchema, reader: Reader<'_>, greatest: &mut u64) -> Result<Option<String>> {
    let position = Position::read(schema, reader);
    let applied = position.as_ref().map_or(0, |position| position.applied);
    *greatest = applied;
    let (mut left, mut aside, mut from) = (0, 0, POSITION + 1);
    while let Some((number, _)) = reader.message(from)? {
        let own = number & !ASIDE;
        if own >= BOUND {
            return Ok(Some(format!("a message has the number {own}, to which none comes")));
        }
        *greatest = own.max(*greatest);
        left += u64::from(number < ASIDE && number > applied);
        aside += u64::from(number >= ASIDE);
        let Some(next) = number.checked_add(1) else { break };
        from = next;
    }
    let position = position?;
    if aside != position.aside {
        let counted = position.aside;
        return Ok(Some(format!("it counts {counted} messages set aside, and there are {aside}")));
    }
    let own = u64::from(position != Position::default());
    let (there, known) = (reader.messages()?, own + left + aside);
    Ok((there != known).then(|| {
        format!("{there} are in it, and {known} are its position or to be applied or set aside")
    }))
}
