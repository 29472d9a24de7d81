//! Advice from the distributions of keys, and from the usage.

use super::{
    Advice, AdviceKind, Analysis, IndexAnalysis, KeyDistribution,
    attribute::{Attribute, Form, missing_fields},
};
use crate::{
    model::schema::{Condition, IndexSchema, Strategy, TableSchema},
    usage::{IndexUsage, Usage},
};

/// The minimum number of rows, entries, references or changes for advice.
const MINIMUM: u64 = 1000;

/// The factor by which a number is considered far greater than another.
const FAR_MORE: u64 = 10;

/// An index with its analysis and its usage.
struct Index<'a> {
    table: &'a TableSchema,
    declared: &'a IndexSchema,
    global: bool,
    rows: u64,
    /// The rows that were written.
    changes: u64,
    usage: &'a IndexUsage,
    analysis: &'a IndexAnalysis,
}

/// Returns the advice about the table, and then about its indexes in their order.
pub(super) fn of(
    analysis: &Analysis,
    table: &TableSchema,
    usage: &Usage,
    global: &[usize],
) -> Vec<Advice> {
    let mut advice = Vec::new();
    advice.extend(analysis.shard_key.as_ref().and_then(|key| hot_shard_key(analysis, table, key)));
    let indexes = table.indexes.iter().zip(&usage.indexes).zip(&analysis.indexes).enumerate();
    for (position, ((declared, of_index), analysis_of)) in indexes {
        let index = Index {
            table,
            declared,
            global: global.contains(&position),
            rows: analysis.rows,
            changes: usage.inserts + usage.puts + usage.updates,
            usage: of_index,
            analysis: analysis_of,
        };
        let found = [
            index.never_queried(),
            index.volatile(),
            index.not_discriminating(),
            index.skewed(),
            index.include(),
        ];
        let found = found.into_iter().flatten();
        advice.extend(found.map(|(kind, reason, change)| Advice {
            index: Some(declared.name),
            kind,
            reason,
            change,
        }));
    }
    advice
}

fn hot_shard_key(
    analysis: &Analysis,
    table: &TableSchema,
    key: &KeyDistribution,
) -> Option<Advice> {
    let hot = key.most_common.first()?;
    let rows = analysis.rows;
    let is_hot = rows >= MINIMUM
        && hot.entries.saturating_mul(5) >= rows
        && hot.entries.saturating_mul(key.distinct) >= rows.saturating_mul(FAR_MORE);
    let change = match table.primary_key.get(key.fields.len()) {
        Some(next) => {
            let fields = [key.fields.as_slice(), &[next.name]].concat().join(", ");
            format!("add a field to the shard key: `#[table(shard_by = ({fields}))]`")
        }
        None => {
            "begin the primary key with a field that has more evenly distributed values, and write \
                 `#[table(shard_by = …)]` with that field"
                .to_owned()
        }
    };
    is_hot.then(|| Advice {
        index: None,
        kind: AdviceKind::HotShardKey,
        reason: format!(
            "{} of {rows} rows ({}) have the shard key {}, one of {} values; all of them are in one shard",
            hot.entries,
            percent(hot.entries, rows),
            hot.value,
            key.distinct
        ),
        change,
    })
}

type Found = (AdviceKind, String, String);

impl Index<'_> {
    fn attribute(&self) -> Attribute<'_> {
        Attribute::of(self.declared, self.global)
    }

    /// Advice about an index with costs and without queries. A unique index is used by writes.
    fn never_queried(&self) -> Option<Found> {
        let IndexUsage { queries, written, .. } = *self.usage;
        (queries == 0 && written >= MINIMUM && !self.declared.unique).then(|| {
            let IndexAnalysis { entries, bytes, .. } = *self.analysis;
            let reason = format!(
                "this process never queried it, and {written} of its entries were written or removed; it has \
                 {entries} entries in {bytes} bytes"
            );
            let change =
                format!("if other processes don't query it either, remove `{}`", self.attribute().text());
            (AdviceKind::NeverQueried, reason, change)
        })
    }

    /// Advice about an index that is written far more than it is read.
    fn volatile(&self) -> Option<Found> {
        let IndexUsage { queries, entries, written, .. } = *self.usage;
        let is_volatile = queries > 0
            && written >= MINIMUM
            && written >= entries.saturating_mul(FAR_MORE)
            && !self.declared.unique;
        if !is_volatile {
            return None;
        }
        let reason = format!(
            "{written} of its entries were written or removed, and {queries} queries read {entries}"
        );
        let mut attribute = self.attribute();
        let change = match (&attribute.strategy, attribute.eventual) {
            (Form::Include(_) | Form::Full, _) => {
                attribute.strategy = Form::Normalized;
                format!("a normalized index is written less often: `{}`", attribute.text())
            }
            (Form::Normalized, false) => {
                attribute.eventual = true;
                format!("let a worker update it: `{}`", attribute.text())
            }
            (Form::Normalized, true) => {
                format!(
                    "if these queries can read the table instead, remove `{}`",
                    attribute.text()
                )
            }
        };
        Some((AdviceKind::Volatile, reason, change))
    }

    /// Advice about an index with references, if each key finds a large part of all rows.
    fn not_discriminating(&self) -> Option<Found> {
        let key = self.analysis.keys.last()?;
        let IndexSchema { unique, strategy, .. } = *self.declared;
        let found = self.rows >= MINIMUM
            && key.rows.min.saturating_mul(FAR_MORE) >= self.rows
            && !unique
            && strategy != Strategy::Full;
        if !found {
            return None;
        }
        let reason = format!(
            "it has {} distinct keys, and each key finds at least {} of {} rows ({}), so its queries follow as many \
             references",
            key.distinct,
            key.rows.min,
            self.rows,
            percent(key.rows.min, self.rows)
        );
        let mut attribute = self.attribute();
        attribute.strategy = Form::Full;
        let change = format!(
            "add the field that queries also compare to the key, or store the rows in the entries: `{}`",
            attribute.text()
        );
        Some((AdviceKind::NotDiscriminating, reason, change))
    }

    /// Advice about an index most of whose entries have one key, if queries rarely read this key.
    fn skewed(&self) -> Option<Found> {
        let IndexUsage { queries, entries: read, .. } = *self.usage;
        let key = self.analysis.keys.last()?;
        let common = key.most_common.first()?;
        let entries = self.analysis.entries;
        let is_filtered =
            self.declared.conditions.iter().any(|it| matches!(it, Condition::Filter(_)));
        let is_skewed = entries >= MINIMUM
            && key.distinct > 1
            && common.entries.saturating_mul(10) >= entries.saturating_mul(9)
            && queries > 0
            && read.saturating_mul(FAR_MORE) <= queries.saturating_mul(common.entries)
            && !self.declared.unique
            && !is_filtered;
        if !is_skewed {
            return None;
        }
        let reason = format!(
            "{} of {entries} entries ({}) have the key {}, and {queries} queries read {} entries each on average",
            common.entries,
            percent(common.entries, entries),
            common.value,
            read.div_ceil(queries),
        );
        let mut attribute = self.attribute();
        let is_none = common.value == "None";
        let change = if let [field] = self.declared.key
            && field.shape.is_option()
            && is_none
        {
            attribute.sparse = true;
            format!("if no query needs the rows without a value: `{}`", attribute.text())
        } else {
            let method = format!("in_{}", self.declared.name);
            attribute.filter = Some(method.clone());
            format!(
                "if no query needs the rows with this key: `{}`, and a method `fn {method}(&self) -> bool` that is false \
                 for them",
                attribute.text()
            )
        };
        Some((AdviceKind::Skewed, reason, change))
    }

    /// Advice about an index whose references are almost always followed.
    fn include(&self) -> Option<Found> {
        let IndexUsage { entries, facts, .. } = *self.usage;
        let found = self.declared.strategy == Strategy::Normalized
            && facts >= MINIMUM
            && facts.saturating_mul(10) >= entries.saturating_mul(9)
            && facts >= self.changes.saturating_mul(FAR_MORE);
        let fields = missing_fields(self.table, self.declared);
        if !found || fields.is_empty() {
            return None;
        }
        let reason = format!(
            "of {entries} entries that were read, {facts} were followed to their rows, and {} rows were written; the \
             entries lack {}",
            self.changes,
            fields.iter().map(|field| format!("`{field}`")).collect::<Vec<_>>().join(", ")
        );
        let mut attribute = self.attribute();
        attribute.strategy = Form::Include(fields);
        let change = format!(
            "read `entries()` with the fields that the queries use: `{}`, without the fields that they don't use",
            attribute.text()
        );
        Some((AdviceKind::Include, reason, change))
    }
}

fn percent(part: u64, of: u64) -> String {
    let tenths = (u128::from(part) * 1000).checked_div(u128::from(of)).unwrap_or(0);
    format!("{}.{} %", tenths / 10, tenths % 10)
}
