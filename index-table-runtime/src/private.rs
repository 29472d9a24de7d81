//! What generated code names. Not for anyone else: it changes with any release.

pub use core::result::Result::Ok;
pub use serde;

pub use crate::{
    build::Build,
    bulk::BulkLoad,
    entity::{
        Entity, EntryReader, IndexEntry, IsStored, NoVersion, Precedes, RowReader, RowVersion,
        Stored, VersionOf, Viewed, Within,
    },
    error::{EncodeError, Result},
    get_many::GetMany,
    key::{
        CanBeAbsent, ComputedOf, DecodeError, Desc, Each, EachOf, EnumValue, IsText, Key, KeyBuf,
        KeyOf, KeyReader, KeyShape, KeyValue, NoKey, PrefixKey, Sequence, Text, assert_computed,
        assert_each, assert_enum_value, assert_key, assert_key_value,
    },
    maintain::EntryBuffer,
    queue::{Drained, IndexToken, Lag, SetAside},
    row::older,
    scan::{Bounds, Distinct, EventualScan, Scan},
    schema::{
        Condition, FieldSchema, IndexSchema, KeyField, KeyForm, RowSchema, Source, Strategy,
        TableSchema,
    },
    serialize::StructFields,
    store::Store,
    table::Table,
    txn::{ReadTxn, WriteTxn},
    upgrade::Upgrade,
    usage::Usage,
    verify::{Repair, Verify},
    watch::Watch,
};
