//! Rows over time: revisions.

mod revisions;
#[path = "../support/stores.rs"]
mod stores;
