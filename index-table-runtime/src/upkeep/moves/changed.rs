//! Rows, numbers and entries that have changed during the copy.

use super::{super::numbers, entries::MovedIndex, rows::Copies};
use crate::{
    engine::{Read as _, Space},
    model::{
        error::Result,
        maintain::{Change, Sink as _},
    },
    placement::{self, shards::Tracked},
};

/// The current state of a row, a number or an entry.
pub(super) struct Now {
    /// The primary key of an entry.
    primary_key: Vec<u8>,
    bytes: Vec<u8>,
}

impl MovedIndex<'_> {
    /// Returns the identity of a changed entry. If a key has at most one entry, the key identifies the entry.
    pub(super) fn tracked(&self, key: &[u8], primary_key: &[u8]) -> Tracked {
        Tracked::entry(self.table.schema, self.index, key, primary_key)
    }
}

/// Reads a changed row, number or entry; `None` if it was removed.
pub(super) fn read(source: placement::Reader<'_>, changed: &Tracked) -> Result<Option<Now>> {
    let of_row = |bytes: &[u8]| Now { primary_key: Vec::new(), bytes: bytes.to_vec() };
    Ok(match changed {
        Tracked::Row(_, primary_key) => source.fact(primary_key)?.map(of_row),
        Tracked::Sequence(_, key) => source.get(Space::Sequence, key)?.map(of_row),
        Tracked::Only(_, index, key) => source.unique(*index, key)?.map(|entry| Now {
            primary_key: entry.primary_key.to_vec(),
            bytes: entry.data.to_vec(),
        }),
        Tracked::Entry(_, index, key, primary_key) => {
            let now = |data: &[u8]| Now { primary_key: primary_key.clone(), bytes: data.to_vec() };
            source.entry(*index, key, primary_key)?.map(now)
        }
    })
}

/// Makes the copies of changed rows, numbers and entries equal to their current state in the source.
pub(super) fn set_all(
    source: placement::Reader<'_>,
    copies: &mut Copies<'_>,
    writer: &mut placement::Writer<'_, '_>,
    changed: &[Tracked],
) -> Result<()> {
    let now = changed.iter().map(|it| read(source, it)).collect::<Result<Vec<_>>>()?;
    put_all(copies, writer, changed, &now)
}

/// Makes the copies of changed rows, numbers and entries equal to `now`, in which all of them are from one snapshot.
pub(super) fn put_all(
    copies: &mut Copies<'_>,
    writer: &mut placement::Writer<'_, '_>,
    changed: &[Tracked],
    now: &[Option<Now>],
) -> Result<()> {
    let mut rows = Vec::new();
    for (changed, now) in changed.iter().zip(now) {
        match changed {
            Tracked::Row(_, primary_key) => {
                rows.push((primary_key.as_slice(), now.as_ref().map(|it| it.bytes.as_slice())));
            }
            Tracked::Sequence(_, key) => {
                if let Some(now) = now {
                    numbers::raise(writer, key, &now.bytes)?;
                }
            }
            Tracked::Only(_, index, key) | Tracked::Entry(_, index, key, _) => {
                put_entry(writer, changed, (*index, key), now.as_ref())?;
            }
        }
    }
    copies.set_all(writer, &rows)
}

/// Makes the copy of an entry equal to `now`.
fn put_entry(
    writer: &mut placement::Writer<'_, '_>,
    changed: &Tracked,
    (index, key): (usize, &[u8]),
    now: Option<&Now>,
) -> Result<()> {
    if let Some(Now { primary_key, bytes }) = now {
        return writer.change(Change::PutEntry { index, key, primary_key, data: bytes });
    }
    // The key identifies the entry if it has at most one.
    let copy = match changed {
        Tracked::Entry(.., primary_key) => Some(primary_key.clone()),
        _ => writer.reader().unique(index, key)?.map(|it| it.primary_key.to_vec()),
    };
    match &copy {
        Some(primary_key) => writer.change(Change::DeleteEntry { index, key, primary_key }),
        None => Ok(()),
    }
}
