//! Eventual indexes and aggregates: the queue of a table, and its application.
//!
//! If a write of a row changes the row's entries in eventual indexes, its transaction puts one message into the
//! queue. The message names the row and these indexes, with the keys that the write has removed. It does not
//! contain the current keys, since the worker reads the current row. For each named index, the worker removes the
//! entries under the listed keys, unless the row has the key again, and writes the entries of the current row.
//!
//! # Correctness
//!
//! For one row and one index, let E be the keys of the row's entries, K the keys that the row has (empty if the
//! row does not exist), and Q the keys that the queued messages list for this row and index. Two invariants hold
//! after each transaction:
//!
//! 1. E ⊆ K ∪ Q: for every wrong entry, a message removes it.
//! 2. If no queued message names the row and the index, the entries have the keys and the data of the row.
//!
//! A write that changes K to K′ keeps E and adds K ∖ K′ to Q, so invariant 1 holds. Invariant 2 holds because a
//! message now names the row and the index. A write that changes neither keys nor data affects neither invariant.
//! Applying a message with the keys M changes E to (E ∖ (M ∖ K)) ∪ K, with the row's data. This is a subset of
//! K ∪ (Q ∖ M); after the last message, it is K.
//!
//! The argument depends neither on the order of messages nor on how often a message is applied. So a batch that a
//! crash has rolled back can be applied again, several messages of one row can be applied together, and messages
//! that are older than the entries do no harm. An entry may also be written in line, as without a queue, from K to
//! K′, whether or not messages are queued.
//!
//! Keys of one declaration are meaningless in another declaration of the same name with other encodings. So if an
//! index is declared differently, opening the table removes its name from the existing messages ([`purge`]) before
//! the index is rebuilt. The rebuild of a disabled index does the same: E is empty then, and gets only entries
//! in K.
//!
//! # Aggregates
//!
//! For an eventual aggregate, the message has the changes of the totals: the removed and the added summands, each with its
//! group. Applying a change twice would be wrong, unlike for entries. A change is applied exactly once, because the same
//! transaction applies and removes the message. One invariant holds after each transaction, also for dead letters: the
//! stored totals, plus the changes in all messages, are the totals of the rows. It does not depend on the order of the
//! messages. So changes can also be made in line while messages are queued; the stored count of a group can then be
//! negative for some time. The build of an aggregate removes its name from the messages, and a repair writes the totals
//! of the rows, minus the changes in the messages.
//!
//! A change belongs to the shard of its queue, even if the row has moved to another shard since: the move has subtracted the
//! row from the totals of this shard.
//!
//! # The queue
//!
//! The queue is a database of the table, from number to message. Numbers increase by one. The next number is
//! greater than all existing numbers and the number of the last applied message. The [`QueueState`] is under 0. A
//! message that could not be applied becomes a dead letter: it is kept with its error, under its number with the
//! uppermost bit set ([`DEAD_LETTERS`]).
//!
//! If an engine's transactions write at the same time, a number that all of them need would be a conflict. There, a
//! transaction derives the numbers from its own number. Messages with smaller numbers may be committed later, so the
//! state does not record the last applied message: all messages in the queue are pending. A token has been applied if the
//! queue has no message of its transaction. The messages of a transaction begin at a random number, because a dump that was restored in another
//! cluster has messages of transactions whose numbers a later transaction can have.
//!
//! A table whose rows are in several shards has a queue in each of them. The message of a row is in the queue of the row's shard, which the
//! transaction locks anyway. If the row then moves to another shard, its message stays: the worker also applies the messages in
//! shards from which all rows were moved away. A row whose shard changes leaves a message in both queues: the first removes the entries
//! of the old primary key, and the second adds the entries of the new primary key. So the argument above holds for each
//! primary key. The entries of a global index may be in other shards; the worker's transaction then changes several
//! shards.

use crate::{
    model::{
        error::{Error, Result},
        shard::ShardNumber,
    },
    placement::{Reader, Tables, Writer},
};

mod message;
mod outbox;
mod purge;
mod repair;
mod signals;
#[cfg(test)]
mod tests;
mod token;
pub(crate) mod totals;

pub(crate) use message::{DeadLetterRecord, Message, QueueState, Queued, decode, encode};
pub(crate) use outbox::Outbox;
pub(crate) use purge::{purge, rename};
pub(crate) use repair::{damage, repair};
pub(crate) use signals::Signals;
pub(crate) use token::{Ends, is_applied, lag_of};
pub use token::{IndexToken, Lag};

/// Returns the shards of the queues of a table; `None` is the queue of a table with one queue.
pub(crate) fn queues_of(tables: &Tables) -> Vec<Option<ShardNumber>> {
    match tables.several() {
        Some(tables) if tables.routing().is_split() => {
            tables.with_queues_now().into_iter().map(Some).collect()
        }
        _ => vec![None],
    }
}

/// Returns the shards of the queues of a table in a transaction; `None` is the queue of a table with one queue.
pub(crate) fn queues_in(reader: Reader<'_>) -> Vec<Option<ShardNumber>> {
    match reader.split() {
        Some(split) => split.numbers_with_queues().into_iter().map(Some).collect(),
        None => vec![None],
    }
}

/// Returns the reader of a queue; `None` if its shard does not belong to the store in this transaction. For queues that were
/// listed before the transaction began.
pub(crate) fn reader_if_present(
    reader: Reader<'_>,
    shard: Option<ShardNumber>,
) -> Result<Option<Reader<'_>>> {
    match reader.split().zip(shard) {
        Some((split, shard)) if !split.has_present(shard) => Ok(None),
        _ => reader_of(reader, shard).map(Some),
    }
}

/// Returns the reader of a queue of this transaction.
pub(crate) fn reader_of(reader: Reader<'_>, shard: Option<ShardNumber>) -> Result<Reader<'_>> {
    match reader.split().zip(shard) {
        Some((split, shard)) => split.of_shard(shard),
        None => Ok(reader),
    }
}

/// Writes in a queue.
pub(crate) fn in_queue(
    writer: &mut Writer<'_, '_>,
    shard: Option<ShardNumber>,
    write: &mut dyn FnMut(&mut Writer<'_, '_>) -> Result<()>,
) -> Result<()> {
    let Some(shard) = shard else { return write(writer) };
    let writer = writer.several();
    writer.ok_or_else(|| Error::internal("a queue in no shard"))?.beside(shard, write)
}

/// The key of the [`QueueState`](message::QueueState).
pub(crate) const QUEUE_STATE: u64 = 0;

/// The number of messages that a transaction can write, if transactions write at the same time.
const IN_TRANSACTION: u64 = 1 << 24;

/// Added to the numbers of dead letters.
pub(crate) const DEAD_LETTERS: u64 = 1 << 63;

/// The exclusive upper bound of the numbers of messages. A queue with this number or a greater one is damaged.
pub(crate) const BOUND: u64 = DEAD_LETTERS >> 1;
