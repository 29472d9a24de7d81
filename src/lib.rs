#![doc = include_str!("../README.md")]

pub mod guide;

/// Makes a newtype, an enum without fields or a struct of keys a key.
pub use index_table_derive::IndexKey;
/// Generates the repository of a struct; see the [attributes](crate#attributes).
pub use index_table_derive::IndexTable;
#[doc(hidden)]
pub use index_table_runtime::private as __private;
pub use index_table_runtime::{
    Advice, BulkLoad, Combined, CombinedKeys, CombinedRows, CombinedViews, Cursor, Desc, Distinct,
    DistinctCounts, DistinctValues, Durability, Entries, Error, FactOrderRows, Finding, GetMany,
    GetManyViews, IndexUsage, Keys, Kind, LoadProgress, LoadReport, MAX_KEY_LEN, OnDuplicate,
    Options, Page, Progress, ReadTxn, Readers, Repair, Report, Result, Rows, Scan, Stats, Store,
    TableUsage, Usage, Verify, Views, WriteTxn,
};
