//! The changes of a transaction that are sent with its next statement.

use std::{collections::VecDeque, mem};

use super::{
    batch::{Batch, Kind},
    names::Relation,
    token::Token,
};

/// The maximum number of items that are sent with the next statement.
const MOST_PENDING: usize = 64;

/// The items that are sent with the next statement.
#[derive(Default)]
pub(super) struct Pending {
    pub(super) items: VecDeque<Item>,
    /// Whether new keys are assumed to be free until the result is read.
    pub(super) is_deferring: bool,
    /// Whether a new key was taken.
    pub(super) is_taken: bool,
    /// The number of items before the operation with new rows; `None` without such an operation, or after its rows were
    /// sent.
    pub(super) operation: Option<usize>,
    /// Whether the transaction is one operation, which runs again if a new key is taken.
    pub(super) is_single: bool,
}

impl Pending {
    /// Whether there are new rows.
    fn has_new(&self) -> bool {
        self.items.iter().any(|item| matches!(item, Item::Batch(batch) if batch.has_new()))
    }

    /// Whether the operation is undone, because a new key was taken.
    pub(super) const fn is_undone(&self) -> bool {
        self.is_deferring && self.is_taken
    }

    /// Whether the items have to be sent before another batch begins.
    pub(super) fn is_full(&self) -> bool {
        let depends = self.is_deferring && !self.is_single;
        depends && self.has_new() || self.items.len() >= MOST_PENDING
    }

    /// Adds a change to the last batch. Returns false if it doesn't fit. The columns are those of [`Batch::push`].
    pub(super) fn extend(&mut self, relation: &Relation, kind: Kind, columns: &[&[u8]]) -> bool {
        match self.items.back_mut() {
            Some(Item::Batch(last)) => last.push(relation, kind, columns),
            _ => false,
        }
    }

    /// Begins a batch with a change.
    pub(super) fn begin(&mut self, relation: &Relation, kind: Kind, columns: &[&[u8]]) {
        let mut batch = Batch::default();
        batch.push(relation, kind, columns);
        self.items.push_back(Item::Batch(batch));
    }

    /// Begins an operation whose new rows are sent with its other changes.
    pub(super) fn defer(&mut self) {
        (self.is_deferring, self.is_taken) = (true, false);
        self.operation = Some(self.items.len());
        // Changes of other operations must not depend on the new rows of this operation.
        if !matches!(self.items.back(), Some(Item::Batch(batch)) if batch.is_empty()) {
            self.items.push_back(Item::Batch(Batch::default()));
        }
    }

    /// Ends the operation, whose changes were sent. Returns whether a new key was taken.
    pub(super) fn settle(&mut self) -> bool {
        (self.is_deferring, self.operation) = (false, None);
        mem::take(&mut self.is_taken)
    }

    /// Removes the changes of the operation. Returns false if they were sent.
    pub(super) fn abandon(&mut self) -> bool {
        if !mem::take(&mut self.is_deferring) {
            return true;
        }
        self.is_taken = false;
        let Some(operation) = self.operation.take() else { return false };
        self.items.truncate(operation);
        true
    }

    /// Removes the items after the start of a nested transaction. Returns whether the server has not received its
    /// savepoint.
    pub(super) fn roll_back_to(&mut self, savepoint: &str) -> bool {
        (self.is_deferring, self.is_taken, self.operation) = (false, false, None);
        let unsent = self
            .items
            .iter()
            .position(|item| matches!(item, Item::Simple(sql) if sql == savepoint));
        self.items.truncate(unsent.unwrap_or(0));
        unsent.is_some()
    }

    /// Returns the changes of a transaction that has sent nothing.
    pub(super) fn unsent(&mut self) -> Unsent {
        self.items.retain(Item::is_needed);
        match self.items.pop_front() {
            None => Unsent::Nothing,
            Some(Item::Batch(batch)) if self.items.is_empty() => Unsent::Single(batch),
            Some(first) => {
                self.items.push_front(first);
                Unsent::Several
            }
        }
    }
}

/// The changes of a transaction that has sent nothing.
pub(super) enum Unsent {
    Nothing,
    /// A batch that can be a transaction of its own.
    Single(Batch),
    Several,
}

pub(super) enum Item {
    Batch(Batch),
    /// A statement without parameters.
    Simple(String),
    /// The insertion of a token.
    Token(Token),
}

impl Item {
    pub(super) fn is_needed(&self) -> bool {
        !matches!(self, Self::Batch(batch) if batch.is_empty())
    }
}
