//! What messages say of indexes that are built anew, or are declared in another way meanwhile.

use super::{
    ASIDE, POSITION,
    message::{Aside, Message, Position, decode, encode},
};
use crate::{
    engine::{ReadRecords as _, WriteRecords as _, Writer},
    model::{
        error::{Error, Result},
        schema::TableSchema,
    },
};

/// Takes all indexes but those that `keep` names out of the messages of a queue, and messages that
/// are about none out of the queue, where they would take the room of others.
pub(crate) fn purge(
    schema: &TableSchema,
    writer: &mut Writer<'_, '_>,
    keep: impl Fn(&str) -> bool,
) -> Result<()> {
    let last = match last(schema, writer) {
        Ok(last) => Some(last),
        // A repair is for that, which needs a table that is open.
        Err(Error::Corrupt { .. }) => None,
        Err(error) => return Err(error),
    };
    let mut from = POSITION + 1;
    while let Some((number, bytes)) = writer.reader().message(from)? {
        let aside = if number < ASIDE { None } else { decode::<Aside>(bytes) };
        let inner = aside.as_ref().map_or(bytes, |aside| &aside.message);
        if let Some(mut message) = decode::<Message>(inner) {
            let before = message.indexes.len();
            message.indexes.retain(|part| keep(&part.index));
            if message.indexes.is_empty() && last.is_some_and(|last| number < last) {
                writer.remove_message(number)?;
            } else if message.indexes.len() < before {
                let message = encode(schema, &message)?;
                let bytes = match aside {
                    Some(aside) => encode(schema, &Aside { message, ..aside })?,
                    None => message,
                };
                writer.put_message(number, &bytes)?;
            }
        }
        let Some(next) = number.checked_add(1) else { break };
        from = next;
    }
    last.map_or(Ok(()), |last| remove_last(schema, writer, last))
}

fn last(schema: &TableSchema, writer: &Writer<'_, '_>) -> Result<u64> {
    Position::read(schema, writer.reader())?.last(schema, writer.reader())
}

/// Removes the last message, which keeps that its number is not given out again, if it is the only
/// one and about no index.
fn remove_last(schema: &TableSchema, writer: &mut Writer<'_, '_>, last: u64) -> Result<()> {
    let mut position = Position::read(schema, writer.reader())?;
    let is_void = position.next(writer.reader())?.is_some_and(|(number, bytes)| {
        number == last && decode::<Message>(bytes).is_some_and(|it| it.indexes.is_empty())
    });
    if is_void {
        writer.remove_message(last)?;
        position.applied = last;
        position.write(schema, writer)?;
    }
    Ok(())
}
