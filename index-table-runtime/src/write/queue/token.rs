//! The progress of a queue, and the tokens for waiting.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    DEAD_LETTERS, IN_TRANSACTION,
    message::{self, DeadLetterRecord, Message, QueueState, decode},
    queues_in, reader_of,
};
use crate::{
    engine::ReadRecords as _,
    model::{error::Result, schema::TableSchema, shard::ShardNumber},
    placement::Reader,
};

/// The numbers of the last messages in the queues of a table, with the shards of the queues.
pub(crate) type Ends = Vec<(Option<ShardNumber>, u64)>;

/// A token for the writes of a transaction to tables with eventual indexes. The `wait_for` of their repositories
/// takes it. From [`WriteTxn::token`](crate::WriteTxn::token) and
/// [`WriteTxn::commit_with_token`](crate::WriteTxn::commit_with_token).
///
/// It can be sent to other processes that have the same store open, and does not expire. It has a number for
/// each table with eventual indexes; in a sharded store, for each shard in which the transaction has written the table.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct IndexToken {
    /// For each table, the number of the last message in each queue, written by this transaction or an earlier
    /// transaction. A table whose rows are in several shards has a queue in each, by the numbers of the shards; 0 if
    /// there is no such message.
    tables: Vec<(String, Vec<u64>)>,
}

impl IndexToken {
    /// Creates a token from the numbers of the last messages of each table.
    pub(crate) fn new(tables: impl Iterator<Item = (String, Ends)>) -> Self {
        let with_messages = tables.filter(|(_, ends)| !ends.is_empty());
        let tables = with_messages.map(|(table, ends)| {
            let mut numbers = Vec::new();
            for (shard, number) in ends {
                let at = shard.unwrap_or(0) as usize;
                numbers.resize(numbers.len().max(at + 1), 0);
                if let Some(own) = numbers.get_mut(at) {
                    *own = number;
                }
            }
            (table, numbers)
        });
        Self { tables: tables.collect() }
    }

    /// Whether there is nothing to wait for, because the transaction has written no table with messages in
    /// its queue.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Returns the number of the last message in a queue of a table; `None` if there is nothing to wait for.
    pub(crate) fn of(&self, table: &str, shard: Option<ShardNumber>) -> Option<u64> {
        let (_, numbers) = self.tables.iter().find(|(name, _)| name == table)?;
        numbers.get(shard.unwrap_or(0) as usize).copied().filter(|number| *number > 0)
    }
}

/// The lag of the eventual indexes of a table behind its rows. From the `lag` of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Lag {
    /// The number of pending messages.
    pub messages: u64,
    /// The age of the oldest message, by the clock of this machine.
    pub behind: Duration,
    /// The number of messages that could not be applied.
    pub dead_letters: u64,
    /// The age of the first of them since its write, by this machine's clock; zero if there are none, or if it is damaged.
    pub oldest_dead_letter: Duration,
}

/// Returns the lag of all queues of a table together.
pub(crate) fn lag_of(schema: &TableSchema, reader: Reader<'_>) -> Result<Lag> {
    let mut all = Lag::default();
    for shard in queues_in(reader) {
        let own = lag(schema, reader_of(reader, shard)?)?;
        let Lag { messages, behind, dead_letters, oldest_dead_letter } = own;
        all.messages += messages;
        all.behind = all.behind.max(behind);
        all.dead_letters += dead_letters;
        all.oldest_dead_letter = all.oldest_dead_letter.max(oldest_dead_letter);
    }
    Ok(all)
}

fn lag(schema: &TableSchema, reader: Reader<'_>) -> Result<Lag> {
    let state = QueueState::read(schema, reader)?;
    let oldest = state.next(reader)?.and_then(|(_, bytes)| decode::<Message>(bytes));
    let age = |of: Option<Message>| {
        let age = of.map_or(0, |message| message::now().saturating_sub(message.time));
        Duration::from_millis(age)
    };
    let dead_letter = match state.dead_letters {
        0 => None,
        _ => reader.message(DEAD_LETTERS)?.and_then(|(_, bytes)| decode::<DeadLetterRecord>(bytes)),
    };
    let dead_letter = dead_letter.and_then(|dead_letter| decode(&dead_letter.message));
    Ok(Lag {
        messages: state.left(reader)?,
        behind: age(oldest),
        dead_letters: state.dead_letters,
        oldest_dead_letter: age(dead_letter),
    })
}

/// Whether a message has been applied, and with it the earlier messages of its transaction.
pub(crate) fn is_applied(schema: &TableSchema, reader: Reader<'_>, number: u64) -> Result<bool> {
    if reader.is_concurrent() {
        let first = number - number % IN_TRANSACTION;
        return Ok(reader.message(first.max(1))?.is_none_or(|(pending, _)| pending > number));
    }
    Ok(QueueState::read(schema, reader)?.applied >= number)
}
