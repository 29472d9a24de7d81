//! Rows as JSON lines, and the errors of loading them, with the numbers of the lines.

use std::io::{self, BufRead, Read as _};

use index_table::{Error, json::from_known_fields};
use serde::{Serialize, de::DeserializeOwned};

use crate::failure::Failure;

/// The number of a row, and of an earlier row of the load with the same key.
pub(crate) type FailedRow = (u64, Option<u64>);

/// The maximum bytes of a row as JSON, which is in memory as a whole.
pub(crate) const LONGEST: u64 = 256 << 20;

/// Reads a line with its end in place of the last one. Returns the number of its bytes: 0 at the end of the input.
pub(crate) fn read_line(input: &mut dyn BufRead, line: &mut String) -> io::Result<usize> {
    bounded(input, line, LONGEST)
}

fn bounded(input: &mut dyn BufRead, line: &mut String, longest: u64) -> io::Result<usize> {
    let mut bytes = std::mem::take(line).into_bytes();
    bytes.clear();
    // One byte more shows that a line is too long.
    let read = input.take(longest + 1).read_until(b'\n', &mut bytes)?;
    let invalid = |reason| io::Error::new(io::ErrorKind::InvalidData, reason);
    if read as u64 > longest {
        return Err(invalid(format!("it has more than {longest} bytes")));
    }
    *line = String::from_utf8(bytes).map_err(|error| invalid(error.to_string()))?;
    Ok(read)
}

/// Returns the lines of an input, with their ends.
pub(crate) fn lines_of(input: &mut dyn BufRead) -> impl Iterator<Item = io::Result<String>> {
    std::iter::from_fn(move || {
        let mut line = String::new();
        let read = read_line(input, &mut line);
        read.map(|read| (read > 0).then_some(line)).transpose()
    })
}

/// The lines that were read.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// The number of lines.
    read: u64,
    /// The number of rows.
    rows: u64,
    /// For each gap of empty lines: the rows before it, and the empty lines up to its end.
    gaps: Vec<(u64, u64)>,
}

impl Lines {
    /// Returns the row of a line; `None` if the line is empty.
    pub(crate) fn row<R: Serialize + DeserializeOwned>(
        &mut self,
        line: io::Result<String>,
    ) -> Option<Result<R, LoadError>> {
        self.read += 1;
        let row = line.map_err(|error| error.to_string()).and_then(|line| {
            if line.trim().is_empty() {
                return Ok(None);
            }
            let json = serde_json::from_str(&line).map_err(|error| error.to_string())?;
            from_known_fields(&json).map(Some).map_err(|error| error.to_string())
        });
        match row {
            Ok(Some(_)) => self.rows += 1,
            Ok(None) => self.note_gap(),
            Err(_) => {}
        }
        row.map_err(LoadError::Line).transpose()
    }

    fn note_gap(&mut self) {
        let empty = self.read - self.rows;
        match self.gaps.last_mut() {
            Some((rows, all)) if *rows == self.rows => *all = empty,
            _ => self.gaps.push((self.rows, empty)),
        }
    }

    /// Returns the line of the row with this number. The rows are numbered from 0, the lines from 1.
    fn line_of(&self, row: u64) -> u64 {
        let before = self.gaps.partition_point(|(rows, _)| *rows <= row);
        let empty = before.checked_sub(1).and_then(|at| self.gaps.get(at));
        row + 1 + empty.map_or(0, |(_, empty)| *empty)
    }

    /// Returns the failure of a load. If it is about the key of a row, `row` has the number of this row, and of an
    /// earlier row of the load with the same key.
    pub(crate) fn failure(&self, error: LoadError, row: Option<FailedRow>) -> Failure {
        let error = match error {
            LoadError::Line(reason) => {
                let line = self.read;
                return Failure::arguments(format!("line {line}: {reason}; no row was loaded"));
            }
            LoadError::Library(error) => error,
        };
        // The other shards have their rows.
        let (error, outcome) = match error {
            Error::ShardsNotLoaded { loaded, not_loaded, source, .. } => (
                *source,
                format!(
                    "no row was loaded in {}, and the rows of {} were loaded: when the reason is corrected, run the command with `--on-duplicate skip`",
                    not_loaded.join(", "),
                    loaded.join(", ")
                ),
            ),
            error => (error, "no row was loaded".to_owned()),
        };
        let place = self.place(&error, row);
        let of_key = match &error {
            Error::DuplicateKey { table, key } => Some((
                format!("table `{table}` already has a row with primary key {key}"),
                "`--on-duplicate skip` keeps the first row, and `--on-duplicate replace` the last"
                    .to_owned(),
            )),
            Error::UniqueViolation { table, index, key, holder } => Some((
                format!(
                    "unique index `{index}` of table `{table}` already has the key {key}, for the row with primary key {holder}"
                ),
                format!(
                    "`--on-duplicate skip` leaves out rows whose key exists, and `--on-duplicate replace` replaces rows with the same primary key only; to load this row, change the key, or delete the row with primary key {holder} first"
                ),
            )),
            _ => None,
        };
        let Failure { code, message, .. } = error.into();
        let message = match of_key {
            Some((what, way_out)) => format!("{place}{what}; {outcome}: {way_out}"),
            None => format!("{place}{message}; {outcome}"),
        };
        Failure::new(code, message)
    }

    /// Returns the lines of an error about a row.
    fn place(&self, error: &Error, row: Option<FailedRow>) -> String {
        use Error::{Codec, DuplicateKey, KeyTooLong, MissingReference, NoShard, UniqueViolation};
        match (error, row) {
            (DuplicateKey { .. } | UniqueViolation { .. }, Some((row, Some(earlier)))) => {
                let (line, earlier) = (self.line_of(row), self.line_of(earlier));
                format!("line {line}, with the key of line {earlier}: ")
            }
            (
                DuplicateKey { .. } | UniqueViolation { .. } | MissingReference { .. },
                Some((row, _)),
            ) => format!("line {}: ", self.line_of(row)),
            // These rows can't be encoded, so no line after them was read.
            (KeyTooLong { .. } | Codec { .. } | NoShard { .. }, _) => {
                format!("line {}: ", self.read)
            }
            _ => String::new(),
        }
    }
}

/// The reason why a load failed.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// The reason why the last line is not a row.
    Line(String),
    Library(Error),
}

impl From<Error> for LoadError {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_line_is_bounded() {
        let (mut input, mut line) = ("1234\n12345\n".as_bytes(), String::new());
        assert_eq!(bounded(&mut input, &mut line, 5).expect("short enough"), 5);
        assert_eq!(line, "1234\n");
        let error = bounded(&mut input, &mut line, 5).expect_err("too long");
        assert_eq!(error.to_string(), "it has more than 5 bytes");
    }

    #[test]
    fn rows_are_found_in_their_lines() {
        let mut lines = Lines::default();
        let text = ["", "1", "2", "", " ", "3", "", "4", "5"];
        for line in text {
            let _ = lines.row::<u8>(Ok(line.to_owned()));
        }
        let found: Vec<_> = (0..5).map(|row| text[lines.line_of(row) as usize - 1]).collect();
        assert_eq!(found, ["1", "2", "3", "4", "5"]);
    }
}
