mod copies;

use std::{fmt, mem};

use super::{
    finding::{FindingKind, VerifyReport},
    raw_finding::{Fix, RawFinding},
    resume_point::{ResumePoint, Stage},
    row::load,
    stop::{Stop, check_stop},
    walk::{self, Known, TableCheck},
};
use crate::model::KeyRange;
use crate::{
    engine::{Cursor as _, Query, Read, Write},
    model::{
        entry::Position,
        error::Result,
        key::MAX_KEY_LEN,
        maintain::{Change, Image, Sink},
        row_vtable::TableRows,
        schema::{IndexSchema, Source, TableSchema},
        shard::{Routing, ShardNumber},
    },
    placement::Writer,
    store::{OpenTable, ShardId, Unreadable, WriteTxn},
    upkeep::build,
    usage::{Progress, ProgressReporter, trace::span},
    write::{aggregates, watch::Watched},
};

/// The maximum number of findings that are collected before they are repaired. A write invalidates the pages
/// that the walk borrows, so findings and writes alternate.
const BATCH: usize = 1024;
/// The maximum bytes of findings that are collected before they are repaired.
const BATCH_BYTES: usize = 1 << 20;

/// Corrects the indexes of a table from its rows. From the `repair` of a repository; it does nothing until
/// [`run`](Repair::run).
///
/// The repair assumes that the rows are correct. Wrong entries are removed, missing and stale entries are
/// written, and the keys of damaged blocks are rewritten. Correct entries are not written. A row that can't
/// be decoded, or is stored under a wrong primary key, is reported and left with its entries, except with
/// [`delete_unreadable_rows`](Repair::delete_unreadable_rows). Two rows with the same key in a unique index
/// are reported and left too, since a repair can't choose between them.
///
/// Rows that were written with other fields are written again first, so that no entry and no total rests on
/// a default that can be another value later; in a store with several shards, `upgrade` does that before the repair. An index
/// without its right count of entries keeps them all, in new pages.
///
/// An index that lacks entries is skipped: use the repository's `build`. Eventual indexes are repaired
/// without waiting for their worker. If their queue is damaged, it is emptied
/// ([`DamagedQueue`](crate::FindingKind::DamagedQueue)).
///
/// If a block is damaged, the correct entries of its key are removed with the block and then rewritten. The
/// report counts them as [`Missing`](crate::FindingKind::Missing). If a row can't be decoded, its entries in
/// a damaged block are lost.
///
/// In a store with shards, the parts of the table in all shards are repaired, or the part
/// in one shard in a transaction of this shard.
///
/// The repair becomes permanent when the transaction is committed, so you can read the report first.
///
/// # Examples
///
/// The method of an index returns another value than when the rows were written, which opening a table can't
/// detect:
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
///
/// use index_table::{IndexTable, FindingKind, Store};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, IndexTable)]
/// #[index(computed(sort_name: String))]
/// struct Person {
///     #[primary_key]
///     id: u32,
///     name: String,
/// }
///
/// static CHANGED: AtomicBool = AtomicBool::new(false);
///
/// impl Person {
///     fn sort_name(&self) -> String {
///         if CHANGED.load(Relaxed) { self.name.to_lowercase() } else { self.name.clone() }
///     }
/// }
///
/// # fn main() -> index_table::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = Store::open(dir.path())?;
/// let people = PersonRepository::open(&store)?;
/// store.transaction(|txn| people.insert(txn, &Person { id: 1, name: "Smith".into() }))?;
/// CHANGED.store(true, Relaxed);
/// assert_eq!(people.find_by_sort_name(&store.read()?, "smith").count()?, 0);
///
/// let report = store.transaction(|txn| people.repair(txn).run())?;
/// assert_eq!(report.count(FindingKind::Stale), 1);
/// assert_eq!(report.count(FindingKind::Missing), 1);
/// assert_eq!(report.left, 0);
/// assert_eq!(people.find_by_sort_name(&store.read()?, "smith").count()?, 1);
/// assert!(people.verify(&store.read()?).run()?.is_clean());
/// # Ok(())
/// # }
/// ```
#[must_use = "a repair does nothing until `run`"]
pub struct Repair<'t, 's> {
    txn: &'t mut WriteTxn<'s>,
    table: &'t OpenTable,
    delete_unreadable: bool,
    copies_from: Option<&'t ShardId>,
    progress: Option<Box<dyn FnMut(Progress) + 't>>,
    stop: Stop<'t>,
}

impl<'t, 's> Repair<'t, 's> {
    pub(crate) const fn new(txn: &'t mut WriteTxn<'s>, table: &'t OpenTable) -> Self {
        Self { txn, table, delete_unreadable: false, copies_from: None, progress: None, stop: None }
    }

    /// Replaces the copies of a reference table by the copy in this shard. Without it,
    /// [`DifferentCopy`](FindingKind::DifferentCopy) remains, because a repair can't determine which copy is right. For other
    /// tables, it has no effect.
    ///
    /// Cost: each copy is compared with the copy in the shard.
    pub const fn copies_from(mut self, shard: &'t ShardId) -> Self {
        self.copies_from = Some(shard);
        self
    }

    /// Deletes the rows that can't be decoded, and the rows that are stored under a wrong primary key, with
    /// all of their entries. The contents of these rows are lost.
    ///
    /// Cost: the table is read again.
    pub const fn delete_unreadable_rows(mut self) -> Self {
        self.delete_unreadable = true;
        self
    }

    /// Calls `progress` every few thousand steps, which are the steps of [`Verify::progress`](crate::Verify::progress).
    /// In a sharded store, it begins again for each shard.
    ///
    /// Cost: the entries are counted first, as by [`Scan::count`](crate::Scan::count).
    pub fn progress(mut self, progress: impl FnMut(Progress) + 't) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Ends when `stop` returns true: [`run`](Repair::run) fails with [`Error::Io`](crate::Error::Io) with the kind `Interrupted`. It is
    /// not called while the pages are checked, and while rows that were written with other fields are searched.
    pub(crate) const fn stop_when(mut self, stop: &'t dyn Fn() -> bool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Repairs the differences of the whole table.
    ///
    /// Each page of the table is checked first: a damaged page is [`Error::Corrupt`](crate::Error::Corrupt) with the commands that
    /// help.
    ///
    /// Cost: a read of all pages, the cost of [`Verify`](crate::Verify), a read of all rows, and a write for each finding and for each row that was
    /// written with other fields. Memory for a thousand
    /// findings at a time.
    ///
    /// # Errors
    ///
    /// [`Error::KeyTooLong`](crate::Error::KeyTooLong) if a row has a key that no entry can have;
    /// [`Error::ShardRefused`](crate::Error::ShardRefused) if the shard of [`copies_from`](Repair::copies_from) is one of
    /// another store; the [errors of writing](crate::Error#common-errors). Drop the transaction after an
    /// error.
    pub fn run(self) -> Result<VerifyReport> {
        span!(DEBUG, "repair", table = self.table.schema.name);
        let Self { txn, table, delete_unreadable, copies_from, progress, stop } = self;
        let mut steps = progress.map(|it| ProgressReporter::new(Some(it), "steps", None));
        let steps = &mut steps;
        let rows = &table.rows;
        let source = copies_from.map(|shard| shard.number_in(txn.store())).transpose()?;
        // Checks all pages first. A writer of the table can't begin before its queues are readable.
        let damages = txn.repair_queues(table)?;
        let is_sharded = table.tables.several().is_some();
        let unreadable = if is_sharded { None } else { Some(txn.unreadable(table)?) };
        let (mut writer, _, written) = txn.writer(table)?;
        let mut report = VerifyReport::new(rows.schema);
        let watched = &mut written.watched;
        let unreadable = unreadable.as_ref();
        let (shard, place) = (None, None);
        let part =
            Part { rows, shard, place, only_global: false, delete_unreadable, unreadable, stop };
        let Some(sharded) = writer.several() else {
            let damage = damages.into_iter().flatten().next();
            part.repair(&mut writer, damage, &mut report, watched, steps)?;
            return Ok(report);
        };
        for (shard, damage) in sharded.parts().into_iter().zip(damages) {
            let name: &str = sharded.name(shard)?;
            let routing = sharded.routing();
            let needs_place =
                sharded.has_global() || routing.moves() || routing.has_main_rows_elsewhere();
            let place = Some((sharded.routing(), shard)).filter(|_| needs_place);
            let part = Part { shard: Some(name), place, ..part };
            if let Some(source) = source.filter(|source| *source != shard) {
                copies::replace(part, sharded, (source, shard), &mut report, watched)?;
            }
            let mut damage = Some(damage);
            sharded.part(shard, &mut |writer| {
                let damage = damage.take().flatten();
                part.repair(writer, damage, &mut report, watched, steps)
            })?;
        }
        if sharded.spans_shards() {
            let part = Part { delete_unreadable: false, only_global: true, ..part };
            part.repair(&mut writer, None, &mut report, watched, steps)?;
        }
        Ok(report)
    }
}

/// A table, or the part of a table in one shard.
#[derive(Clone, Copy)]
struct Part<'r> {
    rows: &'r TableRows,
    shard: Option<&'r str>,
    /// The shards of the rows and of global entries, and the number of this shard, if there are global indexes.
    place: Option<(&'r Routing, ShardNumber)>,
    /// Whether only global indexes, and the main rows of parts, are compared with the rows of all shards.
    only_global: bool,
    delete_unreadable: bool,
    /// The indexes that are not readable; `None`: they are read in the shard.
    unreadable: Option<&'r Unreadable>,
    stop: Stop<'r>,
}

impl Part<'_> {
    fn repair(
        self,
        writer: &mut Writer<'_, '_>,
        damage: Option<String>,
        report: &mut VerifyReport,
        watched: &mut Watched,
        steps: &mut Option<ProgressReporter<'_>>,
    ) -> Result<()> {
        let Self { rows, shard, place, only_global, delete_unreadable, unreadable, stop } = self;
        let unreadable = match unreadable {
            Some(unreadable) => unreadable.clone(),
            None => walk::unreadable(rows.schema, writer.reader())?,
        };
        check_stop(stop)?;
        // In a store with several shards, rows stay as they are.
        if !only_global && shard.is_none() {
            build::renew_all(rows, writer, &unreadable.incomplete)?;
        }
        if delete_unreadable {
            let before = report.total();
            self.delete_unreadable(writer, report)?;
            if report.total() > before {
                // The contents of the deleted rows are unknown, so it is unknown which subscribers they
                // concern.
                watched.note_untold();
                build::restart(rows, writer, &unreadable.incomplete)?;
            }
        }
        if let Some(damage) = damage {
            build::restart(rows, writer, &unreadable.incomplete)?;
            report.add_repaired(rows.schema, shard, &RawFinding::queue(&damage));
        }
        let mut next = Some(ResumePoint::after_queue(rows.schema));
        let (mut known, mut is_first) = (Known::default(), true);
        while let Some(resume_point) = next {
            let stage = resume_point.stage;
            let reader = writer.reader();
            let walk = TableCheck::new(rows, reader, unreadable.clone(), resume_point);
            let walk = walk.include_queued().placed(place, only_global).stop_when(stop);
            if let Some(steps) = steps
                && is_first
            {
                steps.begin("steps", walk.total()?);
            }
            is_first = false;
            let batch = Batch::gather(walk, stage, &mut known, report, steps)?;
            let mut removed = false;
            for found in &batch.found {
                watched.note_untold();
                removed |= apply_fix(rows, writer, &unreadable.violated, found)?;
                report.add_repaired(rows.schema, shard, found);
            }
            // A piece after a removed one may be wrong without it, so the stage starts again.
            next = if removed {
                Some(ResumePoint { stage: batch.stage, after: None })
            } else {
                batch.next
            };
        }
        if let Some(steps) = steps {
            steps.report();
        }
        Ok(())
    }

    /// Deletes the unreadable rows. The walk then finds their entries, which are dangling.
    fn delete_unreadable(
        self,
        writer: &mut Writer<'_, '_>,
        report: &mut VerifyReport,
    ) -> Result<()> {
        let Self { rows, shard, .. } = self;
        let mut image = Image::default();
        let mut position = None;
        loop {
            let mut batch: Vec<RawFinding> = Vec::new();
            let query =
                Query { position: position.take(), ..Query::new(Source::Facts, KeyRange::ALL) };
            let mut facts = writer.reader().cursor(query)?;
            while facts.advance()? {
                let fact = facts.entry();
                if let Err((kind, reason)) =
                load(rows, &mut image, fact.primary_key, fact.data, None)
                // A wrong conversion is not a fault of the row.
                && kind != FindingKind::WrongConversion
                {
                    batch.push(RawFinding::new(kind, Source::Facts, fact, reason, Fix::Delete));
                }
                if batch.len() >= BATCH {
                    break;
                }
            }
            drop(facts);
            for found in &batch {
                writer.change(Change::DeleteFact { primary_key: &found.primary_key })?;
                report.add_repaired(rows.schema, shard, found);
            }
            match batch.pop() {
                Some(RawFinding { primary_key, .. }) if batch.len() + 1 >= BATCH => {
                    position = Some(Position { key: Vec::new(), primary_key });
                }
                _ => return Ok(()),
            }
        }
    }
}

/// The findings of one round.
struct Batch {
    found: Vec<RawFinding>,
    /// The stage of the findings.
    stage: Stage,
    /// The start of the next round; `None` at the end.
    next: Option<ResumePoint>,
}

impl Batch {
    /// Collects findings until there are enough or the stage ends. The findings of a stage must be repaired
    /// before the next stage begins.
    fn gather(
        mut walk: TableCheck<'_>,
        mut stage: Stage,
        known: &mut Known,
        report: &mut VerifyReport,
        steps: &mut Option<ProgressReporter<'_>>,
    ) -> Result<Self> {
        walk.known = mem::take(known);
        let (mut found, mut bytes) = (Vec::new(), 0);
        loop {
            while let Some(next) = walk.next_raw() {
                bytes += match &next.fix {
                    Fix::Put(data) => data.len(),
                    Fix::Totals(_, record) => record.as_ref().map_or(0, Vec::len),
                    _ => 0,
                };
                found.push(next);
            }
            if found.is_empty() {
                stage = walk.stage;
            }
            let enough = found.len() >= BATCH || bytes >= BATCH_BYTES;
            if enough || walk.stage != stage || !walk.step()? {
                report.rows += walk.rows;
                report.entries += walk.entries;
                let next = walk.resume_point();
                *known = walk.known;
                return Ok(Self { found, stage, next });
            }
            if let Some(steps) = steps {
                steps.add(1);
            }
        }
    }
}

/// Applies the fix of one finding. Returns true if the fix removed pieces of an index. In the `violated`
/// indexes, a key can have several entries.
fn apply_fix(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    violated: &[usize],
    found: &RawFinding,
) -> Result<bool> {
    let RawFinding { source, key, primary_key, fix, .. } = found;
    let schema = rows.schema;
    if let Fix::Totals(aggregate, record) = fix {
        return aggregates::set(writer, *aggregate, key, record.as_deref()).map(|()| false);
    }
    let Source::Index(index) = *source else { return Ok(false) };
    let has_one = schema.index(*source).is_some_and(IndexSchema::has_one_entry_per_key);
    match fix {
        Fix::None | Fix::EmptyQueue | Fix::Totals(..) => {}
        Fix::RemovePieces { all } => {
            return match writer.lmdb() {
                Some(writer) => writer.remove_pieces(index, key, *all),
                None => Ok(false),
            };
        }
        // The key may have another entry, unless its bytes can't be decoded.
        Fix::Delete if has_one && schema.can_read(*source, key, primary_key) => {
            writer.remove_shared(index, key, primary_key)?;
        }
        Fix::Delete => writer.change(Change::DeleteEntry { index, key, primary_key })?,
        Fix::Put(data) if has_one && violated.contains(&index) => {
            check_length(schema, *source, key, primary_key)?;
            writer.put_shared(index, key, primary_key, data)?;
        }
        Fix::Put(data) => {
            check_length(schema, *source, key, primary_key)?;
            writer.change(Change::PutEntry { index, key, primary_key, data })?;
        }
        Fix::Rewrite => build::rewrite(rows, writer, index)?,
    }
    Ok(false)
}

/// Checks that an entry can have these keys. A method that computes a key may have changed since the row was
/// written.
fn check_length(
    schema: &TableSchema,
    source: Source,
    key: &[u8],
    primary_key: &[u8],
) -> Result<()> {
    let has_one = schema.index(source).is_some_and(IndexSchema::has_one_entry_per_key);
    let len = if has_one { key.len() } else { key.len() + primary_key.len() };
    if len <= MAX_KEY_LEN {
        return Ok(());
    }
    Err(schema.too_long(source, key, Some(primary_key), len))
}

impl fmt::Debug for Repair<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repair").finish_non_exhaustive()
    }
}
