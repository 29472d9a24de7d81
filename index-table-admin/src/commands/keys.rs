//! The keys of a table or of an index, in their order.

use std::io::{self, BufWriter, Write};

use clap::Args;
use index_table::__private::admin::{KeyBuf, KeyShape, UntypedField, UntypedRange};
use serde_json::{Map, Value};

use super::rows::PRIMARY_KEY;
use crate::{
    cli::{Dir, unless_closed},
    failure::{Code, Failure},
    names::unknown,
    open::{self, Opened},
    output::{Align, Grid, Output},
    part,
    value::{self, escaped_json},
};

/// The maximum number of keys on a terminal.
const ON_TERMINAL: u64 = 100;

#[derive(Debug, Args)]
pub(crate) struct Keys {
    #[command(flatten)]
    dir: Dir,
    /// The table.
    table: String,
    /// The index; without it or with `primary_key`, the primary keys of the rows.
    index: Option<String>,
    /// The first key: the values of its leading fields.
    #[arg(long, num_args = 1.., value_name = "VALUE", allow_negative_numbers = true)]
    from: Vec<String>,
    /// The key before which the list ends.
    #[arg(long, num_args = 1.., value_name = "VALUE", allow_negative_numbers = true)]
    to: Vec<String>,
    /// At most this number of keys. Default: 100 on a terminal, and otherwise all.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// The keys after this cursor, which an earlier call has printed.
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// In descending order.
    #[arg(long)]
    rev: bool,
}

impl Keys {
    pub(crate) fn run(self, out: &Output) -> Result<(), Failure> {
        let opened = Opened::to_read(out, &self.dir.dir)?;
        let tables = opened.store.open_recorded()?;
        let table = open::table(&tables, &self.table)?;
        let primary = table.primary_key();
        // As in `find`, unless an index has this name.
        let index = self.index.filter(|index| {
            index != PRIMARY_KEY || table.index_names().any(|name| name == PRIMARY_KEY)
        });
        let own = match &index {
            None => Vec::new(),
            Some(index) => {
                let names = table.index_names().chain([PRIMARY_KEY]);
                table.key_of(index).ok_or_else(|| unknown("index", index, names))?
            }
        };
        let bounded = if index.is_some() { &own } else { &primary };
        let mut range = UntypedRange {
            index,
            start: bound(bounded, &self.from)?.unwrap_or_default(),
            end: bound(bounded, &self.to)?,
            reverse: self.rev,
            ..UntypedRange::default()
        };
        if let Some(cursor) = &self.after {
            part::continue_after(&mut range, cursor, (&own, &primary))?;
        }
        let txn = opened.store.read()?;
        let mut left = out.limit(self.limit, ON_TERMINAL);
        if left == 0 {
            return Ok(());
        }
        let mut lines = BufWriter::new(io::stdout().lock());
        let mut grid = Grid::new(own.iter().chain(&primary).map(|field| (field.name, Align::Left)));
        let (mut last, mut cut) = (None, false);
        table.each_entry(&txn, &range, |entry| {
            if left == 0 {
                cut = true;
                return Ok(false);
            }
            left -= 1;
            let (key, primary_key): &mut (Vec<u8>, Vec<u8>) = last.get_or_insert_default();
            entry.key.clone_into(key);
            entry.primary_key.clone_into(primary_key);
            let shown = if out.json {
                let object = object(&own, entry.key, &primary, entry.primary_key)?;
                unless_closed(writeln!(lines, "{}", escaped_json(&object.to_string())))?
            } else {
                let mut cells = cells(&own, entry.key)?;
                cells.extend(cells_of(&primary, entry.primary_key)?);
                grid.row(cells);
                if grid.is_full() { unless_closed(out.grid(&mut lines, &mut grid))? } else { true }
            };
            Ok::<_, Failure>(shown)
        })?;
        if !out.json {
            unless_closed(out.grid(&mut lines, &mut grid))?;
        }
        unless_closed(lines.flush())?;
        if let Some((key, primary_key)) = last.filter(|_| cut) {
            out.more("keys", &part::cursor(&key, &primary_key));
        }
        Ok(())
    }
}

/// Returns the encoding of the leading fields; `None` if no values are given.
fn bound(fields: &[UntypedField], values: &[String]) -> Result<Option<Vec<u8>>, Failure> {
    if values.is_empty() {
        return Ok(None);
    }
    let mut key = KeyBuf::new();
    value::encode(fields, values, &mut key).map_err(Failure::arguments)?;
    Ok(Some(key.as_bytes().to_vec()))
}

fn cells(fields: &[UntypedField], key: &[u8]) -> Result<Vec<String>, Failure> {
    if fields.is_empty() { Ok(Vec::new()) } else { cells_of(fields, key) }
}

fn cells_of(fields: &[UntypedField], key: &[u8]) -> Result<Vec<String>, Failure> {
    let values = KeyShape::read_key(fields.iter().map(|field| &field.shape), key);
    let values = values.map_err(|error| damaged(key, &error.to_string()))?;
    let shown = fields.iter().zip(&values);
    Ok(shown.map(|(field, value)| value::show(&field.shape, value)).collect())
}

/// Returns the values by the names of their fields.
pub(crate) fn json_of(fields: &[UntypedField], key: &[u8]) -> Result<Value, Failure> {
    let values = KeyShape::read_key(fields.iter().map(|field| &field.shape), key);
    let values = values.map_err(|error| damaged(key, &error.to_string()))?;
    let values = fields.iter().zip(&values);
    let values = values.map(|(field, own)| (field.name.to_owned(), value::json(&field.shape, own)));
    Ok(Value::Object(values.collect()))
}

fn object(
    own: &[UntypedField],
    key: &[u8],
    primary: &[UntypedField],
    primary_key: &[u8],
) -> Result<Value, Failure> {
    let mut object = Map::new();
    if !own.is_empty() {
        object.insert("key".to_owned(), json_of(own, key)?);
    }
    object.insert("primary_key".to_owned(), json_of(primary, primary_key)?);
    Ok(Value::Object(object))
}

fn damaged(key: &[u8], reason: &str) -> Failure {
    let message = format!(
        "the key {} can't be decoded: {reason}; run `index-table check`, and the repository's `verify`",
        value::hex(key)
    );
    Failure::new(Code::Damage, message)
}
