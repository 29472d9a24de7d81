//! Reduces a script that fails: removes steps, threads, tenants and rows as long as the same failure happens.

use std::time::{Duration, Instant};

use crate::{
    run::run,
    script::{Config, Script},
};

/// The threads and steps that only compare. A difference that one finds, another finds as well.
const COMPARING: [&str; 3] = ["reader", "check", "consumers"];

/// The time after which a step of a shorter script hangs, and if a hang is reduced.
const LIMITS: (Duration, Duration) = (Duration::from_secs(40), Duration::from_secs(20));

/// Returns the kind of a failure: the first words of its text without numbers, names and values.
pub(crate) fn kind(failure: &str) -> String {
    let found = failure.split_once(": ").filter(|(who, _)| COMPARING.contains(who));
    let failure = found.map_or(failure, |(_, text)| text);
    // Names of tables, shards and keys are in backquotes, and values in brackets. The paths differ in each run.
    let (mut text, mut depth) = (String::new(), 0_u32);
    for at in failure.split('`').step_by(2).flat_map(str::chars) {
        match at {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ if depth == 0 => text.push(at),
            _ => {}
        }
    }
    let parts = text.split_whitespace().filter(|part| !part.contains('/'));
    let words = parts.flat_map(|part| part.split(|at: char| !at.is_alphabetic()));
    words.filter(|word| word.len() > 1).take(12).collect::<Vec<_>>().join(" ")
}

struct Reduction {
    kind: String,
    tries: u32,
    end: Instant,
}

impl Reduction {
    /// Returns whether a script fails in the same way, in one of several runs. Other failures don't end a run, so they don't
    /// hide this one.
    fn fails(&self, script: &Script) -> bool {
        let limit = if self.kind.starts_with("hang") { LIMITS.1 } else { LIMITS.0 };
        (0..self.tries).any(|_| {
            Instant::now() < self.end
                && run(script, limit, false, &|kind| kind != self.kind).is_err()
        })
    }
}

/// Each makes a script shorter or faster.
const SIMPLER: [fn(&mut Config); 11] = [
    |it| it.fillers = 0,
    |it| it.fillers = it.fillers.min(20),
    |it| it.pause = 0,
    |it| it.pause = it.pause.min(10),
    |it| it.readers = 0,
    |it| it.workers = 0,
    |it| it.writers = 0,
    |it| it.writers = it.writers.min(1),
    |it| it.archive = 0,
    |it| it.tenants = 1,
    |it| it.tenants = it.tenants.min(2),
];

/// Returns the shortest script found in the given time that still fails in the same way.
pub(crate) fn reduce(script: &Script, failure: &str, (tries, time): (u32, Duration)) -> Script {
    let reduction = Reduction { kind: kind(failure), tries, end: Instant::now() + time };
    let mut best = script.clone();
    // Fewer steps are faster, and may need less of the configuration.
    shorten(&mut best, &reduction, 5);
    simplify(&mut best, &reduction);
    shorten(&mut best, &reduction, 1);
    simplify(&mut best, &reduction);
    best
}

/// Removes parts of the steps: at first the half, and at last this many steps.
fn shorten(best: &mut Script, reduction: &Reduction, least: usize) {
    let mut size = best.steps.len().div_ceil(2);
    while size >= least {
        let (mut at, mut is_shorter) = (best.steps.len().saturating_sub(size), false);
        loop {
            let mut candidate = best.clone();
            let end = (at + size).min(candidate.steps.len());
            candidate.steps.drain(at.min(end)..end);
            if candidate.steps.len() < best.steps.len() && reduction.fails(&candidate) {
                (*best, is_shorter) = (candidate, true);
            }
            if at == 0 {
                break;
            }
            at = at.saturating_sub(size);
        }
        size = if is_shorter && size == 1 { 1 } else { size / 2 };
    }
}

fn simplify(best: &mut Script, reduction: &Reduction) {
    for change in SIMPLER {
        let mut candidate = best.clone();
        change(&mut candidate.config);
        if candidate != *best && reduction.fails(&candidate) {
            *best = candidate;
        }
    }
}
