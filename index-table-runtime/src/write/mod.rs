//! Writing rows: what an operation checks, the entries that it changes, and what it leaves for index
//! workers and subscribers.

pub(crate) mod maintenance;
pub(crate) mod queue;
pub(crate) mod rows;
mod scratch;
pub(crate) mod sequence;
pub(crate) mod unique;
pub(crate) mod watch;
mod written;

pub(crate) use scratch::Scratch;
pub(crate) use written::{SharedTable, Written};
