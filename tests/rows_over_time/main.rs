//! Rows over time: revisions, expiry and aggregates.

mod aggregates;
mod cascades;
mod expiry;
mod parts;
mod references;
mod revisions;
mod shards;
#[path = "../support/stores.rs"]
mod stores;
