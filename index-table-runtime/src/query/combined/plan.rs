//! The plan of a combination: its scans and operators in postfix order.
//!
//! `a.and(b).or(c)` is `a b All(2) c Any(2)`. Nested operators of the same kind are merged: `a.or(b).or(c)`
//! and `a.or(b.or(c))` are `a b c Any(3)`. So the operands of an operator are scans and operators of the
//! other kind. The cost of [`Tree`](super::tree::Tree) depends on this.
//!
//! The list is flat, so that no code recurses on the depth of a combination, not even its destructor.

use std::collections::VecDeque;

use super::leaf::Part;
use crate::{
    model::schema::TableSchema,
    query::{
        conditions::{Conditions, RowTest},
        cursor::{self, hash_of},
    },
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    /// `and`.
    All,
    /// `or`.
    Any,
}

#[derive(Clone)]
pub(super) enum Token<'txn> {
    Scan(Box<Part<'txn>>),
    /// An operator, and the number of its operands, which precede it.
    Operator(Operator, usize),
}

/// The plan of a combination.
#[derive(Clone)]
pub(super) struct Plan<'txn> {
    tokens: VecDeque<Token<'txn>>,
}

impl<'txn> Plan<'txn> {
    pub(super) fn of(part: Part<'txn>) -> Self {
        Self { tokens: VecDeque::from([Token::Scan(Box::new(part))]) }
    }

    /// Combines two plans by an operator. Cost: the length of the shorter plan.
    pub(super) fn combine(self, operator: Operator, other: Self) -> Self {
        let (mut left, mut right) = (self.tokens, other.tokens);
        let operands = take_operands(&mut left, operator) + take_operands(&mut right, operator);
        let mut tokens = if left.len() < right.len() {
            left.into_iter().rev().for_each(|token| right.push_front(token));
            right
        } else {
            left.append(&mut right);
            left
        };
        tokens.push_back(Token::Operator(operator, operands));
        Self { tokens }
    }

    /// Adds tests to all scans, because a row of a combination is in at least one of them.
    pub(super) fn add_tests(&mut self, tests: &[RowTest<'txn>]) {
        if tests.is_empty() {
            return;
        }
        for token in &mut self.tokens {
            if let Token::Scan(part) = token {
                Conditions::add(&mut part.conditions, tests);
            }
        }
    }

    /// Returns a hash of the combination, which identifies it in cursors.
    pub(super) fn query_hash(&self, schema: &TableSchema, reverse: bool) -> u64 {
        let mut bytes = vec![u8::from(reverse)];
        for token in &self.tokens {
            let (kind, number) = match token {
                Token::Scan(part) => (0, cursor::query_hash(schema, &part.query)),
                Token::Operator(Operator::All, operands) => (1, *operands as u64),
                Token::Operator(Operator::Any, operands) => (2, *operands as u64),
            };
            bytes.push(kind);
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        hash_of(&[b"combination", schema.name.as_bytes(), &bytes])
    }

    pub(super) fn into_tokens(self) -> impl Iterator<Item = Token<'txn>> {
        self.tokens.into_iter()
    }
}

/// Returns the number of operands that a plan adds to an operator. A plan with the same operator adds its own
/// operands, and this function removes its operator. Any other plan is one operand.
fn take_operands(tokens: &mut VecDeque<Token<'_>>, operator: Operator) -> usize {
    match tokens.back() {
        Some(&Token::Operator(same, operands)) if same == operator => {
            tokens.pop_back();
            operands
        }
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::Query,
        model::{KeyRange, schema::Source},
    };

    /// Returns a scan of the index at this position.
    fn scan(position: usize) -> Plan<'static> {
        let query = Query::new(Source::Index(position), KeyRange::beginning_with(&[]));
        Plan::of(Part { query, conditions: None, is_ordered: true })
    }

    fn text(plan: Plan<'_>) -> String {
        let text = |token| match token {
            Token::Scan(part) => match part.query.source {
                Source::Index(position) => position.to_string(),
                Source::Facts => "facts".to_owned(),
            },
            Token::Operator(Operator::All, operands) => format!("all{operands}"),
            Token::Operator(Operator::Any, operands) => format!("any{operands}"),
        };
        plan.into_tokens().map(text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn nested_operators_of_the_same_kind_are_merged() {
        use Operator::{All, Any};
        let or = |a: Plan<'static>, b| a.combine(Any, b);
        let and = |a: Plan<'static>, b| a.combine(All, b);
        assert_eq!(text(scan(0)), "0");
        assert_eq!(text(or(or(scan(0), scan(1)), scan(2))), "0 1 2 any3");
        assert_eq!(text(or(scan(0), or(scan(1), scan(2)))), "0 1 2 any3");
        assert_eq!(text(or(or(scan(0), scan(1)), or(scan(2), scan(3)))), "0 1 2 3 any4");
        assert_eq!(text(or(and(scan(0), scan(1)), scan(2))), "0 1 all2 2 any2");
        assert_eq!(
            text(and(scan(0), or(scan(1), and(scan(2), scan(3))))),
            "0 1 2 3 all2 any2 all2"
        );
    }
}
