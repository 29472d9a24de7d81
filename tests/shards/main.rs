//! Sharded stores: the same results as in one store, routing, transactions, lost and foreign shards.

mod bulk;
mod catalog;
mod copies;
mod counts;
mod cross;
mod global;
mod groups;
mod missing;
mod numbers;
mod opening;
mod random;
mod random_global;
mod random_global_maps;
mod random_local;
mod rebuilt;
mod reference;
mod restored;
mod results;
mod routing;
mod tables;
mod transactions;
mod transfers;
mod upkeep;
mod verify;
mod verify_global;
mod watching;
