// The README's links to the guide: the first definition of a link counts, so these come first.
//! [index of tasks]: guide::tasks
//! [modelling]: guide::modelling
//! [attributes]: guide::attributes
//! [the generated repository]: guide::repository
//! [transactions]: guide::transactions
//! [pagination]: guide::pagination
//! [composite and multi-valued keys]: guide::keys
//! [keys of your own]: guide::own_keys
//! [strategies and their costs]: guide::strategies
//! [what not to index]: guide::what_not_to_index
//! [when indexes change]: guide::changing_indexes
//! [row versions]: guide::versions
//! [many rows at once]: guide::bulk_loading
//! [watching changes]: guide::watching
//! [change streams]: guide::changes
//! [revisions]: guide::revisions
//! [expiry]: guide::expiry
//! [references]: guide::references
//! [aggregates]: guide::aggregates
//! [group commit]: guide::group_commit
//! [asynchronous code]: guide::async_calls
//! [durability]: guide::durability
//! [space ahead]: guide::space_ahead
//! [eventual indexes]: guide::eventual
//! [shards]: guide::sharding
//! [from one machine to many]: guide::many_machines
//! [when something is wrong]: guide::damage
//! [the command line tool]: guide::admin
//! [tables without types]: guide::tables
//! [testing your program]: guide::testing
//! [in a container]: guide::containers
//! [guarantees and limits]: guide::guarantees
//! [what it is not for]: guide::not_for
//! [releases]: guide::releases
#![doc = include_str!("../README.md")]

pub mod guide;

/// Lets a newtype, an enum without fields or a struct of keys be used as a key.
pub use index_table_derive::IndexKey;
/// Generates the repository of a struct; see the [attributes](guide::attributes).
pub use index_table_derive::IndexTable;
/// Declares the struct of an older version of a table, so that its rows can be read.
pub use index_table_derive::RowVersion;

#[doc(hidden)]
pub use index_table_runtime::private as __private;
pub use index_table_runtime::{
    ArchiveFile, Available, Backup, BoundedScan, Build, BulkLoad, Change, ChangeBatch, ChangeKind,
    ChangeWorker, ChangedRow, Changes, Combined, CommitNumber, Cursor, DeadLetter, Desc,
    DetachedQuery, Distinct, Durability, DurabilityReason, Entries, Error, Event, EventualScan,
    ExpiryWorker, Finding, FindingKind, Follower, FoundRows, GroupWriter, IndexEntry, IndexState,
    IndexToken, IndexUsage, IndexWorker, Keys, Lag, Lagged, ListMap, MAX_KEY_LEN, Move,
    OnDuplicate, Options, Page, Parts, Progress, QueueFull, RangeMap, ReadTxn, Readers, Rebalance,
    Repair, RestoreArchive, Result, Rows, Scan, Scrub, ServerProblem, ShardId, ShardKeyValue,
    ShardMap, Stats, Store, StoreError, StreamedChange, Submission, Submitted, Table, Upgrade,
    Usage, Verify, VerifyReport, Views, Watch, Watcher, WhenFull, WriteTxn, schema,
};

#[cfg(feature = "async")]
pub use index_table_runtime::Call;

/// Rows without their type, and the exact form of values as JSON; see [`guide::tables`]. With the feature `json`.
#[cfg(feature = "json")]
pub use index_table_runtime::json;

/// The iterators that methods return. Programs rarely name them.
pub mod iter {
    pub use index_table_runtime::{
        Aggregates, CombinedKeys, CombinedRows, CombinedViews, DeadLetters, DistinctCounts,
        DistinctValues, Duplicates, Events, GetMany, GetManyViews,
    };
}

/// The results of work on whole tables and stores. Programs rarely name these types.
pub mod report {
    pub use index_table_runtime::{
        Advice, AdviceKind, Analysis, CommonValue, IndexAnalysis, KeptAnalysis, KeyDistribution,
        Quantiles,
    };

    pub use index_table_runtime::{
        Declarations, SchemaDistribution, SchemaField, SchemaIndex, SchemaTable, SchemaVersion,
        StoreSchema,
    };

    pub use index_table_runtime::{
        AggregateSize, ArchiveLag, BuildReport, BuiltIndex, Catalog, CatalogIndex, CatalogKey,
        CatalogTable, ChangeConsumer, ChangeLag, Commits, DataFileInfo, Drained, Duplicate,
        Expired, FailedCommit, FollowerLag, HotKey, IndexSize, Inspection, JournalInfo, LoadReport,
        LoadedShard, LostRange, MissingShard, MoveInfo, MoveState, Moved, OtherReader, PlannedMove,
        PlannedShard, RangeInfo, RebalancePlan, SalvageReport, SalvagedTable, ServerUsage,
        ShardAdvice, ShardInfo, ShardStatus, StoreReport, TableSize, TransactionBody, Upgraded,
    };
}
