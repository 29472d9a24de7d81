//! The outbox: the messages that a transaction leaves for the worker.

use super::message::{self, Message, Part, QueueState, encode};
use crate::engine::{Limit, WhenFull};
use crate::{
    engine::{Reader, WriteRecords as _, Writer},
    model::{
        error::{Error, Result},
        maintain::Change,
        schema::TableSchema,
    },
};

/// The messages of a transaction about one table.
#[derive(Debug)]
pub(crate) struct Outbox {
    limit: Limit,
    /// The number of the last message.
    last: u64,
    /// The number of messages in the queue, including those of this transaction.
    length: u64,
    /// The number of messages that this transaction has written.
    written: u64,
    /// Whether the entries of the current row are changed in line, without a message.
    pub(crate) in_line: bool,
    /// Whether a write was refused.
    pub(crate) refused: bool,
    /// The pending messages of the row that is being written. A moving row has two.
    pending: Vec<PendingMessage>,
}

/// The noted changes of a row.
#[derive(Debug)]
struct PendingMessage {
    primary_key: Vec<u8>,
    indexes: Vec<(usize, Vec<Vec<u8>>)>,
}

impl Outbox {
    pub(crate) fn new(schema: &TableSchema, reader: Reader<'_>, limit: Limit) -> Result<Self> {
        let state = QueueState::read(schema, reader)?;
        let (last, length) = (state.last(schema, reader)?, state.left(reader)?);
        let pending = Vec::new();
        Ok(Self { limit, last, length, written: 0, in_line: false, refused: false, pending })
    }

    fn is_full(&self) -> bool {
        self.length >= self.limit.messages
    }

    /// Starts an operation on a row, and drops the notes of a write that failed.
    pub(crate) fn begin(&mut self, in_line: bool) {
        self.pending.clear();
        let applies = self.limit.when_full == WhenFull::ApplyInLine;
        self.in_line = in_line || (applies && self.is_full());
    }

    /// Whether the transaction would have to wait for room before it writes a message. Only the first message
    /// waits.
    pub(crate) fn has_to_wait(&self) -> bool {
        let waits = matches!(self.limit.when_full, WhenFull::Wait(_));
        waits && !self.in_line && self.written == 0 && self.is_full()
    }

    /// Records that a write was refused, and returns its error.
    #[cold]
    pub(crate) fn refuse(&mut self, schema: &TableSchema) -> Error {
        self.refused = true;
        Error::IndexQueueFull { table: schema.name, messages: self.length }
    }

    /// Notes a change of an entry.
    pub(crate) fn note(&mut self, change: Change<'_>) {
        let (index, primary_key, key) = match change {
            Change::PutEntry { index, primary_key, .. } => (index, primary_key, None),
            Change::DeleteEntry { index, key, primary_key } => (index, primary_key, Some(key)),
            Change::PutFact { .. } | Change::DeleteFact { .. } => return,
        };
        let row = self.pending.iter().position(|pending| pending.primary_key == primary_key);
        let row = row.unwrap_or_else(|| {
            self.pending
                .push(PendingMessage { primary_key: primary_key.to_vec(), indexes: Vec::new() });
            self.pending.len() - 1
        });
        let Some(PendingMessage { indexes, .. }) = self.pending.get_mut(row) else { return };
        // The changes arrive index by index.
        if indexes.last().is_none_or(|(last, _)| *last != index) {
            indexes.push((index, Vec::new()));
        }
        if let (Some((_, keys)), Some(key)) = (indexes.last_mut(), key) {
            keys.push(key.to_vec());
        }
    }

    /// Drops the notes if the indexes have to be disabled instead; returns true in this case.
    pub(crate) fn disables(&mut self) -> bool {
        let disables =
            !self.pending.is_empty() && self.is_full() && self.limit.when_full == WhenFull::Disable;
        if disables {
            self.pending.clear();
        }
        disables
    }

    /// Writes the pending messages.
    pub(crate) fn write(
        &mut self,
        schema: &TableSchema,
        writer: &mut Writer<'_, '_>,
    ) -> Result<()> {
        for PendingMessage { primary_key, indexes } in self.pending.drain(..) {
            let part = |(index, keys): (usize, _)| {
                let index = schema.indexes.get(index)?.name.to_owned();
                Some(Part { index, keys })
            };
            let indexes = indexes.into_iter().filter_map(part).collect();
            let message = Message { time: message::now(), primary_key, indexes };
            self.last += 1;
            writer.put_message(self.last, &encode(schema, &message)?)?;
            self.length += 1;
            self.written += 1;
        }
        Ok(())
    }

    /// Returns the number of the last message in the queue. Once it is applied, the indexes contain all writes of
    /// the transaction. The message can belong to another transaction.
    pub(crate) fn token(&self) -> Option<u64> {
        (self.length > 0).then_some(self.last)
    }

    /// Whether the transaction has left messages.
    pub(crate) fn has_left(&self) -> bool {
        self.written > 0
    }

    /// Adds the earlier messages of the outer transaction.
    pub(crate) fn continues(&mut self, outer: &Self) {
        self.written += outer.written;
    }
}
