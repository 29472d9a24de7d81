//! The last analysis of a table, as a record in the catalog.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::{Advice, AdviceKind, Analysis, CommonValue, IndexAnalysis, KeyDistribution, Quantiles};
use crate::model::{
    error::{Error, Result},
    schema::{KeyField, TableSchema},
};

/// An analysis that was kept in the catalog. From the `kept_analysis` of a repository.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct KeptAnalysis {
    /// The time at which the analysis was kept, with a precision of milliseconds.
    pub time: SystemTime,
    /// The analysis, without indexes that are no longer declared.
    pub analysis: Analysis,
}

/// The record. Its value in the catalog is postcard's encoding of this struct, and then the number of entries of the sample,
/// if figures are estimated.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Record {
    /// Milliseconds since 1970.
    time: u64,
    rows: u64,
    bytes: u64,
    shard_key: Option<KeyRecord>,
    indexes: Vec<IndexRecord>,
    advice: Vec<AdviceRecord>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct IndexRecord {
    name: String,
    readable: bool,
    entries: u64,
    bytes: u64,
    keys: Vec<KeyRecord>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct KeyRecord {
    fields: Vec<String>,
    distinct: u64,
    /// Min, p50, p90, p99 and max.
    rows: [u64; 5],
    most_common: Vec<(String, u64, f64)>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct AdviceRecord {
    index: Option<String>,
    kind: u8,
    reason: String,
    change: String,
}

/// The kinds of advice, by their numbers in the record.
const KINDS: [AdviceKind; 6] = [
    AdviceKind::NeverQueried,
    AdviceKind::Volatile,
    AdviceKind::NotDiscriminating,
    AdviceKind::Skewed,
    AdviceKind::Include,
    AdviceKind::HotShardKey,
];

/// Encodes an analysis of the table.
pub(crate) fn encode(
    schema: &TableSchema,
    analysis: &Analysis,
    now: SystemTime,
) -> Result<Vec<u8>> {
    if analysis.table != schema.name {
        return Err(Error::SchemaMismatch {
            table: schema.name,
            difference: format!("the analysis is of table `{}`", analysis.table),
            way_out: "keep it with the repository of its table",
        });
    }
    let time = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let record = Record {
        time: u64::try_from(time).unwrap_or(u64::MAX),
        rows: analysis.rows,
        bytes: analysis.bytes,
        shard_key: analysis.shard_key.as_ref().map(KeyRecord::of),
        indexes: analysis.indexes.iter().map(IndexRecord::of).collect(),
        advice: analysis.advice.iter().map(AdviceRecord::of).collect(),
    };
    let failed =
        |error: postcard::Error| Error::Codec { table: schema.name, reason: error.to_string() };
    let bytes = postcard::to_stdvec(&record).map_err(failed)?;
    match analysis.sample {
        Some(entries) => postcard::to_extend(&entries, bytes).map_err(failed),
        None => Ok(bytes),
    }
}

/// Decodes a record, without its parts for keys and indexes that are no longer declared.
pub(crate) fn decode(schema: &TableSchema, record: &[u8]) -> Result<KeptAnalysis> {
    let failed = |error: postcard::Error| Error::Corrupt {
        table: schema.name,
        index: None,
        key: "of its analysis".to_owned(),
        reason: error.to_string(),
    };
    let (record, rest): (Record, _) = postcard::take_from_bytes(record).map_err(failed)?;
    let sample =
        if rest.is_empty() { None } else { Some(postcard::from_bytes(rest).map_err(failed)?) };
    let Record { time, rows, bytes, shard_key, indexes, advice } = record;
    let shard_key = shard_key.and_then(|key| key.read(schema.primary_key));
    let indexes = indexes.into_iter().filter_map(|index| index.read(schema)).collect();
    let advice = advice.into_iter().filter_map(|advice| advice.read(schema)).collect();
    let table = schema.name;
    let analysis = Analysis { table, rows, bytes, shard_key, indexes, advice, sample };
    let time = UNIX_EPOCH.checked_add(Duration::from_millis(time)).unwrap_or(UNIX_EPOCH);
    Ok(KeptAnalysis { time, analysis })
}

impl IndexRecord {
    fn of(index: &IndexAnalysis) -> Self {
        let IndexAnalysis { name, readable, entries, bytes, keys } = index;
        Self {
            name: (*name).to_owned(),
            readable: *readable,
            entries: *entries,
            bytes: *bytes,
            keys: keys.iter().map(KeyRecord::of).collect(),
        }
    }

    fn read(self, schema: &TableSchema) -> Option<IndexAnalysis> {
        let Self { name, readable, entries, bytes, keys } = self;
        let declared = schema.indexes.iter().find(|index| index.name == name)?;
        let keys = keys.into_iter().map(|key| key.read(declared.key)).collect::<Option<_>>()?;
        Some(IndexAnalysis { name: declared.name, readable, entries, bytes, keys })
    }
}

impl KeyRecord {
    fn of(key: &KeyDistribution) -> Self {
        let KeyDistribution { fields, distinct, rows, most_common } = key;
        let Quantiles { min, p50, p90, p99, max } = *rows;
        let most_common = most_common.iter().map(|it| (it.value.clone(), it.entries, it.share));
        Self {
            fields: fields.iter().map(|field| (*field).to_owned()).collect(),
            distinct: *distinct,
            rows: [min, p50, p90, p99, max],
            most_common: most_common.collect(),
        }
    }

    fn read(self, key: &[KeyField]) -> Option<KeyDistribution> {
        let Self { fields, distinct, rows: [min, p50, p90, p99, max], most_common } = self;
        let fields = fields.iter().map(|field| Some(key.iter().find(|it| it.name == *field)?.name));
        let fields = fields.collect::<Option<_>>()?;
        let most_common = most_common.into_iter().map(|(value, entries, share)| CommonValue {
            value,
            entries,
            share,
        });
        let rows = Quantiles { min, p50, p90, p99, max };
        Some(KeyDistribution { fields, distinct, rows, most_common: most_common.collect() })
    }
}

impl AdviceRecord {
    fn of(advice: &Advice) -> Self {
        let Advice { index, kind, reason, change } = advice;
        let kind = KINDS.iter().position(|it| it == kind).and_then(|it| u8::try_from(it).ok());
        Self {
            index: index.map(str::to_owned),
            kind: kind.unwrap_or(u8::MAX),
            reason: reason.clone(),
            change: change.clone(),
        }
    }

    fn read(self, schema: &TableSchema) -> Option<Advice> {
        let Self { index, kind, reason, change } = self;
        let kind = *KINDS.get(usize::from(kind))?;
        let index = match index {
            Some(name) => Some(schema.indexes.iter().find(|index| index.name == name)?.name),
            None => None,
        };
        Some(Advice { index, kind, reason, change })
    }
}
