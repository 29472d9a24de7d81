//! The run-time half of [`index-table`](https://docs.rs/index-table): depend on that crate, which
//! re-exports what applications use.
//!
//! What decides is pure and knows no engine: the key encoding (`key`), what a table is
//! (`schema`), which entries change with a row (`maintain`), what a query asks for (`scan`). What
//! stores is behind the seam in `engine`: the `lmdb` folder, and for tests one in `memory`.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod build;
mod bulk;
mod catalog;
mod engine;
mod entity;
mod error;
mod files;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod get_many;
mod group;
mod key;
mod lmdb;
mod maintain;
#[cfg(feature = "memory")]
mod memory;
mod opening;
#[doc(hidden)]
pub mod private;
mod progress;
mod queue;
mod row;
mod scan;
mod schema;
mod sequence;
mod serialize;
mod sort;
mod stats;
mod store;
mod table;
mod trace;
mod txn;
mod unique;
mod upgrade;
mod upkeep;
mod usage;
mod verify;
mod versions;
mod watch;
mod write;

pub use build::{Build, BuildReport, BuiltIndex};
pub use bulk::{BulkLoad, LoadProgress, LoadReport, OnDuplicate};
pub use catalog::{Catalog, CatalogIndex, CatalogKey, CatalogTable, DroppedIndex, IndexState};
pub use entity::IndexEntry;
pub use error::{Error, Result};
pub use get_many::{GetMany, GetManyViews};
pub use group::{GroupOptions, GroupWriter, QueueFull, Submission, Submitted};
pub use key::{Desc, MAX_KEY_LEN};
pub use progress::RowProgress;
pub use queue::{Drained, IndexToken, IndexWorker, Lag, SetAside, SetAsideMessage, WhenFull};
pub use scan::{
    Combined, CombinedKeys, CombinedRows, CombinedViews, Cursor, Distinct, DistinctCounts,
    DistinctValues, Entries, EventualScan, FactOrderRows, Keys, Page, Rows, Scan, Unverified,
    UnverifiedEntries, UnverifiedKeys, VerifiedRows, VerifiedScan, Views,
};
pub use schema::{Duplicate, Duplicates};
pub use stats::Stats;
pub use store::{CopyProgress, Durability, Options, Readers, Store};
pub use txn::{ReadTxn, WriteTxn};
pub use upgrade::{Upgrade, Upgraded};
pub use usage::{Advice, IndexUsage, TableUsage, Usage};
pub use verify::{Finding, FindingKind, Repair, Verify, VerifyProgress, VerifyReport};
pub use watch::{
    Change, ChangeKind, ChangedRow, Event, Events, FoundRows, IntoEvents, Lagged, Watch, Watcher,
};
