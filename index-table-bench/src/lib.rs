//! The shared code of the measurements of `index-table`.
//!
//! The program `index-table-bench` compares `index-table` with other ways to keep rows and indexes
//! in a file: [`workload`] has the rows and the operations, [`contender`] the trait that each competitor
//! implements in [`contenders`], [`run`] measures them in turn, [`films`] does the same with real data,
//! [`writers`] commits row by row in many threads, [`eventual`] compares strong indexes with those that
//! follow the rows, [`build_cost`] measures what the derive costs the compiler, and [`report`] writes it all
//! down. The other programs in `src/bin` measure one decision each.

#![allow(clippy::cast_precision_loss, reason = "figures are shown with three digits")]

pub mod allocations;
pub mod build_cost;
pub mod contender;
pub mod contenders;
pub mod eventual;
pub mod films;
pub mod layouts;
pub mod random;
pub mod report;
pub mod results;
pub mod run;
pub mod workload;
pub mod writers;

/// The figure in the middle; of an even number of them, the higher one.
///
/// # Panics
///
/// If there is none.
#[must_use]
pub fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
