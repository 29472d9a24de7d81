//! The LMDB engine: the only folder that names `heed`.
//!
//! | database | for | entries |
//! |---|---|---|
//! | `.catalog` | all tables | table name → record of the table, `{table}.{index}` → state of the index |
//! | `.lists` | all tables | table name → second copy of the record of the table's lists |
//! | `.sequences` | all tables | table name → last number |
//! | `.queue.{table}` | each table with an eventual index | number → message |
//! | `{table}` | each table | primary key → row |
//! | `{table}.{index}` | each index | see below |
//! | `{table}.change-stream` | each table with a change stream | see [`crate::write::changes`] |
//!
//! An index has one of four layouts:
//!
//! | [`Layout`](layout::Layout) | for | physical entry |
//! |---|---|---|
//! | `short-unique` | normalized unique indexes without a hashed field, if all primary keys have the same length, 16 bytes at most | key → [short primary key](short) |
//! | `unique` | other unique indexes without a hashed field | key → primary key, data |
//! | `short-blocks` | other normalized indexes, if all primary keys have the same length, 64 bytes at most | key, or key and a primary key → up to 512 bytes of short primary keys (see [`blocks`]) |
//! | `entries` | all others | key, primary key → data |
//!
//! In the first two layouts, a key can have several entries while the index is built or violated (see [`shared`]).
//!
//! `docs/FORMAT.md` specifies the bytes. `docs/LAYOUT.md` has the measurements that led to the choice.

mod abandon;
mod append;
mod begin;
mod blocks;
mod catalog;
mod check;
mod clients;
mod commit;
mod copy;
mod durable;
mod env;
mod error;
mod follow;
mod gate;
mod growth;
mod handle;
pub(crate) mod journal;
mod journalled;
mod keep;
mod layout;
mod list_records;
mod lock;
mod named;
mod names;
mod open;
mod opened;
mod pages;
mod paths;
mod process;
mod read;
mod read_only;
mod renamed;
mod reserve;
mod room;
mod salvage;
mod sample;
mod shared;
mod short;
mod size;
mod slots;
mod space;
mod tables;
mod together;
mod turn;
mod txn;
mod write;

pub(crate) use copy::Pinned;
pub(crate) use env::Engine;
pub(crate) use follow::Left;
pub(crate) use journal::archive::{
    contents::Generation,
    follow::{
        BaseBefore, Followed, Following, Mark, archive_of_follower, mark_of_follower, position,
    },
    format::Base,
    known,
    restore::{Archive, Until},
    restore_shards::{ManagerEntries, Parts},
    watched::WatchedRows,
};
pub(crate) use journal::shards::SharedJournal;
pub(crate) use journalled::ManagerArchive;
pub(crate) use layout::layout;
pub(crate) use pages::{checked, is_checked, repairing};
pub(crate) use read::{Entries, LentEntries, Reader};
pub(crate) use salvage::{Salvaged, salvage, salvaged_size};
#[cfg(feature = "fuzzing")]
pub(crate) use short::fuzz as fuzz_block;
pub(crate) use slots::slots_of_open;
pub(crate) use tables::Tables;
pub(crate) use together::Prepared;
pub(crate) use txn::Txn;
pub(crate) use write::Writer;
