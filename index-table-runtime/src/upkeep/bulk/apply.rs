//! Writes the selected rows and entries, in the order of the keys.

use super::{
    LoadReport, ProgressReporter,
    decide::{self, Decision, Numbers},
    gather::{Gathered, Gist, Reading, Records},
};
use crate::{
    engine::{Ascending, Read as _, Write as _},
    model::{
        entry::RawEntry,
        error::Result,
        maintain::{self, Change, Image, Sink as _},
        row_vtable::TableRows,
        schema::Source,
    },
    placement::{Reader, Writer},
    usage::{RowWrite, Tally},
    write::{
        Counting, Written,
        aggregates::Gathered as GatheredTotals,
        changes::{self, Stream},
        maintenance::MaintenancePlan,
        references,
        watch::Watched,
    },
};

/// Writes the rows.
pub(crate) fn apply(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    [old, new]: [&mut Image; 2],
    gathered: &Gathered,
    Written { tally, plan, watched, unfinished, shared, .. }: &mut Written,
    reporter: &mut ProgressReporter<'_>,
) -> Result<LoadReport> {
    // A load leaves no messages.
    if let Some(plan) = plan {
        plan.begin(true);
    }
    let plan = plan.as_ref();
    let stream = Stream::of(rows, shared.orders.get()).filter(|_| gathered.notes_changes);
    let decision = decide::decide(rows, writer.reader(), gathered, plan, old)?;
    let to_write = gathered.indexes.iter().fold(gathered.facts.len(), |sum, it| sum + it.len());
    if !rows.references.is_empty() {
        check_references(rows, writer, new, gathered, &decision, references::check_others)?;
    }
    reporter.begin("rows and entries written", to_write);
    *unfinished = true;
    let replaced = if decision.replaces {
        let sink = Sinks { tally, plan, watched, stream };
        replace_facts(rows, writer, [old, new], gathered, &decision, sink, reporter)?
    } else {
        note_new(rows, new, gathered, &decision, watched)?;
        note_changes(stream, writer, gathered, &decision)?;
        gather_totals(rows, writer, plan, new, gathered, &decision)?;
        let facts = &mut RemainingRecords::new(&gathered.facts, &decision.left_out, reporter);
        Replaced { new: writer.append(Source::Facts, facts)?, ..Replaced::default() }
    };
    if references::has_own(rows) {
        check_references(rows, writer, new, gathered, &decision, references::check_own)?;
    }
    tally.rows(RowWrite::Insert, replaced.new);
    tally.rows(RowWrite::Put, replaced.replaced);
    for (index, records) in gathered.indexes.iter().enumerate() {
        let mut entries = RemainingRecords::new(records, &decision.left_out, reporter);
        if let Some(plan) = plan.filter(|plan| !plan.is_up(index)) {
            put_filtered(writer, index, &mut entries, tally, plan)?;
            continue;
        }
        let written = if decision.replaces {
            put_changed(writer, index, &mut entries)?
        } else {
            writer.append(Source::Index(index), &mut entries)?
        };
        tally.entries(index, written);
    }
    *unfinished = false;
    let (read, skipped) = (gathered.rows, decision.left_out.len());
    let (written, replaced, shards) = (read - skipped, replaced.replaced, Vec::new());
    Ok(LoadReport { read, written, skipped, replaced, shards })
}

/// The receivers of changes.
struct Sinks<'a> {
    tally: &'a mut Tally,
    plan: Option<&'a MaintenancePlan>,
    watched: &'a mut Watched,
    stream: Option<Stream<'a>>,
}

/// The numbers of written rows.
#[derive(Default)]
struct Replaced {
    new: u64,
    replaced: u64,
}

/// Writes the facts into a table that has some of the rows, and removes their obsolete entries. New entries are
/// written after all obsolete entries are removed, so that rows can exchange unique keys.
fn replace_facts(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    [old, new]: [&mut Image; 2],
    gathered: &Gathered,
    decision: &Decision,
    Sinks { tally, plan, watched, stream }: Sinks<'_>,
    reporter: &mut ProgressReporter<'_>,
) -> Result<Replaced> {
    let (mut count, mut totals) = (Replaced::default(), GatheredTotals::default());
    let mut facts = RemainingRecords::new(&gathered.facts, &decision.left_out, reporter);
    while let Some(RawEntry { primary_key, data: row, .. }) = facts.next()? {
        match decision.stored(writer.reader(), primary_key)? {
            Some(stored) if stored == row => continue,
            Some(stored) => {
                rows.load_stored(old, stored, primary_key)?;
                rows.load_stored(new, row, primary_key)?;
                // An equal row is written too, because the entries of full indexes have its new bytes.
                let is_same = rows.is_same(stored, row);
                let mut counting = Counting::new(tally, writer);
                match plan {
                    None => maintain::removed_entries(rows.schema, old, new, &mut counting)?,
                    Some(plan) => {
                        let filter = &mut plan.filter_in_line(counting);
                        maintain::removed_entries(rows.schema, old, new, filter)?;
                    }
                }
                totals.note(rows, writer, plan, Some(old), Some(new))?;
                if !is_same {
                    changes::note_stored(stream, writer, false, primary_key, row)?;
                    watched.note(Some(old), Some(new));
                    count.replaced += 1;
                }
            }
            None => {
                note_one(rows, new, primary_key, row, watched);
                changes::note_stored(stream, writer, true, primary_key, row)?;
                if !rows.aggregates.is_empty() {
                    rows.load_stored(new, row, primary_key)?;
                    totals.note(rows, writer, plan, None, Some(new))?;
                }
                count.new += 1;
            }
        }
        writer.change(Change::PutFact { primary_key, row })?;
    }
    totals.write(rows, writer)?;
    Ok(count)
}

/// Calls `each` with each row that is written, until it returns false.
fn each_written(
    gathered: &Gathered,
    decision: &Decision,
    each: &mut dyn FnMut(Gist<'_>) -> Result<bool>,
) -> Result<()> {
    let mut reading = gathered.facts.read();
    while reading.advance()? {
        let row = reading.gist();
        if !decision.left_out.contains(row.number) && !each(row)? {
            break;
        }
    }
    Ok(())
}

/// Notes the new rows for subscribers until their buffers are full.
fn note_new(
    rows: &TableRows,
    new: &mut Image,
    gathered: &Gathered,
    decision: &Decision,
    watched: &mut Watched,
) -> Result<()> {
    if !watched.takes_notes() {
        return Ok(());
    }
    each_written(gathered, decision, &mut |Gist { entry, .. }| {
        note_one(rows, new, entry.primary_key, entry.data, watched);
        Ok(watched.takes_notes())
    })
}

/// Adds the new rows to the change stream.
fn note_changes(
    stream: Option<Stream<'_>>,
    writer: &mut Writer<'_, '_>,
    gathered: &Gathered,
    decision: &Decision,
) -> Result<()> {
    if stream.is_none() {
        return Ok(());
    }
    each_written(gathered, decision, &mut |Gist { entry, .. }| {
        changes::note_stored(stream, writer, true, entry.primary_key, entry.data).map(|()| true)
    })
}

/// Checks that the rows refer to rows of other tables that exist, or, after all rows of the load are written, to rows of the
/// same table.
fn check_references(
    rows: &TableRows,
    writer: &Writer<'_, '_>,
    new: &mut Image,
    gathered: &Gathered,
    decision: &Decision,
    check: fn(&TableRows, Reader<'_>, &Image) -> Result<()>,
) -> Result<()> {
    each_written(gathered, decision, &mut |Gist { number, entry, .. }| {
        rows.load_stored(new, entry.data, entry.primary_key)?;
        let checked = check(rows, writer.reader(), new);
        checked.map_err(|error| gathered.failed(number, None, error))?;
        Ok(true)
    })
}

/// Adds the new rows to the aggregates.
fn gather_totals(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    plan: Option<&MaintenancePlan>,
    new: &mut Image,
    gathered: &Gathered,
    decision: &Decision,
) -> Result<()> {
    if rows.aggregates.is_empty() {
        return Ok(());
    }
    let mut totals = GatheredTotals::default();
    each_written(gathered, decision, &mut |Gist { entry, .. }| {
        rows.load_stored(new, entry.data, entry.primary_key)?;
        totals.note(rows, writer, plan, None, Some(new)).map(|()| true)
    })?;
    totals.write(rows, writer)
}

fn note_one(
    rows: &TableRows,
    new: &mut Image,
    primary_key: &[u8],
    row: &[u8],
    watched: &mut Watched,
) {
    if watched.takes_notes() {
        // A subscriber must not make a load fail.
        match rows.load_stored(new, row, primary_key) {
            Ok(()) => watched.note(None, Some(new)),
            Err(_) => watched.note_untold(),
        }
    }
}

/// Writes the entries that are missing or different. Returns the number of written entries.
fn put_changed(
    writer: &mut Writer<'_, '_>,
    index: usize,
    entries: &mut RemainingRecords<'_, '_, '_>,
) -> Result<u64> {
    let mut written = 0;
    while let Some(entry) = entries.next()? {
        let RawEntry { key, primary_key, data } = entry;
        if writer.reader().entry(index, key, primary_key)? != Some(data) {
            writer.change(entry.put(Source::Index(index)))?;
            written += 1;
        }
    }
    Ok(written)
}

/// Writes the entries of an index that isn't readable, if it is maintained.
fn put_filtered(
    writer: &mut Writer<'_, '_>,
    index: usize,
    entries: &mut RemainingRecords<'_, '_, '_>,
    tally: &mut Tally,
    plan: &MaintenancePlan,
) -> Result<()> {
    let mut filter = plan.filter_in_line(Counting::new(tally, writer));
    while let Some(entry) = entries.next()? {
        filter.change(entry.put(Source::Index(index)))?;
    }
    Ok(())
}

/// An iterator over the facts, or the entries of one index, without the rows that are left out.
struct RemainingRecords<'a, 'n, 't> {
    reading: Reading,
    left_out: &'a Numbers,
    reporter: &'n mut ProgressReporter<'t>,
}

impl<'a, 'n, 't> RemainingRecords<'a, 'n, 't> {
    fn new(
        records: &'a Records,
        left_out: &'a Numbers,
        reporter: &'n mut ProgressReporter<'t>,
    ) -> Self {
        Self { reading: records.read(), left_out, reporter }
    }
}

impl Ascending for RemainingRecords<'_, '_, '_> {
    #[inline]
    fn next(&mut self) -> Result<Option<RawEntry<'_>>> {
        let Self { reading, left_out, reporter } = self;
        while reading.advance()? {
            reporter.add(1);
            if left_out.len() == 0 || !left_out.contains(reading.gist().number) {
                return Ok(Some(reading.gist().entry));
            }
        }
        Ok(None)
    }
}
