//! The index on towns: primary keys in packed blocks, without the zeros at their start.

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
    split: Vec<u8>,
}

impl ByHand {
    /// Returns a cursor at the block in which the primary key belongs, and copies its key and contents to the
    /// buffers. `found` is empty if the town has no block.
    fn seek<'t>(
        &self,
        txn: &'t mut RwTxn<'_>,
        town: &[u8],
        id: [u8; 8],
        Scratch { at, found, packed, .. }: &mut Scratch,
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
        let Scratch { at, found, packed, split } = buffers;
        if found.is_empty() {
            return put_at(&mut cursor, town, one(id, packed));
        }
        let Err(offset) = offset_of(packed, id) else { return Ok(()) };
        let (zeros, own) = (usize::from(packed[0]), zeros(id));
        if own < zeros {
            // The new primary key is the greatest, and makes all others longer.
            let count = (packed.len() - 1) / (8 - zeros);
            if (count + 1) * (8 - own) > BLOCK {
                return put_at(&mut cursor, at, one(id, packed));
            }
            split.clear();
            split.push(own as u8);
            for bytes in packed[1..].chunks_exact(8 - zeros) {
                split.resize(split.len() + zeros - own, 0);
                split.extend_from_slice(bytes);
            }
            split.extend_from_slice(&id[own..]);
            return put_current(&mut cursor, found, split);
        }
        let width = 8 - zeros;
        if packed.len() - 1 + width > BLOCK && offset == packed.len() {
            return put_at(&mut cursor, at, one(id, packed));
        }
        packed.splice(offset..offset, id[zeros..].iter().copied());
        if packed.len() - 1 <= BLOCK {
            return put_current(&mut cursor, found, packed);
        }
        let half = 1 + (packed.len() - 1) / width / 2 * width;
        split.clear();
        split.push(packed[0]);
        split.extend_from_slice(&packed[half..]);
        refill(at, town);
        at.extend_from_slice(&whole(zeros, &packed[half..half + width]));
        packed.truncate(half);
        put_current(&mut cursor, found, packed)?;
        put_at(&mut cursor, at, split)
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
        packed.drain(offset..offset + 8 - usize::from(packed[0]));
        if packed.len() > 1 {
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
    let Some((&missing, ids)) = packed.split_first() else { return Err(0) };
    if zeros(id) < usize::from(missing) {
        return Err(packed.len());
    }
    match 8 - missing {
        1 => offset_among::<1>(ids, id),
        2 => offset_among::<2>(ids, id),
        3 => offset_among::<3>(ids, id),
        4 => offset_among::<4>(ids, id),
        5 => offset_among::<5>(ids, id),
        6 => offset_among::<6>(ids, id),
        7 => offset_among::<7>(ids, id),
        _ => offset_among::<8>(ids, id),
    }
}

fn offset_among<const WIDTH: usize>(ids: &[u8], id: [u8; 8]) -> std::result::Result<usize, usize> {
    let Some(id) = id.last_chunk::<WIDTH>() else { return Err(1) };
    let place = ids.as_chunks::<WIDTH>().0.binary_search(id);
    place.map(|at| 1 + at * WIDTH).map_err(|at| 1 + at * WIDTH)
}

/// Returns the number of zeros at the start of a primary key that it does not need.
pub(super) fn zeros(id: [u8; 8]) -> usize {
    ((u64::from_be_bytes(id) | 1).leading_zeros() / 8) as usize
}

/// Returns a primary key that lacks zeros with all of its bytes.
pub(super) fn whole(zeros: usize, bytes: &[u8]) -> [u8; 8] {
    let mut id = [0; 8];
    id[zeros..].copy_from_slice(bytes);
    id
}

/// Returns the primary keys in a block, from an offset.
pub(super) fn ids(block: &[u8], offset: usize) -> impl Iterator<Item = [u8; 8]> {
    let zeros = block.first().map_or(0, |zeros| usize::from(*zeros));
    let ids = block.get(offset..).unwrap_or_default().chunks_exact(8 - zeros);
    ids.map(move |bytes| whole(zeros, bytes))
}

/// Returns a block of one primary key.
fn one(id: [u8; 8], block: &mut Vec<u8>) -> &[u8] {
    block.clear();
    block.push(zeros(id) as u8);
    block.extend_from_slice(&id[zeros(id)..]);
    block
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
