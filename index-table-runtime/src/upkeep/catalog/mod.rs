//! The catalog of a store's tables and indexes. Indexes that are no longer declared can be dropped.

mod compare;
mod document;
mod show;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub use compare::{BuiltPart, SchemaChanges, TableChange, UnreadableRows};
pub use document::{
    Declarations, SchemaDistribution, SchemaField, SchemaIndex, SchemaTable, SchemaVersion,
    StoreSchema, schema,
};

use crate::model::index_state::IndexState;
use crate::{
    engine::{Records, is_of_left_shard},
    model::{
        error::Result,
        reference::Referrer,
        schema::{
            AGGREGATE, CHANGES, IndexRecord, KeyFieldRecord, REFERENCE, StateRecord,
            StrategyRecord, TableRecord, field_of, is_index, version_of,
        },
    },
    store::Store,
};

/// The tables and indexes of a store, as last declared, and the states of the indexes. From
/// [`Store::catalog`].
///
/// `Display` shows a list; tools can use the serialized form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Catalog {
    /// The tables in the order of their names.
    pub tables: Vec<CatalogTable>,
}

/// A recorded table; see [`Catalog`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CatalogTable {
    /// Its name.
    pub name: String,
    /// The reason why the table's record can't be read: a later release wrote it, or it is damaged. Then, the
    /// other fields except the name are empty.
    pub unreadable: Option<String>,
    /// The format of its data in the file.
    pub format: u32,
    /// The version of its rows.
    pub version: u32,
    /// The older versions that rows may have, until an [`Upgrade`](crate::Upgrade).
    pub older_versions: Vec<u32>,
    /// The fields of its rows in order, with their types as spelled in the struct.
    pub fields: Vec<(String, String)>,
    /// The fields of its primary key.
    pub primary_key: Vec<CatalogKey>,
    /// Its indexes: the declared indexes in order, and then the retired indexes.
    pub indexes: Vec<CatalogIndex>,
}

/// A recorded field of a key; see [`Catalog`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CatalogKey {
    /// The name of the field, or of the method that computes it.
    pub name: String,
    /// The name of its encoding, such as `u64` or `option<text>`.
    pub shape: String,
    /// Its form: `"field"`, `"each"`, `"desc"`, `"computed"`, `"hash"`, `"each-computed"` or
    /// `"hash-computed"`.
    pub form: String,
}

/// A recorded index or aggregate; see [`Catalog`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CatalogIndex {
    /// Its name.
    pub name: String,
    /// The fields of its key.
    pub key: Vec<CatalogKey>,
    /// `"normalized"`, `"partial"` or `"full"`; `"aggregate"` for an aggregate, whose key is the group;
    /// `"reference"` for a reference, whose options name the referenced table.
    pub strategy: &'static str,
    /// The included fields of a partial index; the summed fields of an aggregate.
    pub include: Vec<String>,
    /// `"unique"`, `"sparse"`, `"filter=method"` and `"eventual"`, if they are declared.
    pub options: Vec<String>,
    /// The layout of its entries in the file.
    pub layout: String,
    /// The state of the index.
    pub state: IndexState,
}

impl Store {
    /// Returns the tables and indexes that the file records, and the states of the indexes. Tables that this
    /// program doesn't declare are included.
    ///
    /// With shards, a table has the record of the first available shard that has the table. The state of an index is
    /// that of the first shard in which the index is not readable. Shards that are not available are left out.
    ///
    /// Cost: a read transaction that reads only the catalog, in each shard.
    ///
    /// # Errors
    ///
    /// The errors of [`read`](Store::read). In a process that has not opened a table yet, for a store that
    /// was empty when it was opened, [`Error::WriteInProgress`](crate::Error::WriteInProgress) if this thread
    /// has a write transaction.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexState, IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[index(town, include = [name])]
    /// #[index(name, unique)]
    /// struct Person {
    ///     #[primary_key]
    ///     id: u32,
    ///     town: String,
    ///     name: String,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// PersonRepository::open(&store)?;
    /// let catalog = store.catalog()?;
    /// assert_eq!(catalog.tables[0].indexes[1].state, IndexState::Readable);
    /// assert_eq!(catalog.to_string(), "\
    /// table `person`, version 1
    ///   rows: id: u32, town: String, name: String
    ///   primary key: id: u32
    ///
    ///   index  key         strategy    include  options  layout        state
    ///   town   town: text  partial     name              entries       readable
    ///   name   name: text  normalized           unique   short-unique  readable
    /// ");
    /// # Ok(())
    /// # }
    /// ```
    pub fn catalog(&self) -> Result<Catalog> {
        Ok(Catalog::of(&self.inner.catalog()?))
    }

    /// Drops the indexes that are no longer declared, so that the file can reuse their pages. Returns their
    /// names, each with the name of its table: `person.town`.
    ///
    /// If another process has opened the table without an index, but a repository of this process still has the
    /// index, it is not dropped. In other processes, queries on a dropped index fail. Such a process must close
    /// the store before it can declare the index again, since LMDB regards the database as open.
    ///
    /// With shards, the indexes are dropped in one available shard after another. An error leaves them dropped in the
    /// shards before it.
    ///
    /// Cost: a write transaction that reads the pages of these indexes, in each shard.
    ///
    /// # Errors
    ///
    /// [`Error::WriteInProgress`](crate::Error::WriteInProgress) if this thread has a write transaction;
    /// the [errors of writing](crate::Error#common-errors). After an error, nothing has changed.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// mod before {
    /// #   use super::*;
    ///     #[derive(Serialize, Deserialize, IndexTable)]
    ///     #[index(town)]
    ///     pub struct Person {
    ///         #[primary_key]
    ///         id: u32,
    ///         town: String,
    ///     }
    /// }
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// struct Person {
    ///     #[primary_key]
    ///     id: u32,
    ///     town: String,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// drop(before::PersonRepository::open(&store)?); // an earlier release of the program
    /// let people = PersonRepository::open(&store)?;
    /// let dropped = store.drop_retired()?;
    /// assert_eq!(dropped, ["person.town"]);
    /// assert!(store.drop_retired()?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn drop_retired(&self) -> Result<Vec<String>> {
        self.inner.engines.refuse_forked()?;
        if let Some(shards) = self.inner.engines.several() {
            let mut dropped = BTreeSet::new();
            for (_, shard) in shards.members() {
                let Ok(store) = shard.store() else { continue };
                match store.drop_retired() {
                    Err(error) if is_of_left_shard(&error) => {}
                    of_shard => dropped.extend(of_shard?),
                }
            }
            return Ok(dropped.into_iter().collect());
        }
        self.inner.drop_indexes(|records, is_in_use| {
            // The index of a reference is in use by the table to which it refers.
            let is_referring = |table: &str, index: &str| {
                records.iter().any(|(name, record)| {
                    let part = name.split_once('.').map_or("", |(_, part)| part);
                    let by = Referrer::decode("", part, record).ok().flatten();
                    by.is_some_and(|by| by.table == table && by.index == index)
                })
            };
            let find = |name: &str| records.iter().find(|(other, _)| other == name);
            let mut retired = Vec::new();
            for (name, state) in records {
                if let Some((table, index)) = name.split_once('.')
                    && is_index(index)
                    // Records of a later release are not changed.
                    && find(table).is_some_and(|(_, record)| TableRecord::read(record).is_ok())
                    && matches!(StateRecord::decode(state), Some(StateRecord::Retired(_)))
                    && !is_in_use(table, index)
                    && !is_referring(table, index)
                {
                    retired.push(name.clone());
                }
            }
            retired
        })
    }
}

impl Catalog {
    fn of(records: &Records) -> Self {
        let tables = records.iter().filter(|(name, _)| !name.contains('.'));
        let tables = tables.map(|(name, record)| match TableRecord::read(record) {
            Ok(record) => CatalogTable::of(name, record, records),
            Err(reason) => CatalogTable { unreadable: Some(reason), ..CatalogTable::named(name) },
        });
        Self { tables: tables.collect() }
    }
}

impl CatalogTable {
    fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            unreadable: None,
            format: 0,
            version: 0,
            older_versions: Vec::new(),
            fields: Vec::new(),
            primary_key: Vec::new(),
            indexes: Vec::new(),
        }
    }

    fn of(name: &str, record: TableRecord, records: &Records) -> Self {
        let state = |index: &str| {
            let name = format!("{name}.{index}");
            let (_, state) = records.iter().find(|(other, _)| *other == name)?;
            StateRecord::decode(state)
        };
        let declared = record.indexes.into_iter().map(|index| {
            let state = state(&index.name).map_or(IndexState::Readable, IndexState::from);
            CatalogIndex::of(index, state)
        });
        let mut indexes: Vec<_> = declared.collect();
        let parts = records.iter().filter_map(|(part, record)| {
            Some((part.strip_prefix(name)?.strip_prefix('.')?, record))
        });
        let mut older_versions: Vec<_> =
            parts.clone().filter_map(|(part, _)| version_of(part)).collect();
        older_versions.sort_unstable();
        let states = parts.filter(|(part, _)| is_index(part));
        let states = states.filter_map(|(_, state)| StateRecord::decode(state));
        indexes.extend(states.filter_map(|state| {
            let shown = IndexState::from(state.clone());
            Some(CatalogIndex::of(state.kept()?.index, shown))
        }));
        Self {
            format: record.format,
            version: record.version,
            older_versions,
            fields: record.fields,
            primary_key: record.primary_key.into_iter().map(CatalogKey::of).collect(),
            indexes,
            ..Self::named(name)
        }
    }
}

impl CatalogKey {
    fn of(KeyFieldRecord { name, shape, form }: KeyFieldRecord) -> Self {
        Self { name, shape, form }
    }
}

impl CatalogIndex {
    fn of(index: IndexRecord, state: IndexState) -> Self {
        let IndexRecord { name, key, strategy, options, layout } = index;
        let key = key.into_iter().map(CatalogKey::of).collect();
        let (strategy, include) = match strategy {
            StrategyRecord::Normalized if layout == REFERENCE => ("reference", Vec::new()),
            StrategyRecord::Normalized => ("normalized", Vec::new()),
            StrategyRecord::Partial(mut sums) if layout == AGGREGATE => {
                // A sum of decimals has two names.
                sums.retain(|sum| field_of(sum) == sum);
                ("aggregate", sums)
            }
            StrategyRecord::Partial(include) => ("partial", include),
            StrategyRecord::Full if layout == CHANGES => ("changes", Vec::new()),
            StrategyRecord::Full => ("full", Vec::new()),
        };
        Self { name, key, strategy, include, options, layout, state }
    }
}
