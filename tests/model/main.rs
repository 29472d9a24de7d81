//! Random operations compared with a model, on both engines, and in a sample of the cases with a journal.
//!
//! The model is a `BTreeMap` from primary key to row. After each batch of operations, all results of the
//! store are compared with a filter and a sort over the model's rows: every whole index, and queries with
//! prefixes, ranges, limits, both directions and pages. `verify`, which reads the indexes independently of
//! queries, must find nothing.

mod cards;
mod combinations;
#[cfg(feature = "postgres")]
mod contents;
mod documents;
mod forms;
mod items;
#[path = "../support/killed.rs"]
mod killing;
mod kinds;
mod pairs;
#[cfg(feature = "postgres")]
#[path = "../support/postgres.rs"]
mod postgres;
mod scans;
mod turning;
mod widths;

use std::{panic, thread};

use index_table::{Result, Store, Verify};
use proptest::prelude::*;

/// Generates strings that are easily confused with one another, or with special bytes of the encoding.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => prop::sample::select(vec![
            "", "a", "b", "ab", "abc", "b\u{ff}", "\0", "\0\0", "a\0", "a\0b", "\u{1}", "a\u{1}",
            "a\u{1}\0", "\u{2}", "\u{10ffff}", "ÿ", "z",
        ])
        .prop_map(str::to_owned),
        1 => "[a-c]{1,60}",
    ]
}

/// Returns a third of this number of cases, or all of them if `PROPTEST_CASES` is 256, its default, and more if it is
/// larger. CI sets it to a quarter of that.
fn cases(most: u32) -> u32 {
    match std::env::var("PROPTEST_CASES") {
        Ok(_) => ProptestConfig::default().cases.saturating_mul(most) / 256,
        Err(_) => most / 3,
    }
    .max(1)
}

/// Opens a store. Each call opens the same store, and reopens the file if no handle is left; a store in
/// memory lasts as long as the test.
type Open<'a> = &'a dyn Fn() -> Result<Store, TestCaseError>;

/// Runs `check` on a store of each engine, which it opens, and may close and open again, and in a sample of
/// the cases on a store with a journal, which is killed instead of closed, and on a server. The store in memory has a
/// thread of its own, because the longest tests are the last ones that run.
fn on_both_engines(
    check: impl Fn(Open<'_>) -> Result<(), TestCaseError> + Sync,
) -> Result<(), TestCaseError> {
    let memory = Store::in_memory();
    thread::scope(|scope| {
        let in_memory = scope.spawn(|| check(&|| Ok(memory.clone())));
        on_disk(&check)?;
        in_memory.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
    })
}

fn on_disk(check: impl Fn(Open<'_>) -> Result<(), TestCaseError>) -> Result<(), TestCaseError> {
    let dir = tempfile::tempdir().map_err(|error| TestCaseError::fail(error.to_string()))?;
    let options = Store::options().map_size(1 << 28);
    check(&|| options.open(dir.path()).map_err(fail))?;
    killing::sampled(|| {
        let killed = killing::Killed::new(options.clone());
        let killed = killed.map_err(|error| TestCaseError::fail(error.to_string()))?;
        check(&|| killed.open().map_err(fail))
    })?;
    #[cfg(feature = "postgres")]
    on_a_server(&check, dir.path())?;
    Ok(())
}

/// Runs `check` on a server, in one of twelve cases, and compares all databases with those of the same case on disk.
#[cfg(feature = "postgres")]
fn on_a_server(
    check: impl Fn(Open<'_>) -> Result<(), TestCaseError>,
    on_disk: &std::path::Path,
) -> Result<(), TestCaseError> {
    static CASES: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let case = CASES.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let Some(schema) = postgres::Schema::new().filter(|_| case.is_multiple_of(12)) else {
        return Ok(());
    };
    check(&|| schema.open().map_err(fail))?;
    let read_only = Store::options().read_only(true).open(on_disk).map_err(fail)?;
    let options = schema.options().read_only(true);
    contents::assert_equal(&read_only, &schema.open_with(&options).map_err(fail)?)
}

fn assert_clean(verify: Verify<'_>) -> Result<(), TestCaseError> {
    let report = verify.run().map_err(fail)?;
    prop_assert!(report.is_clean(), "{}", report);
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn fail(error: index_table::Error) -> TestCaseError {
    TestCaseError::fail(error.to_string())
}
