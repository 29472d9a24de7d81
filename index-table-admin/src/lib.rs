//! The command line tool of [`index_table`], for operators.
//!
//! The command `index-table` works on any store, without the structs of its rows: the catalog has the types of all
//! keys. It opens a store read-only unless the command writes, runs alongside a service that has the store open, and never
//! creates a store.
//!
//! ```sh
//! cargo install --path index-table-admin
//! index-table tables data/shop
//! index-table keys data/shop customers town --from Redmond --limit 20
//! index-table --json sizes data/shop
//! ```
//!
//! A service mounts the page of its own store, with [`router`], [`router_with_rows`] or
//! [`router_with_all_rows`]; with [`Operations`], the command can operate the running service. A program with its own types uses [`main`].
//!
//! # Exit codes
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | a check, a verification or another command has found damage, `diff` a difference, or `status` a reason for attention |
//! | 2 | wrong arguments |
//! | 3 | the store, the table, the index, the row or the shard map does not exist |
//! | 4 | not available now: another process writes the store, a shard is missing, an index is not readable, a server can't be reached |
//! | 5 | any other error, for example of the file system |
//! | 6 | the time limit of a dump has passed, and rows are left |
//! | 130 | interrupted by Ctrl-C |
//!
//! Errors are written to the standard error stream; with `--json`, as an object with `error` and `code`, and
//! with `next` if a cursor continues the command. If LMDB ends the
//! process by a signal at a damaged page, this is an error with the exit code 1 as well.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod cli;
mod client;
mod commands;
mod crash;
mod diagram;
mod failure;
mod forms;
mod health;
mod interrupt;
mod lines;
mod names;
mod open;
mod operations;
mod output;
mod page;
mod part;
mod progress;
mod server;
mod typed;
mod value;

use std::process::ExitCode;

pub use health::{Health, Reason, health};
pub use operations::Operations;
pub use page::metrics;
pub use page::{router, router_with_all_rows, router_with_rows};
pub use typed::{Row, Tables};

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

/// Runs a command with the types of a program's rows: the same tool, in which the commands `get`, `find`, `rows`, `dump`,
/// `put`, `delete`, `load` and `schema` use these types, with the commands `verify`, `repair`, `build`, `upgrade`, `expire`, `add-shard`, `move`, `move-table`, `split`, `rebalance`,
/// `resume-move`, `cancel-move` and `restore-shard`. Returns the exit code.
///
/// On Unix, this installs handlers of the signals SIGABRT, SIGBUS and SIGSEGV, with which LMDB ends a process that reads a
/// damaged page. They write an error, and end the process with the exit code 1.
///
/// # Examples
///
/// The whole program:
///
/// ```no_run
/// use index_table::IndexTable;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, IndexTable)]
/// #[index(town)]
/// struct Customer {
///     #[primary_key]
///     id: u64,
///     town: String,
/// }
///
/// #[derive(Serialize, Deserialize, IndexTable)]
/// struct Order {
///     #[primary_key]
///     number: u64,
/// }
///
/// fn main() -> std::process::ExitCode {
///     index_table_admin::main::<(Customer, Order)>()
/// }
/// ```
#[must_use]
pub fn main<T: Tables>() -> ExitCode {
    cli::run_typed(&typed::declared::<T>())
}
