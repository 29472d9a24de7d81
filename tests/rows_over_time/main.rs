//! Rows over time: revisions, expiry and aggregates.

mod aggregates;
mod expiry;
mod references;
mod revisions;
#[path = "../support/stores.rs"]
mod stores;
