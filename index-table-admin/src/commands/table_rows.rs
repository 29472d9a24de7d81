//! The rows of a table, or of a part of an index, as JSON or CSV.

use std::io::{self, BufWriter};

use clap::Args;
use index_table::__private::admin::UntypedEntry;

use super::rows::{PRIMARY_KEY, Part, Shown};
use crate::{
    cli::Dir,
    commands::dump::interrupted,
    failure::Failure,
    forms::{Format, Writer},
    interrupt::{is_stopping, stop_on_ctrl_c},
    open::Opened,
    output::Output,
    part,
    typed::Declared,
};

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

impl Rows {
    pub(crate) fn run(self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        let opened = Opened::to_read(out, &self.dir.dir)?;
        let table = Shown::open(&opened, declared, &self.table)?;
        let index = self.index.as_deref().unwrap_or(PRIMARY_KEY);
        let fields = table.fields(index)?;
        let primary = table.untyped.primary_key();
        let range = self.part.bounds(index, &self.values, (&fields, &primary))?;
        let after = self.part.after.clone();
        let is_whole = self.columns.is_empty() && self.format == Format::Csv;
        stop_on_ctrl_c(out);
        let txn = opened.store.read()?;
        let (mut last, mut json) = (None, String::new());
        let (mut cut, mut is_interrupted) = (false, false);
        let to = BufWriter::new(io::stdout().lock());
        let mut rows =
            Writer::new(to, self.format, self.columns).shown_on_terminal(out.is_terminal);
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
        let next = last.map(|(key, primary_key)| part::cursor(&key, &primary_key));
        if is_interrupted {
            return Err(interrupted(next.or(after)));
        }
        if let Some(next) = next {
            out.more("rows", &next);
        }
        Ok(())
    }
}
