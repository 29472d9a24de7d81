//! The tree of scans and operators of a running combination. Each node finds the first primary key at or
//! after a position.
//!
//! A node keeps its result, the last key that it has found. Positions never move back, so a result at or
//! after the next position is also the result for that position. A node is searched again only if its result
//! is before the position:
//!
//! - `Any` searches the operands whose results are before the position, which are first in a heap. Its result
//!   is the least result of its operands.
//! - `All` searches its operands in turn, with the greatest result so far as the position, until all results
//!   are equal.
//!
//! The cost is linear in the number of entries read, with at most one heap operation for each. If `All` is
//! searched, the results of its operands are before the position, because none is greater than the result of
//! `All`. So `All` searches each of its operands, at least two. `Any` searches at least
//! one operand. The operands of a node are scans and nodes of the other kind ([`plan`](super::plan)). So for
//! every shape of the tree, the number of searches of nodes is proportional to the number of searches of
//! scans, each of which reads an entry.
//!
//! Nodes and waiting searches are in lists, so no code recurses on the depth.

use std::{
    collections::BinaryHeap,
    ops::{Bound, Range},
};

use super::{
    leaf::Leaf,
    plan::{Operator, Plan, Token},
    primary_key::{Head, KeyBound, PrimaryKey, as_bytes, is_at},
    sorted,
};
use crate::{
    model::{error::Result, schema::TableSchema, shard::ShardSet},
    placement::Reader,
    query::meter::Ledger,
    usage::Stats,
};

pub(super) struct Tree<'txn> {
    /// The nodes: operands before their operators, and the root last.
    nodes: Vec<Node<'txn>>,
    /// The operands of all operators, as positions of nodes.
    operands: Vec<usize>,
    /// The waiting searches: each waits for the next. Empty between two calls of [`first`](Tree::first).
    searches: Vec<Search<'txn>>,
    reverse: bool,
}

struct Node<'txn> {
    kind: Kind<'txn>,
    found: Found<'txn>,
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
    /// The result of each of these operands, unless the operand has ended.
    results: BinaryHeap<Head<'txn>>,
}

impl Heads<'_> {
    fn next_unread(&mut self, operands: &[usize]) -> Option<usize> {
        let operand = operands.get(self.started).copied()?;
        self.started += 1;
        Some(operand)
    }
}

#[derive(Clone)]
enum Found<'txn> {
    /// The node has not been searched.
    None,
    /// The first primary key at or after the last position.
    Key(PrimaryKey<'txn>),
    /// There is no further primary key.
    End,
}

impl Found<'_> {
    /// Whether this is also the result for this position.
    fn holds_at(&self, position: Bound<&[u8]>, reverse: bool) -> bool {
        match self {
            Self::None => false,
            Self::Key(key) => is_at(key, position, reverse),
            Self::End => true,
        }
    }
}

/// A search at a node, and its progress.
struct Search<'txn> {
    node: usize,
    position: KeyBound<'txn>,
    /// In `All`, the current operand.
    turn: usize,
    /// In `All`, the number of successive operands with the position as their result.
    agreed: usize,
    /// In `Any`, the operand that is being searched, which is not in the heap.
    waits_for: Option<usize>,
}

impl<'txn> Search<'txn> {
    const fn new(node: usize, position: KeyBound<'txn>) -> Self {
        Self { node, position, turn: 0, agreed: 0, waits_for: None }
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
        // The nodes that are not yet operands of an operator.
        let mut without_operator: Vec<usize> = Vec::new();
        for token in plan.into_tokens() {
            let kind = match token {
                Token::Scan(part) => {
                    let meter = ledger.meter(part.query.source, None);
                    Kind::Scan(Box::new(Leaf::new(schema, part, reverse, meter)))
                }
                Token::Operator(operator, count) => {
                    let start = operands.len();
                    operands.extend(
                        without_operator.drain(without_operator.len().saturating_sub(count)..),
                    );
                    let range = start..operands.len();
                    match operator {
                        Operator::All => Kind::All(range),
                        Operator::Any => Kind::Any(range, Heads::default()),
                    }
                }
            };
            without_operator.push(nodes.len());
            nodes.push(Node { kind, found: Found::None });
        }
        Self { nodes, operands, searches: Vec::new(), reverse }
    }

    /// Sorts the scans whose entries are not in the order of the primary key, from a position. Must be called
    /// before the first search.
    pub(super) fn sort(&mut self, reader: Reader<'txn>, from: &KeyBound<'txn>) -> Result<()> {
        let leaves = self.nodes.iter_mut().filter_map(|node| match &mut node.kind {
            Kind::Scan(leaf) if !leaf.is_ordered() => Some(&mut **leaf),
            _ => None,
        });
        let mut leaves: Vec<_> = leaves.collect();
        sorted::sort(&mut leaves, reader, as_bytes(from), self.reverse)
    }

    /// Returns the first primary key at or after a position.
    pub(super) fn first(
        &mut self,
        reader: Reader<'txn>,
        position: KeyBound<'txn>,
    ) -> Result<Option<PrimaryKey<'txn>>> {
        let Some(root) = self.nodes.len().checked_sub(1) else { return Ok(None) };
        let mut next = Some(Search::new(root, position));
        while let Some(mut search) = next {
            let operand = self.continue_search(reader, &mut search)?;
            next = if operand.is_some() {
                self.searches.push(search);
                operand
            } else {
                self.searches.pop()
            };
        }
        match self.nodes.last().map(|root| &root.found) {
            Some(Found::Key(key)) => Ok(Some(key.clone())),
            _ => Ok(None),
        }
    }

    /// Continues a search until it has a result, or returns the search of an operand for which it has to
    /// wait.
    fn continue_search(
        &mut self,
        reader: Reader<'txn>,
        search: &mut Search<'txn>,
    ) -> Result<Option<Search<'txn>>> {
        let Self { nodes, operands, reverse, .. } = self;
        let reverse = *reverse;
        let operands_in = |range: &Range<usize>| operands.get(range.clone()).unwrap_or_default();
        let outcome = match nodes.get(search.node).map(|node| &node.kind) {
            Some(Kind::All(range)) => {
                let operands = operands_in(range);
                all(nodes, operands, reader, search, reverse)?
            }
            Some(Kind::Any(range, _)) => {
                let operands = operands_in(range);
                any(nodes, operands, reader, search, reverse)?
            }
            Some(Kind::Scan(_)) | None => {
                search_node(nodes, reader, search.node, as_bytes(&search.position), reverse)?
            }
        };
        match (outcome, nodes.get_mut(search.node)) {
            (Outcome::Found(found), Some(node)) => node.found = found,
            (Outcome::Needs(operand), _) => {
                return Ok(Some(Search::new(operand, search.position.clone())));
            }
            (Outcome::Found(_), None) => {}
        }
        Ok(None)
    }

    /// Returns the reads of the scans.
    pub(super) fn stats(&self) -> Stats {
        let (mut stats, mut shards) = (Stats::default(), ShardSet::default());
        for node in &self.nodes {
            if let Kind::Scan(leaf) = &node.kind {
                stats += leaf.meter.stats();
                shards.extend(leaf.meter.shards());
            }
        }
        stats.shards = shards.len();
        stats
    }
}

/// Closes the cursors of the scans, newest first as far as possible. LMDB searches the list of a write
/// transaction's cursors from the newest when it closes a cursor.
impl Drop for Tree<'_> {
    fn drop(&mut self) {
        while self.nodes.pop().is_some() {}
    }
}

enum Outcome<'txn> {
    Found(Found<'txn>),
    /// This node has to be searched first, for the same position.
    Needs(usize),
}

/// Returns the result of a node, if it has one for this position or is a scan.
fn search_node<'txn>(
    nodes: &mut [Node<'txn>],
    reader: Reader<'txn>,
    at: usize,
    position: Bound<&[u8]>,
    reverse: bool,
) -> Result<Outcome<'txn>> {
    let Some(node) = nodes.get_mut(at) else { return Ok(Outcome::Found(Found::End)) };
    if !node.found.holds_at(position, reverse) {
        let Kind::Scan(leaf) = &mut node.kind else { return Ok(Outcome::Needs(at)) };
        node.found = leaf.first(reader, position)?.map_or(Found::End, Found::Key);
    }
    Ok(Outcome::Found(node.found.clone()))
}

/// Searches for the first primary key that all operands have.
fn all<'txn>(
    nodes: &mut [Node<'txn>],
    operands: &[usize],
    reader: Reader<'txn>,
    search: &mut Search<'txn>,
    reverse: bool,
) -> Result<Outcome<'txn>> {
    while let Some(&operand) = operands.get(search.turn) {
        let key = match search_node(nodes, reader, operand, as_bytes(&search.position), reverse)? {
            Outcome::Found(Found::Key(key)) => key,
            outcome => return Ok(outcome),
        };
        if as_bytes(&search.position) != Bound::Included(&*key) {
            (search.position, search.agreed) = (Bound::Included(key.clone()), 0);
        }
        search.agreed += 1;
        if search.agreed == operands.len() {
            return Ok(Outcome::Found(Found::Key(key)));
        }
        search.turn = (search.turn + 1) % operands.len();
    }
    Ok(Outcome::Found(Found::End))
}

/// Searches for the first primary key that any operand has.
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
            None => match heads.results.peek() {
                None => break,
                Some(Head { key, operand, .. }) => {
                    if is_at(key, as_bytes(&search.position), reverse) {
                        return Ok(Outcome::Found(Found::Key(key.clone())));
                    }
                    let operand = *operand;
                    heads.results.pop();
                    operand
                }
            },
        };
        match search_node(nodes, reader, operand, as_bytes(&search.position), reverse)? {
            Outcome::Found(Found::Key(key)) => {
                if let Some(Node { kind: Kind::Any(_, heads), .. }) = nodes.get_mut(search.node) {
                    heads.results.push(Head { key, operand, reverse });
                }
            }
            Outcome::Found(_) => {}
            Outcome::Needs(operand) => {
                search.waits_for = Some(operand);
                return Ok(Outcome::Needs(operand));
            }
        }
    }
    Ok(Outcome::Found(Found::End))
}
