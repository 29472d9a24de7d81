//! The report: Markdown, and a picture of how each cost grows.

mod machine;
mod markdown;
mod plot;
mod targets;

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};

pub use self::machine::Machine;
use crate::{
    build_cost::Cost,
    eventual, films,
    results::{Measure, Results},
    writers,
};

/// The contents of a report. Saved as JSON, it can be written again without measuring.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Measured {
    /// The machine of the measurement.
    pub machine: Machine,
    /// The customers.
    pub customers: Results,
    /// The films, if there was a file.
    pub films: Option<films::Results>,
    /// The compile times; empty if they were not measured.
    pub build: Vec<Cost>,
    /// Durable commits of many threads and of one; empty if they were not measured.
    #[serde(default)]
    pub writers: Vec<writers::Results>,
    /// Eventual indexes, if they were measured.
    #[serde(default)]
    pub eventual: Option<eventual::Results>,
}

impl Measured {
    /// Returns the targets and figures, without the text.
    #[must_use]
    pub fn tables(&self) -> String {
        markdown::tables(self)
    }

    /// Writes the report to `file`, and the picture to an `.svg` file in the same directory.
    ///
    /// # Errors
    ///
    /// If a file can't be written.
    pub fn write(&self, file: &Path) -> std::io::Result<()> {
        let picture = file.with_extension("svg");
        let name = picture.file_name().unwrap_or_default().to_string_lossy().into_owned();
        fs::write(&picture, plot::picture(&self.customers))?;
        fs::write(file, markdown::report(self, &name))
    }
}

/// The measures in the tables and plots, with their names and units.
const MEASURES: [(Measure, &str, Unit); 22] = [
    (Measure::Load, "load, one transaction", Unit::Time),
    (Measure::LoadToDisk, "load, one transaction, to disk", Unit::Time),
    (Measure::BulkLoad, "bulk load", Unit::Time),
    (Measure::BulkLoadToDisk, "bulk load, to disk", Unit::Time),
    (Measure::InsertOneByOne, "durable inserts, to disk", Unit::Time),
    (Measure::InsertOneByOneInMemory, "inserts, a transaction each", Unit::Time),
    (Measure::Insert, "inserts, one transaction", Unit::Time),
    (Measure::Get, "point get, one transaction", Unit::Time),
    (Measure::GetOneByOne, "point get, a transaction each", Unit::Time),
    (Measure::GetByEmail, "point get by unique index", Unit::Time),
    (Measure::RowsOfTown, "one key to rows, a row", Unit::Time),
    (Measure::EntriesOfTown, "one key, covered, an entry", Unit::Time),
    (Measure::RowsInRange, "prefix and range to rows, a row", Unit::Time),
    (Measure::Page, "page of 20, deep", Unit::Time),
    (Measure::Count, "count of one key", Unit::Time),
    (Measure::SetFirstName, "update, field in no index", Unit::Time),
    (Measure::SetTown, "update, field in two indexes", Unit::Time),
    (Measure::Delete, "delete", Unit::Time),
    (Measure::Reopen, "reopen and get", Unit::Time),
    (Measure::Space, "space, a row", Unit::Bytes),
    (Measure::BulkSpace, "space after a bulk load, a row", Unit::Bytes),
    (Measure::Allocations, "allocations, a covered entry", Unit::Count),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// A time in nanoseconds.
    Time,
    Bytes,
    Count,
}

impl Unit {
    /// Formats a figure with its unit.
    fn show(self, figure: f64) -> String {
        let (figure, unit) = match self {
            Self::Time if figure >= 1e6 => (figure / 1e6, " ms"),
            Self::Time if figure >= 1e3 => (figure / 1e3, " µs"),
            Self::Time => (figure, " ns"),
            Self::Bytes if figure >= 1024.0 => (figure / 1024.0, " KiB"),
            Self::Bytes => (figure, " B"),
            Self::Count => return format!("{figure:.2}"),
        };
        format!("{}{unit}", short(figure))
    }
}

/// Formats a figure with three digits.
fn short(figure: f64) -> String {
    match figure {
        ..10.0 => format!("{figure:.2}"),
        ..100.0 => format!("{figure:.1}"),
        _ => format!("{figure:.0}"),
    }
}

/// Formats a number with thousands separators.
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
