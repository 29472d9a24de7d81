//! The analysis as text.

use std::fmt;

use super::{Advice, Analysis, IndexAnalysis, KeyDistribution};
use crate::usage::lines;

const NAMES: [&str; 9] =
    ["index", "key", "distinct", "min", "p50", "p90", "p99", "max", "most common"];

impl fmt::Display for Analysis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, rows, bytes, shard_key, indexes, advice, sample } = self;
        write!(f, "table `{table}`: {rows} rows, {bytes} bytes")?;
        match sample {
            Some(entries) => writeln!(f, "; estimated from {entries} entries")?,
            None => writeln!(f)?,
        }
        for IndexAnalysis { name, readable, entries, bytes, .. } in indexes {
            let state = if *readable { "" } else { "; not readable, so it was not analyzed" };
            writeln!(f, "  index `{name}`: {entries} entries, {bytes} bytes{state}")?;
        }
        let mut table = vec![NAMES.map(str::to_owned)];
        table.extend(shard_key.iter().map(|key| line("(shard key)", key)));
        for IndexAnalysis { name, keys, .. } in indexes {
            table.extend(keys.iter().map(|key| line(name, key)));
        }
        if table.len() > 1 {
            writeln!(f)?;
            lines(f, 2, &table)?;
        }
        if !advice.is_empty() {
            writeln!(f)?;
        }
        advice.iter().try_for_each(|advice| writeln!(f, "  {advice}"))
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, reason, change, .. } = self;
        match index {
            Some(name) => write!(f, "index `{name}`: ")?,
            None => write!(f, "table: ")?,
        }
        write!(f, "{reason}; {change}")
    }
}

fn line(name: &str, key: &KeyDistribution) -> [String; 9] {
    let KeyDistribution { fields, distinct, rows, most_common } = key;
    let common = most_common.first().map_or_else(String::new, |value| {
        format!("{} ({:.1} %)", value.value, value.share * 100.0)
    });
    let [distinct, min, p50, p90, p99, max] =
        [*distinct, rows.min, rows.p50, rows.p90, rows.p99, rows.max].map(|n| n.to_string());
    [name.to_owned(), fields.join(", "), distinct, min, p50, p90, p99, max, common]
}
