//! Work on whole tables: opening, building indexes, bulk load, queues, verification, upgrades, the catalog, analyses.

mod aggregates;
mod all_shards;
pub(crate) mod analyze;
pub(crate) mod build;
pub(crate) mod bulk;
pub(crate) mod cascade;
pub(crate) mod catalog;
pub(crate) mod changes;
mod copies;
pub(crate) mod expiry;
mod hidden;
mod lists;
pub(crate) mod moves;
mod numbers;
pub(crate) mod opening;
mod parallel;
pub(crate) mod queue;
mod read_only;
pub(crate) mod rebalance;
pub(crate) mod recorded;
mod references;
mod renaming;
mod shard_list;
mod shards;
pub(crate) mod upgrade;
pub(crate) mod verify;
mod versions;
