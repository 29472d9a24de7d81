//! All rows of a table, within limits.

use std::{
    io::{self, BufWriter, Write},
    time::{Duration, Instant},
};

use clap::Args;
use index_table::__private::admin::{UntypedField, UntypedRange};

use super::rows::Shown;
use crate::{
    cli::{Dir, unless_closed},
    failure::{Code, Failure},
    interrupt::{is_stopping, stop_after, stop_on_ctrl_c},
    open::Opened,
    output::Output,
    part,
    progress::Bar,
    typed::Declared,
    value,
};

/// A dump reads one snapshot. The limits bound the time for which its pages can't be reused.
#[derive(Debug, Args)]
pub(crate) struct Dump {
    #[command(flatten)]
    dir: Dir,
    /// The table.
    table: String,
    /// At most this number of rows.
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
    limit: u64,
    /// The rows after this cursor, which an earlier call has printed.
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// End after this time. If rows are left, the exit code is 6, and the error has the cursor to continue.
    #[arg(long, value_name = "SECONDS")]
    time_limit: Option<u64>,
}

/// The reason why a dump ended before the last row.
#[derive(Debug, Clone, Copy)]
enum End {
    Limit,
    Time,
    Interrupt,
}

impl Dump {
    pub(crate) fn run(&self, out: &Output, declared: &[Declared]) -> Result<(), Failure> {
        let opened = Opened::to_read(out, &self.dir.dir)?;
        let table = Shown::open(&opened, declared, &self.table)?;
        let untyped = &table.untyped;
        let range = UntypedRange {
            after: self.position(&untyped.primary_key())?.map(|key| (Vec::new(), key)),
            ..UntypedRange::default()
        };
        stop_on_ctrl_c(out);
        let time = self.time_limit.map(Duration::from_secs);
        let begun = Instant::now();
        if let Some(time) = time {
            stop_after(out, time);
        }
        let txn = opened.store.read()?;
        let mut lines = BufWriter::new(io::stdout().lock());
        let total = if out.progress_beside && self.after.is_none() {
            Some(untyped.count(&txn, &range)?.min(self.limit))
        } else {
            None
        };
        let (bar, mut done) = (Bar::beside_output(out), 0_u64);
        let (mut end, mut last, mut line) = (None, None, String::new());
        untyped.each_entry(&txn, &range, |row| {
            end = match time {
                _ if done == self.limit => Some(End::Limit),
                // Each call makes progress.
                Some(time) if done > 0 && begun.elapsed() >= time => Some(End::Time),
                _ if is_stopping() => Some(End::Interrupt),
                _ => None,
            };
            if end.is_some() {
                return Ok(false);
            }
            done += 1;
            if done.is_multiple_of(1024) {
                bar.count("rows", done, total);
            }
            let key = last.get_or_insert_with(Vec::new);
            key.clear();
            key.extend_from_slice(row.primary_key);
            line.clear();
            table.append(&row, &mut line)?;
            line.push('\n');
            unless_closed(lines.write_all(line.as_bytes()))
        })?;
        drop(txn);
        let is_open = unless_closed(lines.flush())?;
        drop((lines, bar));
        let Some(end) = end.filter(|_| is_open) else { return Ok(()) };
        let cursor = last.map_or_else(|| self.after.clone(), |key| Some(value::hex(&key)));
        ended(out, end, cursor.as_deref())
    }

    /// Reads the cursor, a primary key with these fields.
    fn position(&self, primary: &[UntypedField]) -> Result<Option<Vec<u8>>, Failure> {
        let Some(cursor) = &self.after else { return Ok(None) };
        let key =
            value::bytes(cursor).filter(|key| part::is_key(primary, key)).ok_or_else(|| {
                Failure::arguments(format!(
                    "`{cursor}` is not a cursor of an earlier call of `dump`"
                ))
            })?;
        Ok(Some(key))
    }
}

/// Reports that rows are left.
fn ended(out: &Output, end: End, cursor: Option<&str>) -> Result<(), Failure> {
    match (end, cursor) {
        (End::Limit, None) => Ok(()),
        (End::Limit, Some(cursor)) => {
            out.more("rows", cursor);
            Ok(())
        }
        (End::Time, _) => {
            let message = format!("rows are left after the time limit; {}", way_out(cursor));
            Err(Failure {
                next: cursor.map(str::to_owned),
                ..Failure::new(Code::TimeLimit, message)
            })
        }
        (End::Interrupt, _) => Err(interrupted(cursor.map(str::to_owned))),
    }
}

/// Returns the failure of a command that Ctrl-C has ended at a row, with the cursor to continue.
pub(super) fn interrupted(next: Option<String>) -> Failure {
    let message = format!("interrupted; {}", way_out(next.as_deref()));
    Failure { next, ..Failure::new(Code::Interrupted, message) }
}

fn way_out(cursor: Option<&str>) -> String {
    match cursor {
        Some(cursor) => format!("continue with `--after {cursor}`"),
        None => "run the command again".to_owned(),
    }
}
