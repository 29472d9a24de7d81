//! Rows over time: revisions and expiry.

mod expiry;
mod revisions;
#[path = "../support/stores.rs"]
mod stores;
