//! Rows, numbers and entries that have changed during the copy.

use super::{
    entries::MovedIndex,
    rows::{Copies, set_sequence},
};
use crate::{
    engine::{self, Read as _, Space, Write as _, shards::Tracked},
    model::{
        error::Result,
        maintain::{Change, Sink as _},
    },
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
pub(super) fn read(source: engine::Reader<'_>, changed: &Tracked) -> Result<Option<Now>> {
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

/// Makes the copy of a changed row, number or entry equal to `now`.
pub(super) fn put(
    copies: &mut Copies<'_>,
    writer: &mut engine::Writer<'_, '_>,
    changed: &Tracked,
    now: Option<&Now>,
) -> Result<()> {
    let bytes = now.map(|now| now.bytes.as_slice());
    match changed {
        Tracked::Row(_, primary_key) => copies.set(writer, primary_key, bytes).map(drop),
        Tracked::Sequence(_, key) => set_sequence(writer, key, bytes).map(drop),
        Tracked::Only(_, index, key) | Tracked::Entry(_, index, key, _) => {
            let index = *index;
            if let Some(Now { primary_key, bytes }) = now {
                writer.change(Change::PutEntry { index, key, primary_key, data: bytes })?;
            } else {
                let copy = match changed {
                    Tracked::Entry(.., primary_key) => Some(primary_key.clone()),
                    _ => writer.reader().unique(index, key)?.map(|it| it.primary_key.to_vec()),
                };
                if let Some(primary_key) = &copy {
                    writer.change(Change::DeleteEntry { index, key, primary_key })?;
                }
            }
            writer.flush()
        }
    }
}

/// Makes the copy of a changed row, number or entry equal to its current state in the source.
pub(super) fn set(
    source: engine::Reader<'_>,
    copies: &mut Copies<'_>,
    writer: &mut engine::Writer<'_, '_>,
    changed: &Tracked,
) -> Result<()> {
    put(copies, writer, changed, read(source, changed)?.as_ref())
}
