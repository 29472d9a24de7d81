//! A running combination: a tree of scans and operators. Each node finds the first primary key at or behind a
//! place.
//!
//! A node keeps the last key that it found, its result. Places never go back, so a result that is not before
//! the next place is also the result there, and a node is searched again only if its result is before the
//! place:
//!
//! - `Any` searches the operands whose results are before the place, which are first in a heap. Its result is
//!   the least of theirs.
//! - `All` goes round its operands, with the greatest result so far as the place, until they agree.
//!
//! The cost is linear in the entries that are read, and each of them takes at most one heap operation. If
//! `All` is searched, the results of all its operands are before the place, because they are not greater than
//! its own. So it searches each of them, and there are at least two; `Any` searches at least one. Below a
//! node there are only scans and nodes of the other kind ([`plan`](super::plan)). So the number of searches
//! of nodes is proportional to that of scans, and each search of a scan reads an entry, for every shape of
//! the tree.
//!
//! Nodes are in a list, and so are waiting searches. Nothing recurses on the depth.

use std::{
    collections::BinaryHeap,
    ops::{Bound, Range},
};

use super::{
    leaf::Leaf,
    plan::{Operator, Plan, Token},
    primary_key::{Head, Place, PrimaryKey, as_bytes, is_at},
    sorted,
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
    /// Each waits for the next one. Empty between two calls of [`first`](Tree::first).
    searches: Vec<Search<'txn>>,
    reverse: bool,
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

/// The results of the operands of `Any`.
#[derive(Default)]
struct Heads<'txn> {
    /// The number of operands that have been read.
    started: usize,
    /// The result of each of them with its position, unless it has ended.
    answers: BinaryHeap<Head<'txn>>,
}

impl Heads<'_> {
    fn next_unread(&mut self, operands: &[usize]) -> Option<usize> {
        let operand = operands.get(self.started).copied()?;
        self.started += 1;
        Some(operand)
    }
}

#[derive(Clone)]
enum Answer<'txn> {
    /// It has not been read.
    None,
    /// The first primary key at the last place or behind it.
    Key(PrimaryKey<'txn>),
    /// There is no further primary key.
    End,
}

impl Answer<'_> {
    /// Whether it is the result for this place as well.
    fn holds_at(&self, place: Bound<&[u8]>, reverse: bool) -> bool {
        match self {
            Self::None => false,
            Self::Key(key) => is_at(key, place, reverse),
            Self::End => true,
        }
    }
}

/// A search at a node, and its progress.
struct Search<'txn> {
    node: usize,
    place: Place<'txn>,
    /// `All`: the current operand.
    turn: usize,
    /// `All`: the number of successive operands with the place as their result.
    agreed: usize,
    /// `Any`: the operand that is being read, which is not in the heap.
    waits_for: Option<usize>,
}

impl<'txn> Search<'txn> {
    const fn new(node: usize, place: Place<'txn>) -> Self {
        Self { node, place, turn: 0, agreed: 0, waits_for: None }
    }
}

impl<'txn> Tree<'txn> {
    pub(super) fn new(
        plan: Plan<'txn>,
        schema: &'static TableSchema,
        ledger: Ledger<'txn>,
        reverse: bool,
    ) -> Self {
        let (mut nodes, mut operands) = (Vec::new(), Vec::new());
        // The nodes without an operator yet.
        let mut loose: Vec<usize> = Vec::new();
        for token in plan.into_tokens() {
            let kind = match token {
                Token::Scan(part) => {
                    let meter = ledger.meter(part.query.source, None);
                    Kind::Scan(Box::new(Leaf::new(schema, part, reverse, meter)))
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
        Self { nodes, operands, searches: Vec::new(), reverse }
    }

    /// Sorts the scans whose entries are not in the order of the primary key, from a place on. To be called before
    /// the first search.
    pub(super) fn sort(&mut self, reader: Reader<'txn>, from: &Place<'txn>) -> Result<()> {
        let leaves = self.nodes.iter_mut().filter_map(|node| match &mut node.kind {
            Kind::Scan(leaf) if !leaf.is_ordered() => Some(&mut **leaf),
            _ => None,
        });
        let mut leaves: Vec<_> = leaves.collect();
        sorted::sort(&mut leaves, reader, as_bytes(from), self.reverse)
    }

    /// The first primary key at the place or behind it.
    pub(super) fn first(
        &mut self,
        reader: Reader<'txn>,
        place: Place<'txn>,
    ) -> Result<Option<PrimaryKey<'txn>>> {
        let Some(root) = self.nodes.len().checked_sub(1) else { return Ok(None) };
        let mut next = Some(Search::new(root, place));
        while let Some(mut search) = next {
            let operand = self.proceed(reader, &mut search)?;
            next = if operand.is_some() {
                self.searches.push(search);
                operand
            } else {
                self.searches.pop()
            };
        }
        match self.nodes.last().map(|root| &root.answer) {
            Some(Answer::Key(key)) => Ok(Some(key.clone())),
            _ => Ok(None),
        }
    }

    /// Continues a search until it has a result, or until it has to wait for an operand.
    fn proceed(
        &mut self,
        reader: Reader<'txn>,
        search: &mut Search<'txn>,
    ) -> Result<Option<Search<'txn>>> {
        let Self { nodes, operands, reverse, .. } = self;
        let reverse = *reverse;
        let of = |range: &Range<usize>| operands.get(range.clone()).unwrap_or_default();
        let outcome = match nodes.get(search.node).map(|node| &node.kind) {
            Some(Kind::All(range)) => {
                let operands = of(range);
                all(nodes, operands, reader, search, reverse)?
            }
            Some(Kind::Any(range, _)) => {
                let operands = of(range);
                any(nodes, operands, reader, search, reverse)?
            }
            Some(Kind::Scan(_)) | None => {
                search_node(nodes, reader, search.node, as_bytes(&search.place), reverse)?
            }
        };
        match (outcome, nodes.get_mut(search.node)) {
            (Outcome::Answer(answer), Some(node)) => node.answer = answer,
            (Outcome::Needs(operand), _) => {
                return Ok(Some(Search::new(operand, search.place.clone())));
            }
            (Outcome::Answer(_), None) => {}
        }
        Ok(None)
    }

    /// The reads of the scans.
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
    /// This node has to be read first, for the same place.
    Needs(usize),
}

/// The result of a node, if it has one for this place or is a scan.
fn search_node<'txn>(
    nodes: &mut [Node<'txn>],
    reader: Reader<'txn>,
    at: usize,
    place: Bound<&[u8]>,
    reverse: bool,
) -> Result<Outcome<'txn>> {
    let Some(node) = nodes.get_mut(at) else { return Ok(Outcome::Answer(Answer::End)) };
    if !node.answer.holds_at(place, reverse) {
        let Kind::Scan(leaf) = &mut node.kind else { return Ok(Outcome::Needs(at)) };
        node.answer = leaf.first(reader, place)?.map_or(Answer::End, Answer::Key);
    }
    Ok(Outcome::Answer(node.answer.clone()))
}

/// The first primary key that all operands have.
fn all<'txn>(
    nodes: &mut [Node<'txn>],
    operands: &[usize],
    reader: Reader<'txn>,
    search: &mut Search<'txn>,
    reverse: bool,
) -> Result<Outcome<'txn>> {
    while let Some(&operand) = operands.get(search.turn) {
        let key = match search_node(nodes, reader, operand, as_bytes(&search.place), reverse)? {
            Outcome::Answer(Answer::Key(key)) => key,
            outcome => return Ok(outcome),
        };
        if as_bytes(&search.place) != Bound::Included(&*key) {
            (search.place, search.agreed) = (Bound::Included(key.clone()), 0);
        }
        search.agreed += 1;
        if search.agreed == operands.len() {
            return Ok(Outcome::Answer(Answer::Key(key)));
        }
        search.turn = (search.turn + 1) % operands.len();
    }
    Ok(Outcome::Answer(Answer::End))
}

/// The first primary key that an operand has.
fn any<'txn>(
    nodes: &mut [Node<'txn>],
    operands: &[usize],
    reader: Reader<'txn>,
    search: &mut Search<'txn>,
    reverse: bool,
) -> Result<Outcome<'txn>> {
    while let Some(Node { kind: Kind::Any(_, heads), .. }) = nodes.get_mut(search.node) {
        let operand = match search.waits_for.take().or_else(|| heads.next_unread(operands)) {
            Some(operand) => operand,
            None => match heads.answers.peek() {
                None => break,
                Some(Head { key, operand, .. }) => {
                    if is_at(key, as_bytes(&search.place), reverse) {
                        return Ok(Outcome::Answer(Answer::Key(key.clone())));
                    }
                    let operand = *operand;
                    heads.answers.pop();
                    operand
                }
            },
        };
        match search_node(nodes, reader, operand, as_bytes(&search.place), reverse)? {
            Outcome::Answer(Answer::Key(key)) => {
                if let Some(Node { kind: Kind::Any(_, heads), .. }) = nodes.get_mut(search.node) {
                    heads.answers.push(Head { key, operand, reverse });
                }
            }
            Outcome::Answer(_) => {}
            Outcome::Needs(operand) => {
                search.waits_for = Some(operand);
                return Ok(Outcome::Needs(operand));
            }
        }
    }
    Ok(Outcome::Answer(Answer::End))
}
