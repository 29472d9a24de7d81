//! The forms of rows: JSON, and comma-separated values.

use std::{fmt, io::Write};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Value, json};

use crate::{
    cli::unless_closed,
    failure::Failure,
    value::{escaped_json, printable},
};

/// The form of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// An array.
    Json,
    /// A row a line, as `load` reads them.
    Jsonl,
    /// Comma-separated values with a header. Values with parts are JSON.
    Csv,
}

/// The fields of a row, in their order.
pub(crate) struct Fields(pub(crate) Vec<(String, Value)>);

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
    /// Reads a row in the exact form.
    pub(crate) fn read(json: &str) -> Result<Self, Failure> {
        serde_json::from_str(json).map_err(|error| {
            Failure::arguments(format!(
                "a row has no fields: {error}; use `--format jsonl` without `--columns`"
            ))
        })
    }

    /// Returns the value at a path such as `outer.inner`; `None` if the row lacks it.
    pub(crate) fn at(&self, path: &str) -> Option<&Value> {
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
pub(crate) struct Writer<W> {
    to: W,
    format: Format,
    /// The fields to write; if there are none, all of them. Of CSV, those of the first row.
    columns: Vec<String>,
    pub(crate) rows: u64,
    has_header: bool,
    /// The first field that no column shows.
    pub(crate) left_out: Option<String>,
    line: String,
    is_to_terminal: bool,
}

impl<W: Write> Writer<W> {
    pub(crate) const fn new(to: W, format: Format, columns: Vec<String>) -> Self {
        let line = String::new();
        Self {
            to,
            format,
            columns,
            rows: 0,
            has_header: false,
            left_out: None,
            line,
            is_to_terminal: false,
        }
    }

    /// On a terminal, CSV has escapes of the characters that could control it. In a file, it has the characters.
    pub(crate) fn shown_on_terminal(self, is_to_terminal: bool) -> Self {
        Self { is_to_terminal, ..self }
    }

    /// Writes a row; returns false if nobody reads on.
    pub(crate) fn row(&mut self, json: &str) -> Result<bool, Failure> {
        self.begin();
        if self.format == Format::Csv {
            let row = Fields::read(json)?;
            if self.columns.is_empty() {
                self.columns = row.0.iter().map(|(name, _)| name.clone()).collect();
            }
            self.header();
            let cells = self.columns.iter().map(|path| row.at(path).map_or(String::new(), cell));
            self.line += &cells.collect::<Vec<_>>().join(",");
            if self.left_out.is_none() {
                let further = row.0.into_iter().find(|(name, _)| !self.columns.contains(name));
                self.left_out = further.map(|(name, _)| name);
            }
        } else if self.columns.is_empty() {
            self.line.push_str(json);
        } else {
            let row = Fields::read(json)?;
            let own = self.columns.iter().filter_map(|path| {
                Some(format!("{}:{}", Value::from(path.as_str()), row.at(path)?))
            });
            let own = own.collect::<Vec<_>>().join(",");
            self.line.extend(["{", &*escaped_json(&own), "}"]);
        }
        self.write()
    }

    /// Writes an error in the place of a row that can't be decoded: the object `$damaged`, which no row is, or in CSV the first cell of
    /// a line.
    pub(crate) fn damaged(&mut self, key: &str, error: &str) -> Result<bool, Failure> {
        self.begin();
        if self.format == Format::Csv {
            self.header();
            self.line += &cell(&format!("damaged row {key}: {error}").into());
            self.line.extend(self.columns.iter().skip(1).map(|_| ','));
        } else {
            self.line += &json!({ "$damaged": { "key": key, "error": error } }).to_string();
        }
        self.write()
    }

    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        self.line.clear();
        if self.format == Format::Json {
            self.line.push_str(if self.rows == 0 { "[]\n" } else { "]\n" });
        } else if self.format == Format::Csv && !self.columns.is_empty() {
            self.header();
        }
        unless_closed(self.to.write_all(self.line.as_bytes()))?;
        unless_closed(self.to.flush()).map(drop)
    }

    pub(crate) fn into_inner(self) -> W {
        self.to
    }

    fn begin(&mut self) {
        self.line.clear();
        if self.format == Format::Json {
            self.line.push_str(if self.rows == 0 { "[" } else { ",\n" });
        }
        self.rows += 1;
    }

    fn header(&mut self) {
        if !std::mem::replace(&mut self.has_header, true) {
            let names = self.columns.iter().map(|name| cell(&name.as_str().into()));
            self.line += &names.collect::<Vec<_>>().join(",");
            self.line.push('\n');
        }
    }

    fn write(&mut self) -> Result<bool, Failure> {
        if self.format != Format::Json {
            self.line.push('\n');
        }
        if self.is_to_terminal && self.format == Format::Csv {
            let lines: Vec<_> = self.line.split('\n').map(printable).collect();
            self.line = lines.join("\n");
        }
        unless_closed(self.to.write_all(self.line.as_bytes()))
    }
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
