//! The index on towns: primary keys in packed blocks.

use std::ops::Bound;

use heed::{PutFlags, RwTxn, types::Bytes};

use super::{ByHand, bytes::refill};
use crate::Result;

/// The maximum size of a block, in bytes of primary keys.
const BLOCK: usize = 512;

/// Buffers for packed blocks.
#[derive(Default)]
pub(super) struct Scratch {
    at: Vec<u8>,
    found: Vec<u8>,
    packed: Vec<u8>,
}

impl ByHand {
    /// Returns a cursor at the block in which the primary key belongs, and copies its key and contents to the
    /// buffers. `found` is empty if the town has no block.
    fn seek<'t>(
        &self,
        txn: &'t mut RwTxn<'_>,
        town: &[u8],
        id: [u8; 8],
        Scratch { at, found, packed }: &mut Scratch,
    ) -> Result<Cursor<'t>> {
        refill(at, town);
        at.extend_from_slice(&id);
        let up_to = (Bound::Unbounded, Bound::Included(at.as_slice()));
        let mut cursor = self.by_town.rev_range_mut(txn, &up_to)?;
        let block = cursor.next().transpose()?.filter(|(key, _)| key.starts_with(town));
        let (key, ids) = block.unwrap_or_default();
        refill(found, key);
        refill(packed, ids);
        Ok(cursor)
    }

    /// Adds a primary key to the blocks of a town.
    pub(super) fn pack(
        &self,
        txn: &mut RwTxn<'_>,
        town: &[u8],
        id: [u8; 8],
        buffers: &mut Scratch,
    ) -> Result<()> {
        let mut cursor = self.seek(txn, town, id, buffers)?;
        let Scratch { at, found, packed } = buffers;
        if found.is_empty() {
            return put_at(&mut cursor, town, &id);
        }
        let Err(offset) = offset_of(packed, id) else { return Ok(()) };
        if packed.len() < BLOCK {
            packed.splice(offset..offset, id);
            return put_current(&mut cursor, found, packed);
        }
        if offset == packed.len() {
            return put_at(&mut cursor, at, &id);
        }
        packed.splice(offset..offset, id);
        let (low, high) = packed.split_at(packed.len() / 16 * 8);
        put_current(&mut cursor, found, low)?;
        refill(at, town);
        at.extend_from_slice(&high[..8]);
        put_at(&mut cursor, at, high)
    }

    /// Removes a primary key from the blocks of a town.
    pub(super) fn unpack(
        &self,
        txn: &mut RwTxn<'_>,
        town: &[u8],
        id: [u8; 8],
        buffers: &mut Scratch,
    ) -> Result<()> {
        let mut cursor = self.seek(txn, town, id, buffers)?;
        let Scratch { found, packed, .. } = buffers;
        let Ok(offset) = offset_of(packed, id) else { return Ok(()) };
        packed.drain(offset..offset + 8);
        if !packed.is_empty() {
            return put_current(&mut cursor, found, packed);
        }
        drop(cursor);
        self.by_town.delete(txn, found)?;
        if found.as_slice() != town {
            return Ok(());
        }
        // The second block becomes the first.
        match self.by_town.get_greater_than(txn, town)? {
            Some((key, block)) if key.starts_with(town) => {
                refill(found, key);
                refill(packed, block);
            }
            _ => return Ok(()),
        }
        self.by_town.delete(txn, found)?;
        Ok(self.by_town.put(txn, town, packed)?)
    }
}

/// Returns the offset in bytes of a primary key in a block (`Ok`), or the offset at which it belongs (`Err`).
pub(super) fn offset_of(packed: &[u8], id: [u8; 8]) -> std::result::Result<usize, usize> {
    let (ids, _) = packed.as_chunks::<8>();
    ids.binary_search(&id).map(|at| at * 8).map_err(|at| at * 8)
}

type Cursor<'t> = heed::RwRevRange<'t, Bytes, Bytes>;

fn put_current(cursor: &mut Cursor<'_>, found: &[u8], packed: &[u8]) -> Result<()> {
    #[expect(unsafe_code, reason = "heed's cursors don't track what borrows from the page")]
    // SAFETY: key and data are not borrowed from the database.
    let _written = unsafe { cursor.put_current(found, packed)? };
    Ok(())
}

fn put_at(cursor: &mut Cursor<'_>, at: &[u8], packed: &[u8]) -> Result<()> {
    #[expect(unsafe_code, reason = "heed's cursors don't track what borrows from the page")]
    // SAFETY: key and data are not borrowed from the database.
    unsafe {
        cursor.put_current_with_options::<Bytes>(PutFlags::empty(), at, packed)?;
    }
    Ok(())
}
