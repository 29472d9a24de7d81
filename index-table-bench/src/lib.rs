//! The shared code of the measurements of `index-table`.
//! The program `index-table-bench` compares `index-table` with other ways to store rows and indexes in a
//! file. [`workload`] has the rows and the operations. [`contender`] has the trait that each competitor in
//! [`contenders`] implements. [`run`] measures the contenders in turn, and [`films`] does the same with real
//! data. [`writers`] measures single commits of many threads, [`eventual`] compares strong and eventual
//! indexes, and [`build_cost`] measures the compile time of the derive. [`report`] writes the results. Each
//! of the other programs in `src/bin` measures one design decision. [`sharded`] has the table for the programs
//! that measure shards.

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
pub mod sharded;
pub mod workload;
pub mod writers;

/// Returns the median, or the higher of the two middle figures.
///
/// # Panics
///
/// If there are no figures.
#[must_use]
pub fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
