//! The analysis of a table: the distribution of the keys of each index, and advice.

mod advice;
mod attribute;
mod estimate;
pub(crate) mod kept;
mod measure;
mod show;
#[cfg(test)]
mod tests;

pub(crate) use estimate::{Estimate, Lookup, Part};
pub use kept::KeptAnalysis;
pub(crate) use measure::{Measure, share};

use serde::Serialize;

use crate::{model::schema::TableSchema, usage::Usage};

/// The distribution of the keys of a table in its indexes, and advice. From the `analyze` of a repository.
///
/// The analysis is displayed as a table, and can be serialized.
///
/// # Examples
///
/// ```
/// use index_table::{IndexTable, Store};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, IndexTable)]
/// #[index(town, name)]
/// struct Person {
///     #[primary_key]
///     id: u32,
///     town: String,
///     name: String,
/// }
///
/// # fn main() -> index_table::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = Store::open(dir.path())?;
/// let people = PersonRepository::open(&store)?;
/// store.transaction(|txn| {
///     for (id, town, name) in [(1, "Oslo", "Berg"), (2, "Oslo", "Dahl"), (3, "Rome", "Rossi")] {
///         people.insert(txn, &Person { id, town: town.into(), name: name.into() })?;
///     }
///     Ok(())
/// })?;
///
/// let analysis = people.analyze(&store.read()?)?;
/// let [towns, names] = analysis.indexes[0].keys.as_slice() else { panic!("two fields") };
/// assert_eq!((towns.distinct, towns.rows.max, names.distinct), (2, 2, 3));
/// let most_common = &towns.most_common[0];
/// assert_eq!((most_common.value.as_str(), most_common.entries), (r#""Oslo""#, 2));
/// println!("{analysis}");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Analysis {
    /// The name of the table.
    pub table: &'static str,
    /// The number of rows.
    pub rows: u64,
    /// The bytes of the pages of the rows; 0 for a store in memory.
    pub bytes: u64,
    /// The distribution of the shard key; `None` if the table has no shard key.
    pub shard_key: Option<KeyDistribution>,
    /// The indexes, in the order of their declaration.
    pub indexes: Vec<IndexAnalysis>,
    /// Advice from the distributions and from the usage in this process.
    pub advice: Vec<Advice>,
    /// The number of entries from which figures are estimated, from the `analyze_sampled` of a repository; `None` if all
    /// figures are exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample: Option<u64>,
}

/// The analysis of an index; see [`Analysis`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct IndexAnalysis {
    /// The name of the index.
    pub name: &'static str,
    /// Whether queries can read the index. Otherwise, it is not analyzed, and `keys` is empty.
    pub readable: bool,
    /// The number of entries.
    pub entries: u64,
    /// The bytes of the pages of the entries; 0 for a store in memory.
    pub bytes: u64,
    /// The distributions of the first field of the key, of its first two fields, and so on. The last distribution is that of
    /// the whole key.
    pub keys: Vec<KeyDistribution>,
}

/// The distribution of entries over the values of some leading fields of a key; see [`Analysis`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct KeyDistribution {
    /// The names of the fields, or of the methods that compute them.
    pub fields: Vec<&'static str>,
    /// The number of distinct values.
    pub distinct: u64,
    /// The entries of each value.
    pub rows: Quantiles,
    /// Up to ten values with the most entries, the most common value first.
    pub most_common: Vec<CommonValue>,
}

/// The numbers of entries of the values of a key, by nearest rank; see [`KeyDistribution`]. All are 0 without entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Quantiles {
    /// The entries of the least common value.
    pub min: u64,
    /// Half of the values have at most this number of entries.
    pub p50: u64,
    /// 90 % of the values have at most this number of entries.
    pub p90: u64,
    /// 99 % of the values have at most this number of entries.
    pub p99: u64,
    /// The entries of the most common value.
    pub max: u64,
}

/// A value of a key with the number of its entries; see [`KeyDistribution`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CommonValue {
    /// The value in readable form, as in errors. A hashed field is shown as its hash.
    pub value: String,
    /// The number of its entries.
    pub entries: u64,
    /// Its share of all entries, from 0 to 1.
    pub share: f64,
}

/// Advice about a table or an index; see [`Analysis`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Advice {
    /// The name of the index; `None` for the table.
    pub index: Option<&'static str>,
    /// The kind of advice.
    pub kind: AdviceKind,
    /// The reason, with its figures.
    pub reason: String,
    /// The change to the declaration, with the attribute to write.
    pub change: String,
}

/// The kinds of [`Advice`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum AdviceKind {
    /// The index was never queried in this process, and writes of rows have changed at least 1,000 of its entries.
    NeverQueried,
    /// Writes of rows have changed at least 1,000 entries of the index, and ten times as many as queries have read.
    Volatile,
    /// Each value of the whole key finds at least a tenth of the rows, and the index follows references to rows.
    NotDiscriminating,
    /// One value has at least 90 % of the entries, and queries read far fewer entries than this value has.
    Skewed,
    /// Queries have followed at least 1,000 references, for at least 90 % of the entries that they read, and ten times
    /// as many as rows were written.
    Include,
    /// One value of the shard key has at least a fifth of the rows, and ten times as many as the average value.
    HotShardKey,
}

impl AdviceKind {
    /// Whether the figures of the reason are from the distribution of the keys.
    const fn is_from_keys(self) -> bool {
        matches!(self, Self::NotDiscriminating | Self::Skewed | Self::HotShardKey)
    }
}

impl Analysis {
    /// Returns the analysis with advice from the usage in this process.
    pub(crate) fn advised(mut self, schema: &TableSchema, usage: &Usage, global: &[usize]) -> Self {
        self.advice = advice::of(&self, schema, usage, global);
        if let Some(entries) = self.sample {
            for advice in self.advice.iter_mut().filter(|it| it.kind.is_from_keys()) {
                advice.reason = format!("{} (estimated from {entries} entries)", advice.reason);
            }
        }
        self
    }
}
