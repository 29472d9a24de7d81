//! Tables without the type of their rows: rows as JSON, found by keys and indexes.
//!
//! A row is written by the list of its table that has its number, so a row that an earlier release has written has the fields of
//! that release. Keys are encoded by the shapes in the catalog.

mod index;
mod rows;
mod write;

use std::{borrow::Borrow, fmt, sync::Arc};

use serde_json::Value;

pub(super) use self::rows::append;
pub use self::{
    index::JsonIndex,
    rows::{JsonRows, StoredRow},
};
use self::{index::Keys, rows::value_of_row};
use crate::{
    model::{
        error::{Error, Result},
        schema::{Source, TableSchema},
    },
    query::Bounds,
    store::{OpenTable, ReadTxn, Store},
    upkeep::recorded,
};

/// The name of the fact table in the place of an index.
const PRIMARY_KEY: &str = "primary_key";

/// A table without the type of its rows. From [`Store::table`].
///
/// Rows and keys are in the exact form: as serde writes them in JSON, with these forms for values that JSON lacks.
///
/// | value | form |
/// |---|---|
/// | an infinity, a NaN | `{"$float": "inf"}`, `{"$float": "-inf"}`, `{"$float": "0x7ff8000000000000"}`: its bits |
/// | an integer of more than 64 bits | `{"$int": "18446744073709551616"}` |
/// | bytes | `{"$bytes": "00ff"}` |
/// | a map whose keys are not all text, or begin with `$` | `{"$map": [[key, value], …]}` |
/// | `Some` of a value that is written as `null` or `$some` | `{"$some": null}` |
///
/// A type that serde writes otherwise in text than in binary formats, such as `Uuid` or `IpAddr`, has the binary form in a row, and
/// the usual text in a key: only the shapes of keys record such types. [`from_value`](crate::json::from_value) reads both.
///
/// It is a handle that threads can share.
#[derive(Clone)]
pub struct JsonTable {
    open: Arc<OpenTable>,
}

impl Store {
    /// Returns a table without the type of its rows, in any store. Repositories of the table can be open, or opened later.
    ///
    /// If the store's shards change, also when a store with one data file gets its first further shard, or the table gets a further
    /// index, get the table again. To write it, also get it again after a repository of it was opened and dropped, unless this value
    /// was returned while a repository was in use. While a repository is in use, the value counts as a repository with the same struct: as long
    /// as it lives, another declaration of the table is refused. The table is not renamed while such a value lives.
    ///
    /// Cost: a look-up if this process has the table in use. Otherwise a read of the catalog, and a few hundred bytes for each
    /// declaration of a table stay in memory until the process ends. With LMDB, it waits for the running write transaction.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownName`], with the names of the tables. [`Error::WriteInProgress`]: this thread has a write transaction, and
    /// the table is not in use. [`Error::Codec`]: a later release has recorded the table, in a way that this release doesn't
    /// read. The [errors of reading](crate::Error#common-errors).
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    /// use serde_json::json;
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(name = "people")]
    /// #[index(town)]
    /// struct Person {
    ///     #[primary_key]
    ///     id: u32,
    ///     town: String,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = Store::open(dir.path())?;
    /// let people = PersonRepository::open(&store)?;
    /// store.transaction(|txn| people.insert(txn, &Person { id: 1, town: "Oslo".into() }))?;
    ///
    /// let table = store.table("people")?;
    /// let txn = store.read()?;
    /// for row in table.rows(&txn) {
    ///     let (key, row) = row?;
    ///     assert_eq!((key, row), (json!(1), json!({ "id": 1, "town": "Oslo" })));
    /// }
    /// assert_eq!(table.index("town")?.find(&txn, [json!("Oslo")])?.count()?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn table(&self, name: &str) -> Result<JsonTable> {
        recorded::table(self, name).map(|open| JsonTable { open })
    }
}

impl JsonTable {
    /// Returns the name of the table.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.schema().name
    }

    /// Returns the names of the fields of the primary key, as serde writes them.
    pub fn primary_key(&self) -> impl Iterator<Item = &'static str> {
        Keys::of(self.schema(), Source::Facts).names()
    }

    /// Returns the names of the indexes, in the order of their declaration.
    pub fn indexes(&self) -> impl Iterator<Item = &'static str> {
        self.schema().indexes.iter().map(|index| index.name)
    }

    /// Returns the rows in the order of their primary keys.
    ///
    /// # Errors
    ///
    /// The first step returns the [errors of reading](crate::Error#common-errors), and [`Error::SnapshotTooOld`]: the transaction
    /// began before this process opened the table.
    pub fn rows<'t>(&'t self, txn: &'t ReadTxn<'_>) -> JsonRows<'t> {
        self.scan(txn, Source::Facts, Bounds::new())
    }

    /// Returns the row with this primary key: the value of its field, or an array with the values of several fields.
    ///
    /// Cost: one look-up.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidJson`]: the key is not one of the table; the errors of [`rows`](JsonTable::rows).
    pub fn get(&self, txn: &ReadTxn<'_>, key: impl Borrow<Value>) -> Result<Option<Value>> {
        let key = Keys::of(self.schema(), Source::Facts).whole(key.borrow())?;
        let Some(bytes) = txn.fact(&self.open, key.as_bytes())? else { return Ok(None) };
        value_of_row(&self.open, key.as_bytes(), bytes, &mut String::new()).map(Some)
    }

    /// Returns an index by its name: that of `name = "…"`, or its fields, such as `town_last_name`. `primary_key` is the fact table,
    /// unless an index has this name.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownName`], with the names of the indexes.
    pub fn index(&self, name: &str) -> Result<JsonIndex<'_>> {
        let schema = self.schema();
        let position = schema.indexes.iter().position(|index| index.name == name);
        let source = match position {
            Some(position) => Source::Index(position),
            None if name == PRIMARY_KEY => Source::Facts,
            None => {
                let known = self.indexes().chain([PRIMARY_KEY]).map(|it| format!("`{it}`"));
                let place = format!("table `{}`", schema.name);
                return Err(Error::unknown_name(
                    (&place, "index", name),
                    &known.collect::<Vec<_>>(),
                ));
            }
        };
        Ok(JsonIndex::new(self, Keys::of(schema, source)))
    }

    fn schema(&self) -> &'static TableSchema {
        self.open.schema
    }

    fn scan<'t>(&'t self, txn: &'t ReadTxn<'_>, source: Source, bounds: Bounds) -> JsonRows<'t> {
        JsonRows::new(&self.open, self.open.scan(txn, source, bounds))
    }
}

impl fmt::Debug for JsonTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonTable").field("name", &self.name()).finish_non_exhaustive()
    }
}
