//! The differences between the rows of two stores.

use std::{
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use clap::Args;
use index_table::__private::admin::{
    ChangedField, RecordedTables, RowDifference, RowValue, UntypedTable,
};
use serde_json::{Map, Value, json};

use super::{
    copies::{Moment, is_archive},
    keys,
    restored::{Copies, Copy},
};
use crate::{
    cli::unless_closed,
    failure::{Code, Failure, joined},
    names::unknown,
    open::Opened,
    output::Output,
    value::{escaped_json, printable},
};

/// Two stores whose rows are compared.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// The first store: a directory, the URL of a database on PostgreSQL, or an archive.
    #[arg(value_name = "A")]
    first: PathBuf,
    /// The second store, likewise.
    #[arg(value_name = "B")]
    second: PathBuf,
    /// Only this table.
    table: Option<String>,
    /// Show at most this number of rows. All are counted.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u64,
    #[command(flatten)]
    moment: Moment,
    /// The directory in which an archive is restored for the comparison; without it, that of the system for temporary files.
    #[arg(long, value_name = "DIR")]
    temp: Option<PathBuf>,
}

/// The counts of a table, or of all.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    rows: (u64, u64),
    only_in_first: u64,
    only_in_second: u64,
    changed: u64,
}

impl Counts {
    const fn differences(self) -> u64 {
        self.only_in_first + self.only_in_second + self.changed
    }
}

impl Diff {
    pub(crate) fn run(&self, out: &Output) -> Result<(), Failure> {
        let archives = [&self.first, &self.second].iter().filter(|it| is_archive(it)).count();
        if self.moment.is_given() && archives == 0 {
            return Err(Failure::arguments(
                "neither A nor B is an archive; leave out `--until`, `--until-commit` and `--until-end`",
            ));
        }
        let copies = (archives > 0).then(|| Copies::begin(out, self.temp.as_deref()));
        let open = |place, number| self.open(out, place, (copies.as_ref(), number));
        let (first, second) = (open(&self.first, 0)?, open(&self.second, 1)?);
        let (tables, others) = (first.opened.recorded(out)?, second.opened.recorded(out)?);
        let names = self.names(&tables, &others)?;
        let txns = (first.opened.store.read()?, second.opened.store.read()?);
        let mut lines = BufWriter::new(io::stdout().lock());
        let (mut left, mut has_differences) = (self.limit, false);
        for name in names {
            let find = |all: &RecordedTables| {
                all.tables.iter().find(|table| table.name() == name).cloned()
            };
            let (Some(own), Some(other)) = (find(&tables), find(&others)) else {
                let place = if find(&tables).is_some() { "first" } else { "second" };
                has_differences = true;
                let line = if out.json {
                    escaped_json(&json!({ "table": name, "only_in": place }).to_string())
                        .into_owned()
                } else {
                    format!("table `{}`: only in the {place} store", printable(&name))
                };
                unless_closed(writeln!(lines, "{line}"))?;
                continue;
            };
            let mut counts = Counts::default();
            let primary = own.primary_key();
            counts.rows = own.differences(&txns.0, (&other, &txns.1), |key, difference| {
                match difference {
                    RowDifference::OnlyInFirst => counts.only_in_first += 1,
                    RowDifference::OnlyInSecond => counts.only_in_second += 1,
                    RowDifference::Changed(_) => counts.changed += 1,
                }
                if left == 0 {
                    return Ok(true);
                }
                left -= 1;
                let key = keys::json_of(&primary, key)?;
                let line = if out.json {
                    escaped_json(&json_line(&name, &key, &difference)?.to_string()).into_owned()
                } else {
                    text_line(&name, &key, &difference)?
                };
                unless_closed(writeln!(lines, "{line}"))
            })?;
            has_differences |= counts.differences() > 0;
            let line = if out.json {
                escaped_json(&counts.json(&name).to_string()).into_owned()
            } else {
                printable(&counts.text(&name))
            };
            unless_closed(writeln!(lines, "{line}"))?;
        }
        unless_closed(lines.flush())?;
        if has_differences {
            return Err(Failure::new(Code::Damage, "the stores differ"));
        }
        Ok(())
    }

    /// Returns the names of the tables to compare.
    fn names(
        &self,
        tables: &RecordedTables,
        others: &RecordedTables,
    ) -> Result<Vec<String>, Failure> {
        let skipped = tables.skipped.iter().chain(&others.skipped);
        let mut skipped =
            skipped.filter(|(name, _)| self.table.as_ref().is_none_or(|it| it == name));
        if let Some((name, reason)) = skipped.next() {
            return Err(Failure::other(format!("table `{name}` can't be opened: {reason}")));
        }
        let all = tables.tables.iter().chain(&others.tables).map(UntypedTable::name);
        let mut names: Vec<_> = all.map(str::to_owned).collect();
        names.sort_unstable();
        names.dedup();
        if let Some(only) = &self.table {
            if !names.contains(only) {
                return Err(unknown("table", only, names.iter().map(String::as_str)));
            }
            names.retain(|name| name == only);
        }
        Ok(names)
    }

    /// Opens the first or the second store, or an archive in a copy.
    fn open(
        &self,
        out: &Output,
        place: &Path,
        (copies, number): (Option<&Copies>, usize),
    ) -> Result<Compared, Failure> {
        let Some(copies) = copies.filter(|_| is_archive(place)) else {
            let opened = Opened::to_read(out, place)?;
            let missing = opened.missing_shards();
            if !missing.is_empty() {
                return Err(Failure::new(Code::Unavailable, joined(&missing)));
            }
            return Ok(Compared { opened, _copy: None });
        };
        let copy = copies.reserve(number)?;
        self.moment.restore(place, &copy.place)?;
        Ok(Compared { opened: Opened::to_read(out, &copy.place)?, _copy: Some(copy) })
    }
}

/// An open store, and the directory that is removed after it is closed.
struct Compared {
    opened: Opened,
    _copy: Option<Copy>,
}

impl Counts {
    fn json(self, table: &str) -> Value {
        json!({
            "table": table,
            "rows": [self.rows.0, self.rows.1],
            "only_in_first": self.only_in_first,
            "only_in_second": self.only_in_second,
            "changed": self.changed,
        })
    }

    fn text(self, table: &str) -> String {
        let (first, second) = self.rows;
        if self.differences() == 0 {
            return format!("table `{table}`: equal, {first} rows");
        }
        format!(
            "table `{table}`: {} only in the first store, {} only in the second, {} changed; {first} and {second} rows",
            self.only_in_first, self.only_in_second, self.changed
        )
    }
}

fn shown(value: &RowValue) -> Result<String, Failure> {
    index_table::json::to_string(value).map_err(|error| Failure::other(error.to_string()))
}

fn json_line(table: &str, key: &Value, difference: &RowDifference) -> Result<Value, Failure> {
    let mut line = json!({ "table": table, "primary_key": key });
    let (name, value) = match difference {
        RowDifference::OnlyInFirst => ("only_in", "first".into()),
        RowDifference::OnlyInSecond => ("only_in", "second".into()),
        RowDifference::Changed(fields) => {
            let mut changed = Map::new();
            for ChangedField { name, first, second } in fields {
                let mut field = Map::new();
                for (store, value) in [("first", first), ("second", second)] {
                    if let Some(value) = value {
                        let value = serde_json::from_str(&shown(value)?);
                        let value = value.map_err(|error| Failure::other(error.to_string()))?;
                        field.insert(store.to_owned(), value);
                    }
                }
                changed.insert(name.clone(), Value::Object(field));
            }
            ("changed", Value::Object(changed))
        }
    };
    if let Some(line) = line.as_object_mut() {
        line.insert(name.to_owned(), value);
    }
    Ok(line)
}

fn text_line(table: &str, key: &Value, difference: &RowDifference) -> Result<String, Failure> {
    let line = match difference {
        RowDifference::OnlyInFirst => format!("- {table} {key}"),
        RowDifference::OnlyInSecond => format!("+ {table} {key}"),
        RowDifference::Changed(fields) => {
            let value = |value: &Option<RowValue>| {
                value.as_ref().map_or_else(|| Ok("no value".to_owned()), shown)
            };
            let mut line = format!("~ {table} {key}");
            for (at, field) in fields.iter().enumerate() {
                line.push_str(if at == 0 { ": " } else { ", " });
                let (first, second) = (value(&field.first)?, value(&field.second)?);
                line.extend([field.name.as_str(), " ", &first, " becomes ", &second]);
            }
            line
        }
    };
    Ok(printable(&line))
}
