//! The part of writing a row that is compiled once for all types of row.

use crate::model::row_vtable::TableRows;
use crate::{
    engine::{Read, Write},
    model::{
        entity::Entity,
        error::{Error, Result},
        maintain::{self, Change, Image, Sink},
        row,
        schema::Source,
    },
    placement::Writer,
    query::DANGLING,
    usage::RowWrite,
    write::{
        Counting, Scratch, Written,
        aggregates::NewTotals,
        changes,
        maintenance::MaintenancePlan,
        references::{self, Referring},
        unique::{self, Unclaimed},
    },
};

/// Whether a row that is written has made new lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MadeLists {
    No,
    Yes,
}

/// A row to be written, of any type.
pub(crate) trait LoadRow {
    /// Loads its primary key and its bytes. The image can be compared with a stored row.
    fn load_row(&self, new: &mut Image) -> Result<MadeLists>;

    /// Whether [`load_entries`](LoadRow::load_entries) reads it back from its bytes.
    fn is_tested(&self, made: MadeLists) -> bool;

    /// Loads its entries. Some rows are read back from their bytes, into `tried`.
    fn load_entries(&self, new: &mut Image, tried: &mut Image, made: MadeLists) -> Result<()>;

    /// Loads the whole row.
    fn load(&self, new: &mut Image, tried: &mut Image) -> Result<()>;
}

/// Decodes a new row from its bytes, and checks that its keys are the same.
pub(crate) fn try_back(rows: &TableRows, new: &Image, tried: &mut Image) -> Result<()> {
    let unreadable = |reason: String| {
        let key = rows.schema.show_primary_key(new.primary_key());
        let reason = format!("the one with primary key {key} {reason}");
        Error::Codec { table: rows.schema.name, reason }
    };
    rows.load(tried, new.row()).map_err(|error| {
        unreadable(format!(
            "can't be read back from its serialized bytes ({error}): its `Deserialize` does not read what its \
             `Serialize` writes. Inside of serde's `tag`, `untagged` and `flatten`, 128-bit integers and IP addresses can't \
             be read back: store them as text there, or use serde's default form of enums. `rename` and `with` need both \
             directions"
        ))
    })??;
    if tried.same_keys(new) {
        return Ok(());
    }
    Err(unreadable("has other keys when it is read back from its serialized bytes".into()))
}

/// Writes `row`, and replaces the row with the same primary key if there is one.
pub(crate) fn put(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    row: &dyn LoadRow,
    Scratch { old, new, tried }: &mut Scratch,
    written: &mut Written,
) -> Result<()> {
    let made = row.load_row(new)?;
    let stored = writer.reader().fact(new.primary_key())?;
    let is_unchanged = stored.is_some_and(|bytes| rows.is_unchanged(bytes, new.row()));
    // A row that can't be read back is refused, also if it has the bytes of the stored row.
    if is_unchanged && !row.is_tested(made) {
        return Ok(());
    }
    row.load_entries(new, tried, made)?;
    if is_unchanged {
        return Ok(());
    }
    let Some(bytes) = stored else {
        rows.revise(None, new)?;
        return add(rows, writer, new, written, RowWrite::Put);
    };
    rows.load_stored(old, bytes, new.primary_key())?;
    rows.revise(Some(old), new)?;
    rows.keep_fields(old, new)?;
    replace(rows, writer, old, new, written)?;
    note_change(rows, writer, Some(old), Some(new), written)?;
    writer.flush()?;
    written.row(RowWrite::Put, Some(old), Some(new));
    Ok(())
}

/// Replaces the original row by `new`.
pub(crate) fn update(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    old: &Image,
    new: &mut Image,
    written: &mut Written,
    kind: RowWrite,
) -> Result<()> {
    if rows.is_unchanged(old.row(), new.row()) {
        return Ok(());
    }
    let moved = old.primary_key() != new.primary_key();
    if moved && writer.reader().fact(new.primary_key())?.is_some() {
        return Err(rows.duplicate(new.primary_key()));
    }
    rows.revise(Some(old), new)?;
    rows.keep_fields(old, new)?;
    replace(rows, writer, old, new, written)?;
    note_change(rows, writer, Some(old), Some(new), written)?;
    writer.flush()?;
    written.row(kind, Some(old), Some(new));
    Ok(())
}

/// Writes `new`, and replaces the row with the same key in the unique index at this position if there is one.
pub(crate) fn put_by(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    index: usize,
    old: &mut Image,
    new: &mut Image,
    written: &mut Written,
) -> Result<()> {
    let (reader, hashed) = (writer.reader(), new.hashed(index));
    let holder = match new.keys(index).next() {
        Some(key) => unique::holder(rows, reader, index, key, &[], hashed)?.zip(Some(key)),
        None => None,
    };
    let Some((primary_key, key)) = holder else {
        if rows.revision.is_some() && reader.fact(new.primary_key())?.is_some() {
            return Err(rows.duplicate(new.primary_key()));
        }
        rows.revise(None, new)?;
        return add(rows, writer, new, written, RowWrite::Put);
    };
    let dangling = || rows.schema.corrupt(Source::Index(index), key, DANGLING);
    let bytes = reader.fact(&primary_key)?.ok_or_else(dangling)?;
    rows.load_stored(old, bytes, &primary_key)?;
    update(rows, writer, old, new, written, RowWrite::Put)
}

/// The result of deleting a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deleted {
    /// The row is deleted.
    Row,
    /// There is no such row.
    Missing,
    /// Nothing has changed, because other rows are deleted with the row: it is to be deleted by a
    /// [cascade](crate::upkeep::cascade).
    NeedsCascade,
}

/// Whether a row is deleted together with the rows that refer to it, or alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cascading {
    No,
    Yes,
}

pub(crate) fn delete(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    (primary_key, cascading): (&[u8], Cascading),
    old: &mut Image,
    written: &mut Written,
) -> Result<Deleted> {
    let Some(bytes) = writer.reader().fact(primary_key)? else { return Ok(Deleted::Missing) };
    rows.load_stored(old, bytes, primary_key)?;
    delete_loaded(rows, writer, cascading, old, written)
}

/// Deletes a row if it has the expected revision.
pub(crate) fn delete_if(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    (primary_key, expected): (&[u8], u64),
    old: &mut Image,
    written: &mut Written,
) -> Result<Deleted> {
    let bytes = writer.reader().fact(primary_key)?;
    rows.check_revision(primary_key, expected, bytes)?;
    delete(rows, writer, (primary_key, Cascading::No), old, written)
}

/// Deletes the row of the image `old`.
pub(crate) fn delete_loaded(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    cascading: Cascading,
    old: &Image,
    written: &mut Written,
) -> Result<Deleted> {
    reserve(writer, written, Some(old), None)?;
    let referring = references::check_delete(writer.reader(), old.primary_key())?;
    if referring == Referring::Cascade && cascading == Cascading::No {
        return Ok(Deleted::NeedsCascade);
    }
    admit(rows, writer, written, Some(old), None)?;
    let totals = NewTotals::of(rows, writer, written.plan.as_ref(), Some(old), None)?;
    writer.change(Change::DeleteFact { primary_key: old.primary_key() })?;
    totals.write(writer, written.plan.as_mut(), Some(old), None)?;
    send(rows, writer, Some(old), None, written)?;
    note_change(rows, writer, Some(old), None, written)?;
    writer.flush()?;
    written.row(RowWrite::Delete, Some(old), None);
    Ok(Deleted::Row)
}

/// Writes a new row. If the row is refused, nothing has changed.
pub(crate) fn insert(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    new: &mut Image,
    written: &mut Written,
) -> Result<()> {
    rows.begin_revision(new)?;
    add(rows, writer, new, written, RowWrite::Insert)
}

/// Writes a new row with its revision. If the row is refused, nothing has changed.
fn add(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    new: &Image,
    written: &mut Written,
    kind: RowWrite,
) -> Result<()> {
    reserve(writer, written, None, Some(new))?;
    if let Err(error) = references::check(rows, writer, None, new) {
        // If the primary key exists too, that error is clearer.
        let taken = writer.reader().fact(new.primary_key())?.is_some();
        return Err(if taken { rows.duplicate(new.primary_key()) } else { error });
    }
    let totals = match NewTotals::of(rows, writer, written.plan.as_ref(), None, Some(new)) {
        Ok(totals) => totals,
        // If the primary key exists too, that error is clearer.
        Err(_) if writer.reader().fact(new.primary_key())?.is_some() => {
            return Err(rows.duplicate(new.primary_key()));
        }
        Err(error) => return Err(error),
    };
    let can_claim = written.plan.is_none() && unique::can_claim(rows.schema);
    if can_claim && writer.defer_new() {
        return add_deferred(rows, writer, new, written, &totals, kind);
    }
    let claimed = can_claim && unique::claim(rows.schema, writer, new)?;
    if !claimed {
        check_unique(rows, writer, new, written.plan.as_ref())?;
        admit(rows, writer, written, None, Some(new))?;
    }
    if !writer.insert_fact(new.primary_key(), new.row())? {
        if claimed {
            unique::release(rows.schema, writer, new, usize::MAX)?;
        }
        return Err(rows.duplicate(new.primary_key()));
    }
    totals.write(writer, written.plan.as_mut(), None, Some(new))?;
    if claimed {
        let mut unclaimed = Unclaimed { schema: rows.schema, sink: writer };
        let mut counting = Counting::new(&mut written.tally, &mut unclaimed);
        maintain::entry_changes(rows.schema, None, Some(new), &mut counting)?;
    } else {
        send(rows, writer, None, Some(new), written)?;
    }
    note_change(rows, writer, None, Some(new), written)?;
    writer.flush()?;
    written.row(kind, None, Some(new));
    Ok(())
}

/// Checks that the unique keys of a new row are free.
fn check_unique(
    rows: &TableRows,
    writer: &Writer<'_, '_>,
    new: &Image,
    plan: Option<&MaintenancePlan>,
) -> Result<()> {
    let Err(error) = unique::check(rows, writer, plan, None, new) else { return Ok(()) };
    // If the primary key exists too, that error is clearer.
    let taken = writer.reader().fact(new.primary_key())?.is_some();
    Err(if taken { rows.duplicate(new.primary_key()) } else { error })
}

/// Writes a new row with an engine that sends the row and all entries at once, and then returns whether the keys were
/// free.
#[cold]
fn add_deferred(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    new: &Image,
    written: &mut Written,
    totals: &NewTotals,
    kind: RowWrite,
) -> Result<()> {
    let mut change = || {
        unique::claim(rows.schema, writer, new)?;
        writer.insert_fact(new.primary_key(), new.row())?;
        let mut unclaimed = Unclaimed { schema: rows.schema, sink: &mut *writer };
        let mut counting = Counting::new(&mut written.tally, &mut unclaimed);
        maintain::entry_changes(rows.schema, None, Some(new), &mut counting)?;
        totals.write(writer, None, None, Some(new))?;
        note_change(rows, writer, None, Some(new), written)
    };
    if let Err(error) = change() {
        writer.abandon_new();
        return Err(error);
    }
    if !writer.settle_new()? {
        check_unique(rows, writer, new, None)?;
        return Err(rows.duplicate(new.primary_key()));
    }
    written.row(kind, None, Some(new));
    Ok(())
}

/// Replaces `old` by `new` after all checks.
fn replace(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    old: &Image,
    new: &Image,
    written: &mut Written,
) -> Result<()> {
    reserve(writer, written, Some(old), Some(new))?;
    if old.same_key_bytes(new) {
        if let Some(plan) = &written.plan {
            unique::check_shared(rows.schema, writer.reader(), plan, Some(old), new)?;
        }
        admit(rows, writer, written, Some(old), Some(new))?;
        let totals = NewTotals::of(rows, writer, written.plan.as_ref(), Some(old), Some(new))?;
        writer.change(Change::PutFact { primary_key: new.primary_key(), row: new.row() })?;
        totals.write(writer, written.plan.as_mut(), Some(old), Some(new))?;
        let Written { tally, plan, .. } = written;
        let counting = Counting::new(tally, writer);
        return match plan {
            None => maintain::data_changes(rows.schema, old, new, &mut { counting }),
            Some(plan) => {
                let filter = &mut plan.filter(counting, Some(old.primary_key()));
                maintain::data_changes(rows.schema, old, new, filter)?;
                plan.leave(rows.schema, writer)
            }
        };
    }
    unique::check(rows, writer, written.plan.as_ref(), Some(old), new)?;
    references::check(rows, writer, Some(old), new)?;
    if old.primary_key() != new.primary_key() {
        references::check_rename(writer.reader(), old.primary_key())?;
    }
    admit(rows, writer, written, Some(old), Some(new))?;
    let totals = NewTotals::of(rows, writer, written.plan.as_ref(), Some(old), Some(new))?;
    if old.primary_key() != new.primary_key() {
        writer.change(Change::DeleteFact { primary_key: old.primary_key() })?;
        writer.note_key(new.primary_key());
    }
    writer.change(Change::PutFact { primary_key: new.primary_key(), row: new.row() })?;
    totals.write(writer, written.plan.as_mut(), Some(old), Some(new))?;
    send(rows, writer, Some(old), Some(new), written)
}

/// Prepares the maintenance of the row. Locks the shards of the global entries that change, so that no later step fails because of a missing lock.
#[inline]
fn reserve(
    writer: &mut Writer<'_, '_>,
    written: &mut Written,
    old: Option<&Image>,
    new: Option<&Image>,
) -> Result<()> {
    if let Some(plan) = &mut written.plan {
        plan.turn_to(writer.reader().table(), writer.reader(), old, new)?;
    }
    if let Some(writer) = writer.several() {
        writer.refuse_read_only(old, new)?;
    }
    match writer.with_global() {
        None => Ok(()),
        Some(writer) => {
            let plan = written.plan.as_ref();
            let is_changed = |plan: &MaintenancePlan, index| {
                plan.is_immediate(index) || plan.is_in_line() && plan.maintains(index)
            };
            writer.reserve(old, new, |index| plan.is_none_or(|plan| is_changed(plan, index)))
        }
    }
}

/// Checks that the queue has room if the write needs a message. This is the last check that can refuse a
/// write.
fn admit(
    rows: &TableRows,
    writer: &Writer<'_, '_>,
    Written { plan, .. }: &mut Written,
    old: Option<&Image>,
    new: Option<&Image>,
) -> Result<()> {
    let Some(plan) = plan.as_mut().filter(|plan| plan.has_to_wait()) else {
        return Ok(());
    };
    // The check for a row with the same primary key comes first, whether or not there is room.
    if let (None, Some(new)) = (old, new)
        && writer.reader().fact(new.primary_key())?.is_some()
    {
        return Ok(());
    }
    plan.refuse(rows.schema, old, new)
}

/// Sends the changes of all entries from `old` to `new` to the maintained indexes.
fn send(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    old: Option<&Image>,
    new: Option<&Image>,
    Written { tally, plan, .. }: &mut Written,
) -> Result<()> {
    let mut counting = Counting::new(tally, writer);
    match plan {
        None => maintain::entry_changes(rows.schema, old, new, &mut counting),
        Some(plan) => {
            let mut filter = plan.filter(counting, old.map(Image::primary_key));
            maintain::entry_changes(rows.schema, old, new, &mut filter)?;
            plan.leave(rows.schema, writer)
        }
    }
}

/// Writes the row `old` as `new`: the same row in the current version, with the current lists.
pub(crate) fn renew(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    written: &mut Written,
    old: &Image,
    new: &Image,
) -> Result<()> {
    // The changes are made in line, since a table can have more rows than a queue has room for.
    if let Some(plan) = &mut written.plan {
        plan.begin(true);
    }
    replace(rows, writer, old, new, written)
}

/// Loads the row with this primary key, stored as `bytes`, into `old`, and its bytes of the current version and lists into `new`.
/// Fails if their keys differ in an index that has the entries of all rows: the entries were written with another conversion of the
/// row. `incomplete` has the other indexes.
pub(crate) fn load_both(
    rows: &TableRows,
    [old, new]: [&mut Image; 2],
    primary_key: &[u8],
    [bytes, renewed]: [&[u8]; 2],
    incomplete: &[usize],
) -> Result<()> {
    rows.load_stored(old, bytes, primary_key)?;
    rows.load_stored(new, renewed, primary_key)?;
    if old.same_keys_without(new, incomplete) {
        // Where the keys differ, because a field has another default each time, no entry has the key of the stored row.
        rows.load_stored(old, renewed, primary_key)?;
        old.set_stored(bytes);
        return Ok(());
    }
    let version = row::version(bytes).map_err(|error| rows.corrupt(error, primary_key))?;
    let reason = "it has other keys each time, or when it is read back".to_owned();
    Err(rows.conversion(version, primary_key, reason))
}

/// Loads the image of the row with this primary key.
pub(crate) fn load_by_key<R: Entity>(
    rows: &TableRows,
    writer: &Writer<'_, '_>,
    primary_key: &[u8],
    image: &mut Image,
) -> Result<Option<R>> {
    let Some(bytes) = writer.reader().fact(primary_key)? else { return Ok(None) };
    let mut has_unread = false;
    match row::decode_whole::<R>(&rows.lists, bytes, &mut has_unread) {
        Ok(row) => {
            image.load_stored(&rows.lists, &row, bytes, None)?;
            image.set_unread(has_unread);
            rows.check_primary_key(image, primary_key)?;
            Ok(Some(row))
        }
        Err(error) => Err(rows.corrupt(error, primary_key)),
    }
}

/// Adds the change of a row to the change stream, after the row was written. If that fails, the transaction can't be
/// committed, since the stream would lack the change.
#[inline]
fn note_change(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    old: Option<&Image>,
    new: Option<&Image>,
    written: &mut Written,
) -> Result<()> {
    let orders = written.shared.orders.get();
    changes::note(rows, orders, writer, old, new).inspect_err(|_| written.unfinished = true)
}
