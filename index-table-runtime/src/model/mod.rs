//! Rows, keys, schemas and index maintenance. This code is pure: it neither reads nor writes a store.

pub(crate) mod aggregate;
pub(crate) mod carried;
pub(crate) mod debug;
pub(crate) mod entity;
pub(crate) mod entry;
pub(crate) mod error;
#[cfg(feature = "json")]
pub(crate) mod exact;
pub(crate) mod expiry;
pub(crate) mod index_state;
pub(crate) mod key;
pub(crate) mod lists;
pub(crate) mod maintain;
pub(crate) mod method;
pub(crate) mod numbering;
mod range;
mod reader;
pub(crate) mod reference;
pub(crate) mod revision;
pub(crate) mod row;
pub(crate) mod row_vtable;
pub(crate) mod schema;
pub(crate) mod serialize;
pub(crate) mod shard;
pub(crate) mod stream;

pub(crate) use range::{End, KeyRange};
