//! Distributions of keys, estimated from the entries in a sample of leaves.
//!
//! The entries of a value are adjacent. So a leaf has all entries of most of its values, and the number of these entries is
//! exact. Each entry of the sample represents a number of entries. If a value has n entries, each of them counts for 1/n
//! values. So the sum over the sample is the number of distinct values, without an assumption about the values that the sample
//! does not have. A value that no sample misses counts once. If there are few values, all of them are listed, and each
//! counts once.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "the figures are estimates, and conversions of floats saturate"
)]

use std::collections::BTreeMap;

use super::{KeyDistribution, measure::Prefix};
use crate::model::{
    key::DecodeError,
    schema::{KeyField, key_len},
};

/// A value with entries in this number of leaves has about as many entries as they represent.
const LEAVES: usize = 16;

/// The parts of a sample that a common value has at least. No sample misses such a value.
const PARTS: f64 = 2.0;

/// Entries of a sample.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    /// The number of the leaf.
    pub(crate) leaf: usize,
    /// The number of entries that were read.
    pub(crate) read: u64,
    /// The number of entries that they represent.
    pub(crate) represented: f64,
}

/// The entries of one value in the sample.
#[derive(Default)]
struct Found {
    read: u64,
    represented: f64,
    leaves: usize,
    /// Whether other leaves may have further entries.
    is_cut: bool,
}

/// The values of some leading fields.
#[derive(Default)]
struct Values {
    fields: usize,
    found: BTreeMap<Vec<u8>, Found>,
    last: Vec<u8>,
    leaf: Option<usize>,
}

/// Estimates the distributions of the leading fields of a key, from the entries of sampled leaves.
pub(crate) struct Estimate {
    fields: &'static [KeyField],
    prefixes: Vec<Values>,
    represented: f64,
    leaf: Option<usize>,
    leaves: usize,
}

impl Estimate {
    /// Estimates the distribution of each of these numbers of leading fields.
    pub(crate) fn new(fields: &'static [KeyField], numbers: impl Iterator<Item = usize>) -> Self {
        let prefixes = numbers.map(|fields| Values { fields, ..Values::default() }).collect();
        Self { fields, prefixes, represented: 0.0, leaf: None, leaves: 0 }
    }

    /// Begins the sample of another shard.
    pub(crate) fn begin(&mut self) {
        self.leaf = None;
        for values in &mut self.prefixes {
            values.cut();
            values.leaf = None;
        }
    }

    /// Adds entries with this key. The key begins with the fields. The entries of a shard have ascending keys.
    pub(crate) fn add(&mut self, key: &[u8], part: Part) -> Result<(), DecodeError> {
        self.represented += part.represented;
        self.leaves += usize::from(self.leaf.replace(part.leaf) != Some(part.leaf));
        for values in &mut self.prefixes {
            let is_new_leaf = values.leaf != Some(part.leaf);
            let is_same = values.leaf.is_some() && key.starts_with(&values.last);
            if is_new_leaf {
                values.cut();
            }
            if !is_same {
                let fields = self.fields.get(..values.fields).unwrap_or_default();
                let value = key.get(..key_len(fields, key)?).unwrap_or_default();
                values.last.clear();
                values.last.extend_from_slice(value);
            }
            if !values.found.contains_key(&values.last) {
                values.found.insert(values.last.clone(), Found::default());
            }
            if let Some(found) = values.found.get_mut(&values.last) {
                found.leaves += usize::from(is_new_leaf || !is_same);
                found.is_cut |= is_new_leaf;
                found.read += part.read;
                found.represented += part.represented;
            }
            values.leaf = Some(part.leaf);
        }
        Ok(())
    }

    /// Returns the estimated number of entries, and the distributions. If there are few values, `index` lists them.
    pub(crate) fn finish<E>(
        mut self,
        index: &mut impl Lookup<E>,
    ) -> Result<(u64, Vec<KeyDistribution>), E> {
        self.begin();
        let entries = self.represented.round() as u64;
        // The entries that no sample misses.
        let certain = PARTS * self.represented / self.leaves.max(1) as f64;
        let mut distributions = Vec::with_capacity(self.prefixes.len());
        for Values { fields, mut found, .. } in self.prefixes {
            let own = self.fields.get(..fields).unwrap_or_default();
            let mut values = Vec::with_capacity(found.len());
            for (value, found) in &found {
                let of_value = found.entries(value, index)?;
                let number = if of_value >= certain { 1.0 } else { found.represented / of_value };
                values.push((of_value, number));
            }
            let (mut numbers, mut prefix) = (BTreeMap::<u64, f64>::new(), Prefix::new(fields));
            let distinct = values.iter().map(|(_, number)| number).sum::<f64>();
            if let Some(all) = index.list(own, distinct)? {
                for value in all {
                    let of_value =
                        found.remove(&value).unwrap_or_default().entries(&value, index)?;
                    *numbers.entry(of_value as u64).or_default() += 1.0;
                    prefix.add_common(of_value as u64, value);
                }
            } else {
                for ((of_value, number), value) in values.into_iter().zip(found.into_keys()) {
                    *numbers.entry(of_value as u64).or_default() += number;
                    if of_value >= certain {
                        prefix.add_common(of_value as u64, value);
                    }
                }
            }
            prefix.values = rounded(numbers);
            distributions.push(prefix.distribution(own, entries));
        }
        Ok((entries, distributions))
    }
}

/// Reading single values of the index of a sample.
pub(crate) trait Lookup<E> {
    /// Whether entries of a value can be in several shards.
    fn is_split(&self) -> bool;

    /// Returns the number of entries of a value.
    fn count(&mut self, value: &[u8]) -> Result<f64, E>;

    /// Returns all values of these fields, if about `distinct` are few enough to read them.
    fn list(&mut self, fields: &[KeyField], distinct: f64) -> Result<Option<Vec<Vec<u8>>>, E>;
}

impl Found {
    /// Returns the number of entries of the value.
    fn entries<E>(&self, value: &[u8], index: &mut impl Lookup<E>) -> Result<f64, E> {
        let entries = if self.leaves >= LEAVES {
            self.represented
        } else if self.is_cut || self.leaves == 0 || index.is_split() {
            index.count(value)?
        } else {
            self.read as f64
        };
        Ok(entries.round().max(self.read as f64).max(1.0))
    }
}

impl Values {
    /// Ends a leaf: its last value may have further entries in the next leaf.
    fn cut(&mut self) {
        if self.leaf.is_some()
            && let Some(found) = self.found.get_mut(&self.last)
        {
            found.is_cut = true;
        }
    }
}

/// Rounds the numbers of values, from the most common. The error does not grow with their number.
fn rounded(numbers: BTreeMap<u64, f64>) -> BTreeMap<u64, u64> {
    let (mut sum, mut before) = (0.0, 0);
    let numbers = numbers.into_iter().rev().map(|(entries, values)| {
        sum += values;
        let up_to = f64::round(sum) as u64;
        let values = up_to.saturating_sub(before);
        before = before.max(up_to);
        (entries, values)
    });
    numbers.filter(|(_, values)| *values > 0).collect()
}
