//! Sharded stores: the same answers as one store, routing, transactions of one shard, lost and foreign shards.

mod answers;
mod opening;
mod random;
mod routing;
mod tables;
mod transactions;
