//! Work on whole tables: opening, building indexes, bulk load, queues, verification, upgrades, the catalog.

mod aggregates;
mod all_shards;
pub(crate) mod build;
pub(crate) mod bulk;
pub(crate) mod cascade;
pub(crate) mod catalog;
pub(crate) mod changes;
mod copies;
pub(crate) mod expiry;
pub(crate) mod moves;
pub(crate) mod opening;
mod parallel;
pub(crate) mod queue;
mod read_only;
pub(crate) mod rebalance;
pub(crate) mod recorded;
mod references;
mod shard_list;
mod shards;
pub(crate) mod upgrade;
pub(crate) mod verify;
mod versions;

use std::any::Any;

use crate::model::error::Error;

/// Returns the error for a panic of the user's code in a thread of this crate.
#[cold]
fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let message = text.or_else(|| panic.downcast_ref::<String>().cloned());
    Error::Panicked { message: message.unwrap_or_else(|| "without a message".to_owned()) }
}
