//! Queries by the leading fields of an index, whose values are JSON.

use std::{
    fmt,
    ops::{Bound, RangeBounds},
};

use serde_json::Value;

use super::{JsonRows, JsonTable};
use crate::{
    model::{
        End, KeyRange,
        error::{Error, Result},
        exact::key_of,
        key::{KeyBuf, KeyShape},
        schema::{KeyField, Source, TableSchema},
    },
    query::Bounds,
    store::ReadTxn,
};

/// An index without the type of the rows. From [`JsonTable::index`].
#[derive(Clone, Copy)]
pub struct JsonIndex<'t> {
    table: &'t JsonTable,
    keys: Keys,
}

impl<'t> JsonIndex<'t> {
    pub(super) const fn new(table: &'t JsonTable, keys: Keys) -> Self {
        Self { table, keys }
    }

    /// Returns the names of the fields of its key, as serde writes them.
    pub fn fields(&self) -> impl Iterator<Item = &'static str> {
        self.keys.names()
    }

    /// Returns all rows with an entry, in the order of the index.
    ///
    /// # Errors
    ///
    /// The first step returns [`Error::IndexNotReadable`] and the errors of [`JsonTable::rows`].
    pub fn rows(&self, txn: &'t ReadTxn<'_>) -> JsonRows<'t> {
        self.table.scan(txn, self.keys.source, Bounds::new())
    }

    /// Returns the rows whose leading fields in the index have these values, in the order of the index. Rows of an eventual index are
    /// those of `stale()`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidJson`]: a value is not one of its field, or there are more values than fields. Then the errors of
    /// [`rows`](JsonIndex::rows).
    pub fn find(
        &self,
        txn: &'t ReadTxn<'_>,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<JsonRows<'t>> {
        let (key, _) = self.keys.leading(values)?;
        Ok(self.scan(txn, KeyRange::beginning_with(key.as_bytes())))
    }

    /// Returns the rows whose leading fields have these values, and whose next field is in the range.
    ///
    /// # Errors
    ///
    /// Those of [`find`](JsonIndex::find), and [`Error::InvalidJson`] if no field is left, or it is hashed.
    ///
    /// # Examples
    ///
    /// ```
    /// # use index_table::{IndexTable, Store};
    /// # use serde::{Deserialize, Serialize};
    /// # use serde_json::json;
    /// # #[derive(Serialize, Deserialize, IndexTable)]
    /// # #[table(name = "people")]
    /// # #[index(town, name)]
    /// # struct Person { #[primary_key] id: u32, town: String, name: String }
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// # let people = PersonRepository::open(&store)?;
    /// # store.transaction(|txn| people.insert(txn, &Person { id: 1, town: "Oslo".into(), name: "Lie".into() }))?;
    /// let (table, txn) = (store.table("people")?, store.read()?);
    /// let index = table.index("town_name")?;
    /// let page = index.find_range(&txn, [json!("Oslo")], json!("A")..json!("N"))?.page(20)?;
    /// assert_eq!((page.items.len(), page.next), (1, None));
    /// # Ok(())
    /// # }
    /// ```
    pub fn find_range(
        &self,
        txn: &'t ReadTxn<'_>,
        values: impl IntoIterator<Item = Value>,
        range: impl RangeBounds<Value>,
    ) -> Result<JsonRows<'t>> {
        let (leading, given) = self.keys.leading(values)?;
        let field = self.keys.next(given)?;
        if let KeyShape::Hash(_) = field.shape {
            return Err(self
                .keys
                .invalid(field, "the index has a hash of it, which has no order".into()));
        }
        let (mut first, mut last) = (range.start_bound(), range.end_bound());
        if field.shape.is_descending() {
            std::mem::swap(&mut first, &mut last);
        }
        let key_with = |value: &Value| {
            let mut key = leading.clone();
            self.keys.push(field, value, &mut key).map(|()| key)
        };
        let end = match last {
            Bound::Included(value) => End::after_prefix(&key_with(value)?),
            Bound::Excluded(value) => End::Before(key_with(value)?.as_bytes().to_vec()),
            Bound::Unbounded => End::after_prefix(&leading),
        };
        let start = match first {
            Bound::Included(value) => key_with(value)?,
            Bound::Unbounded => leading,
            Bound::Excluded(value) => {
                let End::Before(bytes) = End::after_prefix(&key_with(value)?) else {
                    // No key is after the greatest value. The range before the empty key is empty.
                    let range = KeyRange { start: leading, end: End::Before(Vec::new()) };
                    return Ok(self.scan(txn, range));
                };
                let mut start = KeyBuf::new();
                start.extend(&bytes);
                start
            }
        };
        Ok(self.scan(txn, KeyRange { start, end }))
    }

    /// Returns the rows whose leading fields have these values, and whose next field is text that starts with `prefix`.
    ///
    /// # Errors
    ///
    /// Those of [`find`](JsonIndex::find), and [`Error::InvalidJson`] if no field is left, or it is no text.
    pub fn find_starting_with(
        &self,
        txn: &'t ReadTxn<'_>,
        values: impl IntoIterator<Item = Value>,
        prefix: &str,
    ) -> Result<JsonRows<'t>> {
        let (mut key, given) = self.keys.leading(values)?;
        let field = self.keys.next(given)?;
        let written = field.shape.write_prefix(prefix, &mut key);
        written.map_err(|_| self.keys.invalid(field, format!("a `{}` is no text", field.shape)))?;
        Ok(self.scan(txn, KeyRange::beginning_with(key.as_bytes())))
    }

    fn scan(&self, txn: &'t ReadTxn<'_>, range: KeyRange) -> JsonRows<'t> {
        self.table.scan(txn, self.keys.source, Bounds::of(range))
    }
}

impl fmt::Debug for JsonIndex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonIndex")
            .field("table", &self.table.name())
            .field("index", &self.keys.schema.index_name(self.keys.source))
            .finish_non_exhaustive()
    }
}

/// The keys of an index, or of the fact table.
#[derive(Clone, Copy)]
pub(super) struct Keys {
    schema: &'static TableSchema,
    source: Source,
    fields: &'static [KeyField],
}

impl Keys {
    pub(super) fn of(schema: &'static TableSchema, source: Source) -> Self {
        let fields = schema.index(source).map_or(schema.primary_key, |index| index.key);
        Self { schema, source, fields }
    }

    /// Returns the names of the fields, which are the same with and without a struct.
    pub(super) fn names(self) -> impl Iterator<Item = &'static str> {
        self.fields.iter().map(move |field| self.schema.name_in_key(field))
    }

    /// Returns the encoding of a whole key.
    pub(super) fn whole(&self, key: &Value) -> Result<KeyBuf> {
        let values = match (self.fields.len(), key) {
            (1, _) => vec![key.clone()],
            (_, Value::Array(values)) => values.clone(),
            _ => Vec::new(),
        };
        if values.len() != self.fields.len() {
            let names: Vec<_> = self.names().collect();
            let reason = format!("{key} is not an array with values of {}", names.join(", "));
            return Err(Error::InvalidJson { place: self.place(), reason });
        }
        self.leading(values).map(|(key, _)| key)
    }

    /// Returns the encodings of values of the leading fields, and the number of values.
    fn leading(&self, values: impl IntoIterator<Item = Value>) -> Result<(KeyBuf, usize)> {
        let (mut key, mut given) = (KeyBuf::new(), 0);
        for value in values {
            self.push(self.next(given)?, &value, &mut key)?;
            given += 1;
        }
        Ok((key, given))
    }

    /// Returns the field after the given ones.
    fn next(&self, given: usize) -> Result<&'static KeyField> {
        self.fields.get(given).ok_or_else(|| {
            let names: Vec<_> = self.names().collect();
            let reason = format!(
                "a value is given for each of its fields ({}), so there is no further field",
                names.join(", ")
            );
            Error::InvalidJson { place: self.place(), reason }
        })
    }

    fn push(&self, field: &KeyField, json: &Value, key: &mut KeyBuf) -> Result<()> {
        let invalid = |reason| self.invalid(field, reason);
        let value = key_of(&field.shape, json).map_err(invalid)?;
        let written = match field.shape {
            KeyShape::Hash(inner) => inner.write_hash(&value, key),
            shape => shape.write(&value, key),
        };
        written.map_err(|error| invalid(error.to_string()))
    }

    fn place(&self) -> String {
        let table = self.schema.name;
        match self.schema.index_name(self.source) {
            Some(index) => format!("table `{table}`, index `{index}`"),
            None => format!("table `{table}`, primary key"),
        }
    }

    #[cold]
    fn invalid(&self, field: &KeyField, reason: String) -> Error {
        let field = self.schema.name_in_key(field);
        Error::InvalidJson { place: format!("{}, field `{field}`", self.place()), reason }
    }
}
