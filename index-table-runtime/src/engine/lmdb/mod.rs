//! The LMDB engine: the only folder that names `heed`.
//!
//! Databases: `.catalog` (table name → its record, `{table}.{index}` → the state of an index), `.sequences` (table name → its last number),
//! `.queue.{table}` (number → message) where an index is eventual,
//! `{table}` (primary key → row) and `{table}.{index}` for each index. An index is laid out in one of three ways:
//!
//! | [`Layout`] | for | physical entry |
//! |---|---|---|
//! | `unique` | unique indexes without a hashed field | key → primary key, data (see [`shared`] for several entries of a key) |
//! | `blocks` | normalized indexes whose primary keys all have the same length, 64 bytes at most | key, or key and a primary key → up to 512 bytes of primary keys (see [`blocks`]) |
//! | `entries` | all others | key, primary key → data |
//!
//! `docs/FORMAT.md` fixes the bytes, `docs/LAYOUT.md` has the measurement behind the choice.

mod append;
mod blocks;
mod catalog;
mod check;
mod copy;
mod env;
mod error;
mod gate;
mod lock;
mod open;
mod pages;
mod process;
mod read;
mod read_only;
mod reserve;
mod room;
mod shared;
mod size;
mod txn;
mod write;

pub(crate) use check::{Piece, Pieces};
pub(crate) use env::{Engine, Tables};
pub(crate) use read::{Entries, LentEntries, Reader};
pub(crate) use txn::Txn;
pub(crate) use write::Writer;

use heed::types::Bytes;

use crate::model::schema::{IndexSchema, Strategy, TableSchema};

type Env = heed::Env<heed::WithoutTls>;
type Database<'d> = heed::Database<'d, Bytes, Bytes>;

/// How an index of a table is laid out, as the catalog names it.
pub(crate) fn layout(schema: &TableSchema, index: &IndexSchema) -> &'static str {
    Layout::of(schema, index).name()
}

/// How the entries of an index are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Key → primary key, data.
    Unique,
    /// Key and primary key → data.
    Entries,
    /// Key, or key and the lowest primary key of the block → primary keys of this length.
    Blocks { primary_key: usize },
}

impl Layout {
    fn of(schema: &TableSchema, index: &IndexSchema) -> Self {
        match (index.has_one_entry_per_key(), index.strategy, schema.fixed_primary_key()) {
            (true, ..) => Self::Unique,
            (false, Strategy::Normalized, Some(primary_key @ ..=blocks::LONGEST)) => {
                Self::Blocks { primary_key }
            }
            _ => Self::Entries,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Unique => "unique",
            Self::Entries => "entries",
            Self::Blocks { .. } => "blocks",
        }
    }
}
