//! The promises of a plan.

use std::time::{Duration, Instant};

use proptest::{collection, prelude::*};

use super::plan::{Cell, Outcome, Target, plan};

fn cells(weights: &[(u64, usize)]) -> Vec<Cell> {
    let cell = |(at, (weight, owner)): (usize, &(u64, usize))| Cell {
        start: if at == 0 { Vec::new() } else { at.to_be_bytes().to_vec() },
        end: (at + 1 < weights.len()).then(|| (at + 1).to_be_bytes().to_vec()),
        key: at.to_be_bytes().to_vec(),
        owner: *owner,
        weight: *weight,
        rows: *weight,
        bytes: *weight,
        requests: [0; 2],
        is_single: true,
        is_pinned: false,
    };
    weights.iter().enumerate().map(cell).collect()
}

fn targets(count: usize) -> Vec<Target> {
    vec![Target { is_target: true, capacity: None }; count]
}

/// Returns the weight of the cells that move.
fn moved(cells: &[Cell], outcome: &Outcome) -> u64 {
    let all = cells.iter().zip(&outcome.owners);
    all.filter(|(cell, owner)| cell.owner != **owner).map(|(cell, _)| cell.weight).sum()
}

#[test]
fn a_new_shard_gets_its_share_from_the_end_of_a_range() {
    let cells = cells(&[(10, 0); 30]);
    let outcome = plan(&cells, &targets(3), 10);
    assert_eq!(outcome.after, [100, 100, 100]);
    assert_eq!((moved(&cells, &outcome), outcome.least), (200, 190));
    // Three ranges, and no more.
    let changes = outcome.owners.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert_eq!(changes, 2);
}

#[test]
fn even_shards_stay_as_they_are() {
    let cells = cells(&[(10, 0), (10, 1), (9, 2)]);
    let outcome = plan(&cells, &targets(3), 10);
    assert_eq!(moved(&cells, &outcome), 0);
    assert!(outcome.stuck.is_empty(), "{:?}", outcome.stuck);
}

#[test]
fn one_heavy_key_stays_and_is_named() {
    let outcome = plan(&cells(&[(1, 0), (1000, 0), (1, 1)]), &targets(2), 10);
    assert_eq!(outcome.stuck, [0]);
    assert_eq!(outcome.after, [1000, 2], "everything else has moved");
}

#[test]
fn the_cells_of_other_shards_move_away() {
    let mut shards = targets(3);
    shards[0].is_target = false;
    let outcome = plan(&cells(&[(10, 0), (0, 0), (10, 0), (5, 1)]), &shards, 10);
    assert!(!outcome.owners.contains(&0));
    assert_eq!(outcome.after, [0, 15, 10]);
}

#[test]
fn pinned_cells_and_capacities_are_respected() {
    let mut all = cells(&[(10, 0); 10]);
    all[9].is_pinned = true;
    let mut shards = targets(2);
    shards[1].capacity = Some(30);
    let outcome = plan(&all, &shards, 0);
    assert_eq!(outcome.after, [70, 30]);
    assert_eq!(outcome.owners[9], 0);
    assert_eq!(outcome.stuck, [0]);
}

#[test]
fn a_thousand_ranges_on_64_shards_are_planned_within_a_second() {
    let weight = |at: u64| (at * 7919) % 1000 + 1;
    let weights: Vec<_> = (0..1000).map(|at| (weight(at), (at % 7) as usize)).collect();
    let cells = cells(&weights);
    let began = Instant::now();
    let outcome = plan(&cells, &targets(64), 10);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(outcome.after.iter().all(|load| *load <= outcome.most) || !outcome.stuck.is_empty());
}

proptest! {
    #[test]
    fn no_shard_has_too_much_unless_no_move_would_help(
        weights in collection::vec((0..100_u64, 0..6_usize), 1..80),
        tolerance in 0..50_u32,
    ) {
        let cells = cells(&weights);
        let outcome = plan(&cells, &targets(6), tolerance);
        let mut loads = vec![0; 6];
        for (cell, owner) in cells.iter().zip(&outcome.owners) {
            loads[*owner] += cell.weight;
        }
        prop_assert_eq!(&loads, &outcome.after);
        prop_assert!(moved(&cells, &outcome) >= outcome.least.saturating_sub(loads.iter().map(|load| load.saturating_sub(outcome.most)).sum()));
        prop_assert!(loads.iter().max() <= outcome.before.iter().max().max(Some(&outcome.most)));
        let least = loads.iter().copied().min().unwrap_or_default();
        for (shard, load) in loads.iter().enumerate() {
            if *load > outcome.most {
                prop_assert!(outcome.stuck.contains(&shard));
                let own = cells.iter().zip(&outcome.owners).filter(|(_, owner)| **owner == shard);
                let helps = |weight: u64| weight > 0 && least + weight < *load;
                prop_assert!(!own.map(|(cell, _)| cell.weight).any(helps), "a move would help");
            }
        }
        prop_assert_eq!(plan(&cells, &targets(6), tolerance), outcome, "the same plan again");
    }
}
