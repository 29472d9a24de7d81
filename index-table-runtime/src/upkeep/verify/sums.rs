//! Finds the entries of an index that can be wrong, without decoding a row for each entry.
//!
//! Decoding a row takes long if it has many entries in an index (`each`). Therefore, the expected entries of
//! all rows and the actual entries of the index are hashed into buckets, and the sums of each bucket are
//! compared. Only if the sums of a bucket differ, its entries are compared with their rows, and looked up.

use super::{
    row::load,
    stop::{Stop, check_stop},
};
use crate::{
    engine::{Cursor as _, Query, Read as _},
    model::{
        KeyRange,
        entry::RawEntry,
        error::{Error, Result},
        maintain::Image,
        row_vtable::TableRows,
        schema::Source,
    },
    placement::Reader,
};

/// The maximum number of buckets of an index.
const MOST: u64 = 1 << 16;

/// For each bucket, the sum of the hashes of the expected entries minus the sum of the hashes of the actual
/// entries.
#[derive(Debug)]
pub(super) struct Sums(Vec<u64>);

impl Sums {
    /// Reads all rows and all entries of an index. Fails if it was asked to stop.
    pub(super) fn of(
        rows: &TableRows,
        reader: Reader<'_>,
        index: usize,
        (image, stop): (&mut Image, Stop<'_>),
    ) -> Result<Self> {
        let source = Source::Index(index);
        let buckets = reader.stored(source)?.unwrap_or(MOST).clamp(1, MOST).next_power_of_two();
        let mut sums = Self(vec![0; usize::try_from(buckets).unwrap_or(1)]);
        let Some(declared) = rows.schema.index(source) else { return Ok(sums) };
        each((reader, stop), Source::Facts, |RawEntry { primary_key, data, .. }| {
            // The entries of a row that can't be read are compared one by one.
            if load(rows, image, primary_key, data, Some(index)).is_ok() {
                let data = hash(image.data(index, declared));
                for key in image.keys(index) {
                    sums.change(key, primary_key, data, u64::wrapping_add);
                }
            }
        })?;
        each((reader, stop), source, |RawEntry { key, primary_key, data }| {
            sums.change(key, primary_key, hash(data), u64::wrapping_sub);
        })?;
        Ok(sums)
    }

    /// Whether both the index and the rows have this entry. `data` is the [`hash`] of the entry's data.
    pub(super) fn is_right(&self, key: &[u8], primary_key: &[u8], data: u64) -> bool {
        let (bucket, _) = self.place(key, primary_key, data);
        self.0.get(bucket) == Some(&0)
    }

    fn change(&mut self, key: &[u8], primary_key: &[u8], data: u64, change: fn(u64, u64) -> u64) {
        let (bucket, hash) = self.place(key, primary_key, data);
        if let Some(sum) = self.0.get_mut(bucket) {
            *sum = change(*sum, hash);
        }
    }

    /// Returns the bucket and the hash of an entry. Entries that differ only in their data share a bucket.
    fn place(&self, key: &[u8], primary_key: &[u8], data: u64) -> (usize, u64) {
        let keys = hash_from(hash(key), primary_key);
        // The number of buckets is a power of two.
        (keys as usize & (self.0.len().wrapping_sub(1)), mix(keys, data))
    }
}

/// Calls `look` with each fact, or each entry of an index, that is not in a damaged piece.
fn each(
    (reader, stop): (Reader<'_>, Stop<'_>),
    source: Source,
    mut look: impl FnMut(RawEntry<'_>),
) -> Result<()> {
    let mut entries = reader.cursor(Query::new(source, KeyRange::ALL))?;
    loop {
        check_stop(stop)?;
        match entries.advance().map_err(Error::from) {
            Ok(true) => look(entries.entry()),
            Ok(false) => return Ok(()),
            Err(Error::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

pub(super) fn hash(bytes: &[u8]) -> u64 {
    hash_from(0, bytes)
}

fn hash_from(start: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let hash = words.iter().fold(start, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let rest = rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    mix(mix(hash, rest), bytes.len() as u64)
}

/// Multiplies, and folds the product.
fn mix(hash: u64, word: u64) -> u64 {
    // The digits of pi, and of the golden ratio.
    const START: u64 = 0x243f_6a88_85a3_08d3;
    const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15;
    let product = u128::from(hash ^ word ^ START) * FACTOR;
    (product as u64) ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::{Sums, hash};

    #[test]
    fn entries_have_distinct_hashes_and_spread_over_the_buckets() {
        let sums = Sums(vec![0; 1 << 16]);
        let mut places = Vec::new();
        for n in 0..5000_u32 {
            let [a, b] = [n % 71, n / 71].map(u32::to_be_bytes);
            places.push(sums.place(&a, &b, 0));
            places.push(sums.place(&[a, b].concat(), &[], 0));
        }
        let count = places.len();
        places.sort_unstable();
        let mut hashes: Vec<_> = places.iter().map(|(_, hash)| hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), count);
        places.dedup_by_key(|(bucket, _)| *bucket);
        assert!(places.len() > 9000, "they are in {} buckets", places.len());
    }

    #[test]
    fn entries_that_differ_in_data_share_a_bucket() {
        let sums = Sums(vec![0; 1 << 16]);
        let [one, other] = [b"one", b"two"].map(|data| sums.place(b"key", b"row", hash(data)));
        assert_eq!(one.0, other.0);
        assert_ne!(one.1, other.1);
    }
}
