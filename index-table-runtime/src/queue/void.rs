//! What messages say of indexes that are declared in another way meanwhile.

use super::{
    ASIDE, POSITION,
    message::{Aside, Message, decode, encode},
};
use crate::{
    engine::{Read as _, Write as _, Writer},
    error::Result,
    schema::TableSchema,
};

/// Takes all indexes but those that `keep` names out of the messages of a queue. The messages stay,
/// and with them their numbers.
pub(crate) fn void(
    schema: &TableSchema,
    writer: &mut Writer<'_, '_>,
    keep: impl Fn(&str) -> bool,
) -> Result<()> {
    let mut from = POSITION + 1;
    while let Some((number, bytes)) = writer.reader().message(from)? {
        let aside = if number < ASIDE { None } else { decode::<Aside>(bytes) };
        let inner = aside.as_ref().map_or(bytes, |aside| &aside.message);
        if let Some(mut message) = decode::<Message>(inner) {
            let before = message.indexes.len();
            message.indexes.retain(|part| keep(&part.index));
            if message.indexes.len() < before {
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
    Ok(())
}
