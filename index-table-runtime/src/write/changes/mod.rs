//! The change stream of a table. Each write of a row adds a change in the same transaction.
//!
//! The stream is a space of the table ([`Space::Changes`]), with these records:
//!
//! - The changes, by their numbers. Numbers increase by one.
//! - The mark of the last removed change. It precedes all changes, so one seek finds the last change or, if all are
//!   removed, the mark. So numbers are not reused after removals, and no counter is written.
//! - The consumers, by their names, each with the mark of its last committed change; the slots and workers of shared
//!   consumers.
//!
//! Each change has the sum of the bytes of all changes up to and including it. So the number of bytes between two marks
//! is the difference of their sums.
//!
//! In a sharded store, each shard has the stream of its rows, with its own numbers. Each change also has a place in the
//! order of all shards, by which a consumer merges the streams. One process writes the store, so the [`Orders`] are in its
//! memory. A place greater than all earlier places is assigned while the shard is locked. So the places ascend in each shard,
//! and also from the last change of a row in one shard to its first change in the shard to which the row has moved.
//! A snapshot with the first change in the second shard has the move, and so all changes of the row in the first shard, which
//! have lesser places and are read before it. Copies of rows and their removal add no changes.
//!
//! A detached shard that is opened as a plain store continues after its own last place. Meanwhile, the other shards can assign
//! the same places. The rows of the two have no changes in common, and positions are numbers in each stream, so a consumer
//! gets each change once.
//!
//! When the table is opened, the places continue after the last change of each shard, and after the places that are recorded
//! in the shards: by the last move of rows to the shard, because the source shard may not be available then; and by the
//! removal of the last change. A consumer reads nothing while a shard is not available, since that shard could have earlier
//! changes of any row.
//!
//! On a server, the changes of concurrent transactions get their numbers [later](unnumbered).
//!
//! Writers remove old changes: each [`EVERY`]th change removes up to [`STEP`] old changes. So the stream is shortened
//! while it gets new changes, and no writer waits for a long removal.

mod age;
mod unnumbered;

pub(crate) use unnumbered::{AT_ONCE, each_pending, has_foreign, is_due, number};

use std::sync::atomic::{AtomicU64, Ordering};

use age::Corrections;

use crate::{
    engine::{Read, Space, Write as _},
    model::{
        error::{Error, Result},
        maintain::Image,
        row_vtable::TableRows,
        schema::TableSchema,
        stream::{
            CONSUMER, ChangeStream, ConsumerRecord, Mark, ORDER, REMOVED, StoredChange, StoredKind,
            change_key, now, number_of,
        },
    },
    placement::Writer,
};

/// The number of changes after which a writer removes old changes.
const EVERY: u64 = 64;

/// The maximum number of changes that a writer removes.
const STEP: u64 = 2 * EVERY;

/// The places of changes in the order of all shards of a sharded store.
#[derive(Debug)]
pub(crate) struct Orders(AtomicU64);

impl Orders {
    /// Continues after the last place that was assigned.
    pub(crate) const fn after(last: u64) -> Self {
        Self(AtomicU64::new(last))
    }

    /// Returns a new place, greater than all earlier places.
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::AcqRel).saturating_add(1)
    }

    /// Continues after this place, which is the last place of an added shard.
    pub(crate) fn raise(&self, last: u64) {
        self.0.fetch_max(last, Ordering::AcqRel);
    }

    /// Records in a shard to which rows have moved that the places of their changes continue after all earlier places.
    /// The shards of the move are locked.
    pub(crate) fn keep(&self, writer: &mut Writer<'_, '_>) -> Result<()> {
        keep_order(writer, self.0.load(Ordering::Acquire))
    }
}

/// The stream of a table, and the places of a sharded store.
#[derive(Clone, Copy)]
pub(crate) struct Stream<'s> {
    pub(crate) declared: &'s ChangeStream,
    pub(crate) orders: Option<&'s Orders>,
}

impl<'s> Stream<'s> {
    /// Returns the stream of the table, if it has one.
    pub(crate) fn of(rows: &'s TableRows, orders: Option<&'s Orders>) -> Option<Self> {
        Some(Self { declared: rows.changes.as_ref()?, orders })
    }
}

/// Adds the change of a row to the stream, if the table has one.
#[inline]
pub(crate) fn note(
    rows: &TableRows,
    orders: Option<&Orders>,
    writer: &mut Writer<'_, '_>,
    old: Option<&Image>,
    new: Option<&Image>,
) -> Result<()> {
    match Stream::of(rows, orders) {
        None => Ok(()),
        Some(stream) => note_in(stream, writer, old, new),
    }
}

#[inline(never)]
fn note_in(
    stream: Stream<'_>,
    writer: &mut Writer<'_, '_>,
    old: Option<&Image>,
    new: Option<&Image>,
) -> Result<()> {
    if let (Some(old), Some(new)) = (old, new)
        && old.primary_key() == new.primary_key()
    {
        return add(stream, writer, StoredKind::Updated, new.primary_key(), new.row());
    }
    if let Some(old) = old {
        add(stream, writer, StoredKind::Deleted, old.primary_key(), old.row())?;
    }
    if let Some(new) = new {
        add(stream, writer, StoredKind::Inserted, new.primary_key(), new.row())?;
    }
    Ok(())
}

/// Adds the change of a new or replaced row to the stream, if the table has one.
pub(crate) fn note_stored(
    stream: Option<Stream<'_>>,
    writer: &mut Writer<'_, '_>,
    is_new: bool,
    primary_key: &[u8],
    row: &[u8],
) -> Result<()> {
    let Some(stream) = stream else { return Ok(()) };
    let kind = if is_new { StoredKind::Inserted } else { StoredKind::Updated };
    add(stream, writer, kind, primary_key, row)
}

/// Adds a change to the stream of the row's shard.
fn add(
    stream: Stream<'_>,
    writer: &mut Writer<'_, '_>,
    kind: StoredKind,
    primary_key: &[u8],
    row: &[u8],
) -> Result<()> {
    writer.in_shard_of(primary_key, &mut |writer| {
        if let Some(place) = writer.place_of_change() {
            let (time, end, order) = (now(), 0, None);
            let mut change = Vec::with_capacity(StoredChange::len(order, primary_key, row));
            StoredChange { time, end, kind, order, primary_key, row }.encode(&mut change);
            return writer.put_new(Space::Changes, &place.key(), &change);
        }
        let (last, change) = last_with_time(writer.reader())?;
        let now = now();
        let time = change.map(|change| change.time);
        if let Some(time) = time.filter(|time| stream.declared.is_long(*time, now)) {
            age::note(stream.declared, writer, (last.number, time), now)?;
        }
        let order = match (stream.orders, change) {
            (Some(orders), _) => Some(orders.next()),
            // A detached shard continues after its last place.
            (None, Some(change)) => change.order.map(|order| order.saturating_add(1)),
            (None, None) => kept_order(writer.reader())?.map(|order| order.saturating_add(1)),
        };
        let len = StoredChange::len(order, primary_key, row);
        let number = last.number.saturating_add(1);
        let end = last.end.saturating_add(len as u64);
        let mut change = Vec::with_capacity(len);
        StoredChange { time: now, end, kind, order, primary_key, row }.encode(&mut change);
        writer.put(Space::Changes, &change_key(number), &change)?;
        if number.is_multiple_of(EVERY) {
            remove_old(stream.declared, writer, STEP)?;
        }
        Ok(())
    })
}

fn keep_order(writer: &mut Writer<'_, '_>, order: u64) -> Result<()> {
    writer.put(Space::Changes, &ORDER, &order.to_be_bytes())
}

/// Returns the place that is recorded in a shard.
fn kept_order<'t>(reader: impl Read<'t>) -> Result<Option<u64>> {
    let Some(record) = reader.get(Space::Changes, &ORDER)? else { return Ok(None) };
    let order = record.try_into().ok().map(u64::from_be_bytes);
    order.map(Some).ok_or_else(|| damaged(reader.table(), "the order of its changes".to_owned()))
}

/// Returns the place in the order of all shards that the changes of this shard have reached; 0 if there are none.
pub(crate) fn last_order<'t>(reader: impl Read<'t>) -> Result<u64> {
    let kept = kept_order(reader)?.unwrap_or_default();
    let Some((key, record)) = reader.below(Space::Changes, &[CONSUMER])? else { return Ok(kept) };
    let Some(number) = number_of(key) else { return Ok(kept) };
    Ok(decode(reader.table(), number, record)?.number(number).max(kept))
}

/// Returns the mark after the last kept change whose public number is at most `number`, or after the removed changes.
pub(crate) fn at_most<'t>(reader: impl Read<'t>, number: u64) -> Result<Mark> {
    let (mut before, mut after) = (removed(reader)?, last(reader)?.number.saturating_add(1));
    // The changes up to `before` have such a number, and those from `after` on have not.
    while before.number.saturating_add(1) < after {
        let middle = before.number + (after - before.number) / 2;
        match next(reader, middle - 1)? {
            Some((found, change)) if change.number(found) <= number => {
                before = Mark { number: found, end: change.end };
            }
            _ => after = middle,
        }
    }
    Ok(before)
}

/// Returns the mark of the last change.
pub(crate) fn last<'t>(reader: impl Read<'t>) -> Result<Mark> {
    last_with_time(reader).map(|(last, _)| last)
}

/// Returns the public number of the last change, or of the last removed change.
pub(crate) fn last_number<'t>(reader: impl Read<'t>) -> Result<u64> {
    let (last, change) = last_with_time(reader)?;
    let order = match change {
        Some(change) => change.order,
        None => kept_order(reader)?,
    };
    Ok(order.unwrap_or(last.number))
}

/// The time of a change, and its place in the order of all shards.
#[derive(Debug, Clone, Copy)]
struct Placed {
    time: u64,
    order: Option<u64>,
}

/// Returns the mark of the last change, and its time and place; without them if the change was removed.
fn last_with_time<'t>(reader: impl Read<'t>) -> Result<(Mark, Option<Placed>)> {
    let Some((key, record)) = reader.below(Space::Changes, &[CONSUMER])? else {
        return Ok((Mark::default(), None));
    };
    match number_of(key) {
        Some(number) => {
            let change = decode(reader.table(), number, record)?;
            Ok((
                Mark { number, end: change.end },
                Some(Placed { time: change.time, order: change.order }),
            ))
        }
        None => Ok((mark(reader.table(), record)?, None)),
    }
}

/// Returns the mark of the last removed change.
pub(crate) fn removed<'t>(reader: impl Read<'t>) -> Result<Mark> {
    let record = reader.get(Space::Changes, &REMOVED)?;
    record.map_or(Ok(Mark::default()), |record| mark(reader.table(), record))
}

/// Returns the first change after this number.
pub(crate) fn next<'t>(
    reader: impl Read<'t>,
    after: u64,
) -> Result<Option<(u64, StoredChange<'t>)>> {
    let from = change_key(after.saturating_add(1));
    let Some((key, record)) = reader.at_or_above(Space::Changes, &from)? else { return Ok(None) };
    let Some(number) = number_of(key) else { return Ok(None) };
    Ok(Some((number, decode(reader.table(), number, record)?)))
}

/// Returns the first changes after this number, at most `limit` of them.
pub(crate) fn some_after<'t>(
    reader: impl Read<'t>,
    after: u64,
    limit: u64,
) -> Result<Vec<(u64, StoredChange<'t>)>> {
    let from = change_key(after.saturating_add(1));
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let records = reader.records(Space::Changes, &from, limit)?.into_iter();
    let changes = records.map_while(|(key, record)| Some((number_of(key)?, record)));
    changes.map(|(number, record)| Ok((number, decode(reader.table(), number, record)?))).collect()
}

fn decode<'c>(schema: &TableSchema, number: u64, record: &'c [u8]) -> Result<StoredChange<'c>> {
    let number = || format!("change {number} of its change stream");
    StoredChange::decode(record).ok_or_else(|| damaged(schema, number()))
}

fn mark(schema: &TableSchema, record: &[u8]) -> Result<Mark> {
    Mark::decode(record)
        .ok_or_else(|| damaged(schema, "the first mark of its change stream".to_owned()))
}

#[cold]
fn damaged(schema: &TableSchema, key: String) -> Error {
    let reason = "the record is damaged, or from a later release".to_owned();
    Error::Corrupt { table: schema.name, index: None, key, reason }
}

/// Returns the record of a consumer.
pub(crate) fn consumer<'t>(reader: impl Read<'t>, key: &[u8]) -> Result<Option<ConsumerRecord>> {
    let Some(record) = reader.get(Space::Changes, key)? else { return Ok(None) };
    decode_consumer(reader.table(), key, record).map(Some)
}

fn decode_consumer(schema: &TableSchema, key: &[u8], record: &[u8]) -> Result<ConsumerRecord> {
    let name = || String::from_utf8_lossy(key.get(1..).unwrap_or_default()).into_owned();
    ConsumerRecord::decode(record)
        .ok_or_else(|| damaged(schema, format!("consumer `{}` of its change stream", name())))
}

/// Returns the keys of all consumers with their records, in the order of their names.
pub(crate) fn consumers<'t>(reader: impl Read<'t>) -> Result<Vec<(Vec<u8>, ConsumerRecord)>> {
    let (mut consumers, mut from) = (Vec::new(), vec![CONSUMER]);
    while let Some((key, record)) = reader.at_or_above(Space::Changes, &from)?
        && key.starts_with(&[CONSUMER])
    {
        consumers.push((key.to_vec(), decode_consumer(reader.table(), key, record)?));
        key.clone_into(&mut from);
        from.push(0);
    }
    Ok(consumers)
}

/// Removes up to `most` old changes. Returns their number.
pub(crate) fn remove_old(
    stream: &ChangeStream,
    writer: &mut Writer<'_, '_>,
    most: u64,
) -> Result<u64> {
    let (last, change) = last_with_time(writer.reader())?;
    let (now, time) = (now(), change.map(|change| change.time));
    if let Some(time) = time.filter(|time| stream.is_long(*time, now)) {
        age::note(stream, writer, (last.number, time), now)?;
    }
    let reader = writer.reader();
    let consumed = if stream.until_consumed {
        let slowest = consumers(reader)?.into_iter().map(|(_, consumer)| consumer.at.number).min();
        let Some(slowest) = slowest else { return Ok(0) };
        Some(slowest)
    } else {
        None
    };
    let mut removed = removed(reader)?;
    let mut corrections = Corrections::read(stream, reader)?;
    let (mut keys, mut order) = (Vec::new(), None);
    for (number, change) in some_after(reader, removed.number, most)? {
        let is_old = match consumed {
            Some(consumed) => number <= consumed,
            None => {
                stream.is_old(corrections.age((number, change.time), now))
                    || last.end.saturating_sub(change.end) > stream.bytes
            }
        };
        if !is_old {
            break;
        }
        (removed, order) = (Mark { number, end: change.end }, change.order);
        keys.push(change_key(number).to_vec());
    }
    if keys.is_empty() {
        return Ok(0);
    }
    let mark = (REMOVED.to_vec(), removed.encode().to_vec());
    writer.exchange(Space::Changes, &keys, &[mark])?;
    corrections.forget(removed.number, writer)?;
    if let Some(order) = order.filter(|_| removed == last) {
        let kept = last_order(writer.reader())?;
        keep_order(writer, order.max(kept))?;
    }
    Ok(keys.len() as u64)
}

/// Empties the stream of a table that was written without its stream. The existing consumers have missed changes.
pub(crate) fn restart(writer: &mut Writer<'_, '_>, is_shard: bool) -> Result<()> {
    let (last, mut kept) = (last(writer.reader())?, Vec::new());
    let order = last_order(writer.reader())?;
    let mut from = vec![CONSUMER];
    while let Some((key, record)) = writer.reader().at_or_above(Space::Changes, &from)? {
        kept.push((key.to_vec(), record.to_vec()));
        key.clone_into(&mut from);
        from.push(0);
    }
    writer.clear_space(Space::Changes)?;
    if last == Mark::default() && kept.is_empty() {
        return Ok(());
    }
    // A consumer that has committed the last change has missed changes, too.
    let removed = Mark { number: last.number.saturating_add(1), ..last };
    writer.put(Space::Changes, &REMOVED, &removed.encode())?;
    kept.into_iter().try_for_each(|(key, record)| writer.put(Space::Changes, &key, &record))?;
    if is_shard { keep_order(writer, order) } else { Ok(()) }
}
