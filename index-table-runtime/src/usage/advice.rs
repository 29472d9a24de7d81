//! Advice from the counters of a table.

use super::{IndexUsage, Usage};
use crate::model::schema::{IndexSchema, Strategy};

/// The minimum number of entries for advice.
const MINIMUM: u64 = 1000;

/// The factor by which a number is considered far greater than another.
const FAR_MORE: u64 = 10;

/// Returns the derive's warnings about the declaration, then advice from the counters.
pub(super) fn of(declared: &IndexSchema, rows: &Usage, usage: &IndexUsage) -> Vec<String> {
    let found = declared.findings.iter().map(|finding| (*finding).to_owned());
    let reasons =
        found.chain(never_queried(declared, usage)).chain(followed(declared, rows, usage));
    reasons.chain(carried(declared, usage)).collect()
}

/// Returns advice about an index with costs and without queries. A unique index is used by writes.
fn never_queried(index: &IndexSchema, usage: &IndexUsage) -> Option<String> {
    let IndexUsage { queries, written, .. } = *usage;
    (queries == 0 && written >= MINIMUM && !index.unique).then(|| {
        format!(
            "it was never queried, and {written} of its entries were written or removed; if other \
             processes don't query it either, it costs writes and space for nothing"
        )
    })
}

/// Returns advice about an index whose references are almost always followed.
fn followed(index: &IndexSchema, rows: &Usage, usage: &IndexUsage) -> Option<String> {
    let IndexUsage { entries, facts, .. } = *usage;
    if facts < MINIMUM || facts.saturating_mul(10) < entries.saturating_mul(9) {
        return None;
    }
    let read =
        format!("of the {entries} entries that were read, {facts} were followed to their rows");
    match index.strategy {
        Strategy::Full => None,
        Strategy::Partial(_) => Some(format!(
            "{read}, so the included fields were rarely used; use `entries()` where that is enough, or \
             leave out the `include`"
        )),
        Strategy::Normalized => {
            // Included fields are written with each change.
            let changes = rows.inserts + rows.puts + rows.updates;
            (facts >= changes.saturating_mul(FAR_MORE)).then(|| {
                format!(
                    "{read}, a second look-up each, and {changes} rows were written; `include` the \
                     fields that are read most and use `entries()`, or make it `strategy = \
                     \"full\"`, if there is space for it"
                )
            })
        }
    }
}

/// Returns advice about an index with included fields that are rarely read.
fn carried(index: &IndexSchema, usage: &IndexUsage) -> Option<String> {
    let IndexUsage { queries, entries, written, .. } = *usage;
    let carries = match index.strategy {
        Strategy::Normalized => return None,
        Strategy::Partial(_) => "the fields that it includes",
        Strategy::Full => "the whole row",
    };
    (queries > 0 && written >= MINIMUM && written >= entries.saturating_mul(FAR_MORE)).then(|| {
        format!(
            "{written} of its entries were written or removed and {entries} were read, so it \
             carries {carries} for little; a normalized index is written less often"
        )
    })
}
