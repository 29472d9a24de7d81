//! The runtime of [`index-table`](https://docs.rs/index-table). Depend on that crate, which re-exports the
//! public items.
//!
//! Pure code names no engine: the key encoding (`key`), the description of tables (`schema`), index
//! maintenance (`maintain`), bounds and plans of queries (`query`). The seam in `engine` separates them from
//! storage: the `lmdb` folder, `postgres` with that feature, and for tests `memory`.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod background;
mod engine;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod locks;
mod model;
mod placement;
#[doc(hidden)]
pub mod private;
mod query;
mod sort;
mod store;
mod table;
mod upkeep;
mod usage;
mod write;

pub use engine::{
    ArchiveFile, CommitNumber, Durability, DurabilityReason, Options, ServerUsage, WhenFull,
};
/// Rows without their type, and the exact form of values as JSON. With the feature `json`.
#[cfg(feature = "json")]
pub mod json {
    pub use crate::{
        model::exact::{ReadError, WriteError, append, from_known_fields, from_value, to_string},
        table::json::{JsonIndex, JsonRows, JsonTable, StoredRow},
    };
}
pub use model::{
    entity::IndexEntry,
    error::{Error, Result, ServerProblem, StoreError},
    index_state::{Duplicate, Duplicates, IndexState},
    key::{Desc, MAX_KEY_LEN},
    shard::{ListMap, RangeMap, ShardKeyValue, ShardMap},
};
pub use query::{
    Available, BoundedScan, Combined, CombinedKeys, CombinedRows, CombinedViews, Cursor,
    DetachedQuery, Distinct, DistinctCounts, DistinctValues, Entries, EventualScan, GetMany,
    GetManyViews, Keys, MissingShard, Page, Rows, Scan, Views,
};
#[cfg(feature = "async")]
pub use store::Call;
pub use store::watch::{Change, ChangeKind, ChangedRow, Event, Events, FoundRows, Watch, Watcher};
pub use store::{
    ArchiveLag, Backup, Commits, DataFileInfo, FailedCommit, Follower, FollowerLag, GroupWriter,
    JournalInfo, LostRange, OtherReader, QueueFull, ReadTxn, Readers, RestoreArchive,
    SalvageReport, SalvagedTable, ShardId, Store, Submission, Submitted, TransactionBody, WriteTxn,
};
pub use table::{
    AggregateSize, Aggregates, ChangeBatch, ChangeWorker, Changes, EncodedKey, IndexSize, Parts,
    RangeInfo, Scrub, ShardInfo, ShardStatus, StoreReport, StreamedChange, Table, TableSize,
};
pub use upkeep::{
    analyze::{
        Advice, AdviceKind, Analysis, CommonValue, IndexAnalysis, KeptAnalysis, KeyDistribution,
        Quantiles,
    },
    build::{Build, BuildReport, BuiltIndex},
    bulk::{BulkLoad, LoadReport, LoadedShard, OnDuplicate},
    catalog::{
        Catalog, CatalogIndex, CatalogKey, CatalogTable, Declarations, SchemaDistribution,
        SchemaField, SchemaIndex, SchemaTable, SchemaVersion, StoreSchema, schema,
    },
    changes::{ChangeConsumer, ChangeLag},
    expiry::{Expired, ExpiryWorker},
    moves::{Move, MoveInfo, MoveState, Moved},
    queue::{DeadLetter, DeadLetters, Drained, IndexWorker},
    rebalance::{HotKey, PlannedMove, PlannedShard, Rebalance, RebalancePlan, ShardAdvice},
    upgrade::{Upgrade, Upgraded},
    verify::{Finding, FindingKind, Repair, Verify, VerifyReport},
};
pub use usage::{IndexUsage, Inspection, Progress, Stats, Usage};
pub use write::{
    queue::{IndexToken, Lag},
    watch::Lagged,
};
