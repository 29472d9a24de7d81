//! Distributions of keys that arrive in their order.

use std::collections::BTreeMap;

use super::{CommonValue, KeyDistribution, Quantiles};
use crate::model::{
    key::DecodeError,
    schema::{KeyField, key_len, key_of_group},
};

/// The number of the most common values that are kept.
const COMMON: usize = 10;

/// Measures the distributions of the leading fields of a key, from all keys in their order.
///
/// Its memory grows with the number of different numbers of entries, which is at most proportional to the square root of
/// the number of entries.
pub(crate) struct Measure {
    fields: &'static [KeyField],
    /// For one leading field, for two, and so on.
    prefixes: Vec<Prefix>,
    entries: u64,
}

#[derive(Default)]
pub(super) struct Prefix {
    /// The number of leading fields.
    fields: usize,
    /// The current value, and the number of its entries so far.
    value: Vec<u8>,
    entries: u64,
    /// The number of values for each number of entries.
    pub(super) values: BTreeMap<u64, u64>,
    /// The values with the most entries, in any order.
    common: Vec<(u64, Vec<u8>)>,
}

impl Measure {
    /// Measures all leading fields of a key.
    pub(crate) fn each_prefix(fields: &'static [KeyField]) -> Self {
        let prefixes = (1..=fields.len()).map(Prefix::new).collect();
        Self { fields, prefixes, entries: 0 }
    }

    /// Measures these fields together.
    pub(crate) fn whole(fields: &'static [KeyField]) -> Self {
        Self { fields, prefixes: vec![Prefix::new(fields.len())], entries: 0 }
    }

    /// Adds an entry. The key begins with the fields, and is not less than the key before it.
    pub(crate) fn add(&mut self, key: &[u8]) -> Result<(), DecodeError> {
        self.entries += 1;
        for prefix in &mut self.prefixes {
            // The encoding of some fields is never a prefix of another encoding of these fields.
            if prefix.entries > 0 && key.starts_with(&prefix.value) {
                prefix.entries += 1;
                continue;
            }
            prefix.finish();
            let fields = self.fields.get(..prefix.fields).unwrap_or_default();
            let value = key.get(..key_len(fields, key)?).unwrap_or_default();
            prefix.value.clear();
            prefix.value.extend_from_slice(value);
            prefix.entries = 1;
        }
        Ok(())
    }

    /// Returns the number of entries, and the distributions.
    pub(crate) fn finish(self) -> (u64, Vec<KeyDistribution>) {
        let Self { fields, prefixes, entries } = self;
        let distributions = prefixes.into_iter().map(|mut prefix| {
            prefix.finish();
            prefix.distribution(fields.get(..prefix.fields).unwrap_or_default(), entries)
        });
        (entries, distributions.collect())
    }
}

impl Prefix {
    pub(super) fn new(fields: usize) -> Self {
        Self { fields, ..Self::default() }
    }

    /// Ends the current value.
    fn finish(&mut self) {
        let entries = self.entries;
        if entries == 0 {
            return;
        }
        *self.values.entry(entries).or_default() += 1;
        let value = std::mem::take(&mut self.value);
        self.value = self.add_common(entries, value);
    }

    /// Adds a value if it is one of the most common. Returns a buffer.
    pub(super) fn add_common(&mut self, entries: u64, mut value: Vec<u8>) -> Vec<u8> {
        if self.common.len() < COMMON {
            self.common.push((entries, value));
            return Vec::new();
        }
        // Of several values with the fewest entries, the last value is replaced.
        let least = self.common.iter_mut().rev().min_by_key(|(of, _)| *of);
        if let Some(least) = least
            && least.0 < entries
        {
            least.0 = entries;
            std::mem::swap(&mut least.1, &mut value);
        }
        value
    }

    pub(super) fn distribution(
        &self,
        fields: &'static [KeyField],
        entries: u64,
    ) -> KeyDistribution {
        let mut common: Vec<_> = self.common.iter().collect();
        common.sort_by(|(a, left), (b, right)| b.cmp(a).then_with(|| left.cmp(right)));
        let common = common.into_iter().map(|(of, value)| CommonValue {
            value: key_of_group(fields, value),
            entries: *of,
            share: share(*of, entries),
        });
        KeyDistribution {
            fields: fields.iter().map(|field| field.name).collect(),
            distinct: self.values.values().sum(),
            rows: self.quantiles(),
            most_common: common.collect(),
        }
    }

    fn quantiles(&self) -> Quantiles {
        let distinct: u64 = self.values.values().sum();
        let at = |percent: u64| {
            // The nearest rank, from 1.
            let rank = (u128::from(distinct) * u128::from(percent)).div_ceil(100).max(1);
            let mut passed = 0;
            let found = self.values.iter().find(|(_, values)| {
                passed += u128::from(**values);
                passed >= rank
            });
            found.map_or(0, |(entries, _)| *entries)
        };
        Quantiles { min: at(0), p50: at(50), p90: at(90), p99: at(99), max: at(100) }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share needs few digits")]
pub(crate) fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}
