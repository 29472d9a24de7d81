//! Messages from another cluster.
//!
//! A transaction derives the numbers of its messages from its own number. A dump that was restored in another cluster has messages with
//! numbers of transactions that the new cluster may have later. Their order is of no importance. So when the table is opened, they get
//! numbers of the transaction that opens it, and no later message has the number of an existing one.

use super::{BOUND, DEAD_LETTERS, IN_TRANSACTION, outbox::number_of};
use crate::{
    engine::{Read, Space, Write as _},
    model::{error::Result, schema::TableSchema},
    placement::Writer,
};

/// The number of messages that are read at once.
const AT_ONCE: usize = 256;

/// Returns the number of the first message of a transaction.
fn first_of(txn: u64) -> u64 {
    txn.saturating_mul(IN_TRANSACTION).min(BOUND)
}

/// Whether a message or dead letter is of another cluster: the transaction with the number `own` sees no message of a transaction of its own
/// cluster with this number or a greater one.
pub(crate) fn has_foreign<'t>(reader: impl Read<'t>, own: u64) -> Result<bool> {
    let first = first_of(own);
    let message = last_below(reader, BOUND)?;
    let dead_letter = last_below(reader, DEAD_LETTERS | BOUND)?;
    Ok(message.is_some_and(|number| number >= first)
        || dead_letter.is_some_and(|number| number >= DEAD_LETTERS | first))
}

/// Returns the last number below a number. The key of a damaged message is none.
fn last_below<'t>(reader: impl Read<'t>, below: u64) -> Result<Option<u64>> {
    let last = reader.below(Space::Queue, &below.to_be_bytes())?;
    Ok(last.and_then(|(key, _)| key.try_into().ok()).map(u64::from_be_bytes))
}

/// Gives at most `most` messages and dead letters of another cluster numbers of the transaction with the number `own`. Returns whether others
/// are left.
pub(crate) fn number_foreign(
    schema: &TableSchema,
    writer: &mut Writer<'_, '_>,
    own: u64,
    most: usize,
) -> Result<bool> {
    // Those of the same transaction of the other cluster stay: later transactions have greater numbers.
    let (first, after) = (first_of(own), first_of(own.saturating_add(1)));
    let (mut count, mut moved) = (0, 0);
    for kind in [0, DEAD_LETTERS] {
        let last = last_below(writer.reader(), kind | after)?.filter(|last| *last >= kind | first);
        count = last.map_or(0, |last| last % IN_TRANSACTION + 1).max(count);
    }
    for kind in [0, DEAD_LETTERS] {
        let bound = kind | BOUND;
        loop {
            let from = (kind | after).to_be_bytes();
            let records = writer.reader().records(Space::Queue, &from, AT_ONCE)?;
            let is_last = records.len() < AT_ONCE;
            let (mut removed, mut written) = (Vec::new(), Vec::new());
            for (key, message) in records {
                if key >= &bound.to_be_bytes()[..] {
                    break;
                }
                removed.push(key.to_vec());
                let number = kind | number_of(schema, own, count)?;
                written.push((number.to_be_bytes().to_vec(), message.to_vec()));
                count += 1;
            }
            moved += removed.len();
            let is_complete = is_last || removed.len() < AT_ONCE;
            if !removed.is_empty() {
                writer.exchange(Space::Queue, &removed, &written)?;
            }
            if is_complete {
                break;
            }
            if moved >= most {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
