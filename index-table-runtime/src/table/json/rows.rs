//! The rows of a query.

use std::fmt;

use serde::{Serialize, Serializer, ser::Error as _};
use serde_json::Value;

use crate::{
    model::{
        error::{Error, Result},
        exact::value_of,
        key::{DecodeError, KeyShape},
        row,
        schema::Source,
    },
    query::{Cursor, Page, RawRows, ScanRequest},
    store::OpenTable,
};

/// The rows of a query, each with its primary key: the value of its field, or an array with the values of several fields. From
/// [`JsonTable::rows`](super::JsonTable::rows) and [`JsonIndex`](super::JsonIndex).
///
/// It is an iterator that ends after the first error. Nothing is read before the first step, and memory does not grow with the
/// result.
///
/// Cost: a row costs as much as for [`Scan::rows`](crate::Scan::rows), with the creation of its JSON in the place of its struct.
#[must_use = "iterators are lazy"]
pub struct JsonRows<'t> {
    table: &'t OpenTable,
    state: State<'t>,
    /// The text of a row.
    text: String,
}

#[expect(clippy::large_enum_variant, reason = "it is moved once")]
enum State<'t> {
    Request(ScanRequest<'t>),
    Running(RawRows<'t>),
    Ended,
}

impl<'t> JsonRows<'t> {
    pub(super) const fn new(table: &'t OpenTable, request: ScanRequest<'t>) -> Self {
        Self { table, state: State::Request(request), text: String::new() }
    }

    fn with(mut self, change: impl FnOnce(&mut ScanRequest<'t>)) -> Self {
        if let State::Request(request) = &mut self.state {
            change(request);
        }
        self
    }

    /// Reverses the order. A second `rev` restores it. Without effect after the first step, as the other methods that change the
    /// query.
    pub fn rev(self) -> Self {
        self.with(ScanRequest::turn)
    }

    /// Limits the number of rows. Of two limits, the smaller one applies.
    pub fn limit(self, limit: usize) -> Self {
        self.with(|request| request.limit_to(limit as u64))
    }

    /// Keeps only the rows after a cursor of the same query, such as [`Page::next`]. With another cursor, the first step fails with
    /// [`Error::InvalidCursor`].
    pub fn after(self, cursor: &Cursor) -> Self {
        self.with(|request| request.set_gaps(Some(cursor), None))
    }

    /// Keeps only the rows before a cursor of the same query, such as [`Page::previous`]. A page then has the last of them.
    pub fn before(self, cursor: &Cursor) -> Self {
        self.with(|request| request.set_gaps(None, Some(cursor)))
    }

    /// Returns the number of rows, or of those that are left.
    ///
    /// Cost: before the first step, the cost of [`Scan::count`](crate::Scan::count).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidCursor`], and the [errors of reading](crate::Error#common-errors).
    pub fn count(self) -> Result<u64> {
        match self.state {
            State::Request(request) => request.count(),
            State::Running(mut rows) => {
                let mut count = 0;
                while rows.next()?.is_some() {
                    count += 1;
                }
                Ok(count)
            }
            State::Ended => Ok(0),
        }
    }

    /// Returns a page of `size` rows, with the cursors to the next and the previous page. After the first step, it is empty.
    ///
    /// # Errors
    ///
    /// As for [`count`](JsonRows::count), and [`Error::Corrupt`].
    pub fn page(self, size: usize) -> Result<Page<(Value, Value)>> {
        let Self { table, state: State::Request(request), mut text } = self else {
            return Ok(Page { items: Vec::new(), next: None, previous: None });
        };
        let (is_backward, mut items) = (request.is_backward(), Vec::new());
        let mut damaged = None;
        let [next, previous] = request.raw_page(size, &mut |key, row| {
            match pair(table, key, row, &mut text) {
                Ok(pair) => items.push(pair),
                Err(error) => {
                    damaged.get_or_insert(error);
                }
            }
            Ok(())
        })?;
        if let Some(error) = damaged {
            return Err(error);
        }
        if is_backward {
            items.reverse();
        }
        Ok(Page { items, next, previous })
    }

    /// Returns the next row as it is stored, to write it without JSON values between.
    ///
    /// # Errors
    ///
    /// As for [`count`](JsonRows::count).
    ///
    /// # Examples
    ///
    /// ```
    /// # use index_table::{IndexTable, Store};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize, IndexTable)]
    /// # #[table(name = "people")]
    /// # struct Person { #[primary_key] id: u32, town: String }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = Store::open(dir.path())?;
    /// # let people = PersonRepository::open(&store)?;
    /// # store.transaction(|txn| people.insert(txn, &Person { id: 1, town: "Oslo".into() }))?;
    /// let (table, txn) = (store.table("people")?, store.read()?);
    /// let (mut rows, mut out) = (table.rows(&txn), Vec::new());
    /// while let Some(row) = rows.next_row()? {
    ///     serde_json::to_writer(&mut out, &row)?;
    /// }
    /// assert_eq!(out, br#"{"id":1,"town":"Oslo"}"#);
    /// # Ok(())
    /// # }
    /// ```
    pub fn next_row(&mut self) -> Result<Option<StoredRow<'_>>> {
        let table = self.table;
        let Some(rows) = self.running() else { return Ok(None) };
        Ok(rows.next()?.map(|(key, row)| StoredRow { table, key, row }))
    }

    fn running(&mut self) -> Option<&mut RawRows<'t>> {
        if let State::Request(_) = self.state
            && let State::Request(request) = std::mem::replace(&mut self.state, State::Ended)
        {
            self.state = State::Running(request.raw_rows());
        }
        if let State::Running(rows) = &mut self.state { Some(rows) } else { None }
    }
}

impl Iterator for JsonRows<'_> {
    type Item = Result<(Value, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        let (table, mut text) = (self.table, std::mem::take(&mut self.text));
        let pair = match self.running()?.next() {
            Ok(Some((key, row))) => pair(table, key, row, &mut text),
            Ok(None) => {
                self.state = State::Ended;
                return None;
            }
            Err(error) => Err(error),
        };
        self.text = text;
        if pair.is_err() {
            self.state = State::Ended;
        }
        Some(pair)
    }
}

impl std::iter::FusedIterator for JsonRows<'_> {}

impl fmt::Debug for JsonRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonRows").field("table", &self.table.schema.name).finish_non_exhaustive()
    }
}

/// A row as it is stored. From [`JsonRows::next_row`].
///
/// Its `Serialize` writes the fields that the row has to any format, with the names and forms with which its type was written.
/// Formats that say whether they are for people get no other form: see [`JsonTable`](super::JsonTable). If the row can't be
/// read, the error is one of the format.
///
/// Cost: `Serialize` reads the row twice, first to check it. A struct with a field that rows can lack is passed once more, and so is
/// such a struct inside of it.
#[derive(Clone, Copy)]
pub struct StoredRow<'r> {
    table: &'r OpenTable,
    key: &'r [u8],
    row: &'r [u8],
}

impl StoredRow<'_> {
    /// Returns the primary key: the value of its field, or an array with the values of several fields.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`]
    pub fn key(&self) -> Result<Value> {
        value_of_key(self.table, self.key)
    }

    /// Returns the row in the exact form.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`]
    pub fn value(&self) -> Result<Value> {
        value_of_row(self.table, self.key, self.row, &mut String::new())
    }

    /// Appends the row in the exact form, in one line. After an error, `out` may have a part of it.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`]
    pub fn append_to(&self, out: &mut String) -> Result<()> {
        append(self.table, self.key, self.row, out)
    }
}

impl Serialize for StoredRow<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let body = row::any_body(self.row).and_then(|body| self.table.rows.lists.untyped(body));
        match body {
            Ok(row) => row.serialize(to),
            Err(error) => Err(S::Error::custom(corrupt(self.table, self.key, error))),
        }
    }
}

impl fmt::Debug for StoredRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredRow").field("key", &self.key().ok()).finish_non_exhaustive()
    }
}

fn corrupt(table: &OpenTable, key: &[u8], error: DecodeError) -> Error {
    table.schema.corrupt(Source::Facts, key, error)
}

pub(crate) fn append(table: &OpenTable, key: &[u8], row: &[u8], out: &mut String) -> Result<()> {
    let body = row::any_body(row);
    let appended = body.and_then(|body| table.rows.lists.append_json(body, out));
    appended.map_err(|error| corrupt(table, key, error))
}

/// Returns a row in the exact form. `text` is a buffer.
pub(super) fn value_of_row(
    table: &OpenTable,
    key: &[u8],
    row: &[u8],
    text: &mut String,
) -> Result<Value> {
    text.clear();
    append(table, key, row, text)?;
    serde_json::from_str(text).map_err(|error| Error::internal(format!("a row as JSON: {error}")))
}

fn value_of_key(table: &OpenTable, key: &[u8]) -> Result<Value> {
    let fields = table.schema.primary_key;
    let values = KeyShape::read_key(fields.iter().map(|field| &field.shape), key)
        .map_err(|error| corrupt(table, key, error))?;
    let values = fields.iter().zip(&values).map(|(field, value)| value_of(&field.shape, value));
    let mut values: Vec<_> = values.collect();
    Ok(if let [value] = values.as_mut_slice() { value.take() } else { values.into() })
}

fn pair(table: &OpenTable, key: &[u8], row: &[u8], text: &mut String) -> Result<(Value, Value)> {
    Ok((value_of_key(table, key)?, value_of_row(table, key, row, text)?))
}
