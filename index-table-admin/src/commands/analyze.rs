//! The distribution of the keys, and advice.

use index_table::{
    __private::admin::{UntypedField, UntypedTable},
    report::{Analysis, KeyDistribution},
};
use serde_json::json;

use crate::{
    cli::Dir,
    failure::Failure,
    names::unknown,
    open::Opened,
    output::Output,
    progress::Bar,
    value::{self, printable},
};

/// Analyzes all tables, or one, from all entries or from a sample of this number of pages.
fn analyses(
    dir: &Dir,
    only: Option<&str>,
    sample: Option<u64>,
    out: &Output,
) -> Result<Vec<Analysis>, Failure> {
    let opened = Opened::to_read(out, &dir.dir)?;
    let recorded = opened.recorded(out)?;
    let tables = &recorded.tables;
    if let Some(only) = only
        && tables.iter().all(|table| table.name() != only)
    {
        return Err(unknown("table", only, tables.iter().map(UntypedTable::name)));
    }
    let txn = opened.store.read()?;
    let chosen = tables.iter().filter(|table| only.is_none_or(|only| table.name() == only));
    let analyzed = chosen.map(|table| {
        let bar = Bar::new();
        let analysis = match sample {
            Some(pages) => table.analyze_sampled(&txn, pages)?,
            None => table.analyze(&txn, Some(Box::new(|at| bar.show(at))))?,
        };
        Ok(restated(table, analysis))
    });
    analyzed.collect()
}

/// Returns the analysis with its values in the form of `keys` and `find`.
fn restated(table: &UntypedTable, mut analysis: Analysis) -> Analysis {
    let restate = |fields: &[UntypedField], distribution: &mut KeyDistribution| {
        let fields = fields.get(..distribution.fields.len()).unwrap_or_default();
        for common in &mut distribution.most_common {
            common.value = value::restated(fields, &common.value);
        }
    };
    for index in &mut analysis.indexes {
        let fields = table.key_of(index.name).unwrap_or_default();
        index.keys.iter_mut().for_each(|keys| restate(&fields, keys));
    }
    if let Some(keys) = &mut analysis.shard_key {
        restate(&table.primary_key(), keys);
    }
    analysis
}

pub(crate) fn analyze(
    out: &Output,
    dir: &Dir,
    only: Option<&str>,
    sample: Option<u64>,
) -> Result<(), Failure> {
    let analyses = analyses(dir, only, sample, out)?;
    Ok(out.put(&json!({ "tables": analyses }), |text| {
        let shown: Vec<_> = analyses.iter().map(ToString::to_string).collect();
        out.report(text, &shown.join("\n"))
    })?)
}

pub(crate) fn advice(
    out: &Output,
    dir: &Dir,
    only: Option<&str>,
    sample: Option<u64>,
) -> Result<(), Failure> {
    let analyses = analyses(dir, only, sample, out)?;
    let all = || analyses.iter().flat_map(|of| of.advice.iter().map(move |it| (of.table, it)));
    let values: Vec<_> = all()
        .map(|(table, it)| {
            json!({
                "table": table,
                "index": it.index,
                "kind": it.kind,
                "reason": it.reason,
                "change": it.change,
            })
        })
        .collect();
    if values.is_empty() && !out.json {
        out.note(
            "there is no advice from the keys; advice from queries is in a program's own `analyze`",
        );
    }
    Ok(out.put(&json!({ "advice": values }), |text| {
        all().try_for_each(|(table, it)| {
            writeln!(text, "table `{table}`: {}", printable(&it.to_string()))
        })
    })?)
}
