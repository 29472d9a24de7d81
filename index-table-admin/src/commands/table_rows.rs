//! The rows of a table, or of a part of an index, as JSON or CSV.

use std::{
    fmt,
    io::{self, BufWriter, Write},
};

use clap::Args;
use index_table::__private::admin::UntypedEntry;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::Value;

use super::rows::{PRIMARY_KEY, Part, Shown};
use crate::{
    cli::{Dir, unless_closed},
    commands::dump::interrupted,
    failure::Failure,
    interrupt::{is_stopping, stop_on_ctrl_c},
    open::Opened,
    output::Output,
    typed::Declared,
    value,
};

/// The form of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// An array.
    Json,
    /// A row a line, as `load` reads them.
    Jsonl,
    /// Comma-separated values with a header. Values with parts are JSON.
    Csv,
}

#[derive(Debug, Args)]
pub(crate) struct Rows {
    #[command(flatten)]
    dir: Dir,
    /// The table.
    table: String,
    /// The index, or `primary_key`; without it, all rows in the order of their primary keys.
    index: Option<String>,
    /// The values of the leading fields of its key.
    #[arg(allow_negative_numbers = true)]
    values: Vec<String>,
    #[command(flatten)]
    part: Part,
    /// At most this number of rows.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// The form of the rows.
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    format: Format,
    /// Only these fields, in this order, with commas between. A field inside of another one is written as `outer.inner`.
    #[arg(long, value_delimiter = ',', value_name = "FIELD")]
    columns: Vec<String>,
}

/// The fields of a row, in their order.
struct Fields(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the fields of a row")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        from.deserialize_map(InOrder)
    }
}

impl Fields {
    /// Returns the value at a path; `None` if the row lacks it.
    fn at(&self, path: &str) -> Option<&Value> {
        let own = |name: &str| self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value);
        own(path).or_else(|| {
            let mut names = path.split('.');
            let first = own(names.next()?)?;
            names.try_fold(first, |value, name| match name.parse::<usize>() {
                Ok(at) if value.is_array() => value.get(at),
                _ => value.get(name),
            })
        })
    }
}

/// Writes rows in a form.
struct Writer<W> {
    to: W,
    format: Format,
    columns: Vec<String>,
    rows: u64,
    /// The first field that no column shows.
    left_out: Option<String>,
    line: String,
}

impl<W: Write> Writer<W> {
    /// Writes a row; returns false if nobody reads on.
    fn row(&mut self, json: &str) -> Result<bool, Failure> {
        self.line.clear();
        let is_first = self.rows == 0;
        self.rows += 1;
        if self.format == Format::Csv {
            let row = fields(json)?;
            let is_chosen = !self.columns.is_empty();
            if is_first {
                if !is_chosen {
                    self.columns = row.0.iter().map(|(name, _)| name.clone()).collect();
                }
                let header = self.columns.iter().map(|name| cell(&name.as_str().into()));
                self.line = header.collect::<Vec<_>>().join(",") + "\n";
            }
            let cells = self.columns.iter().map(|path| row.at(path).map_or(String::new(), cell));
            self.line += &cells.collect::<Vec<_>>().join(",");
            let further = row.0.iter().find(|(name, _)| !self.columns.contains(name));
            if let Some((name, _)) = further.filter(|_| self.left_out.is_none() && self.rows > 1) {
                self.left_out = Some(name.clone());
            }
        } else {
            if self.format == Format::Json {
                self.line.push_str(if is_first { "[" } else { ",\n" });
            }
            if self.columns.is_empty() {
                self.line.push_str(json);
            } else {
                let row = fields(json)?;
                let own = self.columns.iter().filter_map(|path| {
                    Some(format!("{}:{}", Value::from(path.as_str()), row.at(path)?))
                });
                self.line.push('{');
                self.line += &own.collect::<Vec<_>>().join(",");
                self.line.push('}');
            }
        }
        if self.format != Format::Json {
            self.line.push('\n');
        }
        unless_closed(self.to.write_all(self.line.as_bytes()))
    }

    fn end(&mut self) -> Result<(), Failure> {
        if self.format == Format::Json {
            let end = if self.rows == 0 { "[]\n" } else { "]\n" };
            unless_closed(self.to.write_all(end.as_bytes()))?;
        }
        unless_closed(self.to.flush()).map(drop)
    }
}

fn fields(json: &str) -> Result<Fields, Failure> {
    serde_json::from_str(json).map_err(|error| {
        Failure::arguments(format!(
            "a row has no fields: {error}; use `--format jsonl` without `--columns`"
        ))
    })
}

/// Returns a cell of CSV. A missing value is empty, and an empty text is `""`.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => return String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let is_plain = !text.is_empty() && !text.contains([',', '"', '\n', '\r']);
    if is_plain { text } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}

impl Rows {
    pub(crate) fn run(self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        let opened = Opened::to_read(out, &self.dir.dir)?;
        let table = Shown::open(&opened, declared, &self.table)?;
        let index = self.index.as_deref().unwrap_or(PRIMARY_KEY);
        let fields = table.fields(index)?;
        let range = self.part.bounds(index, &self.values, &fields)?;
        let after = self.part.after.clone();
        let is_whole = self.columns.is_empty() && self.format == Format::Csv;
        stop_on_ctrl_c(out);
        let txn = opened.store.read()?;
        let (mut last, mut json) = (None, String::new());
        let (mut cut, mut is_interrupted) = (false, false);
        let to = BufWriter::new(io::stdout().lock());
        let (format, columns) = (self.format, self.columns);
        let mut rows = Writer { to, format, columns, rows: 0, left_out: None, line: String::new() };
        table.untyped.each_entry(&txn, &range, |entry| {
            is_interrupted = is_stopping();
            cut = is_interrupted || Some(rows.rows) == self.limit;
            if cut {
                return Ok(false);
            }
            json.clear();
            if range.index.is_none() {
                table.append(&entry, &mut json)?;
            } else {
                let Some(data) = table.row_of(&txn, &entry, index)? else { return Ok(true) };
                table.append(&UntypedEntry { data, ..entry }, &mut json)?;
            }
            let (key, primary_key): &mut (Vec<u8>, Vec<u8>) = last.get_or_insert_default();
            entry.key.clone_into(key);
            entry.primary_key.clone_into(primary_key);
            rows.row(&json)
        })?;
        rows.end()?;
        if let Some(field) = rows.left_out.filter(|_| is_whole) {
            out.note(&format!(
                "some rows have fields that the first one lacks, such as `{field}`; `--columns` chooses fields"
            ));
        }
        let last = last.filter(|_| cut);
        let next = last
            .map(|(key, primary_key)| format!("{}.{}", value::hex(&key), value::hex(&primary_key)));
        if is_interrupted {
            return Err(interrupted(next.or(after)));
        }
        if let Some(next) = next {
            out.more(&next);
        }
        Ok(())
    }
}
