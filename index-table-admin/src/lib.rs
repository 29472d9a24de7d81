//! The command line tool of [`index_table`], for operators.
//!
//! The command `index-table` works on any store, without the structs of its rows: the catalog has the types of all
//! keys. It opens a store read-only unless the command writes, runs beside a service that has the store open, and never
//! creates a store.
//!
//! ```sh
//! cargo install --path index-table-admin
//! index-table tables data/shop
//! index-table keys data/shop customers town --from Redmond --limit 20
//! index-table --json sizes data/shop
//! ```
//!
//! # Exit codes
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | a check has found damage |
//! | 2 | wrong arguments |
//! | 3 | the store, the table, the index or the shard map does not exist |
//! | 4 | not available now: another process writes the store, a shard is missing, an index is not readable |
//! | 5 | any other error, for example of the file system |
//!
//! Errors are written to the standard error stream; with `--json`, as an object with `error` and `code`.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod calendar;
mod cli;
mod commands;
mod failure;
mod id;
mod open;
mod output;
mod progress;
mod value;

use std::process::ExitCode;

/// Runs the command `index-table` with the arguments of the process, and returns its exit code.
///
/// # Examples
///
/// The whole program `index-table`:
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     index_table_admin::main_for_any_store()
/// }
/// ```
#[must_use]
pub fn main_for_any_store() -> ExitCode {
    cli::run()
}
