//! Writing rows as JSON: with the program's type, if it declares the table, otherwise by the recorded schema.

use std::{
    fs::File,
    io::{self, BufRead, Read},
    path::{Path, PathBuf},
};

use clap::Args;
use index_table::{Error, OnDuplicate, WriteTxn, json::JsonTable};
use serde_json::{Value, json};

use crate::{
    cli::Written,
    failure::{Code, Failure},
    interrupt::{is_stopping, stop_on_ctrl_c},
    lines::{LONGEST, read_line},
    names::unknown,
    open::Opened,
    output::Output,
    typed::{Declared, Loaded, Typed},
};

/// The maximum rows of a batch, which is a transaction, and about the maximum bytes of their lines.
const ROWS: usize = 1024;
const BYTES: usize = 4 << 20;

/// A row as JSON.
#[derive(Debug, Args)]
pub(crate) struct Row {
    #[command(flatten)]
    dir: Written,
    /// The table.
    table: String,
    /// The file with the row as JSON; without it, the standard input.
    file: Option<PathBuf>,
    /// Fail if the table has a row with the primary key.
    #[arg(long)]
    new: bool,
}

/// A table that is written: with the program's type, if it declares the table.
pub(super) struct Target {
    pub(super) table: JsonTable,
    /// While it is in use, the struct gives the entries.
    _typed: Option<Box<dyn Typed>>,
}

impl Target {
    pub(super) fn open(
        opened: &Opened,
        declared: &[Declared],
        name: &str,
    ) -> Result<Self, Failure> {
        let own = declared.iter().find(|table| table.name == name);
        let typed = own.map(|declared| declared.open(&opened.store)).transpose()?;
        match opened.store.table(name) {
            Ok(table) => Ok(Self { table, _typed: typed }),
            Err(Error::UnknownName { .. }) => {
                let catalog = opened.catalog()?;
                Err(unknown("table", name, catalog.tables.iter().map(|it| it.name.as_str())))
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Row {
    /// Adds or replaces a row.
    pub(crate) fn put(&self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        let row = self.read()?;
        let opened = Opened::to_write(out, &self.dir)?;
        let Target { table, .. } = &Target::open(&opened, declared, &self.table)?;
        let written = opened.store.transaction(|txn| {
            if self.new { table.insert(txn, &row) } else { table.put(txn, &row) }
        });
        written.map_err(refused)?;
        Ok(out.put(&json!({ "written": 1 }), |text| writeln!(text, "written 1 row"))?)
    }

    fn read(&self) -> Result<Value, Failure> {
        let mut text = String::new();
        let place = || match &self.file {
            Some(path) => format!("`{}`", path.display()),
            None => "the standard input".to_owned(),
        };
        let read = match &self.file {
            Some(path) => file(path)?.take(LONGEST).read_to_string(&mut text),
            None => io::stdin().lock().take(LONGEST).read_to_string(&mut text),
        };
        read.map_err(|error| Failure::other(format!("{} can't be read: {error}", place())))?;
        serde_json::from_str(&text).map_err(|error| {
            Failure::arguments(format!("{} is not one row as JSON: {error}", place()))
        })
    }
}

/// Returns the failure of writing a row. What is wrong in it is an error in the arguments.
pub(super) fn refused(error: Error) -> Failure {
    match &error {
        Error::InvalidJson { .. } => Failure::arguments(error.to_string()),
        _ => error.into(),
    }
}

fn file(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|error| super::upkeep::unreadable(path, &error))
}

/// A load without the type of the rows.
pub(super) struct PlainLoad<'l> {
    pub(super) table: &'l str,
    pub(super) on_duplicate: OnDuplicate,
}

/// The lines of a batch.
#[derive(Default)]
struct Batch {
    rows: Vec<(u64, Value)>,
    bytes: usize,
}

/// The counts of a load.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    read: u64,
    written: u64,
    skipped: u64,
    replaced: u64,
    /// The last line of the last committed batch.
    line: u64,
}

impl Counts {
    /// Returns what is loaded when the load ends early.
    fn so_far(self) -> String {
        match self.line {
            0 => "no row was loaded".to_owned(),
            line => format!(
                "the rows up to line {line} were loaded: continue with `--on-duplicate skip`, or with the lines after it"
            ),
        }
    }
}

impl PlainLoad<'_> {
    /// Loads the rows of lines in batches, each in a transaction. Memory does not grow with the number of rows.
    pub(super) fn run(
        &self,
        out: &Output,
        opened: &Opened,
        lines: &mut dyn BufRead,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Loaded, Failure> {
        let target = Target::open(opened, &[], self.table)?;
        stop_on_ctrl_c(out);
        let (mut counts, mut at) = (Counts::default(), 0_u64);
        loop {
            let batch = read(lines, &mut at)
                .map_err(|reason| Failure::arguments(format!("{reason}; {}", counts.so_far())))?;
            if batch.rows.is_empty() {
                break;
            }
            let mut failed = 0;
            let loaded = opened.store.transaction(|txn| {
                let mut own = counts;
                for (line, row) in &batch.rows {
                    failed = *line;
                    self.row(&target.table, txn, row, &mut own)?;
                }
                Ok::<_, Error>(own)
            });
            counts = loaded.map_err(|error| {
                let Failure { code, message, .. } = explained(error, self.on_duplicate);
                Failure::new(code, format!("line {failed}: {message}; {}", counts.so_far()))
            })?;
            counts.line = at;
            progress(counts.read);
            if is_stopping() || out.is_stopping() {
                return Err(Failure::new(
                    Code::Interrupted,
                    format!("interrupted; {}", counts.so_far()),
                ));
            }
        }
        let Counts { read, written, skipped, replaced, .. } = counts;
        Ok(Loaded { table: target.table.name(), read, written, skipped, replaced })
    }

    fn row(
        &self,
        table: &JsonTable,
        txn: &mut WriteTxn<'_>,
        row: &Value,
        counts: &mut Counts,
    ) -> index_table::Result<()> {
        counts.read += 1;
        match table.insert(txn, row) {
            Ok(()) => counts.written += 1,
            Err(Error::DuplicateKey { .. } | Error::UniqueViolation { .. })
                if self.on_duplicate == OnDuplicate::Skip =>
            {
                counts.skipped += 1;
            }
            Err(Error::DuplicateKey { .. }) if self.on_duplicate == OnDuplicate::Replace => {
                table.put(txn, row)?;
                counts.written += 1;
                counts.replaced += 1;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Reads the lines of the next batch. Without rows, it is the end.
fn read(lines: &mut dyn BufRead, at: &mut u64) -> Result<Batch, String> {
    let (mut batch, mut line) = (Batch::default(), String::new());
    while batch.rows.len() < ROWS && batch.bytes < BYTES {
        let failed = |error: &dyn std::fmt::Display| format!("line {}: {error}", *at + 1);
        let len = read_line(lines, &mut line).map_err(|error| failed(&error))?;
        if len == 0 {
            break;
        }
        if !line.trim().is_empty() {
            let row = serde_json::from_str(&line).map_err(|error| failed(&error))?;
            batch.rows.push((*at + 1, row));
            // Empty lines are skipped.
            batch.bytes += len;
        }
        *at += 1;
    }
    Ok(batch)
}

fn explained(error: Error, on_duplicate: OnDuplicate) -> Failure {
    let way_out = match (&error, on_duplicate) {
        (Error::DuplicateKey { .. }, OnDuplicate::Fail) => {
            "; `--on-duplicate skip` keeps the first row, and `--on-duplicate replace` the last"
        }
        _ => "",
    };
    let Failure { code, message, .. } = refused(error);
    Failure::new(code, message + way_out)
}
