//! Queues that are damaged.

use super::{ASIDE, BOUND, POSITION, message::Position};
use crate::{
    engine::{Read as _, Reader, Write as _, Writer},
    error::{Error, Result},
    schema::TableSchema,
};

/// Empties a queue whose numbers can't be, with which writers or workers could not go on; `true`: it
/// was one. Rows that messages were about may have wrong entries from then on.
pub(crate) fn mend(schema: &TableSchema, writer: &mut Writer<'_, '_>) -> Result<bool> {
    let mut applied = 0;
    match is_sound(schema, writer.reader(), &mut applied) {
        Ok(true) => return Ok(false),
        Ok(false) | Err(Error::Corrupt { .. }) => {}
        Err(error) => return Err(error),
    }
    writer.clear_messages()?;
    // Whoever waits for one of the messages is done.
    Position { applied, aside: 0 }.write(schema, writer)?;
    Ok(true)
}

/// Whether all that is in a queue is what its position says; `greatest`: of the numbers that were met.
fn is_sound(schema: &TableSchema, reader: Reader<'_>, greatest: &mut u64) -> Result<bool> {
    let position = Position::read(schema, reader);
    let applied = position.as_ref().map_or(0, |position| position.applied);
    *greatest = applied;
    let (mut left, mut aside, mut from) = (0, 0, POSITION + 1);
    while let Some((number, _)) = reader.message(from)? {
        let own = number & !ASIDE;
        if own >= BOUND {
            return Ok(false);
        }
        *greatest = own.max(*greatest);
        left += u64::from(number < ASIDE && number > applied);
        aside += u64::from(number >= ASIDE);
        let Some(next) = number.checked_add(1) else { break };
        from = next;
    }
    let position = position?;
    let own = u64::from(position != Position::default());
    let all = reader.messages()? == own + left + aside;
    Ok(all && aside == position.aside)
}
