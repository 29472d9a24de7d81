//! The seam between pure code and storage: the interface of an engine, and the laws that every engine obeys.
//! `docs/internals/seam.md` has what an engine has to implement, and how one is added.
//!
//! Pure code reads by a [`Query`] and writes by [`Change`](crate::model::maintain::Change)s, which are plain
//! values; an engine executes both. An engine has a fact table and an index table for each index of a table,
//! and spaces of small records for each table (see [`Space`]). Each engine chooses the layout of
//! entries.
//!
//! The engines are an enum ([`dispatch`]) and not a type parameter. So repositories need no generics, and all code
//! above the seam is compiled once, in this crate.
//!
//! The laws below are tested by a suite that runs on every engine, and on several together (`placement/tests/`).
//!
//! # Order and keys
//!
//! 1. Entries are ordered by the bytes of (index key, primary key), facts by the bytes of the primary key.
//!    Encoded keys are self-delimiting, so the concatenation of both keys has the same order.
//! 2. A unique index without hashed fields ([`IndexSchema::has_one_entry_per_key`]) has at most one entry for
//!    each key; a put replaces it, for any primary key. In every other index, an entry is identified by both
//!    keys, and a put with the same keys replaces it. [`Write::put_shared`] and [`Write::remove_shared`] treat an
//!    index of the first kind in this way too, as long as rows have the same key: then, a key has several entries,
//!    and reads treat the index like any other index. In an index of the first kind, the position of an only entry
//!    is the position of its key, so a row that changes its primary key is not read twice.
//! 3. Keys have 1 to [`MAX_KEY_LEN`](crate::model::key::MAX_KEY_LEN) bytes together. A look-up, a position or a
//!    range with longer or empty keys is not an error: it selects by the order of bytes.
//! 4. Removing a missing entry succeeds.
//!
//! # Transactions
//!
//! 5. A read transaction is a snapshot: the state after one commit, for all tables and spaces.
//! 6. A write transaction reads its own writes at once, through every method of [`Read`], and no other
//!    transaction reads them before the commit. An engine may delay sending changes until [`Write::flush`], a
//!    read, or the commit, but [`Write::insert_fact`] and [`Write::insert_entry`] return their results at
//!    once.
//! 7. After its commit, a nested transaction is part of the outer transaction. A dropped nested transaction changes
//!    nothing. The outer transaction can't be used until then.
//! 8. A dropped write transaction changes nothing.
//! 9. The [`Stamp`]s of commits with changes ascend. With several writers, the stamps of overlapping transactions need
//!    not ascend, and a stamp can stay unused. A snapshot then has all commits up to its stamp, and may have later
//!    commits. The stamp of a read transaction is the stamp of its snapshot. The stamp of a write transaction is the
//!    stamp of its future commit, if it changes something.
//!
//! # Errors
//!
//! 10. An error of a read leaves the transaction usable, unless a server has refused the statement or is lost:
//!     then, the transaction has failed. After an error for a damaged entry, a scan and a
//!     cursor continue with the readable entries.
//! 11. After an error of a write, the transaction is either unchanged by the call, or it has failed: then, every
//!     later call fails, and so does the commit. The failure of a nested transaction does not fail the outer one. A
//!     commit never succeeds with half of a change.
//! 12. The transaction, not the error that the closure returns, decides whether the closure runs again:
//!     [`Txn::retry`] has the reason, and [`Engine::prepare`] prepares another run.
//! 13. A commit ends in one of four ways. It is visible, and durable according to the store's durability; it
//!     conflicted with the commit of another client, and nothing has changed ([`CommitFailure::Conflict`]); it
//!     failed, and nothing has changed ([`CommitFailure::Failed`]); or the outcome is unknown
//!     ([`CommitFailure::Unknown`]).
//!
//! # Borrowing and rows
//!
//! 14. Facts, small records and the entries of [`Read::scan`] are borrowed for as long as the transaction is
//!     borrowed. Entries of [`Read::cursor`] are borrowed until the next step, so that an engine which
//!     receives entries over a network need not keep them. Both have the same entries in the same order.
//! 15. [`Read::facts`] has the result of [`Read::fact`] for each key, in the order of the keys. A key may occur
//!     twice. The result for a key without a row is `None`.
//! 16. With [`Query::rows`], an engine may join: each entry of an index has its row ([`LongLived::row`],
//!     [`Cursor::row`]), which is borrowed as long as the entry. This row equals the result of [`Read::fact`] for
//!     its primary key in the same transaction. An entry has no row if the engine does not join, if the row does
//!     not exist, or if the data of the entry is the row (in the fact table and in a full index). In the first two
//!     cases, the caller looks up the row. A join adds and removes no entries.

mod archive_options;
mod committed;
mod conflicts;
mod cursor;
mod data_file;
mod declared;
mod dispatch;
mod durability;
pub(crate) mod files;
mod forward;
mod hand_over;
mod kept_options;
pub(crate) mod latest;
mod links;
pub(crate) mod list;
pub(crate) mod lmdb;
#[cfg(feature = "memory")]
pub(crate) mod memory;
mod options;
mod outcome;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
mod query;
mod read;
mod records;
mod server_usage;
mod stamp;
mod write;

/// A result that an asynchronous caller waits for.
#[cfg(feature = "async")]
pub(crate) type Later<T> =
    std::pin::Pin<Box<dyn Future<Output = crate::model::error::Result<T>> + Send>>;

pub use committed::CommittedRow;
pub(crate) use conflicts::Conflicts;
pub(crate) use cursor::{Ascending, Cursor, LongLived};
pub(crate) use data_file::{
    DataFile, FileState, JournalState, Marked, Piece, PieceFault, Pieces, PlaceInJournal,
    SeenReader, is_checked,
};
pub use data_file::{ReaderSlot, ReaderSlots, checked, reader_slots, repairing};
pub(crate) use declared::{Declarations, DeclaredShard};
pub(crate) use dispatch::{Engine, Entries, LentEntries, Reader, Tables, Txn, Writer};
pub use durability::{Durability, DurabilityReason};
pub(crate) use forward::{forward, forward_cursor, forward_read, forward_write};
pub use hand_over::ArchiveFile;
pub(crate) use hand_over::{Destination, HandOver};
pub(crate) use links::Links;
pub(crate) use options::{CopyKind, DEFAULT_MAP_SIZE, DIRECTORY_MODE, FILE_MODE, Limit, MOST};
pub use options::{Options, WhenFull};
pub(crate) use outcome::{CommitFailure, NotVisible, Retry, is_of_left_shard};
pub(crate) use query::{KeyList, Query, Sampled};
pub(crate) use read::one_by_one;
pub(crate) use read::{Count, EntryResult, Read, SmallRecords, WithRow};
pub(crate) use records::{ListRecords, ReadRecords, Records, Rename, Space, WriteRecords};
pub use server_usage::ServerUsage;
pub use stamp::CommitNumber;
pub(crate) use stamp::Stamp;
pub(crate) use write::{Write, one_by_one as write_one_by_one};

#[cfg(doc)]
use crate::model::schema::IndexSchema;
