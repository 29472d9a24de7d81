#[cfg(feature = "json")]
mod recorded;

use std::ops::Range;

#[cfg(feature = "json")]
pub(crate) use recorded::hashed as recorded_hashes;

use crate::model::{
    aggregate::{Summand, WHOLE_TABLE, push_summand},
    entity::Entity,
    error::{EncodeError, Error, Result},
    key::{Key, KeyBuf, MAX_KEY_LEN, hash},
    lists::Lists,
    row::{self, RowOutput},
    schema::{AggregateSchema, IndexSchema, Source, Strategy, TableSchema},
};

/// A row in its stored form: its primary key, its bytes, and its entries in every index.
///
/// The buffers are reused for the next row.
#[derive(Debug)]
pub(crate) struct Image {
    primary_key: KeyBuf,
    row: Vec<u8>,
    entries: EntryBuffer,
    /// The values of the hashed fields of each index, one index after another.
    hashed: KeyBuf,
    /// The indexes with hashed fields, and the range of each index in `hashed`.
    hashed_ranges: Vec<(usize, Range<usize>)>,
    /// Whether the entries have other data than those that are stored.
    is_renewed: bool,
    /// Whether the type of the row may leave something unread.
    has_unread: bool,
}

impl Image {
    /// Creates an image that is only compared, and not written.
    pub(crate) fn to_read() -> Self {
        let entries = EntryBuffer { is_only_read: true, ..EntryBuffer::default() };
        Self { entries, ..Self::default() }
    }

    /// Loads `row`.
    ///
    /// # Errors
    ///
    /// Those of [`load_row`](Image::load_row) and [`load_entries`](Image::load_entries).
    pub(crate) fn load<R: Entity>(&mut self, lists: &Lists, row: &R) -> Result<()> {
        self.load_row(lists, row)?;
        self.load_entries(lists, row)
    }

    /// Loads the primary key and the bytes of `row`. The entries are still those of another row.
    ///
    /// # Errors
    ///
    /// [`Error::Codec`](crate::Error::Codec)
    #[inline]
    pub(crate) fn load_row<R: Entity>(&mut self, lists: &Lists, row: &R) -> Result<()> {
        self.row.clear();
        self.load_primary_key(row);
        row::encode(lists, row, &mut self.row)
            .map_err(|error| R::TABLE.not_encoded(error, self.primary_key.as_bytes()))?;
        Ok(())
    }

    /// Loads the entries of `row`, which was [loaded](Image::load_row).
    ///
    /// # Errors
    ///
    /// [`Error::Codec`](crate::Error::Codec) and [`Error::KeyTooLong`](crate::Error::KeyTooLong), so that a
    /// loaded row can be written.
    #[inline]
    pub(crate) fn load_entries<R: Entity>(&mut self, lists: &Lists, row: &R) -> Result<()> {
        self.load_keys(lists, row, true, None)?;
        self.check_lengths(R::TABLE)?;
        if R::AGGREGATES.is_empty() {
            return Ok(());
        }
        self.check_groups(R::TABLE, R::AGGREGATES)
    }

    /// Loads `row`, which is stored as `bytes`, with its entries in all indexes or in the index `only`.
    #[inline]
    pub(crate) fn load_stored<R: Entity>(
        &mut self,
        lists: &Lists,
        row: &R,
        bytes: &[u8],
        only: Option<usize>,
    ) -> Result<()> {
        self.row.clear();
        self.row.extend_from_slice(bytes);
        self.load_primary_key(row);
        self.load_keys(lists, row, false, only)
    }

    /// Loads the keys of a row in one index, without the data of its entries.
    pub(crate) fn load_index_keys<R: Entity>(&mut self, row: &R, index: usize) -> Result<()> {
        self.entries.clear();
        for position in 0..R::TABLE.indexes.len() {
            if position == index {
                row.entries(index, &mut self.entries)
                    .map_err(|error| R::TABLE.not_encoded(error, self.primary_key.as_bytes()))?;
            }
            self.entries.finish_index();
        }
        Ok(())
    }

    #[inline]
    fn load_primary_key<R: Entity>(&mut self, row: &R) {
        self.primary_key.clear();
        row.primary_key(&mut self.primary_key);
    }

    /// Loads the entries in all indexes or in the index `only`.
    fn load_keys<R: Entity>(
        &mut self,
        lists: &Lists,
        row: &R,
        is_new: bool,
        only: Option<usize>,
    ) -> Result<()> {
        (self.is_renewed, self.has_unread) = (false, false);
        self.entries.clear();
        self.hashed.clear();
        self.hashed_ranges.clear();
        for (index, declared) in R::TABLE.indexes.iter().enumerate() {
            if only.is_some_and(|only| only != index) {
                self.entries.finish_index();
                continue;
            }
            row.entries(index, &mut self.entries)
                .map_err(|error| R::TABLE.not_encoded(error, self.primary_key.as_bytes()))?;
            if matches!(declared.strategy, Strategy::Partial(_)) {
                self.entries
                    .copy_included(lists, row, (&self.row, is_new))
                    .map_err(|error| R::TABLE.not_encoded(error, self.primary_key.as_bytes()))?;
            }
            self.entries.finish_index();
            // Only a unique index compares the values of hashed fields.
            if declared.unique {
                let start = self.hashed.len();
                row.hashed(index, &mut self.hashed);
                if self.hashed.len() > start {
                    self.hashed_ranges.push((index, start..self.hashed.len()));
                }
            }
        }
        let first = R::TABLE.indexes.len();
        for position in first..first + R::AGGREGATES.len() + R::REFERENCES.len() {
            if only.is_none_or(|only| only == position) {
                row.entries(position, &mut self.entries)
                    .map_err(|error| R::TABLE.not_encoded(error, self.primary_key.as_bytes()))?;
            }
            self.entries.finish_index();
        }
        Ok(())
    }

    /// Whether both rows have the same primary key, and the same keys in every index.
    pub(crate) fn same_keys(&self, other: &Self) -> bool {
        let indexes = self.entries.ends.len();
        self.same_key_bytes(other)
            || (self.primary_key == other.primary_key
                && indexes == other.entries.ends.len()
                && (0..indexes).all(|index| self.keys(index) == other.keys(index)))
    }

    /// Like [`same_keys`](Image::same_keys), without the indexes at these positions.
    pub(crate) fn same_keys_without(&self, other: &Self, without: &[usize]) -> bool {
        let indexes = self.entries.ends.len();
        let is_same = |index| without.contains(&index) || self.keys(index) == other.keys(index);
        self.primary_key == other.primary_key
            && indexes == other.entries.ends.len()
            && (0..indexes).all(is_same)
    }

    /// Like [`same_keys`](Image::same_keys), but faster, and false for equal collections with their elements
    /// in different orders.
    pub(crate) fn same_key_bytes(&self, other: &Self) -> bool {
        self.entries.bytes == other.entries.bytes
            && self.primary_key == other.primary_key
            && self.entries.has_same_key_ends(&other.entries)
            && self.entries.keys == other.entries.keys
            && self.hashed == other.hashed
    }

    /// Checks that no key is too long.
    ///
    /// # Errors
    ///
    /// [`Error::KeyTooLong`](crate::Error::KeyTooLong)
    pub(crate) fn check_lengths(&self, schema: &TableSchema) -> Result<()> {
        let primary_key = self.primary_key();
        if primary_key.len() > MAX_KEY_LEN {
            return Err(schema.too_long(Source::Facts, primary_key, None, primary_key.len()));
        }
        if self.entries.longest + primary_key.len() <= MAX_KEY_LEN {
            return Ok(());
        }
        for (index, declared) in schema.indexes.iter().enumerate() {
            let suffix = if declared.has_one_entry_per_key() { 0 } else { primary_key.len() };
            for key in self.keys(index) {
                if key.len() + suffix > MAX_KEY_LEN {
                    let (source, len) = (Source::Index(index), key.len() + suffix);
                    return Err(schema.too_long(source, key, Some(primary_key), len));
                }
            }
        }
        Ok(())
    }

    /// Checks that the key of no group is too long.
    ///
    /// # Errors
    ///
    /// [`Error::KeyTooLong`](crate::Error::KeyTooLong)
    pub(crate) fn check_groups(
        &self,
        schema: &TableSchema,
        aggregates: &[AggregateSchema],
    ) -> Result<()> {
        for (at, aggregate) in aggregates.iter().enumerate() {
            let (key, _) = self.group(schema.indexes.len() + at);
            if key.len() > MAX_KEY_LEN {
                let (table, index) = (schema.name, Some(aggregate.name));
                let (key, len) = (aggregate.show(key), key.len());
                let row = Some(schema.show_primary_key(self.primary_key()));
                return Err(Error::KeyTooLong { table, index, key, row, len });
            }
        }
        Ok(())
    }

    /// Returns the key of the group and the summands, at this position after the indexes. For a reference, the key is the
    /// primary key of the row, or empty.
    pub(crate) fn group(&self, position: usize) -> (&[u8], &[u8]) {
        let key = self.entries.keys(position).first().unwrap_or_default();
        (key, self.entries.data(position))
    }

    /// Returns the approximate memory of the buffers, in bytes.
    pub(crate) fn capacity(&self) -> usize {
        let EntryBuffer { bytes, keys, data, hashed, .. } = &self.entries;
        let keys = keys.capacity() * size_of::<Range<usize>>();
        let buffers = [bytes, hashed, &self.hashed].map(KeyBuf::capacity);
        self.row.capacity() + data.capacity() + keys + buffers.iter().sum::<usize>()
    }

    #[inline]
    pub(crate) fn primary_key(&self) -> &[u8] {
        self.primary_key.as_bytes()
    }

    pub(crate) fn row(&self) -> &[u8] {
        &self.row
    }

    /// Returns the keys in the index at this position, sorted and without duplicates.
    #[inline]
    pub(crate) fn keys(&self, index: usize) -> Keys<'_> {
        self.entries.keys(index)
    }

    /// Returns the values of the hashed fields of this index, if it is unique.
    pub(crate) fn hashed(&self, index: usize) -> &[u8] {
        let found = self.hashed_ranges.iter().find(|(owner, _)| *owner == index);
        found.map_or(&[], |(_, range)| slice(self.hashed.as_bytes(), range))
    }

    /// Returns the names of the included fields of this index.
    pub(crate) fn included(&self, index: usize) -> &[&'static [&'static str]] {
        let entries = &self.entries;
        let included = part(&entries.ends, index, |ends| ends.included)
            .and_then(|it| entries.included.get(it));
        included.unwrap_or_default()
    }

    /// Whether the data of the stored entries is not known.
    pub(super) const fn is_renewed(&self) -> bool {
        self.is_renewed
    }

    /// Makes this the image of the same row, stored as `bytes`. The data of its entries can be anything.
    pub(crate) fn set_stored(&mut self, bytes: &[u8]) {
        self.set_row(bytes);
        self.is_renewed = true;
    }

    /// Sets the bytes of the row to others with the same entries and included fields.
    pub(crate) fn set_row(&mut self, bytes: &[u8]) {
        self.row.clear();
        self.row.extend_from_slice(bytes);
    }

    /// Whether the type of the row may leave something unread.
    #[inline]
    pub(crate) fn has_unread(&self) -> bool {
        self.has_unread
    }

    #[inline]
    pub(crate) fn set_unread(&mut self, has_unread: bool) {
        self.has_unread = has_unread;
    }

    /// Whether the data of the entries in this index is of the [private catalog](Lists::private_catalog).
    pub(crate) fn is_private(&self, index: usize) -> bool {
        self.entries.private.contains(&index)
    }

    /// Returns the data of each entry in this index.
    #[inline]
    pub(crate) fn data(&self, index: usize, declared: &IndexSchema) -> &[u8] {
        match declared.strategy {
            Strategy::Normalized => &[],
            Strategy::Partial(_) => self.entries.data(index),
            Strategy::Full => &self.row,
        }
    }
}

impl Default for Image {
    fn default() -> Self {
        Self {
            primary_key: KeyBuf::new(),
            row: Vec::new(),
            entries: EntryBuffer::default(),
            hashed: KeyBuf::on_heap(),
            hashed_ranges: Vec::new(),
            is_renewed: false,
            has_unread: false,
        }
    }
}

/// Collects the entries of one row, index by index: the keys, and the included fields, which all entries of
/// the row in an index carry.
#[derive(Debug)]
pub struct EntryBuffer {
    /// The bytes of the keys, one key after another.
    bytes: KeyBuf,
    /// The range of each key in `bytes`.
    keys: Vec<Range<usize>>,
    /// The bytes of the data, one index after another.
    data: Vec<u8>,
    /// The names of the included fields, one index after another.
    included: Vec<&'static [&'static str]>,
    /// The start of the unfinished key in `bytes`.
    key_start: Option<usize>,
    /// For each finished index, where its parts end.
    ends: Vec<Ends>,
    /// The length of the longest key.
    longest: usize,
    /// A buffer for the encoding of a hashed field.
    hashed: KeyBuf,
    /// Whether the entries are compared, and not written.
    is_only_read: bool,
    /// The indexes whose data is of the private catalog.
    private: Vec<usize>,
}

/// The ends of an index in the buffers, which are the starts of the next one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Ends {
    keys: usize,
    data: usize,
    included: usize,
}

/// An iterator over the keys of one index.
#[derive(Debug, Clone)]
pub(crate) struct Keys<'a> {
    bytes: &'a [u8],
    keys: &'a [Range<usize>],
}

impl<'a> Keys<'a> {
    pub(super) const NONE: Self = Self { bytes: &[], keys: &[] };

    /// Returns the key, if there is only one.
    #[inline]
    pub(super) fn only(&self) -> Option<&'a [u8]> {
        if let [key] = self.keys { Some(slice(self.bytes, key)) } else { None }
    }

    /// Whether the list contains this key.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.keys.binary_search_by(|range| slice(self.bytes, range).cmp(key)).is_ok()
    }

    #[inline]
    pub(super) fn first(&self) -> Option<&'a [u8]> {
        self.keys.first().map(|key| slice(self.bytes, key))
    }
}

impl PartialEq for Keys<'_> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        match (self.only(), other.only()) {
            (Some(key), Some(other)) => key == other,
            _ => Iterator::eq(self.clone(), other.clone()),
        }
    }
}

impl<'a> Iterator for Keys<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (first, rest) = self.keys.split_first()?;
        self.keys = rest;
        Some(slice(self.bytes, first))
    }
}

impl EntryBuffer {
    /// Starts the next key of the current index, and returns the buffer for its fields.
    pub fn key(&mut self) -> &mut KeyBuf {
        if self.key_start.is_some() {
            self.close_former_key();
        }
        self.key_start = Some(self.bytes.len());
        &mut self.bytes
    }

    /// Returns the hash in a key for a hashed field.
    pub fn hash<T: Key>(&mut self, field: &T) -> [u8; 16] {
        self.hashed.clear();
        hash(self.hashed.push(field).as_bytes())
    }

    /// Adds the next included field of the current index. `names` are its name in the row and its aliases.
    #[inline]
    pub fn include(&mut self, names: &'static [&'static str]) {
        self.included.push(names);
    }

    /// Copies the included fields of the current index from the bytes of the row. A row of an older version, or one whose list lacks
    /// such a field, is encoded again.
    #[inline]
    fn copy_included<R: Entity>(
        &mut self,
        lists: &Lists,
        row: &R,
        (bytes, is_new): (&[u8], bool),
    ) -> Result<(), EncodeError> {
        if self.copy_fields(lists, (bytes, R::TABLE.version), is_new)? {
            return Ok(());
        }
        self.copy_of_current(lists, row)
    }

    /// Copies the included fields of the current index. Returns false if the row is of an older version, or its list lacks a field.
    fn copy_fields(
        &mut self,
        lists: &Lists,
        (bytes, version): (&[u8], u32),
        is_new: bool,
    ) -> Result<bool, EncodeError> {
        let included = last_part(&self.ends, |ends| ends.included, &self.included);
        if included.is_empty() {
            return Ok(true);
        }
        let Ok(body) = row::body(bytes, version) else { return Ok(false) };
        Ok(lists.copy_fields(body, is_new, included, &mut self.data)?)
    }

    /// Copies the included fields of the current index from the row as it would be written now.
    #[cold]
    #[inline(never)]
    fn copy_of_current<R: Entity>(&mut self, lists: &Lists, row: &R) -> Result<(), EncodeError> {
        let included = last_part(&self.ends, |ends| ends.included, &self.included);
        self.data.truncate(self.ends.last().map_or(0, |ends| ends.data));
        let (mut bytes, is_private) = (Vec::new(), self.is_only_read);
        row.encode(RowOutput { lists, is_private, bytes: &mut bytes })?;
        if is_private {
            self.private.push(self.ends.len());
            lists.private_catalog().copy_fields(&bytes, included, &mut self.data)?;
        } else {
            lists.copy_fields(&bytes, true, included, &mut self.data)?;
        }
        Ok(())
    }

    /// Adds the key of the only group of an aggregate without fields.
    pub fn whole_table(&mut self) {
        self.key().extend(WHOLE_TABLE);
    }

    /// Adds the next summand to the data of the current aggregate.
    pub fn sum<T: Summand + ?Sized>(&mut self, field: &T) {
        field.each_part(|part| push_summand(part, &mut self.data));
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.keys.clear();
        self.data.clear();
        self.included.clear();
        self.key_start = None;
        self.ends.clear();
        self.private.clear();
        self.longest = 0;
    }

    fn has_same_key_ends(&self, other: &Self) -> bool {
        let (own, other) = (&self.ends, &other.ends);
        own.len() == other.len() && own.iter().zip(other).all(|(own, other)| own.keys == other.keys)
    }

    /// Finishes a key of the current index that is followed by another. Most rows have one key in an index.
    #[cold]
    fn close_former_key(&mut self) {
        self.close_key();
    }

    /// Finishes the last key of the current index, which ends at the end of the bytes.
    #[inline]
    fn close_key(&mut self) {
        if let Some(start) = self.key_start.take() {
            let end = self.bytes.len();
            self.keys.push(start..end);
            self.longest = self.longest.max(end - start);
        }
    }

    fn finish_index(&mut self) {
        self.close_key();
        let first = self.ends.last().map_or(0, |ends| ends.keys);
        if self.keys.len() > first + 1 {
            self.sort_from(first);
        }
        let (keys, data, included) = (self.keys.len(), self.data.len(), self.included.len());
        self.ends.push(Ends { keys, data, included });
    }

    /// Sorts the keys from position `first`, and removes duplicates.
    #[inline(never)]
    fn sort_from(&mut self, first: usize) {
        let bytes = self.bytes.as_bytes();
        let Some(added) = self.keys.get_mut(first..) else { return };
        added.sort_unstable_by(|a, b| slice(bytes, a).cmp(slice(bytes, b)));
        let mut last_kept = first;
        for position in first..self.keys.len() {
            let [Some(last), Some(next)] =
                [last_kept, position].map(|position| self.keys.get(position).cloned())
            else {
                break;
            };
            if slice(bytes, &last) != slice(bytes, &next) {
                last_kept += 1;
                self.keys.swap(last_kept, position);
            }
        }
        self.keys.truncate(last_kept + 1);
    }

    #[inline]
    fn keys(&self, index: usize) -> Keys<'_> {
        let keys = part(&self.ends, index, |ends| ends.keys).and_then(|keys| self.keys.get(keys));
        Keys { bytes: self.bytes.as_bytes(), keys: keys.unwrap_or_default() }
    }

    #[inline]
    fn data(&self, index: usize) -> &[u8] {
        let data = part(&self.ends, index, |ends| ends.data).and_then(|data| self.data.get(data));
        data.unwrap_or_default()
    }
}

/// Returns what the unfinished index has of these values.
#[inline]
fn last_part<'v, T>(ends: &[Ends], end: impl Fn(&Ends) -> usize, values: &'v [T]) -> &'v [T] {
    values.get(ends.last().map_or(0, end)..).unwrap_or_default()
}

/// Returns the range of the index at this position, which starts at the end of the preceding index.
#[inline]
fn part(ends: &[Ends], index: usize, end: impl Fn(&Ends) -> usize) -> Option<Range<usize>> {
    let start = index.checked_sub(1).and_then(|before| ends.get(before));
    Some(start.map_or(0, &end)..end(ends.get(index)?))
}

impl Default for EntryBuffer {
    fn default() -> Self {
        Self {
            bytes: KeyBuf::on_heap(),
            keys: Vec::new(),
            data: Vec::new(),
            included: Vec::new(),
            key_start: None,
            ends: Vec::new(),
            longest: 0,
            hashed: KeyBuf::on_heap(),
            is_only_read: false,
            private: Vec::new(),
        }
    }
}

#[inline]
fn slice<'a>(bytes: &'a [u8], range: &Range<usize>) -> &'a [u8] {
    bytes.get(range.clone()).unwrap_or_default()
}
