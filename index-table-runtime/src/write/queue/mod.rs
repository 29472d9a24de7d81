//! Eventual indexes: the queue of a table, and its application.
//!
//! A write of a row leaves one message in the queue, in its own transaction, if it changes the row's entries
//! in an eventual index. The message names the row and these indexes, with the keys that the row no longer
//! has there. It does not contain the current keys: the worker reads the current row. For each named index,
//! it removes the entries under the listed keys unless the row has the key again, and writes the entries of
//! the current row.
//!
//! # Correctness
//!
//! For one row and one index, call E the keys of its entries, K the keys that the row has (none, if
//! there is no row), and Q the keys in those of the row's messages in the queue that name the
//! index. Two things hold after each transaction:
//!
//! 1. E ⊆ K ∪ Q: a message removes every wrong entry.
//! 2. If no message is in the queue that names both, the entries are those of the row, keys and data.
//!
//! A write that changes K to K′ leaves E as it is and adds K ∖ K′ to Q, so that the first still
//! holds, and makes the second hold for want of its condition. A write that changes neither keys
//! nor data changes neither. A message with the keys M that is applied leaves (E ∖ (M ∖ K)) ∪ K,
//! with the row's data, which is a subset of K ∪ (Q ∖ M); if it was the last one, that is K. This does not
//! depend on the order of messages, or on how often one is applied: a batch that a crash has rolled back is
//! applied again, messages of one row may be applied together, and messages older than the entries do no
//! harm. So an entry may also be written in line, as without a queue: from K to K′, with or without messages
//! in the queue.
//!
//! Keys of one declaration are meaningless in another declaration of the same name, with other encodings. So
//! opening a table removes the names of indexes that are declared in another way from the existing messages
//! ([`purge`]), before these indexes are rebuilt. The rebuild of a disabled index does so too: then E is
//! empty, and gets only entries in K.
//!
//! # The queue
//!
//! It is a database of the table, from number to message. Numbers increase by one; the next number is above
//! all existing ones and above the last applied one. Under 0 is the [`QueueState`]. A message that could not
//! be applied becomes a dead letter: it is kept with its error, under its number with the uppermost bit set
//! ([`DEAD_LETTERS`]).

mod message;
mod outbox;
mod purge;
mod repair;
mod signals;
#[cfg(test)]
mod tests;
mod token;

pub(crate) use message::{DeadLetterRecord, Message, QueueState, Queued, decode, encode};
pub(crate) use outbox::Outbox;
pub(crate) use purge::purge;
pub(crate) use repair::{damage, repair};
pub(crate) use signals::Signals;
pub use token::{IndexToken, Lag};
pub(crate) use token::{is_applied, lag};

/// The key of the [`QueueState`](message::QueueState).
pub(crate) const QUEUE_STATE: u64 = 0;

/// Added to the numbers of dead letters.
pub(crate) const DEAD_LETTERS: u64 = 1 << 63;

/// The limit of the numbers of messages. A queue with a greater number is damaged.
pub(crate) const BOUND: u64 = DEAD_LETTERS >> 1;
