use std::ops::Range;

use serde::Serialize;

use crate::{
    entity::Entity,
    error::{EncodeError, Error, Result},
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
    /// Where those of each index end.
    hashed_ends: Vec<usize>,
}

impl Image {
    /// Takes the image of `row`.
    ///
    /// # Errors
    ///
    /// [`Error::Codec`] and [`Error::KeyTooLong`]: nothing that can't be written gets past here.
    pub(crate) fn load<R: Entity>(&mut self, row: &R) -> Result<()> {
        self.row.clear();
        row::encode(row, &mut self.row).map_err(|error| error.of(R::TABLE.name))?;
        self.load_keys(row)?;
        self.check_lengths(R::TABLE)
    }

    /// Takes the image of `row`, which is in the file as `bytes`.
    pub(crate) fn load_stored<R: Entity>(&mut self, row: &R, bytes: &[u8]) -> Result<()> {
        self.row.clear();
        self.row.extend_from_slice(bytes);
        self.load_keys(row)
    }

    fn load_keys<R: Entity>(&mut self, row: &R) -> Result<()> {
        self.primary_key.clear();
        row.primary_key(&mut self.primary_key);
        self.entries.clear();
        self.hashed.clear();
        self.hashed_ends.clear();
        for (index, declared) in R::TABLE.indexes.iter().enumerate() {
            row.entries(index, &mut self.entries).map_err(|error| error.of(R::TABLE.name))?;
            self.entries.finish_index();
            // Otherwise it does not matter who shares a key.
            if declared.unique {
                row.hashed(index, &mut self.hashed);
            }
            self.hashed_ends.push(self.hashed.len());
        }
        Ok(())
    }

    /// Whether both have the same primary key, and the same entries in every index.
    pub(crate) fn same_keys(&self, other: &Self) -> bool {
        let indexes = 0..self.entries.indexes.len().max(other.entries.indexes.len());
        self.primary_key == other.primary_key
            && indexes.into_iter().all(|index| self.keys(index).eq(other.keys(index)))
    }

    /// Whether every key fits.
    ///
    /// # Errors
    ///
    /// [`Error::KeyTooLong`]
    pub(crate) fn check_lengths(&self, schema: &TableSchema) -> Result<()> {
        let too_long = |source, key: &[u8], len| {
            Err(Error::KeyTooLong {
                table: schema.name,
                index: schema.index_name(source),
                key: schema.show_key(source, key),
                len,
            })
        };
        let primary_key = self.primary_key();
        if primary_key.len() > MAX_KEY_LEN {
            return too_long(Source::Facts, primary_key, primary_key.len());
        }
        for (index, declared) in schema.indexes.iter().enumerate() {
            let suffix = if declared.has_one_entry_per_key() { 0 } else { primary_key.len() };
            for key in self.keys(index) {
                if key.len() + suffix > MAX_KEY_LEN {
                    return too_long(Source::Index(index), key, key.len() + suffix);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn primary_key(&self) -> &[u8] {
        self.primary_key.as_bytes()
    }

    pub(crate) fn row(&self) -> &[u8] {
        &self.row
    }

    /// The keys in the index at this position, sorted, each once.
    pub(super) fn keys(&self, index: usize) -> impl Iterator<Item = &[u8]> {
        self.entries.keys(index)
    }

    /// The values of the hashed fields of this index, if it is unique.
    pub(crate) fn hashed(&self, index: usize) -> &[u8] {
        let end = |index| self.hashed_ends.get(index).copied();
        let start = index.checked_sub(1).and_then(end).unwrap_or(0);
        end(index).map_or(&[], |end| slice(self.hashed.as_bytes(), &(start..end)))
    }

    /// What each entry in this index carries.
    pub(super) fn data(&self, index: usize, declared: &IndexSchema) -> &[u8] {
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
            hashed_ends: Vec::new(),
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
    /// For each finished index: its keys in `keys`, its data in `data`.
    indexes: Vec<(Range<usize>, Range<usize>)>,
    /// The encoding of a field that is hashed.
    hashed: KeyBuf,
}

impl EntryBuffer {
    /// Starts the next key of the current index; its fields are pushed onto what this returns.
    pub fn key(&mut self) -> &mut KeyBuf {
        self.close_key();
        self.keys.push(self.bytes.len()..self.bytes.len());
        &mut self.bytes
    }

    /// What stands in a key for a field that is hashed.
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

    fn clear(&mut self) {
        self.bytes.clear();
        self.keys.clear();
        self.data.clear();
        self.indexes.clear();
    }

    fn close_key(&mut self) {
        let len = self.bytes.len();
        // Only the newest key of the current index is open, and it ends where the bytes do.
        if self.keys.len() > self.indexes.last().map_or(0, |(keys, _)| keys.end)
            && let Some(last) = self.keys.last_mut()
        {
            last.end = len;
        }
    }

    fn finish_index(&mut self) {
        self.close_key();
        let (keys, data) = self.indexes.last().map_or((0, 0), |(keys, data)| (keys.end, data.end));
        let bytes = self.bytes.as_bytes();
        if let Some(own) = self.keys.get_mut(keys..)
            && own.len() > 1
        {
            own.sort_unstable_by(|a, b| slice(bytes, a).cmp(slice(bytes, b)));
            let mut kept = keys;
            for position in keys..self.keys.len() {
                let [Some(last), Some(next)] =
                    [kept, position].map(|at| self.keys.get(at).cloned())
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
        self.indexes.push((keys..self.keys.len(), data..self.data.len()));
    }

    fn keys(&self, index: usize) -> impl Iterator<Item = &[u8]> {
        let own = self.indexes.get(index).and_then(|(keys, _)| self.keys.get(keys.clone()));
        own.unwrap_or_default().iter().map(|key| slice(self.bytes.as_bytes(), key))
    }

    fn data(&self, index: usize) -> &[u8] {
        self.indexes.get(index).map_or(&[], |(_, data)| slice(&self.data, data))
    }
}

impl Default for EntryBuffer {
    fn default() -> Self {
        Self {
            bytes: KeyBuf::on_heap(),
            keys: Vec::new(),
            data: Vec::new(),
            indexes: Vec::new(),
            hashed: KeyBuf::on_heap(),
        }
    }
}

fn slice<'a>(bytes: &'a [u8], range: &Range<usize>) -> &'a [u8] {
    bytes.get(range.clone()).unwrap_or_default()
}
