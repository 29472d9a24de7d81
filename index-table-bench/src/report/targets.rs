//! What was set as a target, what came of it, and why some were missed.

use super::{MEASURES, Measured, Unit, short, thousands};
use crate::{
    build_cost::Derives,
    results::{Measure, Results},
};

/// Why a target is missed, by its name in the table. Written by hand after a run; one without a
/// cause says so in the report.
const CAUSES: &[(&str, &str)] = &[
    ("against hand-written heed: load, one transaction", LOAD),
    ("against hand-written heed: load, one transaction, to disk", LOAD),
    ("against hand-written heed: inserts, a transaction each", LOAD),
    ("against hand-written heed: inserts, one transaction", LOAD),
    (
        "against hand-written heed: one key, covered, an entry",
        "in some runs only; instructions are 0.97 of those by hand (`scripts/instructions`).",
    ),
    (
        "against hand-written heed: page of 20, deep",
        "a page knows whether there is another one, which takes a step more, and makes its cursor, \
         which is bound to the question by a hash of it; by hand it is the last row's number.",
    ),
    (
        "against hand-written heed: count of one key",
        "a query is a value that is built, passed on and counted in `usage()` before it runs: some \
         1,200 instructions, as much as the count of a few blocks takes. Then each block is checked \
         and its length divided by that of a primary key, which by hand is a constant.",
    ),
    (
        "against hand-written heed: durable inserts, to disk",
        "in some runs only: two syncs are nearly all of it, and they vary by more than that.",
    ),
    (
        "against hand-written heed: point get, a transaction each",
        "a transaction goes through a gate, so that the map can grow, and a `get` is counted in \
         `usage()`: 1.09 in instructions (`scripts/instructions`), of which an atomic exchange and \
         a look at the clock take longer than most.",
    ),
    (
        "against hand-written heed: point get by unique index",
        "1.08 in instructions (`scripts/instructions`); why it is more in time is not known yet.",
    ),
    (
        "against hand-written heed: update, field in no index",
        "code by hand knows that the field is in no index. `update` takes any closure, so all keys \
         of the row before and after it are made and compared.",
    ),
    (
        "against hand-written heed: update, field in two indexes",
        "as for a field in no index: the keys of the others are made and compared as well.",
    ),
    (
        "against hand-written heed: reopen and get",
        "the catalog is read and compared with the declaration, and the file is checked before it \
         is trusted; once for each process.",
    ),
    (
        "against native_db: update of a field in no index",
        "both read, decode, encode and write the row, and commit; what `native_db` does beside that is \
         some thirteen to seventeen times our work, not twenty-five.",
    ),
    ("against native_db: load", "it is near the target, on either side of it from run to run."),
    (
        "against native_db: covered query",
        "it is near the target, on either side of it from run to run.",
    ),
    ("against SQLite: point get, one transaction", ROWS),
    ("against SQLite: point get, a transaction each", ROWS),
    ("against SQLite: one key to rows", ROWS),
    (
        "against SQLite: covered query",
        "an entry takes about 100 ns, of which finding the next entry in LMDB is a third and \
         checking that texts are UTF-8 and making the answer's checksum the rest; SQLite's covering \
         index is scanned in the same way.",
    ),
    (
        "against SQLite: space after a bulk load",
        "pages are 99 % full, and what is in them is larger: LMDB takes ten bytes for each entry beside \
         its key and value, and a primary key is eight bytes in every index, where SQLite has three for \
         a number of this size.",
    ),
    (
        "`cargo check` of 100 entities: what the derive adds",
        "each index has an entry struct with four derives of its own and six to ten methods with \
         their documentation.",
    ),
];

const LOAD: &str = "keys are made into buffers for any number of indexes and compared in a loop, \
                    where by hand each has its own code: 1.08 in instructions \
                    (`scripts/instructions`). The rest is more cache misses between calls.";

const ROWS: &str = "most of the time is the same for both: finding the row in a tree that is mapped \
                    into memory, and making six fields with five strings of it. Only views \
                    (`#[table(view)]`), which make no strings, would be further apart.";

/// One line of the table.
pub(super) struct Target {
    pub(super) name: String,
    pub(super) required: String,
    /// `None`: not measured.
    pub(super) measured: Option<String>,
    pub(super) met: bool,
}

impl Target {
    /// Why it is missed, as it was written down.
    pub(super) fn cause(&self) -> Option<&'static str> {
        CAUSES.iter().find(|(name, _)| *name == self.name).map(|(_, cause)| *cause)
    }
}

/// All targets.
pub(super) fn all(measured: &Measured) -> Vec<Target> {
    let results = &measured.customers;
    let Some(&largest) = results.sizes().last() else { return Vec::new() };
    let mut targets = Vec::new();
    // By hand there is no bulk load.
    let by_hand = |measure| !matches!(measure, Measure::BulkLoad | Measure::BulkLoadToDisk);
    let measures =
        MEASURES.iter().filter(|(measure, _, unit)| *unit == Unit::Time && by_hand(*measure));
    for (measure, title, _) in measures {
        // Each size for itself: the worst one counts.
        let ratios = results
            .sizes()
            .into_iter()
            .filter_map(|rows| Some((1.0 / results.figure(rows, *measure, "heed")?.ratio?, rows)));
        let worst = ratios.max_by(|one, other| one.0.total_cmp(&other.0));
        targets.push(Target {
            name: format!("against hand-written heed: {title}"),
            required: "time ≤ 1.10".to_owned(),
            measured: worst
                .map(|(ratio, rows)| format!("{ratio:.2} at worst, with {} rows", thousands(rows))),
            met: worst.is_some_and(|(ratio, _)| round(ratio) <= 1.10),
        });
    }
    let mut faster = |other: &str, measure, rows: usize, title: &str, required: f64| {
        let ratio = results.figure(rows, measure, other).and_then(|figure| figure.ratio);
        targets.push(Target {
            name: format!("against {other}: {title}"),
            required: format!("≥ {required} times as fast"),
            measured: ratio.map(|ratio| format!("{}, with {} rows", short(ratio), thousands(rows))),
            met: ratio.is_some_and(|ratio| round(ratio) >= required),
        });
    };
    faster("native_db", Measure::Load, largest, "load", 6.0);
    faster("native_db", Measure::EntriesOfTown, largest, "covered query", 12.0);
    faster("native_db", Measure::SetFirstName, largest, "update of a field in no index", 25.0);
    faster("SQLite", Measure::Get, largest, "point get, one transaction", 2.5);
    faster("SQLite", Measure::GetOneByOne, largest, "point get, a transaction each", 2.5);
    faster("SQLite", Measure::RowsOfTown, largest, "one key to rows", 2.5);
    faster("SQLite", Measure::EntriesOfTown, largest, "covered query", 2.5);
    faster("SQLite", Measure::Load, 200_000, "load, three indexes, one transaction", 1.5);
    targets.extend(bulk_load(results));
    let space = results.figure(largest, Measure::Space, "SQLite").and_then(|figure| figure.ratio);
    targets.push(Target {
        name: "against SQLite: space after the load".to_owned(),
        required: "≤ 1.5 times".to_owned(),
        measured: space.map(|ratio| short(1.0 / ratio)),
        met: space.is_some_and(|ratio| round(1.0 / ratio) <= 1.5),
    });
    let allocations = results.figure(largest, Measure::Allocations, "index-table");
    let allocations = allocations.and_then(|figure| figure.median);
    targets.push(Target {
        name: "allocations for an entry of a covered scan".to_owned(),
        required: "0".to_owned(),
        measured: allocations.map(|count| format!("{count:.4}")),
        met: allocations.is_some_and(|count| round(count) <= 0.0),
    });
    targets.push(check(measured));
    targets
}

/// A bulk load against the loads of others.
fn bulk_load(results: &Results) -> [Target; 3] {
    const ROWS: usize = 200_000;
    let ratio = |other: &str, theirs, ours| {
        let median = |contender, measure| results.figure(ROWS, measure, contender)?.median;
        Some(median(other, theirs)? / median("index-table", ours)?)
    };
    let faster = |other: &str, title: &str, required: f64| {
        let ratio = ratio(other, Measure::Load, Measure::BulkLoad);
        Target {
            name: format!("against {other}: bulk load, against its {title}"),
            required: format!("≥ {required} times as fast"),
            measured: ratio.map(|ratio| format!("{}, with {} rows", short(ratio), thousands(ROWS))),
            met: ratio.is_some_and(|ratio| round(ratio) >= required),
        }
    };
    let space = ratio("SQLite", Measure::Space, Measure::BulkSpace);
    [
        faster("SQLite", "load in one transaction", 4.0),
        faster("heed", "puts in one transaction", 2.0),
        Target {
            name: "against SQLite: space after a bulk load".to_owned(),
            required: "≤ 1.0 times".to_owned(),
            measured: space
                .map(|ratio| format!("{}, with {} rows", short(1.0 / ratio), thousands(ROWS))),
            met: space.is_some_and(|ratio| round(1.0 / ratio) <= 1.0),
        },
    ]
}

fn check(measured: &Measured) -> Target {
    let time = |derives| {
        let mut costs = measured.build.iter();
        costs.find(|cost| cost.entities == 100 && cost.derives == derives).map(|cost| cost.check)
    };
    let factor = || {
        let (none, serde) = (time(Derives::None)?, time(Derives::Serde)?);
        Some((time(Derives::IndexTable)? - serde) / (serde - none))
    };
    let factor = factor();
    Target {
        name: "`cargo check` of 100 entities: what the derive adds".to_owned(),
        required: "≤ 2.0 times what serde's two add".to_owned(),
        measured: factor.map(|factor| format!("{factor:.2}")),
        met: factor.is_some_and(|factor| round(factor) <= 2.0),
    }
}

/// As it is shown: a target of 1.10 is met by what is shown as 1.10.
fn round(figure: f64) -> f64 {
    (figure * 100.0).round() / 100.0
}
