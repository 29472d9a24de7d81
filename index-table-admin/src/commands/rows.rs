//! Single rows, and queries by an index.

use std::{
    borrow::Cow,
    io::{self, BufWriter, Write},
};

use clap::Args;
use index_table::{
    __private::admin::{KeyBuf, UntypedEntry, UntypedField, UntypedRange, UntypedTable},
    ReadTxn,
};
use serde_json::json;

use crate::{
    cli::{Dir, Written, unless_closed},
    failure::Failure,
    names::unknown,
    open::{self, Opened},
    output::Output,
    part::{self, Next},
    typed::{Declared, Typed},
    value::{self, escaped_json},
};

use super::writes::{Target, refused};

/// A row by its primary key.
#[derive(Debug, Args)]
pub(crate) struct Key<D: Args> {
    #[command(flatten)]
    dir: D,
    /// The table.
    table: String,
    /// The values of the fields of its primary key.
    #[arg(required = true, value_name = "KEY", allow_negative_numbers = true)]
    values: Vec<String>,
}

impl Key<Dir> {
    pub(crate) fn get(&self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        let opened = Opened::to_read(out, &self.dir.dir)?;
        let table = Shown::open(&opened, declared, &self.table)?;
        let untyped = &table.untyped;
        let primary_key = self.encoded(&untyped.primary_key())?;
        let txn = opened.store.read()?;
        let Some(data) = untyped.row(&txn, &primary_key)? else { return Err(self.missing()) };
        let row = UntypedEntry { key: &[], primary_key: &primary_key, data };
        let json = table.json(&row)?;
        if out.json {
            return unless_closed(writeln!(io::stdout(), "{json}")).map(drop);
        }
        unless_closed(writeln!(io::stdout(), "{}", indented(&json))).map(drop)
    }
}

impl Key<Written> {
    pub(crate) fn delete(&self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        let opened = Opened::to_write(out, &self.dir)?;
        let Target { table, .. } = &Target::open(&opened, declared, &self.table)?;
        let primary_key = self.encoded(&table.untyped().primary_key())?;
        let deleted = opened.store.transaction(|txn| table.delete_encoded(txn, &primary_key));
        if !deleted.map_err(refused)? {
            return Err(self.missing());
        }
        Ok(out.put(&json!({ "deleted": 1 }), |text| writeln!(text, "deleted 1 row"))?)
    }
}

impl<D: Args> Key<D> {
    /// Returns the encoding of the whole key.
    fn encoded(&self, fields: &[UntypedField]) -> Result<Vec<u8>, Failure> {
        if self.values.len() < fields.len() {
            let names: Vec<_> = fields.iter().map(|field| field.name).collect();
            return Err(Failure::arguments(format!(
                "the primary key has the fields {}; give a value for each",
                names.join(", ")
            )));
        }
        let mut key = KeyBuf::new();
        value::encode(fields, &self.values, &mut key).map_err(Failure::arguments)?;
        Ok(key.as_bytes().to_vec())
    }

    fn missing(&self) -> Failure {
        let (table, key) = (&self.table, self.values.join(", "));
        Failure::not_found(format!("table `{table}` has no row with the primary key {key}"))
    }
}

/// A query.
#[derive(Debug, Args)]
pub(crate) struct Find {
    #[command(flatten)]
    dir: Dir,
    /// The table.
    table: String,
    /// The index, or `primary_key`.
    index: String,
    /// The values of the leading fields of its key.
    #[arg(allow_negative_numbers = true)]
    values: Vec<String>,
    /// At most this number of rows. Default: 20 on a terminal, and otherwise all.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    #[command(flatten)]
    part: Part,
    /// Print the number of rows only.
    #[arg(long, conflicts_with_all = ["after", "rev"])]
    count: bool,
}

/// The maximum number of rows on a terminal.
const ON_TERMINAL: u64 = 20;

/// The part of an index.
#[derive(Debug, Args)]
pub(crate) struct Part {
    /// The range of the next field: `A..B` without B, `A..` or `..B`.
    #[arg(long, value_name = "A..B", allow_hyphen_values = true)]
    range: Option<String>,
    /// The start of the next field, which is text.
    #[arg(long, value_name = "TEXT", conflicts_with = "range")]
    starting_with: Option<String>,
    /// The rows after this cursor, which an earlier call has printed.
    #[arg(long, value_name = "CURSOR")]
    pub(super) after: Option<String>,
    /// In descending order.
    #[arg(long)]
    rev: bool,
}

/// A table whose rows are shown: with the program's type, if it declares the table, otherwise without.
pub(super) struct Shown {
    pub(super) untyped: UntypedTable,
    typed: Option<Box<dyn Typed>>,
}

impl Shown {
    pub(super) fn open(
        opened: &Opened,
        declared: &[Declared],
        name: &str,
    ) -> Result<Self, Failure> {
        if let Some(declared) = declared.iter().find(|table| table.name == name) {
            let typed = declared.open_online(&opened.store)?;
            return Ok(Self { untyped: typed.untyped(), typed: Some(typed) });
        }
        let tables = opened.store.open_recorded()?;
        let untyped = open::table(&tables, name)?.clone();
        Ok(Self { untyped, typed: None })
    }

    /// Appends a row in one line.
    pub(super) fn append(&self, row: &UntypedEntry<'_>, out: &mut String) -> Result<(), Failure> {
        if let Some(typed) = &self.typed {
            out.push_str(&escaped_json(&typed.show(row)?));
            return Ok(());
        }
        let begin = out.len();
        self.untyped.append_json(row, out)?;
        let own = out.get(begin..).unwrap_or_default();
        if let Cow::Owned(escaped) = escaped_json(own) {
            out.truncate(begin);
            out.push_str(&escaped);
        }
        Ok(())
    }

    /// Returns the bytes of the row of an entry; `None` for an eventual index whose entry is to be deleted, as its row is.
    pub(super) fn row_of<'t>(
        &'t self,
        txn: &'t ReadTxn<'_>,
        entry: &UntypedEntry<'_>,
        index: &str,
    ) -> Result<Option<&'t [u8]>, Failure> {
        match self.untyped.row(txn, entry.primary_key)? {
            None if !self.untyped.is_eventual(index) => Err(dangling(self.untyped.name(), index)),
            data => Ok(data),
        }
    }

    fn json(&self, row: &UntypedEntry<'_>) -> Result<String, Failure> {
        let mut json = String::new();
        self.append(row, &mut json)?;
        Ok(json)
    }

    /// Returns the fields of an index, or of the primary key.
    pub(super) fn fields(&self, index: &str) -> Result<Vec<UntypedField>, Failure> {
        if index == PRIMARY_KEY {
            return Ok(self.untyped.primary_key());
        }
        let names = self.untyped.index_names().chain([PRIMARY_KEY]);
        self.untyped.key_of(index).ok_or_else(|| unknown("index", index, names))
    }
}

/// The name of the fact table in the place of an index.
pub(super) const PRIMARY_KEY: &str = "primary_key";

impl Find {
    pub(crate) fn run(&self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        let opened = Opened::to_read(out, &self.dir.dir)?;
        let table = Shown::open(&opened, declared, &self.table)?;
        let untyped = &table.untyped;
        let fields = table.fields(&self.index)?;
        let primary = untyped.primary_key();
        let range = self.part.bounds(&self.index, &self.values, (&fields, &primary))?;
        let txn = opened.store.read()?;
        if self.count {
            let count = untyped.count(&txn, &range)?;
            return Ok(out.put(&json!({ "count": count }), |text| writeln!(text, "{count}"))?);
        }
        let (mut last, mut more) = (None, false);
        let mut lines = BufWriter::new(io::stdout().lock());
        let mut left = out.limit(self.limit, ON_TERMINAL);
        if out.json {
            unless_closed(write!(lines, "{{\"items\":["))?;
        }
        untyped.each_entry(&txn, &range, |entry| {
            if left == 0 {
                more = true;
                return Ok(false);
            }
            let Some(data) = table.row_of(&txn, &entry, &self.index)? else { return Ok(true) };
            left -= 1;
            let json = table.json(&UntypedEntry { data, ..entry })?;
            let is_first = last.is_none();
            last = Some(part::cursor(entry.key, entry.primary_key));
            unless_closed(if out.json {
                write!(lines, "{}{json}", if is_first { "" } else { "," })
            } else if out.is_too_narrow(&json) {
                writeln!(lines, "{}", indented(&json))
            } else {
                writeln!(lines, "{json}")
            })
        })?;
        let next = last.filter(|_| more);
        if out.json {
            let next = json!(next);
            unless_closed(writeln!(lines, "],\"next\":{next}}}"))?;
            return unless_closed(lines.flush()).map(drop);
        }
        unless_closed(lines.flush())?;
        if let Some(next) = next {
            out.more("rows", &next);
        }
        Ok(())
    }
}

impl Part {
    /// Returns the range of the index with these values of its leading fields. `fields` are those of the index, and of the primary key.
    pub(super) fn bounds(
        &self,
        index: &str,
        values: &[String],
        fields: (&[UntypedField], &[UntypedField]),
    ) -> Result<UntypedRange, Failure> {
        let next = match (&self.starting_with, &self.range) {
            (Some(text), _) => Next::StartingWith(text),
            (None, Some(bounds)) => {
                let (from, to) = bounds.split_once("..").ok_or_else(|| {
                    Failure::arguments(format!("`{bounds}` is not a range such as `A..B`"))
                })?;
                Next::Range(from, to)
            }
            (None, None) => Next::All,
        };
        let index = (index != PRIMARY_KEY).then_some(index);
        part::range(index, fields, (values, next), self.after.as_deref(), self.rev)
    }
}

/// Returns the declared table with this name.
pub(crate) fn find<'d>(declared: &'d [Declared], name: &str) -> Result<&'d Declared, Failure> {
    let names = declared.iter().map(|table| table.name);
    declared.iter().find(|table| table.name == name).ok_or_else(|| unknown("table", name, names))
}

/// Returns JSON with a line for each value. The order of fields and the form of numbers stay.
fn indented(json: &str) -> String {
    let (mut lines, mut depth, mut is_text) =
        (String::with_capacity(json.len() * 2), 0_usize, false);
    let line = |lines: &mut String, depth: usize| {
        lines.push('\n');
        lines.extend(std::iter::repeat_n("  ", depth));
    };
    let mut characters = json.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' => is_text = !is_text,
            '\\' if is_text => {
                lines.push(character);
                lines.extend(characters.next());
                continue;
            }
            _ => {}
        }
        match character {
            '{' | '[' if !is_text => {
                lines.push(character);
                if let Some(end) = characters.next_if(|next| ['}', ']'].contains(next)) {
                    lines.push(end);
                } else {
                    depth += 1;
                    line(&mut lines, depth);
                }
            }
            '}' | ']' if !is_text => {
                depth = depth.saturating_sub(1);
                line(&mut lines, depth);
                lines.push(character);
            }
            ',' if !is_text => {
                lines.push(character);
                line(&mut lines, depth);
            }
            ':' if !is_text => lines.push_str(": "),
            _ => lines.push(character),
        }
    }
    lines
}

fn dangling(table: &str, index: &str) -> Failure {
    Failure::damage(format!(
        "an entry of the index `{index}` of table `{table}` has no row; run `verify`, and then `repair`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indented_rows_keep_the_order_of_fields_and_the_form_of_numbers() {
        let json = r#"{"b":1e400,"a":[],"c":{"z":"x\",:{","y":[1,{}]}}"#;
        let lines = [
            "{",
            r#"  "b": 1e400,"#,
            r#"  "a": [],"#,
            r#"  "c": {"#,
            r#"    "z": "x\",:{","#,
            r#"    "y": ["#,
            "      1,",
            "      {}",
            "    ]",
            "  }",
            "}",
        ];
        assert_eq!(indented(json), lines.join("\n"));
    }
}
