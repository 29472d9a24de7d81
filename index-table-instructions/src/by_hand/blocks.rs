//! The index on towns: primary keys in packed blocks.

use std::ops::Bound;

use heed::{PutFlags, RwTxn, types::Bytes};

use super::{ByHand, bytes::refill};
use crate::Result;

/// Bytes of primary keys in one block.
const BLOCK: usize = 512;

/// Buffers for packed blocks.
#[derive(Default)]
pub(super) struct Scratch {
    at: Vec<u8>,
    found: Vec<u8>,
    packed: Vec<u8>,
}

impl ByHand {
    /// Leaves a cursor on the block that has to contain the primary key, and copies of it in the buffers;
    /// `found` is empty if the town has none.
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
        let Err(offset) = place(packed, id) else { return Ok(()) };
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
        let Ok(offset) = place(packed, id) else { return Ok(()) };
        packed.drain(offset..offset + 8);
        if !packed.is_empty() {
            return put_current(&mut cursor, found, packed);
        }
        drop(cursor);
        self.by_town.delete(txn, found)?;
        if found.as_slice() != town {
            return Ok(());
        }
        // The second block takes the place of the first one.
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

/// The offset of a primary key among packed ones, or where it belongs, in bytes.
pub(super) fn place(packed: &[u8], id: [u8; 8]) -> std::result::Result<usize, usize> {
    let (ids, _) = packed.as_chunks::<8>();
    ids.binary_search(&id).map(|at| at * 8).map_err(|at| at * 8)
}

type Cursor<'t> = heed::RwRevRange<'t, Bytes, Bytes>;

fn put_current(cursor: &mut Cursor<'_>, found: &[u8], packed: &[u8]) -> Result<()> {
    #[expect(unsafe_code, reason = "heed's cursors can't see who borrows from the page")]
    // SAFETY: key and data are not borrowed from the database.
    let _written = unsafe { cursor.put_current(found, packed)? };
    Ok(())
}

fn put_at(cursor: &mut Cursor<'_>, at: &[u8], packed: &[u8]) -> Result<()> {
    #[expect(unsafe_code, reason = "heed's cursors can't see who borrows from the page")]
    // SAFETY: key and data are not borrowed from the database.
    unsafe {
        cursor.put_current_with_options::<Bytes>(PutFlags::empty(), at, packed)?;
    }
    Ok(())
}
