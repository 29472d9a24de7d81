//! Indexes that follow the rows in their own time: the queue of a table, and who applies it.
//!
//! A write of a row leaves one message in the queue, in its own transaction, if it changes what the
//! row has in an eventual index. The message says which row and which of these indexes, and has the
//! keys that the row had there before and has no more. What the row has now is not in it: who
//! applies the message reads the row as it is then. For each index that it names, an entry under
//! one of these keys is removed unless the row has the key (again), and the entries that the row
//! has are written.
//!
//! # Why that is right
//!
//! For one row and one index, call E the keys of its entries, K the keys that the row has (none, if
//! there is no row), and Q the keys in those of the row's messages in the queue that name the
//! index. Two things hold after each transaction:
//!
//! 1. E ⊆ K ∪ Q: whatever should not be there, a message takes out.
//! 2. If no message is in the queue that names both, the entries are those of the row, keys and data.
//!
//! A write that changes K to K′ leaves E as it is and adds K ∖ K′ to Q, so that the first still
//! holds, and makes the second hold for want of its condition. A write that changes neither keys
//! nor data changes neither. A message with the keys M that is applied leaves (E ∖ (M ∖ K)) ∪ K,
//! with the row's data, which is a subset of K ∪ (Q ∖ M); if it was the last one, that is K. None
//! of this asks for an order of messages, or how often one is applied: a batch that a crash has
//! taken back is applied again, messages of one row may be applied in one go, and what is older
//! than the entries does no harm. So an entry may also be written in line, as without a queue: from
//! K to K′, with messages in the queue or not.
//!
//! Keys of one declaration mean nothing in another one of the same name, whose encodings are
//! others. So opening a table takes the names of indexes that are declared in another way out of
//! the messages that are there ([`purge`]), before they are built anew. So does who builds one anew that was
//! disabled: E is empty then, and gets no entry that isn't in K.
//!
//! # The queue
//!
//! It is a database of the table, from number to message. Numbers go up by one; the next one is
//! above all that are there and above the last one that was applied. Under 0 is the [`QueueState`].
//! A message that could not be applied becomes a dead letter: it is kept with its error, under its number with
//! the uppermost bit set ([`DEAD_LETTERS`]).

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

/// Where the [`QueueState`](message::QueueState) is.
pub(crate) const QUEUE_STATE: u64 = 0;

/// Added to the numbers of dead letters.
pub(crate) const DEAD_LETTERS: u64 = 1 << 63;

/// What no number of a message comes to. A queue that has one from here on is damaged.
pub(crate) const BOUND: u64 = DEAD_LETTERS >> 1;
