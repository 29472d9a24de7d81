use std::ops::Range;

use serde::Serialize;

use crate::model::{
    entity::Entity,
    error::{EncodeError, Result},
    key::{Key, KeyBuf, MAX_KEY_LEN, hash},
    row,
    schema::{IndexSchema, Source, Strategy, TableSchema},
};

/// A row as it is in the file: its primary key, its bytes, and its entries in every index.
///
/// The buffers are used again for the next row.
#[derive(Debug)]
pub(crate) struct Image {
    primary_key: KeyBuf,
    row: Vec<u8>,
    entries: EntryBuffer,
    /// The values of the hashed fields of each index, one index after another.
    hashed: KeyBuf,
    /// Which indexes have some, and where.
    hashed_of: Vec<(usize, Range<usize>)>,
}

impl Image {
    /// Takes the image of `row`.
    ///
    /// # Errors
    ///
    /// [`Error::Codec`](crate::Error::Codec) and [`Error::KeyTooLong`](crate::Error::KeyTooLong):
    /// nothing that can't be written gets past here.
    #[inline]
    pub(crate) fn load<R: Entity>(&mut self, row: &R) -> Result<()> {
        self.row.clear();
        row::encode(row, &mut self.row).map_err(|error| error.of(R::TABLE.name))?;
        self.load_keys(row, None)?;
        self.check_lengths(R::TABLE)
    }

    /// Takes the image of `row`, which is in the file as `bytes`.
    #[inline]
    pub(crate) fn load_stored<R: Entity>(&mut self, row: &R, bytes: &[u8]) -> Result<()> {
        self.row.clear();
        self.row.extend_from_slice(bytes);
        self.load_keys(row, None)
    }

    /// [`load_stored`](Image::load_stored) with the entries of one index alone.
    pub(crate) fn load_stored_of<R: Entity>(
        &mut self,
        row: &R,
        bytes: &[u8],
        index: usize,
    ) -> Result<()> {
        self.row.clear();
        self.row.extend_from_slice(bytes);
        self.load_keys(row, Some(index))
    }

    /// Takes the keys in all indexes, or in `only` one.
    fn load_keys<R: Entity>(&mut self, row: &R, only: Option<usize>) -> Result<()> {
        self.primary_key.clear();
        row.primary_key(&mut self.primary_key);
        self.entries.clear();
        self.hashed.clear();
        self.hashed_of.clear();
        for (index, declared) in R::TABLE.indexes.iter().enumerate() {
            if only.is_some_and(|only| only != index) {
                self.entries.finish_index();
                continue;
            }
            row.entries(index, &mut self.entries).map_err(|error| error.of(R::TABLE.name))?;
            self.entries.finish_index();
            // Otherwise it does not matter who shares a key.
            if declared.unique {
                let start = self.hashed.len();
                row.hashed(index, &mut self.hashed);
                if self.hashed.len() > start {
                    self.hashed_of.push((index, start..self.hashed.len()));
                }
            }
        }
        Ok(())
    }

    /// Whether both have the same primary key, and the same keys in every index.
    pub(crate) fn same_keys(&self, other: &Self) -> bool {
        let indexes = self.entries.key_ends.len();
        self.same_key_bytes(other)
            || (self.primary_key == other.primary_key
                && indexes == other.entries.key_ends.len()
                && (0..indexes).all(|index| self.keys(index) == other.keys(index)))
    }

    /// A faster [`same_keys`](Image::same_keys), which misses equal collections with their elements in
    /// another order.
    pub(crate) fn same_key_bytes(&self, other: &Self) -> bool {
        self.entries.bytes == other.entries.bytes
            && self.primary_key == other.primary_key
            && self.entries.key_ends == other.entries.key_ends
            && self.entries.keys == other.entries.keys
            && self.hashed == other.hashed
    }

    /// Whether every key fits.
    ///
    /// # Errors
    ///
    /// [`Error::KeyTooLong`](crate::Error::KeyTooLong)
    pub(crate) fn check_lengths(&self, schema: &TableSchema) -> Result<()> {
        let primary_key = self.primary_key();
        if primary_key.len() > MAX_KEY_LEN {
            return Err(schema.too_long(Source::Facts, primary_key, primary_key.len()));
        }
        if self.entries.longest + primary_key.len() <= MAX_KEY_LEN {
            return Ok(());
        }
        for (index, declared) in schema.indexes.iter().enumerate() {
            let suffix = if declared.has_one_entry_per_key() { 0 } else { primary_key.len() };
            for key in self.keys(index) {
                if key.len() + suffix > MAX_KEY_LEN {
                    return Err(schema.too_long(Source::Index(index), key, key.len() + suffix));
                }
            }
        }
        Ok(())
    }

    /// About how much memory it holds, in bytes.
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

    /// The keys in the index at this position, sorted, each once.
    #[inline]
    pub(crate) fn keys(&self, index: usize) -> Keys<'_> {
        self.entries.keys(index)
    }

    /// The values of the hashed fields of this index, if it is unique.
    pub(crate) fn hashed(&self, index: usize) -> &[u8] {
        let own = self.hashed_of.iter().find(|(of, _)| *of == index);
        own.map_or(&[], |(_, own)| slice(self.hashed.as_bytes(), own))
    }

    /// The data of each entry in this index.
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
            hashed_of: Vec::new(),
        }
    }
}

/// Takes the entries of one row, index after index: the keys, and the included fields that all
/// entries of the row in that index carry.
#[derive(Debug)]
pub struct EntryBuffer {
    /// The keys' bytes, one key after another.
    bytes: KeyBuf,
    /// Where each key is in `bytes`.
    keys: Vec<Range<usize>>,
    /// The data's bytes, one index after another.
    data: Vec<u8>,
    /// Where the key that is being pushed starts.
    open: Option<usize>,
    /// For each finished index: where its keys end in `keys`.
    key_ends: Vec<usize>,
    /// For each finished index: where its data ends in `data`.
    data_ends: Vec<usize>,
    /// The length of the longest key.
    longest: usize,
    /// The encoding of a field that is hashed.
    hashed: KeyBuf,
}

/// Keys of one index that are left to go through.
#[derive(Debug, Clone)]
pub(crate) struct Keys<'a> {
    bytes: &'a [u8],
    keys: &'a [Range<usize>],
}

impl<'a> Keys<'a> {
    pub(super) const NONE: Self = Self { bytes: &[], keys: &[] };

    /// The key, if it is the only one.
    #[inline]
    pub(super) fn only(&self) -> Option<&'a [u8]> {
        if let [key] = self.keys { Some(slice(self.bytes, key)) } else { None }
    }

    /// Whether the key is among them.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.keys.binary_search_by(|own| slice(self.bytes, own).cmp(key)).is_ok()
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
            (Some(own), Some(others)) => own == others,
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
    /// Starts the next key of the current index; its fields are pushed onto what this returns.
    pub fn key(&mut self) -> &mut KeyBuf {
        self.close_key();
        self.open = Some(self.bytes.len());
        &mut self.bytes
    }

    /// The hash in a key for a hashed field.
    pub fn hash<T: Key>(&mut self, field: &T) -> [u8; 16] {
        self.hashed.clear();
        hash(self.hashed.push(field).as_bytes())
    }

    /// Adds the next included field to the data of the current index.
    ///
    /// # Errors
    ///
    /// [`EncodeError`] when its `Serialize` fails.
    pub fn include<T: Serialize + ?Sized>(&mut self, field: &T) -> Result<(), EncodeError> {
        row::append(field, &mut self.data)
    }

    /// [`include`](Self::include) of a field in [`Entity::COLLECTIONS`].
    ///
    /// # Errors
    ///
    /// [`EncodeError`] when its `Serialize` fails.
    pub fn include_sorted<R: Entity, T: Serialize + ?Sized>(
        &mut self,
        row: &R,
        field: &T,
    ) -> Result<(), EncodeError> {
        row::append_field(row, field, &mut self.data)
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.keys.clear();
        self.data.clear();
        self.open = None;
        self.key_ends.clear();
        self.data_ends.clear();
        self.longest = 0;
    }

    /// Only the newest key of the current index is open, and it ends where the bytes do.
    #[inline]
    fn close_key(&mut self) {
        if let Some(start) = self.open.take() {
            let end = self.bytes.len();
            self.keys.push(start..end);
            self.longest = self.longest.max(end - start);
        }
    }

    fn finish_index(&mut self) {
        self.close_key();
        let first = self.key_ends.last().copied().unwrap_or_default();
        if self.keys.len() > first + 1 {
            self.sort_from(first);
        }
        self.key_ends.push(self.keys.len());
        self.data_ends.push(self.data.len());
    }

    /// Sorts the keys from this one on, and keeps each once.
    #[inline(never)]
    fn sort_from(&mut self, first: usize) {
        let bytes = self.bytes.as_bytes();
        let Some(own) = self.keys.get_mut(first..) else { return };
        own.sort_unstable_by(|a, b| slice(bytes, a).cmp(slice(bytes, b)));
        let mut kept = first;
        for position in first..self.keys.len() {
            let [Some(last), Some(next)] = [kept, position].map(|at| self.keys.get(at).cloned())
            else {
                break;
            };
            if slice(bytes, &last) != slice(bytes, &next) {
                kept += 1;
                self.keys.swap(kept, position);
            }
        }
        self.keys.truncate(kept + 1);
    }

    #[inline]
    fn keys(&self, index: usize) -> Keys<'_> {
        let keys = between(&self.key_ends, index).and_then(|keys| self.keys.get(keys));
        Keys { bytes: self.bytes.as_bytes(), keys: keys.unwrap_or_default() }
    }

    #[inline]
    fn data(&self, index: usize) -> &[u8] {
        let data = between(&self.data_ends, index).and_then(|data| self.data.get(data));
        data.unwrap_or_default()
    }
}

/// The part of the index at this position: from the end of the one before it.
#[inline]
fn between(ends: &[usize], index: usize) -> Option<Range<usize>> {
    let end = *ends.get(index)?;
    let start = index.checked_sub(1).and_then(|before| ends.get(before)).copied();
    Some(start.unwrap_or_default()..end)
}

impl Default for EntryBuffer {
    fn default() -> Self {
        Self {
            bytes: KeyBuf::on_heap(),
            keys: Vec::new(),
            data: Vec::new(),
            open: None,
            key_ends: Vec::new(),
            data_ends: Vec::new(),
            longest: 0,
            hashed: KeyBuf::on_heap(),
        }
    }
}

#[inline]
fn slice<'a>(bytes: &'a [u8], range: &Range<usize>) -> &'a [u8] {
    bytes.get(range.clone()).unwrap_or_default()
}
