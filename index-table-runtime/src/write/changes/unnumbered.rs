//! Changes of concurrent transactions, which get their numbers later.
//!
//! On a server, transactions of several clients write at the same time, and become visible in an order that differs
//! from the order of their writes. If each change had the next number, all writers would wait for each other. If each
//! change had a number from a sequence, a change with a smaller number could become visible after a consumer has read
//! past it.
//!
//! So a writer adds a change under its [`Place`]: the number of its transaction, and the number of earlier changes of
//! the same transaction. Before a consumer reads, changes of transactions below the oldest running transaction get the
//! following numbers, in the order of their places. No earlier change can follow: the transactions with smaller numbers
//! have ended. Numbering is a write transaction. If two clients number the same changes, one of them fails because of a
//! conflict, and runs again.
//!
//! For each row, the order of places is the order of its changes. Of two transactions that write the same row, the
//! transaction with the greater number sees the commit of the other, or one of them fails: a transaction takes its
//! snapshot before it gets its number, reads the row before it writes it, and is serializable.
//!
//! A dump that was restored in another cluster has numbers of the transactions of the old cluster. If one of them is [foreign](has_foreign),
//! all changes without numbers are numbered when the table is opened, before this client writes. Otherwise all of them are less than those
//! of later transactions.

use super::{EVERY, age, last_with_time, remove_old};
use crate::{
    engine::{Read, Space, Write as _},
    model::{
        error::{Error, Result},
        stream::{ChangeStream, Mark, Place, StoredChange, UNNUMBERED_END, change_key},
    },
    placement::Writer,
};

/// The number of changes that are numbered at once.
pub(crate) const AT_ONCE: usize = 256;

/// Adds numbers to the first changes of transactions up to this number. Returns the number of these changes. If it is
/// less than [`AT_ONCE`], no changes are left.
pub(crate) fn number(
    stream: &ChangeStream,
    writer: &mut Writer<'_, '_>,
    upto: u64,
) -> Result<usize> {
    let found = some(writer.reader(), Place::default(), AT_ONCE)?;
    let (Mark { mut number, mut end }, last) = last_with_time(writer.reader())?;
    let mut time = last.map(|last| last.time);
    let (mut removed, mut written, mut long) = (Vec::new(), Vec::new(), Vec::new());
    for (place, change) in found.into_iter().take_while(|(place, _)| place.transaction <= upto) {
        if let Some(earlier) = time.filter(|earlier| stream.is_long(*earlier, change.time)) {
            long.push(((number, earlier), change.time));
        }
        time = Some(change.time);
        number = number.saturating_add(1);
        let len = StoredChange::len(change.order, change.primary_key, change.row);
        end = end.saturating_add(len as u64);
        let mut record = Vec::with_capacity(len);
        StoredChange { end, ..change }.encode(&mut record);
        removed.push(place.key().to_vec());
        written.push((change_key(number).to_vec(), record));
    }
    if removed.is_empty() {
        return Ok(0);
    }
    writer.exchange(Space::Changes, &removed, &written)?;
    for (last, next) in long {
        age::note(stream, writer, last, next)?;
    }
    // As a writer does, this removes up to `STEP` old changes for each `EVERY` changes that were numbered.
    let steps = (removed.len() as u64).div_ceil(EVERY);
    remove_old(stream, writer, steps * super::STEP)?;
    Ok(removed.len())
}

/// Whether a transaction up to this number has changes without numbers.
pub(crate) fn is_due<'t>(reader: impl Read<'t>, upto: u64) -> Result<bool> {
    let first = some(reader, Place::default(), 1)?;
    Ok(first.first().is_some_and(|(place, _)| place.transaction <= upto))
}

/// Whether a change without a number is of another cluster: the transaction with the number `own` sees no change of a transaction of its
/// own cluster with this number or a greater one.
pub(crate) fn has_foreign<'t>(reader: impl Read<'t>, own: u64) -> Result<bool> {
    let last = reader.below(Space::Changes, &UNNUMBERED_END)?;
    let place = last.and_then(|(key, _)| Place::of_key(key));
    Ok(place.is_some_and(|place| place.transaction >= own))
}

/// Calls `each` with each change that has no number, and its bytes in the stream.
pub(crate) fn each_pending<'t>(
    reader: impl Read<'t>,
    mut each: impl FnMut(StoredChange<'t>, u64),
) -> Result<()> {
    let mut from = Place::default();
    loop {
        let found = some(reader, from, AT_ONCE)?;
        let is_last = found.len() < AT_ONCE;
        for (place, change) in found {
            let len = StoredChange::len(change.order, change.primary_key, change.row);
            each(change, len as u64);
            from = Place { position: place.position.saturating_add(1), ..place };
        }
        if is_last {
            return Ok(());
        }
    }
}

/// Returns the first changes without numbers at or after a place.
fn some<'t>(
    reader: impl Read<'t>,
    from: Place,
    limit: usize,
) -> Result<Vec<(Place, StoredChange<'t>)>> {
    let records = reader.records(Space::Changes, &from.key(), limit)?;
    let own = records.into_iter().map_while(|(key, record)| Some((Place::of_key(key)?, record)));
    let decode = |(place, record)| {
        let change = StoredChange::decode(record).ok_or_else(|| Error::Corrupt {
            table: reader.table().name,
            index: None,
            key: "of a change without a number in its change stream".to_owned(),
            reason: "the record is damaged, or from a later release".to_owned(),
        })?;
        Ok((place, change))
    };
    own.map(decode).collect()
}
