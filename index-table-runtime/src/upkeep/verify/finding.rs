use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use super::raw_finding::{Fix, RawFinding};
use crate::{model::schema::TableSchema, query::Cursor};

/// Findings that a [`VerifyReport`] lists; all are counted.
const LISTED: usize = 1000;

/// What can be wrong with a table; see [`Finding`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[non_exhaustive]
pub enum FindingKind {
    /// A row has no entry under one of its keys, so the index doesn't find it.
    Missing,
    /// An entry refers to a row that is not in the table.
    Dangling,
    /// An entry isn't what its row says: the row doesn't have this key, or has other included
    /// fields, or isn't this copy of it.
    Stale,
    /// An index has something that this crate would not have written: an entry whose key can't be
    /// decoded, or a block of primary keys that is empty, cut, out of order or in the wrong place.
    Malformed,
    /// A row can't be decoded.
    UndecodableRow,
    /// A row is stored under another primary key than it has.
    WrongPrimaryKey,
    /// A row of an older version has another primary key once it is converted, or another value in a field
    /// that `#[table(changed = […])]` doesn't name.
    WrongConversion,
    /// Two rows have the same key in a unique index.
    Duplicate,
    /// LMDB's count of a table or an index is another one than what is in it.
    WrongCount,
    /// The queue of a table's eventual indexes has something that this crate would not have written,
    /// or is not as far as what is in it says: nobody knows what these indexes have not got yet.
    DamagedQueue,
}

/// One thing that is wrong. From [`Verify`](crate::Verify) and [`Repair`](crate::Repair).
///
/// Printed, it says where it is, what is wrong and what [`Repair`](crate::Repair) does about it.
/// Keys are shown decoded, as in errors, and in hex when they can't be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// What it is.
    pub kind: FindingKind,
    /// The table.
    pub table: &'static str,
    /// The index; `None`: it is about a row, all rows or the queue.
    pub index: Option<&'static str>,
    /// The index key, if it is about one.
    pub key: Option<String>,
    /// The primary key, if it is about one.
    pub primary_key: Option<String>,
    /// What exactly is wrong.
    pub reason: String,
}

impl Finding {
    pub(super) fn new(schema: &TableSchema, found: &RawFinding) -> Self {
        let RawFinding { kind, source, key, primary_key, reason, .. } = found;
        let shown = |key: &[u8], show: &dyn Fn() -> String| (!key.is_empty()).then(show);
        Self {
            kind: *kind,
            table: schema.name,
            index: schema.index_name(*source),
            key: shown(key, &|| schema.show_key(*source, key)),
            primary_key: shown(primary_key, &|| schema.show_primary_key(primary_key)),
            reason: reason.clone().into_owned(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table `{}`", self.table)?;
        if let Some(index) = self.index {
            write!(f, ", index `{index}`")?;
        }
        if let Some(key) = &self.key {
            write!(f, ", key {key}")?;
        }
        if let Some(primary_key) = &self.primary_key {
            write!(f, ", row {primary_key}")?;
        }
        let way_out = match self.kind {
            FindingKind::Missing => "`repair` writes it",
            FindingKind::Dangling => "`repair` removes it",
            FindingKind::Stale => "`repair` writes what the row says",
            FindingKind::Malformed => "`repair` removes it and writes what the rows say",
            FindingKind::UndecodableRow | FindingKind::WrongPrimaryKey => {
                "`put` can't replace it; `repair` deletes it if told `delete_unreadable_rows`"
            }
            FindingKind::WrongConversion => "the `From` of a later version has to keep it",
            FindingKind::Duplicate => "change or delete one of the two rows, then `repair`",
            FindingKind::WrongCount if self.index.is_some() => "`repair` builds the index anew",
            FindingKind::WrongCount => "copy the rows to another table",
            FindingKind::DamagedQueue => "`repair` empties it and writes what the rows say",
        };
        write!(f, ": {}; {way_out}", self.reason)
    }
}

/// What a verification or a repair has found, all in all. From [`Verify::run`](crate::Verify::run)
/// and [`Repair::run`](crate::Repair::run).
///
/// Printed, it is a line for what was looked at and one for each finding of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct VerifyReport {
    /// The table.
    pub table: &'static str,
    /// Rows that were read in the order of the table.
    pub rows: u64,
    /// Entries of indexes that were compared with their rows.
    pub entries: u64,
    /// How often each kind was found; no kind, if nothing was.
    pub counts: BTreeMap<FindingKind, u64>,
    /// How many of the findings are as they were: all of a verification, and of a repair those
    /// that it can't repair, or only with another option.
    pub left: u64,
    /// The first thousand findings.
    pub findings: Vec<Finding>,
    /// Where to continue; `None`: the whole table has been gone through.
    pub next: Option<Cursor>,
}

impl VerifyReport {
    pub(super) const fn new(schema: &TableSchema) -> Self {
        Self {
            table: schema.name,
            rows: 0,
            entries: 0,
            counts: BTreeMap::new(),
            left: 0,
            findings: Vec::new(),
            next: None,
        }
    }

    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.counts.is_empty()
    }

    /// How often this was found.
    #[must_use]
    pub fn count(&self, kind: FindingKind) -> u64 {
        self.counts.get(&kind).copied().unwrap_or_default()
    }

    pub(super) fn add(&mut self, finding: Finding) {
        self.left += 1;
        *self.counts.entry(finding.kind).or_default() += 1;
        if self.findings.len() < LISTED {
            self.findings.push(finding);
        }
    }

    pub(super) fn add_repaired(&mut self, schema: &TableSchema, found: &RawFinding) {
        self.add(Finding::new(schema, found));
        if !matches!(found.fix, Fix::None) {
            self.left -= 1;
        }
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, rows, entries, left, .. } = self;
        let found: u64 = self.counts.values().sum();
        writeln!(
            f,
            "table `{table}`: {rows} rows, {entries} entries, {found} findings, {left} left"
        )?;
        self.findings.iter().try_for_each(|finding| writeln!(f, "{finding}"))?;
        match found.saturating_sub(self.findings.len() as u64) {
            0 => Ok(()),
            more => writeln!(f, "and {more} more"),
        }
    }
}
