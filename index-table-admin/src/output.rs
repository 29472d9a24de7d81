//! Output: tables that fit the terminal, or JSON.

use std::{
    io::{self, BufWriter, IsTerminal as _, Write},
    sync::Arc,
};

use serde::Serialize;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::{
    operations::Job,
    server::without_passwords,
    value::{escaped_json, printable},
};

/// When the output has colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Color {
    /// If the output is a terminal, and `NO_COLOR` is not set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Color {
    fn is_on(self, is_terminal: bool) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                is_terminal && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty())
            }
        }
    }
}

/// The destination of a command's results.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "the settings are independent")]
pub(crate) struct Output {
    pub(crate) json: bool,
    color: bool,
    error_color: bool,
    /// The columns of the terminal; `None` if the output is no terminal.
    width: Option<usize>,
    /// The columns of the terminal of the standard error stream; `None` if it is no terminal.
    error_width: Option<usize>,
    pub(crate) is_terminal: bool,
    /// Whether a bar is shown beside lines of the output: the error stream is a terminal, and the output is not.
    pub(crate) progress_beside: bool,
    /// A service's job, which gets the results instead of the streams of this process.
    pub(crate) job: Option<Arc<Job>>,
}

impl Output {
    pub(crate) fn new(json: bool, color: Color) -> Self {
        let is_terminal = io::stdout().is_terminal();
        let set = columns();
        let size = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
        let width = if is_terminal { set.or_else(size) } else { set };
        let (color, error_color) =
            (color.is_on(is_terminal), color.is_on(io::stderr().is_terminal()));
        let progress_beside = io::stderr().is_terminal() && !is_terminal;
        let (error_width, job) = (error_width(), None);
        Self { json, color, error_color, width, error_width, is_terminal, progress_beside, job }
    }

    /// Returns the destination of the results of a job.
    pub(crate) fn of_job(job: Arc<Job>) -> Self {
        let (json, color, error_color, is_terminal, progress_beside) =
            (true, false, false, false, false);
        let (width, error_width, job) = (None, None, Some(job));
        Self { json, color, error_color, width, error_width, is_terminal, progress_beside, job }
    }

    /// Whether this is work of a job that was asked to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.job.as_ref().is_some_and(|job| job.is_stopping())
    }

    /// Whether this is work of a job that an operator has cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.job.as_ref().is_some_and(|job| job.is_cancelled())
    }

    /// Writes a value as JSON, or else the text that `text` writes.
    pub(crate) fn put(
        &self,
        value: &impl Serialize,
        text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        if let Some(job) = &self.job {
            let mut lines = Vec::new();
            text(&mut lines)?;
            job.put(serde_json::to_value(value)?, &String::from_utf8_lossy(&lines));
            return Ok(());
        }
        let mut out = BufWriter::new(io::stdout().lock());
        let written = if self.json {
            // The order of fields does not depend on the features of the program.
            let sorted = serde_json::to_value(value).and_then(|mut value| {
                value.sort_all_objects();
                serde_json::to_string_pretty(&value)
            });
            sorted
                .map_err(io::Error::from)
                .and_then(|json| writeln!(out, "{}", escaped_json(&json)))
        } else {
            let mut lines = Vec::new();
            text(&mut lines).and_then(|()| {
                let lines = String::from_utf8_lossy(&lines);
                lines.lines().map(|line| self.cleaned(line)).try_for_each(|line| match self.width {
                    Some(room) => writeln!(out, "{}", wrapped(&line, room)),
                    None => writeln!(out, "{line}"),
                })
            })
        };
        match written.and_then(|()| out.flush()) {
            // The reader has enough, as in `index-table tables … | head -1`.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written,
        }
    }

    /// Replaces what data could write to control the terminal. The colours of headings stay.
    fn cleaned(&self, line: &str) -> String {
        let (mut cleaned, mut rest) = (String::with_capacity(line.len()), line);
        while let Some(at) = rest.find('\x1b').filter(|_| self.color) {
            let (before, after) = rest.split_at(at);
            let own = [BOLD, PLAIN].into_iter().find(|own| after.starts_with(own));
            let code = own.unwrap_or("\x1b");
            cleaned += &printable(before);
            cleaned += &own.map_or_else(|| printable(code), str::to_owned);
            rest = after.get(code.len()..).unwrap_or_default();
        }
        cleaned + &printable(rest)
    }

    /// Writes a document as JSON, also without `--json`. Its fields have the order of their declaration.
    pub(crate) fn put_json(&self, document: &impl Serialize) -> io::Result<()> {
        let json = serde_json::to_string_pretty(document)?;
        Self { json: false, ..self.clone() }.put_text(&escaped_json(&json))
    }

    /// Returns the maximum number of lines, which is limited by default on a terminal only: a program must not lose lines.
    pub(crate) fn limit(&self, given: Option<u64>, on_terminal: u64) -> u64 {
        given.unwrap_or(if self.is_terminal { on_terminal } else { u64::MAX })
    }

    /// Writes a text whose lines stay as they are; with `--json`, as a string.
    pub(crate) fn put_text(&self, text: &str) -> io::Result<()> {
        Self { width: None, ..self.clone() }.put(&text, |out| out.write_all(text.as_bytes()))
    }

    /// Whether the output is a terminal that is narrower than this line.
    pub(crate) fn is_too_narrow(&self, line: &str) -> bool {
        self.is_terminal && self.width.is_some_and(|room| line.width() > room)
    }

    /// Writes what a command would do without `--dry-run`.
    pub(crate) fn would(&self, what: &str) -> io::Result<()> {
        self.put(&serde_json::json!({ "dry_run": what }), |text| writeln!(text, "would {what}"))
    }

    /// Writes a note for people, to the standard error stream.
    pub(crate) fn note(&self, text: &str) {
        if let Some(job) = &self.job {
            job.note(text);
            return;
        }
        // A closed stream is no reason to fail.
        let text = without_passwords(text);
        let _ = io::stderr().write_all(self.marked("note:", "\x1b[33m", &text).as_bytes());
    }

    /// Writes the cursor of the rows or keys that are left, to the standard error stream; with `--json`, as an object.
    pub(crate) fn more(&self, what: &str, cursor: &str) {
        if self.json {
            let _ = writeln!(io::stderr(), "{}", serde_json::json!({ "next": cursor }));
        } else {
            self.note(&format!("more {what} follow: `--after {cursor}`"));
        }
    }

    /// Writes an error.
    pub(crate) fn error(&self, code: u8, message: &str) {
        self.error_with(code, message, None);
    }

    /// Writes an error, with the cursor of the rows that are left.
    pub(crate) fn error_with(&self, code: u8, message: &str, next: Option<&str>) {
        // A closed stream is no reason to fail.
        let _ = io::stderr().write_all(self.error_line(code, message, next).as_bytes());
    }

    /// Returns the line of an error that ends the process at any moment, even while a bar is shown.
    pub(crate) fn abrupt_error(&self, code: u8, message: &str) -> String {
        let clear = if io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
        format!("{clear}{}", self.error_line(code, message, None))
    }

    fn error_line(&self, code: u8, message: &str, next: Option<&str>) -> String {
        let message = &without_passwords(message);
        if self.json {
            let mut error = serde_json::json!({ "error": message, "code": code });
            if let (Some(next), Some(fields)) = (next, error.as_object_mut()) {
                fields.insert("next".to_owned(), next.into());
            }
            return format!("{}\n", escaped_json(&error.to_string()));
        }
        self.marked("error:", "\x1b[31m", message)
    }

    /// Returns a line of the standard error stream that begins with a mark, such as `error:`.
    fn marked(&self, mark: &str, color: &str, message: &str) -> String {
        let line = format!("{mark} {}", printable(message));
        let lines = self.error_width.map_or_else(|| line.clone(), |room| wrapped(&line, room));
        match lines.strip_prefix(mark).filter(|_| self.error_color) {
            Some(rest) => format!("{color}{mark}\x1b[0m{rest}\n"),
            None => format!("{lines}\n"),
        }
    }

    /// Writes a table, or further rows of it.
    pub(crate) fn grid(&self, out: &mut dyn Write, grid: &mut Grid) -> io::Result<()> {
        grid.write(out, self.width, self.color)
    }

    /// Writes a report of the library. Its tables, which follow an empty line, fit the terminal.
    pub(crate) fn report(&self, out: &mut dyn Write, report: &str) -> io::Result<()> {
        let Some(room) = self.width else {
            return report.lines().try_for_each(|line| writeln!(out, "{}", printable(line)));
        };
        let lines: Vec<_> = report.lines().map(printable).collect();
        let mut follows_empty = false;
        for block in lines.chunk_by(|one, next| one.is_empty() == next.is_empty()) {
            let is_wide = block.iter().any(|line| line.width() > room);
            match Grid::of_lines(block).filter(|_| follows_empty && is_wide) {
                Some(mut grid) => grid.write(out, self.width, self.color)?,
                None => block.iter().try_for_each(|line| writeln!(out, "{line}"))?,
            }
            follows_empty = block.iter().any(String::is_empty);
        }
        Ok(())
    }
}

/// The codes of headings.
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

/// A table with a heading.
pub(crate) struct Grid {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
    /// The widths of the columns, once the heading is written.
    widths: Option<Vec<usize>>,
}

/// The alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// The least width to which a column is shortened.
const LEAST: usize = 6;

/// The number of rows that determine the widths of the columns.
const MOST_ROWS: usize = 1000;

impl Grid {
    pub(crate) fn new(columns: impl IntoIterator<Item = (&'static str, Align)>) -> Self {
        let columns = columns.into_iter().map(|(name, align)| (name.to_owned(), align));
        Self { columns: columns.collect(), rows: Vec::new(), widths: None }
    }

    /// Reads a table of text, whose columns are separated by at least two spaces in each line.
    fn of_lines(lines: &[String]) -> Option<Self> {
        let lines: Vec<Vec<char>> = lines.iter().map(|line| line.chars().collect()).collect();
        let length = lines.iter().map(Vec::len).max()?;
        let is_gap = |at: usize| lines.iter().all(|line| line.get(at).is_none_or(|it| *it == ' '));
        let gaps: Vec<_> = (0..length).map(is_gap).collect();
        // A single space may be a part of each cell.
        let separates = |at: usize| {
            let is = |at: Option<usize>| at.is_some_and(|at| gaps.get(at) == Some(&true));
            is(Some(at)) && (is(at.checked_sub(1)) || is(at.checked_add(1)))
        };
        let positions: Vec<_> = (0..length).collect();
        let columns = positions.chunk_by(|one, next| separates(*one) == separates(*next));
        let columns: Vec<_> =
            columns.filter(|part| part.first().is_some_and(|at| !separates(*at))).collect();
        let cell = |line: &Vec<char>, column: &[usize]| {
            let cell: String = column.iter().filter_map(|at| line.get(*at)).collect();
            cell.trim().to_owned()
        };
        let mut rows = lines.iter().map(|line| columns.iter().map(|part| cell(line, part)));
        let names: Vec<_> = rows.next()?.collect();
        let rows: Vec<Vec<String>> = rows.map(Iterator::collect).collect();
        let align = |at: usize| {
            let is_number =
                |row: &Vec<String>| row.get(at).is_some_and(|it| it.parse::<u64>().is_ok());
            if rows.iter().all(is_number) { Align::Right } else { Align::Left }
        };
        let columns = names.into_iter().enumerate().map(|(at, name)| (name, align(at))).collect();
        Some(Self { columns, rows, widths: None })
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| printable(&cell)).collect());
    }

    /// Whether the waiting rows should be written now, so that memory does not grow with their number.
    pub(crate) fn is_full(&self) -> bool {
        self.rows.len() >= MOST_ROWS
    }

    /// Writes the waiting rows, the first time with the heading. Later rows have the widths of the first rows. If the
    /// columns don't fit, each value has a line of its own.
    fn write(&mut self, out: &mut dyn Write, room: Option<usize>, color: bool) -> io::Result<()> {
        let is_first = self.widths.is_none();
        let widths = self.widths.take().unwrap_or_else(|| self.widths_in(room));
        let has_records = !(is_first && self.rows.is_empty());
        if let Some(room) = room.filter(|room| has_records && needed(&widths) > *room) {
            self.widths = Some(widths);
            return self.write_records(out, is_first, room, color);
        }
        if is_first {
            let names: Vec<_> = self.columns.iter().map(|(name, _)| name.clone()).collect();
            self.line(out, &names, &widths, room, color.then_some(BOLD))?;
        }
        for row in std::mem::take(&mut self.rows) {
            self.line(out, &row, &widths, room, None)?;
        }
        self.widths = Some(widths);
        Ok(())
    }

    /// Writes each row as lines with the names of the columns and the values. Empty values are left out.
    fn write_records(
        &mut self,
        out: &mut dyn Write,
        is_first: bool,
        room: usize,
        color: bool,
    ) -> io::Result<()> {
        let longest = self.columns.iter().map(|(name, _)| name.width()).max().unwrap_or_default();
        let (begin, end) = if color { (BOLD, PLAIN) } else { ("", "") };
        for (at, row) in std::mem::take(&mut self.rows).iter().enumerate() {
            if at > 0 || !is_first {
                writeln!(out)?;
            }
            for ((name, _), cell) in
                self.columns.iter().zip(row).filter(|(_, cell)| !cell.is_empty())
            {
                let padding = " ".repeat(longest.saturating_sub(name.width()));
                let rest = room.saturating_sub(longest + 2).max(1);
                writeln!(out, "{begin}{name}{end}{padding}  {}", shortened(cell, rest))?;
            }
        }
        Ok(())
    }

    fn widths_in(&self, room: Option<usize>) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|(name, _)| name.width()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width());
            }
        }
        if let Some(room) = room {
            fit(&mut widths, room);
        }
        widths
    }

    fn line(
        &self,
        out: &mut dyn Write,
        cells: &[String],
        widths: &[usize],
        room: Option<usize>,
        style: Option<&str>,
    ) -> io::Result<()> {
        let mut line = String::new();
        for ((cell, width), (_, align)) in cells.iter().zip(widths).zip(&self.columns) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            let cell = if room.is_some() { shortened(cell, *width) } else { cell.clone() };
            let padding = " ".repeat(width.saturating_sub(cell.width()));
            match align {
                Align::Left => line.extend([cell.as_str(), &padding]),
                Align::Right => line.extend([padding.as_str(), &cell]),
            }
        }
        // Later rows may be wider than the first.
        let line = room.map_or_else(|| line.clone(), |room| shortened(line.trim_end(), room));
        let line = line.trim_end();
        match style {
            Some(style) => writeln!(out, "{style}{line}{PLAIN}"),
            None => writeln!(out, "{line}"),
        }
    }
}

/// Returns the width of a line.
fn needed(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1)
}

/// Returns the width that the variable `COLUMNS` sets.
fn columns() -> Option<usize> {
    let set = std::env::var("COLUMNS").ok()?.parse().ok();
    set.filter(|columns| *columns > 0)
}

/// Returns the columns of the terminal of the standard error stream; `None` if it is no terminal.
pub(crate) fn error_width() -> Option<usize> {
    let size = || terminal_size::terminal_size_of(io::stderr()).map(|(width, _)| width.0.into());
    columns().or_else(size).filter(|_| io::stderr().is_terminal())
}

/// Breaks a line between words. The further lines are indented. A word that is longer than a line stays as a whole, so that it
/// can be copied. A line with colours is of a table, which fits.
fn wrapped(line: &str, room: usize) -> String {
    if line.width() <= room || line.contains('\u{1b}') {
        return line.to_owned();
    }
    let indent = line.len() - line.trim_start_matches(' ').len() + 2;
    let indent = if indent * 2 > room { 0 } else { indent };
    let (mut lines, mut used, mut has_word) = (String::new(), 0, false);
    for (at, word) in line.split(' ').enumerate() {
        let width = word.width();
        if at > 0 && has_word && !word.is_empty() && used + 1 + width > room {
            lines.truncate(lines.trim_end_matches(' ').len());
            lines.push('\n');
            lines.extend(std::iter::repeat_n(' ', indent));
            used = indent;
        } else if at > 0 {
            lines.push(' ');
            used += 1;
        }
        lines.push_str(word);
        used += width;
        has_word |= !word.is_empty();
    }
    lines
}

/// Makes the widest columns narrower until the line fits, if it can.
fn fit(widths: &mut [usize], room: usize) {
    while needed(widths) > room {
        let Some(widest) = widths.iter_mut().max() else { return };
        if *widest <= LEAST {
            return;
        }
        *widest -= 1;
    }
}

fn shortened(cell: &str, room: usize) -> String {
    if cell.width() <= room {
        return cell.to_owned();
    }
    let (mut kept, mut used) = (String::new(), 0);
    for character in cell.chars() {
        used += character.width().unwrap_or(0);
        if used + 1 > room {
            break;
        }
        kept.push(character);
    }
    kept + "…"
}

/// Returns the mark before a number, which an estimate has.
pub(crate) const fn mark(is_exact: bool) -> &'static str {
    if is_exact { "" } else { "≈" }
}

/// Shows a number with a mark if it is an estimate.
pub(crate) fn about(number: u64, is_exact: bool) -> String {
    format!("{}{number}", mark(is_exact))
}

/// Shows a number of bytes with a unit.
#[expect(clippy::cast_precision_loss, reason = "the result has two digits")]
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut size, mut name) = (bytes as f64, "B");
    for unit in UNITS {
        if size < 1024.0 {
            break;
        }
        (size, name) = (size / 1024.0, unit);
    }
    format!("{size:.1} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(width: Option<usize>) -> String {
        let mut grid = Grid::new([("name", Align::Left), ("rows", Align::Right)]);
        grid.row(["a very long name of a table".to_owned(), "7".to_owned()]);
        grid.row(["日本語\u{1b}[2J".to_owned(), "1234".to_owned()]);
        let mut out = Vec::new();
        grid.write(&mut out, width, false).expect("written");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_table_fits_the_terminal() {
        let lines = shown(Some(20));
        assert!(lines.lines().all(|line| line.width() <= 20), "{lines}");
        assert!(lines.contains("a very long n…"), "{lines}");
        assert!(shown(Some(9)).lines().all(|line| line.width() <= 9));
        assert!(shown(None).contains("a very long name of a table     7"));
    }

    #[test]
    fn a_table_with_too_many_columns_has_a_line_for_each_value() {
        let names = ["table", "rows", "bytes", "state", "note"];
        let mut grid = Grid::new(names.map(|name| (name, Align::Left)));
        let mut out = Vec::new();
        for name in ["customers", "orders"] {
            grid.row([name, "2000", "352.0 KiB", "readable, and more", ""].map(str::to_owned));
            grid.write(&mut out, Some(24), false).expect("written");
        }
        let shown = String::from_utf8(out).expect("text");
        let record = |name: &str| {
            format!("table  {name}\nrows   2000\nbytes  352.0 KiB\nstate  readable, and mo…\n")
        };
        assert_eq!(shown, format!("{}\n{}", record("customers"), record("orders")));
    }

    #[test]
    fn a_table_of_a_report_is_read_by_its_columns() {
        let lines = [
            "  index  key           rows",
            "  town   town: a text    20",
            "  id     -              7",
        ];
        let grid = Grid::of_lines(&lines.map(str::to_owned)).expect("a table");
        let columns = [("index", Align::Left), ("key", Align::Left), ("rows", Align::Right)];
        assert_eq!(grid.columns, columns.map(|(name, align)| (name.to_owned(), align)));
        assert_eq!(grid.rows, [["town", "town: a text", "20"], ["id", "-", "7"]]);
    }

    #[test]
    fn later_rows_have_the_widths_of_the_first_rows_and_are_complete() {
        let mut grid = Grid::new([("name", Align::Left), ("rows", Align::Right)]);
        let mut out = Vec::new();
        for name in ["first", "a much longer name"] {
            grid.row([name.to_owned(), "7".to_owned()]);
            grid.write(&mut out, None, false).expect("written");
        }
        let shown = String::from_utf8(out).expect("text");
        assert_eq!(shown, "name   rows\nfirst     7\na much longer name     7\n");
    }

    #[test]
    fn prose_is_broken_between_words() {
        assert_eq!(wrapped("short", 5), "short");
        assert_eq!(wrapped("  one two three", 9), "  one two\n    three");
        assert_eq!(wrapped("  one two three", 12), "  one two\n    three");
        assert_eq!(wrapped("see a-very-long-name of it", 12), "see\n  a-very-long-name\n  of it");
        assert_eq!(wrapped("        deep words", 12), "        deep\nwords");
    }

    #[test]
    fn data_can_not_control_the_terminal() {
        assert!(!shown(None).contains('\u{1b}'));
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(4096), "4.0 KiB");
        assert_eq!(bytes(5 << 30), "5.0 GiB");
    }
}
