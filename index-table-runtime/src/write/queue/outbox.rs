//! The outbox: the messages that a transaction leaves for the worker.

use super::{
    BOUND, Ends, IN_TRANSACTION, in_queue,
    message::{self, Message, Part, QueueState, encode},
};
use crate::engine::{Limit, WhenFull};
use crate::{
    engine::WriteRecords as _,
    model::{
        error::{Error, Result},
        maintain::Change,
        schema::TableSchema,
        shard::ShardNumber,
    },
    placement::{Reader, Writer},
};

/// The messages of a transaction about one table.
#[derive(Debug)]
pub(crate) struct Outbox {
    limit: Limit,
    /// The queues that the transaction uses: the queue of the table, or, if the rows are in several shards, the queues
    /// of the shards of the written rows.
    ends: Vec<End>,
    /// Whether each shard has a queue.
    is_by_shard: bool,
    /// Whether the entries of the current row are changed in line, without a message.
    pub(crate) in_line: bool,
    /// Whether a write was refused.
    pub(crate) refused: bool,
    /// The pending messages of the row that is being written. A moving row has two.
    pending: Vec<PendingMessage>,
}

/// The end of a queue.
#[derive(Debug, Clone, Copy)]
struct End {
    /// The shard of the queue; `None`: the table has one queue.
    shard: Option<ShardNumber>,
    /// Whether the current row may leave a message in this queue.
    is_current: bool,
    /// The number of the last message.
    last: u64,
    /// The number of messages in the queue, including the messages of this transaction.
    length: u64,
    /// The number of messages that this transaction has written.
    written: u64,
}

impl End {
    fn read(
        schema: &TableSchema,
        reader: Reader<'_>,
        shard: Option<ShardNumber>,
        limit: Limit,
    ) -> Result<Self> {
        if reader.is_concurrent() {
            let length = reader.queued(limit.messages)?;
            return Ok(Self { shard, is_current: true, last: 0, length, written: 0 });
        }
        let state = QueueState::read(schema, reader)?;
        let (last, length) = (state.last(schema, reader)?, state.left(reader)?);
        Ok(Self { shard, is_current: true, last, length, written: 0 })
    }
}

/// Returns the number of a message of a transaction.
fn number_of(schema: &TableSchema, txn: u64, message: u64) -> Result<u64> {
    let number = txn.checked_mul(IN_TRANSACTION).map(|first| first | message);
    number
        .filter(|number| message < IN_TRANSACTION && *number < BOUND)
        .ok_or_else(|| Error::IndexQueueFull { table: schema.name, messages: IN_TRANSACTION })
}

/// The noted changes of a row.
#[derive(Debug)]
struct PendingMessage {
    primary_key: Vec<u8>,
    indexes: Vec<(usize, Vec<Vec<u8>>)>,
}

impl Outbox {
    pub(crate) fn new(schema: &TableSchema, reader: Reader<'_>, limit: Limit) -> Result<Self> {
        Ok(Self::with(limit, vec![End::read(schema, reader, None, limit)?], false))
    }

    /// Returns the messages about a table whose rows are in several shards. Each shard has a queue.
    pub(crate) const fn by_shard(limit: Limit) -> Self {
        Self::with(limit, Vec::new(), true)
    }

    const fn with(limit: Limit, ends: Vec<End>, is_by_shard: bool) -> Self {
        let pending = Vec::new();
        Self { limit, ends, is_by_shard, in_line: false, refused: false, pending }
    }

    fn is_full(&self) -> bool {
        self.current().any(|end| end.length >= self.limit.messages)
    }

    fn current(&self) -> impl Iterator<Item = &End> {
        self.ends.iter().filter(|end| end.is_current)
    }

    /// Starts an operation on a row, and drops the notes of a write that failed.
    pub(crate) fn begin(&mut self, in_line: bool) {
        self.pending.clear();
        let applies = self.limit.when_full == WhenFull::ApplyInLine;
        self.in_line = in_line || (applies && !self.is_by_shard && self.is_full());
    }

    /// Reads the ends of the queues in which the rows with these primary keys leave messages, if each shard has a queue.
    pub(crate) fn enter<'k>(
        &mut self,
        schema: &TableSchema,
        reader: Reader<'_>,
        primary_keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<()> {
        let Some(split) = reader.split() else { return Ok(()) };
        self.ends.iter_mut().for_each(|end| end.is_current = false);
        for shard in primary_keys.filter_map(|key| split.routing().shard_of(key)) {
            if let Some(end) = self.ends.iter_mut().find(|end| end.shard == Some(shard)) {
                end.is_current = true;
                continue;
            }
            let reader = split.of_shard(shard)?;
            self.ends.push(End::read(schema, reader, Some(shard), self.limit)?);
        }
        // A transaction of one shard can't change the entries of a global index, so it leaves a message even then.
        let applies = self.limit.when_full == WhenFull::ApplyInLine
            && !(split.has_global() && split.is_alone());
        self.in_line |= applies && self.is_full();
        Ok(())
    }

    /// Whether the transaction would have to wait for room before it writes a message. Only the first message in a queue
    /// waits.
    pub(crate) fn has_to_wait(&self) -> bool {
        let is_full = |end: &End| end.written == 0 && end.length >= self.limit.messages;
        let waits = matches!(self.limit.when_full, WhenFull::Wait(_));
        waits && !self.in_line && self.current().any(is_full)
    }

    /// Records that a write was refused, and returns its error.
    #[cold]
    pub(crate) fn refuse(&mut self, schema: &TableSchema) -> Error {
        self.refused = true;
        let messages = self.current().map(|end| end.length).max().unwrap_or_default();
        Error::IndexQueueFull { table: schema.name, messages }
    }

    /// Notes a change of an entry.
    pub(crate) fn note(&mut self, change: Change<'_>) {
        let (index, primary_key, key) = match change {
            Change::PutEntry { index, primary_key, .. } => (index, primary_key, None),
            Change::DeleteEntry { index, key, primary_key } => (index, primary_key, Some(key)),
            Change::PutFact { .. } | Change::DeleteFact { .. } => return,
        };
        self.note_part(index, primary_key, key);
    }

    /// Notes a change in an index or aggregate: the removed key, or the change of the totals of a group.
    pub(crate) fn note_part(&mut self, index: usize, primary_key: &[u8], key: Option<&[u8]>) {
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

    /// Writes the pending messages, each into the queue of its row.
    pub(crate) fn write(
        &mut self,
        schema: &TableSchema,
        writer: &mut Writer<'_, '_>,
    ) -> Result<()> {
        for PendingMessage { primary_key, indexes } in self.pending.drain(..) {
            let shard = match writer.several().filter(|_| self.is_by_shard) {
                Some(writer) => writer.routing().shard_of(&primary_key),
                None => None,
            };
            let part = |(index, keys): (usize, _)| {
                let index = schema.name_at(index)?.to_owned();
                Some(Part { index, keys })
            };
            let indexes = indexes.into_iter().filter_map(part).collect();
            let message = Message { time: message::now(), primary_key, indexes };
            let bytes = encode(schema, &message)?;
            let end = self.ends.iter_mut().find(|end| end.shard == shard);
            let end = end.ok_or_else(|| Error::internal("a message without a queue"))?;
            end.last = match writer.numbered() {
                None => end.last + 1,
                Some((txn, message)) => number_of(schema, txn, message)?,
            };
            let number = end.last;
            in_queue(writer, shard, &mut |writer| writer.put_new_message(number, &bytes))?;
            end.length += 1;
            end.written += 1;
        }
        Ok(())
    }

    /// Returns the numbers of the last messages in the queues, with the shards. Once they are applied, the indexes contain
    /// all writes of the transaction. The messages can belong to other transactions.
    pub(crate) fn token(&self) -> Ends {
        let ends = self.ends.iter().filter(|end| end.length > 0 && end.last > 0);
        ends.map(|end| (end.shard, end.last)).collect()
    }

    /// Whether the transaction has left messages.
    pub(crate) fn has_left(&self) -> bool {
        self.ends.iter().any(|end| end.written > 0)
    }

    /// Adds the earlier messages of the outer transaction.
    pub(crate) fn continues(&mut self, outer: &Self) {
        for outer in &outer.ends {
            match self.ends.iter_mut().find(|end| end.shard == outer.shard) {
                Some(end) => {
                    end.written += outer.written;
                    end.last = end.last.max(outer.last);
                }
                None => self.ends.push(*outer),
            }
        }
    }
}
