//! The names for generated code. Not part of the API: they change with any release.

pub use core::result::Result::Ok;
pub use serde;

#[cfg(feature = "async")]
pub use crate::store::Call;
pub use crate::{
    locks::refuse_inherited_locks,
    model::{
        aggregate::{Aggregate, Summand, Totals},
        carried::{
            Carried, CloneIn, CloneInView, DebugIn, DebugInView, PartialEqIn, PartialEqInView,
            assert_carried, assert_viewed,
        },
        debug::debug,
        entity::{
            Entity, EntryReader, IndexEntry, IsRead, IsStored, NoRowFormat, NoVersion, Precedes,
            Read, RowFormat, RowReader, RowVersion, Stored, VersionOf, Viewed, Within,
        },
        error::{EncodeError, Error, Result},
        expiry::{Expires, Expiry, ExpiryTime},
        key::{
            CanBeAbsent, ComputedOf, DecodeError, Desc, Each, EachOf, EnumValue, IsText, Key,
            KeyBuf, KeyOf, KeyReader, KeyShape, KeyValue, NoKey, PrefixKey, RangeOf, Required,
            Sequence, Text, TextKey, Unnumbered, assert_computed, assert_each, assert_enum_value,
            assert_key, assert_key_value,
        },
        maintain::EntryBuffer,
        method::{
            Checked, ComputedArguments, ComputedBy, ComputedIn, FilterArguments, FilterIn,
            FilterOf, Function, HasComputed, HasFilter, NoMethod, computed, filter, is_computed,
            is_filter,
        },
        reference::{
            KeyOfReference, MainTable, PartOf, ReferenceSchema, Referenced, assert_reference,
            assert_table,
        },
        revision::{Revised, Revision, RevisionNumber},
        row::{Collection, CollectionField, RowBody, RowOutput, older},
        schema::{
            AggregateSchema, Condition, Extreme, FieldSchema, IndexSchema, KeyField, KeyForm,
            Release, RowSchema, Source, Strategy, SumSchema, TableSchema,
        },
        serialize::StructFields,
        shard::{Distribution, ShardKey},
        stream::{ChangeStream, Streamed},
    },
    placement::shards::count_in_parallel_from,
    query::{Bounds, Distinct, EventualScan, GetMany, Scan, Transferable, Values},
    store::{
        GroupWriter, Movable, QueueFull, ReadTxn, ShardId, Shareable, Store, Submission, Submitted,
        WriteTxn, watch::Watch,
    },
    table::{Aggregates, KeyedTable, Named, Table, is_repository, live},
    upkeep::{
        build::Build,
        bulk::BulkLoad,
        queue::{DeadLetters, Drained},
        upgrade::Upgrade,
        verify::{Repair, Verify},
    },
    usage::Usage,
    write::queue::{IndexToken, Lag},
};

/// The names for the crate `index-table-admin`.
pub mod admin {
    #[cfg(feature = "json")]
    pub use crate::model::exact::{instant, key_of, value_of};
    pub use crate::{
        engine::{CommittedRow, ReaderSlot, ReaderSlots, checked, reader_slots, repairing},
        model::{
            key::{KeyBuf, KeyShape, NotOfShape, PlainKey},
            row::RowValue,
            schema::FORMAT,
        },
        store::RecordedArchive,
        table::{
            ChangedField, ImaginedAnalysis, ImaginedIndex, MapKeys, RecordedTables, RowDifference,
            UntypedEntry, UntypedField, UntypedRange, UntypedTable,
        },
        upkeep::catalog::{BuiltPart, SchemaChanges, TableChange, UnreadableRows},
        usage::Latency,
    };
    pub use index_table_rows::{RowField, RowList};
}

/// Runs SQL on the server of a store, for tests. Returns the first column of the last row.
///
/// # Errors
///
/// [`Error::NotOffered`](crate::Error::NotOffered) for a store of another engine; the errors of the server.
#[cfg(feature = "postgres")]
#[doc(hidden)]
pub fn run_sql(store: &crate::Store, sql: &str) -> crate::Result<Option<String>> {
    let other = || crate::Error::NotOffered { what: "SQL, because it is not on a server" };
    store.inner.engines.postgres().ok_or_else(other)?.run(sql)
}
