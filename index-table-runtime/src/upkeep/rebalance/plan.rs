//! The heuristic that assigns cells to shards. It does no input or output.
//!
//! The load of a shard is the weight of its cells. Every cell of a shard that isn't a target moves to the target with the
//! least load. Then, while the load of a target exceeds the tolerance, its largest run of cells that fits moves to the
//! target with the least load. A run is at an end of neighbouring cells, so that few ranges are split. If no run fits, the
//! smallest cell moves, provided that the greater of the two loads becomes less. Otherwise, the shard does not change.

use std::ops::Range;

/// Neighbouring keys that move together.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    /// The first key in the boundaries of the shard map.
    pub(super) start: Vec<u8>,
    /// The first key with rows; before it, the cell may have keys without rows.
    pub(super) key: Vec<u8>,
    /// The first key after the cell.
    pub(super) end: Option<Vec<u8>>,
    /// The position of its shard among the loads.
    pub(super) owner: usize,
    pub(super) weight: u64,
    pub(super) rows: u64,
    pub(super) bytes: u64,
    /// The sampled reads and writes of its keys.
    pub(super) requests: [u64; 2],
    /// Whether it has a single shard key, so that it can't be split.
    pub(super) is_single: bool,
    pub(super) is_pinned: bool,
}

/// A shard that can have cells.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Target {
    /// Whether it gets cells. The cells of other shards move away.
    pub(super) is_target: bool,
    /// The maximum number of bytes.
    pub(super) capacity: Option<u64>,
}

/// The result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The new owner of each cell.
    pub(super) owners: Vec<usize>,
    /// The loads before and after.
    pub(super) before: Vec<u64>,
    pub(super) after: Vec<u64>,
    /// The load of a target if all targets have the same load, rounded up.
    pub(super) even: u64,
    /// The greatest load within the tolerance.
    pub(super) most: u64,
    /// The least weight that has to move to meet the tolerance.
    pub(super) least: u64,
    /// The targets whose loads still exceed the tolerance.
    pub(super) stuck: Vec<usize>,
}

struct Planner<'c> {
    cells: &'c [Cell],
    targets: &'c [Target],
    owners: Vec<usize>,
    loads: Vec<u64>,
    bytes: Vec<u64>,
    even: u64,
}

pub(super) fn plan(cells: &[Cell], targets: &[Target], tolerance: u32) -> Outcome {
    let (mut loads, mut bytes) = (vec![0; targets.len()], vec![0; targets.len()]);
    for cell in cells {
        add(&mut loads, cell.owner, cell.weight);
        add(&mut bytes, cell.owner, cell.bytes);
    }
    let count = targets.iter().filter(|target| target.is_target).count() as u64;
    let even = loads.iter().sum::<u64>().div_ceil(count.max(1));
    let most = even.saturating_add(even.saturating_mul(u64::from(tolerance)) / 100);
    let excess = |(target, load): (&Target, &u64)| {
        if target.is_target { load.saturating_sub(most) } else { *load }
    };
    let least = targets.iter().zip(&loads).map(excess).sum();
    let before = loads.clone();
    let owners = cells.iter().map(|cell| cell.owner).collect();
    let mut planner = Planner { cells, targets, owners, loads, bytes, even };
    let stuck = if count == 0 { Vec::new() } else { planner.run(most) };
    let Planner { owners, loads: after, .. } = planner;
    Outcome { owners, before, after, even, most, least, stuck }
}

fn add(loads: &mut [u64], at: usize, weight: u64) {
    if let Some(load) = loads.get_mut(at) {
        *load = load.saturating_add(weight);
    }
}

impl Planner<'_> {
    fn run(&mut self, most: u64) -> Vec<usize> {
        self.leave();
        let mut stuck = Vec::new();
        loop {
            let is_over = |at: &usize| self.load(*at) > most && !stuck.contains(at);
            let Some(from) = self.positions().filter(is_over).max_by_key(|at| self.load(*at))
            else {
                return stuck;
            };
            let moved = self.best(from).is_some_and(|(run, to)| {
                self.give(run, to);
                true
            });
            if !moved {
                stuck.push(from);
            }
        }
    }

    /// Returns the targets.
    fn positions(&self) -> impl Iterator<Item = usize> {
        let targets = self.targets.iter().enumerate().filter(|(_, target)| target.is_target);
        targets.map(|(at, _)| at)
    }

    fn load(&self, at: usize) -> u64 {
        self.loads.get(at).copied().unwrap_or_default()
    }

    fn owner(&self, cell: usize) -> Option<usize> {
        self.owners.get(cell).copied()
    }

    /// Whether a shard has room for this number of further bytes.
    fn has_room(&self, at: usize, bytes: u64) -> bool {
        let capacity = self.targets.get(at).and_then(|target| target.capacity);
        let used = self.bytes.get(at).copied().unwrap_or_default();
        capacity.is_none_or(|capacity| used.saturating_add(bytes) <= capacity)
    }

    /// Moves the cells of shards that are not targets to the targets with the least loads.
    fn leave(&mut self) {
        let mut to = None;
        for at in 0..self.cells.len() {
            let Some(cell) = self.cells.get(at).filter(|cell| !cell.is_pinned) else { continue };
            if self.targets.get(cell.owner).is_none_or(|target| target.is_target) {
                to = None;
                continue;
            }
            // Neighbours go to the same shard until it has its share.
            let fits = |to: &usize| {
                self.load(*to).saturating_add(cell.weight) <= self.even
                    && self.has_room(*to, cell.bytes)
            };
            let least = || {
                let with_room = self.positions().filter(|to| self.has_room(*to, cell.bytes));
                with_room.min_by_key(|to| self.load(*to))
            };
            to = to.filter(fits).or_else(least);
            if let Some(to) = to {
                self.give(at..at + 1, to);
            }
        }
    }

    fn give(&mut self, run: Range<usize>, to: usize) {
        for at in run {
            let (Some(cell), Some(owner)) = (self.cells.get(at), self.owners.get_mut(at)) else {
                continue;
            };
            for (loads, weight) in [(&mut self.loads, cell.weight), (&mut self.bytes, cell.bytes)] {
                if let Some(load) = loads.get_mut(*owner) {
                    *load = load.saturating_sub(weight);
                }
                add(loads, to, weight);
            }
            *owner = to;
        }
    }

    /// Returns the best run of a shard's cells and its new shard; `None` if no move makes the loads more even.
    fn best(&self, from: usize) -> Option<(Range<usize>, usize)> {
        let mut others: Vec<_> = self.positions().filter(|at| *at != from).collect();
        others.sort_by_key(|at| self.load(*at));
        others.into_iter().find_map(|to| Some((self.best_to(from, to)?, to)))
    }

    fn best_to(&self, from: usize, to: usize) -> Option<Range<usize>> {
        let own = self.load(from).saturating_sub(self.even);
        let wanted = own.min(self.even.saturating_sub(self.load(to)));
        // The weight of a run, whether the run is next to a cell of the new shard, and the run itself.
        let mut best: Option<(u64, bool, Range<usize>)> = None;
        let mut least: Option<(u64, usize)> = None;
        for run in self.runs(from) {
            for is_tail in [false, true] {
                let (mut weight, mut bytes, mut len) = (0_u64, 0_u64, 0);
                let at = |len: usize| if is_tail { run.end - 1 - len } else { run.start + len };
                while len < run.len()
                    && let Some(cell) = self.cells.get(at(len))
                    && weight.saturating_add(cell.weight) <= wanted
                    && self.has_room(to, bytes.saturating_add(cell.bytes))
                {
                    weight += cell.weight;
                    bytes += cell.bytes;
                    len += 1;
                }
                let taken =
                    if is_tail { run.end - len..run.end } else { run.start..run.start + len };
                let beside = if is_tail { Some(run.end) } else { run.start.checked_sub(1) };
                let is_beside = beside.is_some_and(|at| self.owner(at) == Some(to));
                let known = best.as_ref().map(|(weight, is_beside, _)| (*weight, *is_beside));
                if weight > 0 && known.is_none_or(|known| (weight, is_beside) > known) {
                    best = Some((weight, is_beside, taken));
                }
            }
            for at in run {
                let Some(cell) = self.cells.get(at) else { continue };
                let is_less = least.is_none_or(|(weight, _)| cell.weight < weight);
                if cell.weight > 0 && is_less && self.has_room(to, cell.bytes) {
                    least = Some((cell.weight, at));
                }
            }
        }
        if let Some((_, _, run)) = best {
            return Some(run);
        }
        let (weight, at) = least?;
        (self.load(to).saturating_add(weight) < self.load(from)).then(|| at..at + 1)
    }

    /// Returns the runs of neighbouring cells of a shard that can move.
    fn runs(&self, owner: usize) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for (at, cell) in self.cells.iter().enumerate() {
            if cell.is_pinned || self.owner(at) != Some(owner) {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.end == at => run.end = at + 1,
                _ => runs.push(at..at + 1),
            }
        }
        runs
    }
}
