use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use super::raw_finding::{Fix, RawFinding};
use crate::{model::schema::TableSchema, query::Cursor};

/// The maximum number of findings that a [`VerifyReport`] lists. It counts all of them.
const LISTED: usize = 1000;

/// The kind of a [`Finding`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[non_exhaustive]
pub enum FindingKind {
    /// A row has no entry under one of its keys, so queries on the index don't return it.
    Missing,
    /// An entry refers to a row that is not in the table.
    Dangling,
    /// An entry differs from its row: the row doesn't have this key, or has other included fields, or differs
    /// from the copy in a full index.
    Stale,
    /// An index has bytes that this crate does not write: an entry whose key can't be decoded, or a block of
    /// primary keys that is empty, truncated, out of order or at the wrong position.
    Malformed,
    /// A row can't be decoded.
    UndecodableRow,
    /// A row is stored under a primary key that differs from its own.
    WrongPrimaryKey,
    /// The conversion of a row of an older version fails, or changes its primary key or a field that
    /// `#[table(changed = […])]` doesn't name.
    WrongConversion,
    /// Two rows have the same key in a unique index.
    Duplicate,
    /// LMDB's count of a table or an index differs from its contents.
    WrongCount,
    /// The queue of a table's eventual indexes has records that this crate does not write, or a wrong
    /// progress, so the missing changes of these indexes are unknown.
    DamagedQueue,
    /// The totals of a group in an aggregate differ from the rows of the group.
    WrongTotals,
    /// A row refers to a row that does not exist.
    Orphan,
    /// A row is not in the shard of its shard key, so queries with this shard key don't find it.
    WrongShard,
    /// The copy of a reference table in a shard lacks a row of the first copy, or has another row.
    DifferentCopy,
}

/// A difference or damage. From [`Verify`](crate::Verify) and [`Repair`](crate::Repair).
///
/// `Display` shows the position, the problem and the action of [`Repair`](crate::Repair). Keys are shown
/// decoded, as in errors, and in hex if they can't be decoded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The kind.
    pub kind: FindingKind,
    /// The table.
    pub table: &'static str,
    /// The shard, in a sharded store.
    pub shard: Option<String>,
    /// The index, or the aggregate; `None` if the finding concerns a row, all rows or the queue.
    pub index: Option<&'static str>,
    /// The index key, if the finding concerns an entry or a piece; the group of an aggregate.
    pub key: Option<String>,
    /// The primary key, if the finding concerns an entry or a row.
    pub primary_key: Option<String>,
    /// The problem, as text.
    pub reason: String,
}

impl Finding {
    pub(super) fn new(schema: &TableSchema, shard: Option<&str>, found: &RawFinding) -> Self {
        let RawFinding { kind, source, key, primary_key, reason, aggregate, .. } = found;
        let shown = |key: &[u8], show: &dyn Fn() -> String| (!key.is_empty()).then(show);
        Self {
            kind: *kind,
            table: schema.name,
            shard: shard.map(str::to_owned),
            index: aggregate.map(|aggregate| aggregate.name).or(schema.index_name(*source)),
            key: shown(key, &|| match aggregate {
                Some(aggregate) => aggregate.show(key),
                None => schema.show_key(*source, key),
            }),
            primary_key: shown(primary_key, &|| schema.show_primary_key(primary_key)),
            reason: reason.clone().into_owned(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table `{}`", self.table)?;
        if let Some(shard) = &self.shard {
            write!(f, ", shard `{shard}`")?;
        }
        if let Some(index) = self.index {
            let what = if self.kind == FindingKind::WrongTotals { "aggregate" } else { "index" };
            write!(f, ", {what} `{index}`")?;
        }
        if let Some(key) = &self.key {
            write!(f, ", key {key}")?;
        }
        if let Some(primary_key) = &self.primary_key {
            write!(f, ", row {primary_key}")?;
        }
        let remedy = match self.kind {
            FindingKind::Missing => "`repair` writes it",
            FindingKind::Dangling => "`repair` removes it",
            FindingKind::Stale => "`repair` removes it, or rewrites it from the row",
            FindingKind::Malformed => "`repair` removes it and rewrites its entries from the rows",
            FindingKind::UndecodableRow | FindingKind::WrongPrimaryKey => {
                "`put` can't replace it; `repair` deletes it with `delete_unreadable_rows`"
            }
            FindingKind::WrongConversion => "correct the `From` or `TryFrom` of a later version",
            FindingKind::Duplicate => "change or delete one of the two rows, then `repair`",
            FindingKind::WrongCount if self.index.is_some() => "`repair` writes its entries again",
            FindingKind::WrongCount => "copy the rows to another table",
            FindingKind::Orphan => "insert the missing row, or change or delete the referring row",
            FindingKind::WrongTotals => "`repair` writes the totals of its rows",
            FindingKind::WrongShard => {
                "copy it, delete it in a transaction of its shard, and insert it again"
            }
            FindingKind::DifferentCopy => "`repair` replaces it with `copies_from`",
            FindingKind::DamagedQueue => {
                "`repair` empties it and rewrites the entries from the \
                                          rows"
            }
        };
        write!(f, ": {}; {remedy}", self.reason)
    }
}

/// The result of a verification or a repair. From [`Verify::run`](crate::Verify::run) and
/// [`Repair::run`](crate::Repair::run).
///
/// It is displayed as a summary, and a line for each finding of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct VerifyReport {
    /// The table.
    pub table: &'static str,
    /// The number of rows that were read in the order of the table.
    pub rows: u64,
    /// The number of entries that were compared with their rows.
    pub entries: u64,
    /// The number of findings of each kind; empty without findings.
    pub counts: BTreeMap<FindingKind, u64>,
    /// The number of findings that remain. After a verification, these are all findings; after a repair, the
    /// findings that it can't repair, or can repair only with another option.
    pub left: u64,
    /// The first thousand findings.
    pub findings: Vec<Finding>,
    /// The position to continue from; `None` if the whole table was read.
    pub next: Option<Cursor>,
}

impl VerifyReport {
    pub(crate) const fn new(schema: &TableSchema) -> Self {
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

    /// Whether there are no findings.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.counts.is_empty()
    }

    /// Adds the report of a verification that has continued after this verification.
    pub(crate) fn continue_with(&mut self, part: Self) {
        self.rows += part.rows;
        self.entries += part.entries;
        self.left += part.left;
        for (kind, count) in part.counts {
            *self.counts.entry(kind).or_default() += count;
        }
        let room = LISTED.saturating_sub(self.findings.len());
        self.findings.extend(part.findings.into_iter().take(room));
        self.next = part.next;
    }

    /// Returns the number of all findings.
    pub(super) fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Returns the number of findings of this kind.
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

    pub(super) fn add_repaired(
        &mut self,
        schema: &TableSchema,
        shard: Option<&str>,
        found: &RawFinding,
    ) {
        self.add(Finding::new(schema, shard, found));
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
