//! The progress of a queue, and the tokens for waiting.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::message::{self, Message, QueueState, decode};
use crate::{
    engine::Reader,
    model::{error::Result, schema::TableSchema},
};

/// A token for the writes of a transaction to tables with eventual indexes. The `wait_for` of their repositories
/// takes it. From [`WriteTxn::token`](crate::WriteTxn::token) and
/// [`WriteTxn::commit_with_token`](crate::WriteTxn::commit_with_token).
///
/// It can be sent to other processes that have the same store open, and does not expire. It has a number for
/// each table with eventual indexes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct IndexToken {
    /// For each table, the number of the last message in each queue, written by this transaction or an earlier one.
    /// Currently, a table has one queue.
    tables: Vec<(String, Vec<u64>)>,
}

impl IndexToken {
    /// Creates a token from the number of the last message of each table.
    pub(crate) fn new(tables: impl Iterator<Item = (String, u64)>) -> Self {
        Self { tables: tables.map(|(table, number)| (table, vec![number])).collect() }
    }

    /// Whether there is nothing to wait for, because the transaction has written no table with messages in
    /// its queue.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Returns the number of the last message of a table.
    pub(crate) fn of(&self, table: &str) -> Option<u64> {
        let (_, numbers) = self.tables.iter().find(|(name, _)| name == table)?;
        numbers.first().copied()
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
}

pub(crate) fn lag(schema: &TableSchema, reader: Reader<'_>) -> Result<Lag> {
    let state = QueueState::read(schema, reader)?;
    let oldest = state.next(reader)?.and_then(|(_, bytes)| decode::<Message>(bytes));
    let behind = oldest.map_or(0, |oldest| message::now().saturating_sub(oldest.time));
    Ok(Lag {
        messages: state.left(reader)?,
        behind: Duration::from_millis(behind),
        dead_letters: state.dead_letters,
    })
}

/// Whether a message has been applied.
pub(crate) fn is_applied(schema: &TableSchema, reader: Reader<'_>, number: u64) -> Result<bool> {
    Ok(QueueState::read(schema, reader)?.applied >= number)
}
