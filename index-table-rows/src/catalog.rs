//! The lists, enums and unions of a table.

use std::mem;

use serde::{Deserialize, Serialize};

use crate::{
    carry,
    collection::Sorted,
    error::{Result, damaged, unrecorded},
    kind::{Enum, Kind, List, Union},
    learn,
    read::{self, Fields, Reader, Row, Unknown},
    seen::Names,
    write,
};

/// The union of the rows.
pub(crate) const ROOT: u32 = 0;
/// The union of the structs inside of values with tags.
pub(crate) const LOOSE: u32 = 1;

/// The names and kinds in the rows of a table.
///
/// A catalog only grows: a later version reads the rows of each earlier one. [`encode`](Self::encode) doesn't change it,
/// and fails for a value with something new; [`record`](Self::record) adds what the value needs.
///
/// # Examples
///
/// ```
/// use index_table_rows::Catalog;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize)]
/// struct Before {
///     id: u64,
///     name: String,
/// }
///
/// #[derive(Deserialize, PartialEq, Debug)]
/// struct After {
///     #[serde(alias = "name")]
///     title: String,
///     id: u64,
///     #[serde(default)]
///     tags: Vec<String>,
/// }
///
/// # fn main() -> Result<(), index_table_rows::Error> {
/// let mut catalog = Catalog::new();
/// let mut row = Vec::new();
/// catalog.record(&Before { id: 7, name: "Oslo".into() }, &mut row)?;
/// assert_eq!(row, b"\x00\x07\x04Oslo");
/// let after = After { title: "Oslo".into(), id: 7, tags: Vec::new() };
/// assert_eq!(catalog.decode::<After>(&row)?, after);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Catalog {
    pub(crate) lists: Vec<List>,
    pub(crate) enums: Vec<Enum>,
    pub(crate) unions: Vec<Union>,
    pub(crate) version: u64,
}

impl Default for Catalog {
    fn default() -> Self {
        Self::new()
    }
}

impl Catalog {
    /// Creates a catalog without lists.
    #[must_use]
    pub fn new() -> Self {
        Self {
            lists: Vec::new(),
            enums: Vec::new(),
            unions: vec![Union::default(), Union::default()],
            version: 0,
        }
    }

    /// Returns the number of changes.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the number of lists of structs and tuples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lists.len()
    }

    /// Whether nothing is recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.version == 0
    }

    /// Appends the row of `value`.
    ///
    /// # Errors
    ///
    /// [`Unrecorded`](crate::Reason::Unrecorded) if the value needs what [`record`](Self::record) would add, and the errors of
    /// the value. `out` is as before.
    #[inline(always)]
    pub fn encode<T: Serialize + ?Sized>(&self, value: &T, out: &mut Vec<u8>) -> Result {
        let start = out.len();
        write::write(self, None, value, out).inspect_err(|_| out.truncate(start))
    }

    /// Appends the row of `value`. The elements of unordered collections are in the order of their bytes, so equal values have
    /// equal rows.
    ///
    /// # Errors
    ///
    /// As for [`encode`](Self::encode).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::{collections::HashSet, mem::offset_of};
    ///
    /// use index_table_rows::{Catalog, Collection, CollectionField};
    ///
    /// #[derive(serde::Serialize)]
    /// struct Article {
    ///     id: u64,
    ///     tags: HashSet<String>,
    /// }
    ///
    /// const SORTED: &[CollectionField] = &[CollectionField {
    ///     offset: offset_of!(Article, tags),
    ///     collection: Collection { sorted: true, inside: &[] },
    /// }];
    ///
    /// # fn main() -> Result<(), index_table_rows::Error> {
    /// let mut catalog = Catalog::new();
    /// let mut row = Vec::new();
    /// let article = Article { id: 7, tags: ["b".into(), "a".into()].into() };
    /// catalog.record_sorted(&article, SORTED, &mut row)?;
    /// assert_eq!(row, b"\x00\x07\x02\x01a\x01b");
    /// # Ok(())
    /// # }
    /// ```
    pub fn encode_sorted<T: Serialize + ?Sized>(
        &self,
        value: &T,
        sorted: impl Into<Sorted>,
        out: &mut Vec<u8>,
    ) -> Result {
        let start = out.len();
        write::write_sorted(self, None, value, sorted.into(), out)
            .inspect_err(|_| out.truncate(start))
    }

    /// Adds what `value` needs, and appends its row. [`encode`](Self::encode) returns the same bytes from then on.
    ///
    /// # Errors
    ///
    /// The errors of the value, and [`TooLarge`](crate::Reason::TooLarge). The catalog and `out` are as before.
    pub fn record<T: Serialize + ?Sized>(&mut self, value: &T, out: &mut Vec<u8>) -> Result {
        let (grown, guide) = self.grown(value)?;
        let start = out.len();
        write::write(&grown, Some(&guide), value, out).inspect_err(|_| out.truncate(start))?;
        *self = grown;
        Ok(())
    }

    /// Like [`record`](Self::record). [`encode_sorted`](Self::encode_sorted) returns the same bytes from then on.
    ///
    /// # Errors
    ///
    /// As for [`record`](Self::record).
    pub fn record_sorted<T: Serialize + ?Sized>(
        &mut self,
        value: &T,
        sorted: impl Into<Sorted>,
        out: &mut Vec<u8>,
    ) -> Result {
        let (grown, guide) = self.grown(value)?;
        let start = out.len();
        write::write_sorted(&grown, Some(&guide), value, sorted.into(), out)
            .inspect_err(|_| out.truncate(start))?;
        *self = grown;
        Ok(())
    }

    /// Returns the catalog with what `value` needs, and the names of its structs.
    fn grown<T: Serialize + ?Sized>(&self, value: &T) -> Result<(Self, Vec<Names>)> {
        let mut grown = self.clone();
        let guide = learn::learn(&mut grown, value)?;
        grown.check()?;
        Ok((grown, guide))
    }

    /// Whether a row of `value` would have the bytes of `row`, with its lists. They may be older than those of
    /// [`encode`](Self::encode).
    #[must_use]
    pub fn is_same<T: Serialize + ?Sized>(&self, row: &[u8], value: &T) -> bool {
        write::is_same(self, row, value)
    }

    /// Like [`is_same`](Self::is_same), for a row of [`encode_sorted`](Self::encode_sorted). The result may be `false` for an
    /// equal value if the row has a sorted collection, and a struct or variant inside of that is older than in a new row.
    #[must_use]
    pub fn is_same_sorted<T: Serialize + ?Sized>(
        &self,
        row: &[u8],
        value: &T,
        sorted: impl Into<Sorted>,
    ) -> bool {
        write::is_same_sorted(self, row, value, sorted.into())
    }

    /// Reads a row.
    ///
    /// # Errors
    ///
    /// [`Unrecorded`](crate::Reason::Unrecorded) if the row was written with a later version of the catalog,
    /// [`Damaged`](crate::Reason::Damaged), and the errors of the type.
    pub fn decode<'de, T: Deserialize<'de>>(&self, row: &'de [u8]) -> Result<T> {
        let mut reader = Reader::new(self, row);
        let value = T::deserialize(&mut reader);
        if reader.is_done() {
            // Only a misplaced struct has something to drop.
            mem::forget(reader);
            return value;
        }
        self.decode_again(row, reader, value, &mut false)
    }

    /// Reads a row like [`decode`](Self::decode), and sets `has_unread` to whether the type may not read all of it. If so,
    /// [`decode_noting`](Self::decode_noting) names what it does not read.
    ///
    /// # Errors
    ///
    /// As for [`decode`](Self::decode).
    pub fn decode_whole<'de, T: Deserialize<'de>>(
        &self,
        row: &'de [u8],
        has_unread: &mut bool,
    ) -> Result<T> {
        let mut reader = Reader::new(self, row);
        let value = T::deserialize(&mut reader);
        *has_unread = reader.has_left();
        if reader.is_done() { value } else { self.decode_again(row, reader, value, has_unread) }
    }

    /// The end of [`decode`](Self::decode) if not all bytes were read.
    #[cold]
    fn decode_again<'de, T: Deserialize<'de>>(
        &self,
        row: &'de [u8],
        first: Reader<'de, '_>,
        value: Result<T>,
        has_unread: &mut bool,
    ) -> Result<T> {
        if !first.is_misplaced() {
            return value.and(Err(damaged()));
        }
        let mut reader = Reader::by_names(self, row);
        let value = T::deserialize(&mut reader)?;
        if !reader.is_done() {
            return Err(damaged());
        }
        first.confirm();
        *has_unread = reader.has_left();
        Ok(value)
    }

    /// Reads a row by names, and returns the first field or variant of the row that the type does not read, if there is
    /// one. A row that is written from this value would lack it. In the content of `tag`, `untagged` and `flatten`, which
    /// serde buffers, it is not noticed.
    ///
    /// # Errors
    ///
    /// As for [`decode`](Self::decode).
    pub fn decode_noting<'de, T: Deserialize<'de>>(
        &self,
        row: &'de [u8],
    ) -> Result<(T, Option<String>)> {
        let mut reader = Reader::by_names(self, row);
        let value = T::deserialize(&mut reader)?;
        if reader.is_done() { Ok((value, reader.into_lost())) } else { Err(damaged()) }
    }

    /// Reads a row like [`decode_noting`](Self::decode_noting), and returns all fields that the type does not read, of the lists that
    /// were recorded after the catalog had the [length](Self::len) `since`.
    ///
    /// # Errors
    ///
    /// As for [`decode`](Self::decode).
    pub fn unknown<'de, T: Deserialize<'de>>(
        &self,
        row: &'de [u8],
        since: usize,
    ) -> Result<(T, Unknown)> {
        let mut reader = Reader::since(self, row, since);
        let value = T::deserialize(&mut reader)?;
        if reader.is_done() { Ok((value, reader.into_unknown())) } else { Err(damaged()) }
    }

    /// Appends a row with the fields of `row`, and with those fields of the row `from` that have these names.
    ///
    /// # Errors
    ///
    /// [`Unrecorded`](crate::Reason::Unrecorded) if there is no list of these fields, which [`record_carried`](Self::record_carried)
    /// would add; [`Damaged`](crate::Reason::Damaged) also if a row is no struct. `out` is as before.
    ///
    /// # Examples
    ///
    /// ```
    /// # use index_table_rows::{Catalog, Error};
    /// # use serde::{Deserialize, Serialize};
    /// # fn main() -> Result<(), Error> {
    /// #[derive(Serialize, Deserialize)]
    /// struct Town { name: String }
    ///
    /// #[derive(Serialize, Deserialize, PartialEq, Debug)]
    /// struct Later { people: u64, name: String }
    ///
    /// let (mut catalog, mut later, mut row, mut both) = (Catalog::new(), vec![], vec![], vec![]);
    /// catalog.record(&Later { people: 700_000, name: "Oslo".into() }, &mut later)?;
    /// let (mut town, unknown) = catalog.unknown::<Town>(&later, 0)?;
    /// assert_eq!(unknown.fields, ["people"]);
    /// town.name = "Ose".into();
    /// catalog.record(&town, &mut row)?;
    /// catalog.record_carried(&row, &later, &unknown.fields, &mut both)?;
    /// assert_eq!(catalog.decode::<Later>(&both)?, Later { people: 700_000, name: "Ose".into() });
    /// # Ok(())
    /// # }
    /// ```
    pub fn carried(&self, row: &[u8], from: &[u8], names: &[String], out: &mut Vec<u8>) -> Result {
        carry::carried(self, row, from, names, out)
    }

    /// Adds a list for [`carried`](Self::carried), and appends its row.
    ///
    /// # Errors
    ///
    /// As for [`carried`](Self::carried), and [`TooLarge`](crate::Reason::TooLarge). The catalog and `out` are as before.
    pub fn record_carried(
        &mut self,
        row: &[u8],
        from: &[u8],
        names: &[String],
        out: &mut Vec<u8>,
    ) -> Result {
        let mut grown = self.clone();
        carry::record(&mut grown, row, from, names)?;
        grown.check()?;
        carry::carried(&grown, row, from, names, out)?;
        *self = grown;
        Ok(())
    }

    /// Reads the fields of a row one by one. A field that is read in the row's order costs as much as in
    /// [`decode`](Self::decode), and borrows from the row.
    ///
    /// # Errors
    ///
    /// As for [`decode`](Self::decode), also if the row is neither a struct nor a map.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), index_table_rows::Error> {
    /// # #[derive(serde::Serialize)]
    /// # struct Town { id: u64, name: String }
    /// # let mut catalog = index_table_rows::Catalog::new();
    /// # let mut row = Vec::new();
    /// catalog.record(&Town { id: 7, name: "Oslo".into() }, &mut row)?;
    /// let mut fields = catalog.fields(&row)?;
    /// assert_eq!(fields.field::<u64>(&["id"])?, Some(7));
    /// assert_eq!(fields.field::<&str>(&["title", "name"])?, Some("Oslo"));
    /// assert_eq!(fields.field::<u64>(&["people"])?, None);
    /// fields.end()?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn fields<'de, 'c>(&'c self, row: &'de [u8]) -> Result<Fields<'de, 'c>> {
        Fields::new(Reader::new(self, row))
    }

    /// Returns a row as a value that `Serialize` writes, without its type. `keep` returns a text that lives as long as the process,
    /// because `Serialize` needs such names: a set of the names of all catalogs, which has each name once.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// #[derive(serde::Serialize)]
    /// struct Town { id: u64, name: String }
    ///
    /// let (mut catalog, mut row) = (index_table_rows::Catalog::new(), Vec::new());
    /// catalog.record(&Town { id: 7, name: "Oslo".into() }, &mut row)?;
    /// let row = catalog.row(&row, |name| name.to_owned().leak());
    /// assert_eq!(serde_json::to_string(&row)?, r#"{"id":7,"name":"Oslo"}"#);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn row<'r>(&'r self, row: &'r [u8], keep: fn(&str) -> &'static str) -> Row<'r> {
        Row::new(self, row, keep)
    }

    /// Appends these fields of a row to `out`, each described by its name and its aliases. [`part`](Self::part) reads them. Returns
    /// false if the row's list has no name of a field; its value is then missing in the copy.
    ///
    /// The copy has the row's number, and the bytes of the values in the row. A row that is not written as a struct, because of
    /// `transparent`, is copied as a whole.
    ///
    /// # Errors
    ///
    /// [`Reason::Unrecorded`](crate::Reason::Unrecorded) and [`Reason::Damaged`](crate::Reason::Damaged). `out` is as before.
    ///
    /// # Examples
    ///
    /// ```
    /// # use index_table_rows::{Catalog, Error};
    /// # use serde::Serialize;
    /// # fn main() -> Result<(), Error> {
    /// #[derive(Serialize)]
    /// struct Town {
    ///     id: u64,
    ///     name: String,
    ///     people: u64,
    /// }
    ///
    /// let (mut catalog, mut row, mut copy) = (Catalog::new(), Vec::new(), Vec::new());
    /// catalog.record(&Town { id: 7, name: "Oslo".to_owned(), people: 700_000 }, &mut row)?;
    /// assert!(catalog.copy_fields(&row, &[&["people"], &["id"]], &mut copy)?);
    /// let mut fields = catalog.part(&copy)?;
    /// assert_eq!(fields.field::<u64>(&["people"])?, Some(700_000));
    /// assert_eq!(fields.field::<u64>(&["id"])?, Some(7));
    /// fields.end()?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn copy_fields(
        &self,
        row: &[u8],
        names: &[&[&'static str]],
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        read::copy(self, row, names, out)
    }

    /// Returns the fields that were [copied](Self::copy_fields) from a row. They must be read in the order in which they were copied,
    /// each with the same names.
    ///
    /// # Errors
    ///
    /// As for [`fields`](Self::fields).
    #[inline]
    pub fn part<'de, 'c>(&'c self, copy: &'de [u8]) -> Result<Fields<'de, 'c>> {
        Fields::of_part(Reader::new(self, copy))
    }

    #[inline]
    pub(crate) fn list(&self, number: u32) -> Result<&List> {
        self.lists.get(number as usize).ok_or_else(unrecorded)
    }

    #[inline]
    pub(crate) fn enumeration(&self, number: u32) -> Result<&Enum> {
        self.enums.get(number as usize).ok_or_else(unrecorded)
    }

    #[inline]
    pub(crate) fn union(&self, number: u32) -> Result<&Union> {
        self.unions.get(number as usize).ok_or_else(unrecorded)
    }

    /// Returns the list of a struct of a union.
    pub(crate) fn list_in(&self, union: &Union, alternative: u32) -> Option<&List> {
        match union.kinds.get(alternative as usize)? {
            Kind::Struct(list) => self.lists.get(*list as usize),
            _ => None,
        }
    }

    pub(crate) fn enum_named(&self, name: &str) -> Option<u32> {
        self.enums.iter().position(|it| it.name.text() == name).map(|position| position as u32)
    }
}
