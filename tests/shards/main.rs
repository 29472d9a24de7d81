//! Sharded stores: the same answers as one store, routing, transactions, lost and foreign shards.

mod answers;
mod catalog;
mod copies;
mod cross;
mod groups;
mod missing;
mod opening;
mod random;
mod random_together;
mod rebuilt;
mod reference;
mod restored;
mod routing;
mod tables;
mod transactions;
mod transfers;
mod upkeep;
mod verify;
