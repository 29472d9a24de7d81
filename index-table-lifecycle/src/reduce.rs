//! Reduces a script that fails: removes steps, threads, tenants and rows as long as the same failure happens.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use crate::{
    run::run,
    script::{Config, Script},
};

/// Returns the kind of a failure: its text without numbers.
pub(crate) fn kind(failure: &str) -> String {
    // Names of tables, shards and keys are in backquotes.
    let text: String = failure.split('`').step_by(2).collect();
    let words = text.split(|at: char| !at.is_alphabetic()).filter(|word| word.len() > 1);
    words.take(9).collect::<Vec<_>>().join(" ")
}

struct Reduction {
    kind: String,
    tries: u32,
    limit: Duration,
    end: Instant,
    known: BTreeSet<String>,
}

impl Reduction {
    /// Returns whether a script fails in the same way, in one of several runs.
    fn fails(&self, script: &Script) -> bool {
        (0..self.tries).any(|_| {
            Instant::now() < self.end
                && run(script, self.limit, false, &self.known)
                    .is_err_and(|failure| kind(&failure) == self.kind)
        })
    }
}

/// Returns the shortest script found in the given time that still fails in the same way.
/// Failures of a known kind are ignored.
pub(crate) fn reduce(
    script: &Script,
    failure: &str,
    (tries, time): (u32, Duration),
    known: &BTreeSet<String>,
) -> Script {
    let limit =
        if failure.starts_with("a hang") { Duration::from_secs(20) } else { crate::run::LIMIT };
    let (kind, end, known) = (kind(failure), Instant::now() + time, known.clone());
    let reduction = Reduction { kind, tries, limit, end, known };
    let mut best = script.clone();
    let mut size = best.steps.len().div_ceil(2);
    while size > 0 {
        let (mut at, mut is_shorter) = (best.steps.len().saturating_sub(size), false);
        loop {
            let mut candidate = best.clone();
            let end = (at + size).min(candidate.steps.len());
            candidate.steps.drain(at.min(end)..end);
            if candidate.steps.len() < best.steps.len() && reduction.fails(&candidate) {
                (best, is_shorter) = (candidate, true);
            }
            if at == 0 {
                break;
            }
            at = at.saturating_sub(size);
        }
        size = if is_shorter && size == 1 { 1 } else { size / 2 };
    }
    let changes: [fn(&mut Config); 9] = [
        |it| it.readers = 0,
        |it| it.workers = 0,
        |it| it.writers = 0,
        |it| it.writers = it.writers.min(1),
        |it| it.archive = 0,
        |it| it.fillers = 0,
        |it| it.fillers = it.fillers.min(20),
        |it| it.tenants = 1,
        |it| it.tenants = it.tenants.min(2),
    ];
    for change in changes {
        let mut candidate = best.clone();
        change(&mut candidate.config);
        if candidate != best && reduction.fails(&candidate) {
            best = candidate;
        }
    }
    best
}
