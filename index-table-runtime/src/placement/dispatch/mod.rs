//! Dispatch to one engine or to several shards. The macros in `forward` generate most of the methods.

mod reader;
mod tables;
mod transaction;
mod writer;

pub(crate) use reader::{Entries, LentEntries, Reader};
pub(crate) use tables::Tables;
pub(crate) use transaction::Txn;
pub(crate) use writer::Writer;

/// Marks the calling branch as unlikely, so that stores without shards take the fast path.
#[inline]
#[cold]
const fn unlikely() {}

/// Calls the same method on one engine or on the shards.
macro_rules! on_each {
    ($value:expr, $it:ident => $call:expr) => {
        match $value {
            Self::One($it) => $call,
            Self::Several($it) => {
                $crate::placement::dispatch::unlikely();
                $call
            }
        }
    };
}

use on_each;
