//! A combination that runs: a tree of scans and operators, and the one question that each of its nodes
//! answers, for the first primary key at or behind a place.
//!
//! A node keeps its last answer. Places never go back, so an answer that is not before the next place is
//! also the answer there, and a node is asked again only if its answer is before the place:
//!
//! - `Any` asks the operands whose answers are before the place, which are first in a heap. Its answer is
//!   the least of theirs.
//! - `All` goes round its operands, with the greatest answer so far as the place, until they agree.
//!
//! The cost is linear in the entries that are read, and each of them takes a heap operation at most. If
//! `All` is asked, the answers of all its operands are before the place, because they are not greater than
//! its own. So it asks each of them, and there are at least two; `Any` asks at least one. Below a node there
//! are scans and nodes of the other kind alone ([`plan`](super::plan)). So the questions to nodes are not
//! many more than the questions to scans, each of which reads an entry, whatever the shape of the tree is.
//!
//! Nodes are in a list, and so are questions that wait for other ones. Nothing recurses on the depth.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    ops::{Bound, Range},
};

use super::{
    leaf::{Leaf, is_at},
    plan::{Operator, Plan, Token},
};
use crate::{
    engine::Reader,
    model::{error::Result, schema::TableSchema},
    usage::{Ledger, Stats},
};

pub(super) struct Tree<'txn> {
    /// Operands come before their operators; the root is the last one.
    nodes: Vec<Node<'txn>>,
    /// The operands of all operators, as positions of nodes.
    operands: Vec<usize>,
    /// Each waits for the one behind it. Empty between two calls of [`first`](Tree::first).
    questions: Vec<Question<'txn>>,
}

struct Node<'txn> {
    kind: Kind<'txn>,
    answer: Answer<'txn>,
}

enum Kind<'txn> {
    Scan(Box<Leaf<'txn>>),
    All(Range<usize>),
    Any(Range<usize>, Heads<'txn>),
}

/// The answers of the operands of `Any`.
#[derive(Default)]
struct Heads<'txn> {
    /// How many operands have been asked: the first ones.
    asked: usize,
    /// The answer of each of them with its position, unless it has ended.
    answers: BinaryHeap<Reverse<(&'txn [u8], usize)>>,
}

impl Heads<'_> {
    fn next_unasked(&mut self, operands: &[usize]) -> Option<usize> {
        let operand = operands.get(self.asked).copied()?;
        self.asked += 1;
        Some(operand)
    }
}

#[derive(Clone, Copy)]
enum Answer<'txn> {
    /// It has not been asked.
    None,
    /// The first primary key at the last place or behind it.
    Key(&'txn [u8]),
    /// There is no further primary key.
    End,
}

impl Answer<'_> {
    /// Whether it is the answer for this place as well.
    fn holds_at(self, place: Bound<&[u8]>) -> bool {
        match self {
            Self::None => false,
            Self::Key(key) => is_at(key, place),
            Self::End => true,
        }
    }
}

/// What a node is asked, and how far it has come.
struct Question<'txn> {
    node: usize,
    place: Bound<&'txn [u8]>,
    /// `All`: whose turn it is, among the operands.
    turn: usize,
    /// `All`: how many operands in succession have the place as their answer.
    agreed: usize,
    /// `Any`: the operand that was asked, which is not in the heap.
    waits_for: Option<usize>,
}

impl<'txn> Question<'txn> {
    const fn new(node: usize, place: Bound<&'txn [u8]>) -> Self {
        Self { node, place, turn: 0, agreed: 0, waits_for: None }
    }
}

impl<'txn> Tree<'txn> {
    pub(super) fn new(plan: Plan, schema: &'static TableSchema, ledger: Ledger<'txn>) -> Self {
        let (mut nodes, mut operands) = (Vec::new(), Vec::new());
        // Those that have no operator yet.
        let mut loose: Vec<usize> = Vec::new();
        for token in plan.into_tokens() {
            let kind = match token {
                Token::Scan(part) => {
                    let meter = ledger.meter(part.query.source, None);
                    Kind::Scan(Box::new(Leaf::new(schema, part, meter)))
                }
                Token::Operator(operator, count) => {
                    let start = operands.len();
                    operands.extend(loose.drain(loose.len().saturating_sub(count)..));
                    let range = start..operands.len();
                    match operator {
                        Operator::All => Kind::All(range),
                        Operator::Any => Kind::Any(range, Heads::default()),
                    }
                }
            };
            loose.push(nodes.len());
            nodes.push(Node { kind, answer: Answer::None });
        }
        Self { nodes, operands, questions: Vec::new() }
    }

    /// The first primary key there. The first place that is asked for is no excluded one.
    pub(super) fn first(
        &mut self,
        reader: Reader<'txn>,
        place: Bound<&'txn [u8]>,
    ) -> Result<Option<&'txn [u8]>> {
        let Some(root) = self.nodes.len().checked_sub(1) else { return Ok(None) };
        let mut next = Some(Question::new(root, place));
        while let Some(mut question) = next {
            let operand = self.proceed(reader, &mut question)?;
            next = if operand.is_some() {
                self.questions.push(question);
                operand
            } else {
                self.questions.pop()
            };
        }
        match self.nodes.last().map(|root| root.answer) {
            Some(Answer::Key(key)) => Ok(Some(key)),
            _ => Ok(None),
        }
    }

    /// Goes on with a question until it is answered, or until an operand has to be asked, which it waits
    /// for then.
    fn proceed(
        &mut self,
        reader: Reader<'txn>,
        question: &mut Question<'txn>,
    ) -> Result<Option<Question<'txn>>> {
        let Self { nodes, operands, .. } = self;
        let of = |range: &Range<usize>| operands.get(range.clone()).unwrap_or_default();
        let outcome = match nodes.get(question.node).map(|node| &node.kind) {
            Some(Kind::All(range)) => {
                let operands = of(range);
                all(nodes, operands, reader, question)?
            }
            Some(Kind::Any(range, _)) => {
                let operands = of(range);
                any(nodes, operands, reader, question)?
            }
            Some(Kind::Scan(_)) | None => ask(nodes, reader, question.node, question.place)?,
        };
        match (outcome, nodes.get_mut(question.node)) {
            (Outcome::Answer(answer), Some(node)) => node.answer = answer,
            (Outcome::Asks(operand), _) => return Ok(Some(Question::new(operand, question.place))),
            (Outcome::Answer(_), None) => {}
        }
        Ok(None)
    }

    /// What the scans have read.
    pub(super) fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for node in &self.nodes {
            if let Kind::Scan(leaf) = &node.kind {
                stats += leaf.meter.stats();
            }
        }
        stats
    }
}

/// LMDB finds a cursor of a write transaction in a list, with the newest cursor first. So the cursors of
/// the scans are closed in the reverse of the order in which they were opened, as far as possible, and all
/// of them at the end.
impl Drop for Tree<'_> {
    fn drop(&mut self) {
        while self.nodes.pop().is_some() {}
    }
}

enum Outcome<'txn> {
    Answer(Answer<'txn>),
    /// This node has to be asked first, for the same place.
    Asks(usize),
}

/// The answer of a node, if it has one for this place or is a scan.
fn ask<'txn>(
    nodes: &mut [Node<'txn>],
    reader: Reader<'txn>,
    at: usize,
    place: Bound<&[u8]>,
) -> Result<Outcome<'txn>> {
    let Some(node) = nodes.get_mut(at) else { return Ok(Outcome::Answer(Answer::End)) };
    if !node.answer.holds_at(place) {
        let Kind::Scan(leaf) = &mut node.kind else { return Ok(Outcome::Asks(at)) };
        node.answer = leaf.first(reader, place)?.map_or(Answer::End, Answer::Key);
    }
    Ok(Outcome::Answer(node.answer))
}

/// The first primary key that all operands have.
fn all<'txn>(
    nodes: &mut [Node<'txn>],
    operands: &[usize],
    reader: Reader<'txn>,
    question: &mut Question<'txn>,
) -> Result<Outcome<'txn>> {
    while let Some(&operand) = operands.get(question.turn) {
        let key = match ask(nodes, reader, operand, question.place)? {
            Outcome::Answer(Answer::Key(key)) => key,
            outcome => return Ok(outcome),
        };
        if question.place != Bound::Included(key) {
            (question.place, question.agreed) = (Bound::Included(key), 0);
        }
        question.agreed += 1;
        if question.agreed == operands.len() {
            return Ok(Outcome::Answer(Answer::Key(key)));
        }
        question.turn = (question.turn + 1) % operands.len();
    }
    Ok(Outcome::Answer(Answer::End))
}

/// The first primary key that an operand has.
fn any<'txn>(
    nodes: &mut [Node<'txn>],
    operands: &[usize],
    reader: Reader<'txn>,
    question: &mut Question<'txn>,
) -> Result<Outcome<'txn>> {
    while let Some(Node { kind: Kind::Any(_, heads), .. }) = nodes.get_mut(question.node) {
        let operand = match question.waits_for.take().or_else(|| heads.next_unasked(operands)) {
            Some(operand) => operand,
            None => match heads.answers.peek() {
                None => break,
                Some(&Reverse((key, operand))) => {
                    if is_at(key, question.place) {
                        return Ok(Outcome::Answer(Answer::Key(key)));
                    }
                    heads.answers.pop();
                    operand
                }
            },
        };
        match ask(nodes, reader, operand, question.place)? {
            Outcome::Answer(Answer::Key(key)) => {
                if let Some(Node { kind: Kind::Any(_, heads), .. }) = nodes.get_mut(question.node) {
                    heads.answers.push(Reverse((key, operand)));
                }
            }
            Outcome::Answer(_) => {}
            Outcome::Asks(operand) => {
                question.waits_for = Some(operand);
                return Ok(Outcome::Asks(operand));
            }
        }
    }
    Ok(Outcome::Answer(Answer::End))
}
