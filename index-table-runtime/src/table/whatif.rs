//! An index that a table does not have: its entries, its size and the distribution of its keys, from the keys that it would have.

use std::env;

use serde::Serialize;

use super::UntypedTable;
use crate::{
    engine::{Cursor as _, Query, Read as _},
    model::{
        KeyRange,
        error::{Error, Result},
        key::{KeyShape, kept_list, kept_text, parameter, shape_of_type},
        row::{self, RowValue},
        schema::{KeyField, KeyForm, Source},
    },
    sort::Sorters,
    store::ReadTxn,
    upkeep::analyze::{KeyDistribution, Measure},
};

/// The memory for sorting keys, in bytes. More keys are sorted in temporary files.
const MEMORY: usize = 32 << 20;

/// The bytes of a page of LMDB, without its header.
const PAGE: u64 = 4096 - 16;

/// The share of a page that is used after a build, in percent.
const USED: u64 = 95;

/// The bytes of an entry in addition to its key and its data: its header, and its position in the page.
const NODE: u64 = 8 + 2;

/// The maximum bytes of primary keys in one entry of a normalized index, and the maximum length of such a primary key.
const BLOCK: u64 = 512;
const LONGEST: usize = 64;

/// An index that is measured.
pub struct ImaginedIndex {
    fields: &'static [KeyField],
    /// Whether the entries have other data than a primary key.
    has_data: bool,
    /// The length of the primary keys, if it is fixed.
    primary_key: Option<usize>,
    sorters: Sorters,
    entries: u64,
    key_bytes: u64,
    data_bytes: u64,
}

impl std::fmt::Debug for ImaginedIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImaginedIndex").field("entries", &self.entries).finish_non_exhaustive()
    }
}

/// The figures of an index that a table does not have. From [`ImaginedIndex::finish`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ImaginedAnalysis {
    /// The number of its entries.
    pub entries: u64,
    /// The average bytes of its keys, without the primary key.
    pub key_bytes: u64,
    /// The bytes of its pages in LMDB after a build.
    pub bytes: u64,
    /// The levels of its tree in LMDB, which a look-up reads.
    pub depth: u32,
    /// The distributions of the first field of the key, of its first two fields, and so on.
    pub keys: Vec<KeyDistribution>,
}

impl UntypedTable {
    /// Returns the shape of a field in keys: as a key of the table has it, or by its type as it is spelled, if that is a scalar of the
    /// standard library, or an `Option` of one. With `each`, the shape of an element. `None` if it is not known.
    #[must_use]
    pub fn shape_of_field(&self, name: &str, each: bool) -> Option<KeyShape> {
        let schema = self.open_table().schema;
        let keys = schema.indexes.iter().map(|index| index.key).chain([schema.primary_key]);
        let has_form = |field: &&KeyField| {
            let is_each = field.form == KeyForm::Each;
            let is_own = matches!(field.form, KeyForm::Field | KeyForm::Desc | KeyForm::Hash);
            schema.name_in_key(field) == name && if each { is_each } else { is_own }
        };
        if let Some(field) = keys.flatten().find(has_form) {
            return Some(match field.shape {
                KeyShape::Desc(inner) | KeyShape::Hash(inner) => *inner,
                shape => shape,
            });
        }
        let declared = schema.fields.iter().find(|field| field.stored == name)?.declared;
        shape_of_type(if each { parameter(declared)? } else { declared })
    }

    /// Returns the names of the fields of rows, as last declared.
    #[must_use]
    pub fn field_names(&self) -> Vec<&'static str> {
        self.open_table().schema.fields.iter().map(|field| field.stored).collect()
    }

    /// Calls `each` with the encoded primary key, the values of the fields by name, and the bytes of every row, or with `every`, of each
    /// row after this number of them.
    ///
    /// Cost: all rows are passed, and these are decoded.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`]; the [errors of reading](crate::Error#common-errors), and the errors of `each`.
    pub fn each_row<E: From<Error>>(
        &self,
        txn: &ReadTxn<'_>,
        every: u64,
        mut each: impl FnMut(&[u8], &[(String, RowValue)], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let open = self.open_table();
        let (reader, _) = txn.reader_to_scan(open, Source::Facts)?;
        let mut rows = reader.cursor(Query::new(Source::Facts, KeyRange::ALL))?;
        let mut passed = 0_u64;
        while rows.advance().map_err(Error::from)? {
            passed += 1;
            if !(passed - 1).is_multiple_of(every.max(1)) {
                continue;
            }
            let entry = rows.entry();
            let values = self.row_values(entry.primary_key, entry.data)?;
            each(entry.primary_key, &values, entry.data)?;
        }
        Ok(())
    }

    /// Returns the values of the fields of a row, by name, in the order of the names.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`]
    pub fn row_values(&self, primary_key: &[u8], row: &[u8]) -> Result<Vec<(String, RowValue)>> {
        let open = self.open_table();
        match row::values(&open.rows.lists, row) {
            Ok((_, values)) => Ok(values),
            Err(error) => Err(open.corrupt(Source::Facts, primary_key, error)),
        }
    }

    /// Returns an index with a key of these fields, which takes the place of no other. `has_data` is true for an index with included
    /// fields, and for a unique one, which has one entry for each key.
    #[must_use]
    pub fn imagine(&self, key: Vec<(String, KeyShape)>, has_data: bool) -> ImaginedIndex {
        let fields = key.into_iter().map(|(name, shape)| {
            let form = match shape {
                KeyShape::Desc(_) => KeyForm::Desc,
                KeyShape::Hash(_) => KeyForm::Hash,
                _ => KeyForm::Field,
            };
            KeyField { name: kept_text(&name), shape, form }
        });
        ImaginedIndex {
            fields: kept_list(fields.collect()),
            has_data,
            primary_key: self.open_table().schema.fixed_primary_key(),
            sorters: Sorters::new(1, &env::temp_dir(), MEMORY),
            entries: 0,
            key_bytes: 0,
            data_bytes: 0,
        }
    }
}

impl ImaginedIndex {
    /// Adds an entry with this encoded key of a row, and with this number of bytes of data.
    ///
    /// # Errors
    ///
    /// [`Error::DiskFull`] and [`Error::Io`] of a temporary file.
    pub fn push(&mut self, key: &[u8], primary_key: &[u8], data: u64) -> Result<()> {
        self.entries += 1;
        self.key_bytes += key.len() as u64;
        self.data_bytes += data;
        self.sorters.push(0, key, primary_key, &[], &[])
    }

    /// Returns the figures for all rows. Those of entries and bytes are multiplied by `every`, if only a part of the rows was added.
    ///
    /// # Errors
    ///
    /// [`Error::DiskFull`] and [`Error::Io`] of a temporary file.
    pub fn finish(self, every: u64) -> Result<ImaginedAnalysis> {
        let Self { fields, has_data, primary_key, sorters, entries, key_bytes, data_bytes } = self;
        let is_packed = !has_data && primary_key.is_some_and(|len| len <= LONGEST);
        let mut measure = Measure::each_prefix(fields);
        let (mut run, mut leaves) = (Run::default(), 0);
        for sorted in sorters.finish()? {
            let mut merge = sorted.read();
            while merge.advance()? {
                let entry = merge.entry();
                let added = measure.add(entry.key);
                added.map_err(|_| Error::internal("an imagined key can't be read"))?;
                let primary_key = entry.primary_key;
                if is_packed {
                    leaves += run.add(entry.key, primary_key);
                } else {
                    let keys = entry.key.len() + primary_key.len();
                    leaves += NODE + (keys as u64).next_multiple_of(2);
                }
            }
        }
        leaves += run.finish() + data_bytes;
        let (_, keys) = measure.finish();
        let average = key_bytes.checked_div(entries).unwrap_or_default();
        let branch = NODE + average + primary_key.unwrap_or_default() as u64;
        let (pages, depth) = tree(leaves * every, branch);
        Ok(ImaginedAnalysis {
            entries: entries * every,
            key_bytes: average,
            bytes: pages * 4096,
            depth,
            keys,
        })
    }
}

/// The primary keys of one key, which are packed.
#[derive(Default)]
struct Run {
    key: Vec<u8>,
    len: u64,
    /// The length of the primary keys without the zeros that all of them begin with.
    short: u64,
    primary_key: u64,
}

impl Run {
    /// Adds an entry. Returns the bytes of the run before it, if it has another key.
    fn add(&mut self, key: &[u8], primary_key: &[u8]) -> u64 {
        let zeros = primary_key.iter().take_while(|byte| **byte == 0).count();
        let short = (primary_key.len() - zeros).max(1) as u64;
        if self.len > 0 && self.key == key {
            self.len += 1;
            self.short = self.short.max(short);
            return 0;
        }
        let before = self.finish();
        self.key.clear();
        self.key.extend_from_slice(key);
        (self.len, self.short, self.primary_key) = (1, short, primary_key.len() as u64);
        before
    }

    fn finish(&self) -> u64 {
        if self.len == 0 {
            return 0;
        }
        let in_block = (BLOCK / self.short).max(1);
        let blocks = self.len.div_ceil(in_block);
        let key = self.key.len() as u64;
        // Each further block has a primary key in its key, and each has a byte with the number of zeros.
        blocks * (NODE + key + 2) + (blocks - 1) * self.primary_key + self.len * self.short
    }
}

/// Returns the pages and the levels of a tree.
fn tree(leaf_bytes: u64, branch_bytes: u64) -> (u64, u32) {
    let pages = |bytes: u64| (bytes * 100).div_ceil(PAGE * USED);
    let mut level = pages(leaf_bytes);
    let (mut all, mut depth) = (level, u32::from(level > 0));
    while level > 1 {
        level = pages(level * branch_bytes);
        all += level;
        depth += 1;
    }
    (all, depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_a_level_more_than_the_pages_that_one_page_can_name() {
        assert_eq!(tree(0, 20), (0, 0));
        assert_eq!(tree(100, 20), (1, 1));
        assert_eq!(tree(PAGE * 95 / 100 * 100, 20), (101, 2));
        let (pages, depth) = tree(PAGE * 100_000, 20);
        assert!(depth == 4 && pages > 105_000, "{pages} {depth}");
    }
}
