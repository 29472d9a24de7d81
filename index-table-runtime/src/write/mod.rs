//! Writing rows: the checks of an operation, the entries that it changes, the messages for index workers and
//! the events for subscribers.

pub(crate) mod aggregates;
pub(crate) mod changes;
mod counting;
pub(crate) mod maintenance;
pub(crate) mod queue;
pub(crate) mod references;
pub(crate) mod rows;
mod scratch;
pub(crate) mod sequence;
pub(crate) mod unique;
pub(crate) mod watch;
mod written;

pub(crate) use counting::Counting;
pub(crate) use scratch::Scratch;
pub(crate) use written::{SharedTable, Written, WrittenTables};
