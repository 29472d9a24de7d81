//! Sharded stores: the same answers as one store, routing, transactions of one shard, lost and foreign shards.

mod answers;
mod catalog;
mod copies;
mod cross;
mod groups;
mod missing;
mod opening;
mod random;
mod rebuilt;
mod restored;
mod routing;
mod tables;
mod transactions;
mod transfers;
