//! The report as text.

use std::fmt;

use super::{IndexUsage, Usage};

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, indexes, .. } = self;
        writeln!(f, "table `{table}`")?;
        let Self { gets, scans, scanned, inserts, puts, updates, deletes, .. } = *self;
        let figures = [gets, scans, scanned, inserts, puts, updates, deletes];
        let names = ["gets", "scans", "scanned", "inserts", "puts", "updates", "deletes"];
        lines(f, 0, &[names.map(str::to_owned), figures.map(|figure| figure.to_string())])?;
        if !indexes.is_empty() {
            writeln!(f)?;
            let names = ["index", "strategy", "queries", "entries", "facts", "written"];
            let mut table = vec![names.map(str::to_owned)];
            table.extend(indexes.iter().map(|index| {
                let IndexUsage { name, strategy, queries, entries, facts, written, .. } = index;
                let [queries, entries, facts, written] =
                    [queries, entries, facts, written].map(ToString::to_string);
                [(*name).to_owned(), (*strategy).to_owned(), queries, entries, facts, written]
            }));
            lines(f, 2, &table)?;
        }
        if indexes.iter().any(|index| !index.advice.is_empty()) {
            writeln!(f)?;
        }
        for IndexUsage { name, advice, .. } in indexes {
            advice.iter().try_for_each(|reason| writeln!(f, "  index `{name}`: {reason}"))?;
        }
        Ok(())
    }
}

/// Writes lines with aligned columns: the first `names` columns to the left, the other columns to the right.
pub(crate) fn lines<const N: usize>(
    f: &mut fmt::Formatter<'_>,
    names: usize,
    table: &[[String; N]],
) -> fmt::Result {
    let mut widths = [0; N];
    for line in table {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    for line in table {
        for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
            if column + 1 == N && column < names {
                // The last column has no trailing spaces.
                write!(f, "  {cell}")?;
            } else if column < names {
                write!(f, "  {cell:<width$}")?;
            } else {
                write!(f, "  {cell:>width$}")?;
            }
        }
        writeln!(f)?;
    }
    Ok(())
}
