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
pub(crate) const fn unlikely() {}

/// Calls the same method on one engine or on several shards, for a value of this enum; with the name of a type, the value of an
/// `Ok` or `Some` is wrapped in the variant of that type.
macro_rules! on_variant {
    ($of:ident, $value:expr, $it:ident => $call:expr) => {
        match $value {
            $of::One($it) => $call,
            $of::Several($it) => {
                $crate::placement::dispatch::unlikely();
                $call
            }
        }
    };
    ($of:ident, $value:expr, $it:ident => $call:expr, $to:ident) => {
        match $value {
            $of::One($it) => $call.map($to::One),
            $of::Several($it) => {
                $crate::placement::dispatch::unlikely();
                $call.map($to::Several)
            }
        }
    };
}

/// Does this for a value of the type whose method it is.
macro_rules! on_each {
    ($($rest:tt)*) => {
        $crate::placement::dispatch::on_variant!(Self, $($rest)*)
    };
}

pub(crate) use on_each;
pub(crate) use on_variant;
