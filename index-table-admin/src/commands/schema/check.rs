//! What a release with other declarations would do to a store.

use std::io::{self, Write};

use index_table::{
    __private::admin::{BuiltPart, SchemaChanges, TableChange},
    report::StoreSchema,
};
use serde_json::{Value, json};

use crate::{
    failure::{Code, Failure},
    open::Opened,
    output::{Output, bytes},
    value::printable,
};

/// The time for a row, and for an entry of an index, in seconds. A bulk load of 1,000,000 rows with three indexes takes 3.4 µs for a row,
/// by `docs/BENCHMARKS.md`.
const STEP: f64 = 3.4e-6 / 4.0;

/// The bytes of these rows in pages. Larger rows take as many times longer to read.
const ROW: f64 = 113.0;

pub(super) fn run(
    out: &Output,
    opened: &Opened,
    declared: &StoreSchema,
    rows: bool,
) -> Result<(), Failure> {
    let changes = opened.store.compare_schema(declared, rows)?;
    let mut value =
        serde_json::to_value(&changes).map_err(|error| Failure::other(error.to_string()))?;
    let tables = value.get_mut("tables").and_then(Value::as_array_mut);
    for (table, change) in tables.into_iter().flatten().zip(&changes.tables) {
        if let Some(fields) = table.as_object_mut() {
            fields.insert("seconds".to_owned(), json!(seconds(change)));
        }
    }
    out.put(&value, |text| show(text, &changes))?;
    if !changes.has_losses() {
        return Ok(());
    }
    Err(Failure::new(
        Code::Other,
        "a release with these declarations is refused, or loses data; the lines with `refused`, `lost` and `unreadable` \
         say what",
    ))
}

/// Returns the estimated time of the builds and checks of a table, in seconds.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn seconds(change: &TableChange) -> f64 {
    if change.built.is_empty() && change.references.is_empty() {
        return 0.0;
    }
    let rows = change.rows as f64;
    let read = rows.max(change.bytes as f64 / ROW);
    let all = (read + rows * change.built.len() as f64) * STEP;
    (all * 1e3).round() / 1e3
}

fn show(text: &mut dyn Write, changes: &SchemaChanges) -> io::Result<()> {
    for change in &changes.tables {
        let state = if change.refused.is_some() {
            "refused"
        } else if change.created {
            "created"
        } else if change.is_same() {
            "same"
        } else {
            "changed"
        };
        let size = if change.rows == 0 {
            String::new()
        } else {
            format!(" ({} rows, {})", change.rows, bytes(change.bytes))
        };
        writeln!(text, "table `{}`: {state}{size}", change.table)?;
        for line in lines(change) {
            writeln!(text, "  {}", printable(&line))?;
        }
    }
    for table in &changes.undeclared {
        writeln!(text, "table `{table}`: lost: no declaration names it")?;
    }
    Ok(())
}

fn lines(change: &TableChange) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(change.refused.iter().map(|error| format!("refused: {error}")));
    lines.extend(change.was.iter().map(|was| format!("renamed from table `{was}`")));
    lines.extend(change.version.map(|(file, code)| {
        format!("rows of version {file} are converted to version {code} when they are read")
    }));
    let built = |part: &BuiltPart| {
        let what = if part.again { "built again" } else { "built" };
        format!("index `{}`: {what}", part.name)
    };
    lines.extend(change.built.iter().map(built));
    let renamed = |(from, to): &(String, String)| format!("index `{from}`: renamed to `{to}`");
    lines.extend(change.renamed.iter().map(renamed));
    lines.extend(change.retired.iter().map(|index| format!("index `{index}`: retired")));
    let checked = |reference: &String| format!("{reference}: new, all rows are checked");
    lines.extend(change.references.iter().map(checked));
    lines.extend(change.fields_added.iter().map(|field| format!("field `{field}`: added")));
    lines.extend(change.fields_removed.iter().map(|field| format!("field `{field}`: removed")));
    let changed = |(field, file, code): &(String, String, String)| {
        format!("field `{field}`: type `{file}` becomes `{code}`")
    };
    lines.extend(change.fields_changed.iter().map(changed));
    lines.extend(change.lost.iter().map(|lost| format!("lost: {lost}")));
    if let Some(unreadable) = &change.unreadable {
        let row = |(key, reason): &(String, String)| format!("unreadable: row {key}: {reason}");
        lines.extend(unreadable.first.iter().map(row));
        let others = unreadable.rows.saturating_sub(unreadable.first.len() as u64);
        lines.extend((others > 0).then(|| format!("unreadable: {others} other rows")));
    }
    let time = seconds(change);
    lines.extend((time > 0.0).then(|| format!("estimated time: {time:.1} s")));
    lines
}
