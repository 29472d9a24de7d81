//! The index on towns, in two layouts.

use std::ops::Bound;

use heed::{AnyTls, PutFlags, RoTxn, RwRevRange, RwTxn, types::Bytes};

use super::Database;
use crate::contender::Outcome;

type Id = [u8; 8];

/// An index from encoded towns to sorted primary keys.
pub(super) trait Towns: Sized {
    /// Returns the index in this database.
    fn new(database: Database) -> Self;
    /// Adds a primary key that the town doesn't have.
    fn insert(&mut self, txn: &mut RwTxn<'_>, town: &[u8], id: Id) -> Outcome;
    /// Removes a primary key that the town has.
    fn remove(&mut self, txn: &mut RwTxn<'_>, town: &[u8], id: Id) -> Outcome;
    /// Calls `work` with each primary key of a town.
    fn each(
        &self,
        txn: &RoTxn<'_, AnyTls>,
        town: &[u8],
        work: impl FnMut(Id) -> Outcome,
    ) -> Outcome;
    /// Calls `work` with the primary keys of a town after `after`, until it returns false.
    fn each_after(
        &self,
        txn: &RoTxn<'_, AnyTls>,
        town: &[u8],
        after: u64,
        work: impl FnMut(Id) -> Outcome<bool>,
    ) -> Outcome;
    /// Returns the number of primary keys of a town.
    fn count(&self, txn: &RoTxn<'_, AnyTls>, town: &[u8]) -> Outcome<u64>;
}

/// Entries with the town and the primary key as their key, and no value.
pub(super) struct Plain {
    database: Database,
    key: Vec<u8>,
}

impl Plain {
    fn join(&mut self, town: &[u8], id: Id) -> &[u8] {
        refill(&mut self.key, town, &id);
        &self.key
    }
}

impl Towns for Plain {
    fn new(database: Database) -> Self {
        Self { database, key: Vec::new() }
    }

    fn insert(&mut self, txn: &mut RwTxn<'_>, town: &[u8], id: Id) -> Outcome {
        let database = self.database;
        Ok(database.put(txn, self.join(town, id), &[])?)
    }

    fn remove(&mut self, txn: &mut RwTxn<'_>, town: &[u8], id: Id) -> Outcome {
        let database = self.database;
        database.delete(txn, self.join(town, id))?;
        Ok(())
    }

    fn each(
        &self,
        txn: &RoTxn<'_, AnyTls>,
        town: &[u8],
        mut work: impl FnMut(Id) -> Outcome,
    ) -> Outcome {
        for entry in self.database.prefix_iter(txn, town)? {
            work(*entry?.0.last_chunk().ok_or("a short key")?)?;
        }
        Ok(())
    }

    fn each_after(
        &self,
        txn: &RoTxn<'_, AnyTls>,
        town: &[u8],
        after: u64,
        mut work: impl FnMut(Id) -> Outcome<bool>,
    ) -> Outcome {
        let [mut low, mut high] = [Vec::new(), Vec::new()];
        refill(&mut low, town, &after.to_be_bytes());
        refill(&mut high, town, &[0xFF; 8]);
        let range = (Bound::Excluded(low.as_slice()), Bound::Included(high.as_slice()));
        for entry in self.database.range(txn, &range)? {
            if !work(*entry?.0.last_chunk().ok_or("a short key")?)? {
                break;
            }
        }
        Ok(())
    }

    fn count(&self, txn: &RoTxn<'_, AnyTls>, town: &[u8]) -> Outcome<u64> {
        let mut count = 0;
        for entry in self.database.prefix_iter(txn, town)? {
            entry?;
            count += 1;
        }
        Ok(count)
    }
}

/// Blocks of up to 512 bytes of primary keys, after a byte with the number of zeros that all of them lack. The key of the
/// first block is the town. The key of each further block is the town and the lowest primary key that belongs in it.
pub(super) struct Packed {
    database: Database,
    /// Buffers: the key of a block that starts with the primary key, and the key and the contents of the
    /// found block, and a new block.
    at: Vec<u8>,
    found: Vec<u8>,
    block: Vec<u8>,
    new: Vec<u8>,
}

const BLOCK: usize = 512;

impl Packed {
    /// Returns a cursor at the block in which the primary key belongs. `found` is empty if the town has
    /// no block.
    fn seek<'t>(
        &mut self,
        txn: &'t mut RwTxn<'_>,
        town: &[u8],
        id: Id,
    ) -> Outcome<RwRevRange<'t, Bytes, Bytes>> {
        refill(&mut self.at, town, &id);
        let bounds = (Bound::Unbounded, Bound::Included(self.at.as_slice()));
        let mut cursor = self.database.rev_range_mut(txn, &bounds)?;
        let entry = cursor.next().transpose()?.filter(|(key, _)| key.starts_with(town));
        let (key, block) = entry.unwrap_or_default();
        refill(&mut self.found, key, &[]);
        refill(&mut self.block, block, &[]);
        Ok(cursor)
    }
}

impl Towns for Packed {
    fn new(database: Database) -> Self {
        let [at, found, block, new] = Default::default();
        Self { database, at, found, block, new }
    }

    fn insert(&mut self, txn: &mut RwTxn<'_>, town: &[u8], id: Id) -> Outcome {
        let mut cursor = self.seek(txn, town, id)?;
        let Self { at, found, block, new, .. } = self;
        refill(new, &[zeros(id) as u8], short(&id));
        if found.is_empty() {
            return add(&mut cursor, town, new);
        }
        let Err(offset) = find(block, id) else { return Ok(()) };
        let (missing, own) = (usize::from(block[0]), zeros(id));
        if own < missing {
            // The new primary key is the greatest, and makes all others longer.
            let count = (block.len() - 1) / (8 - missing);
            if (count + 1) * (8 - own) > BLOCK {
                return add(&mut cursor, at, new);
            }
            refill(new, &[own as u8], &[]);
            ids(block).for_each(|id| new.extend_from_slice(&id[own..]));
            new.extend_from_slice(&id[own..]);
            return replace(&mut cursor, found, new);
        }
        let width = 8 - missing;
        let full = block.len() - 1 + width > BLOCK;
        if full && offset == block.len() {
            return add(&mut cursor, at, new);
        }
        block.splice(offset..offset, id[missing..].iter().copied());
        if !full {
            return replace(&mut cursor, found, block);
        }
        let half = 1 + (block.len() - 1) / width / 2 * width;
        let (low, high) = block.split_at(half);
        refill(new, &block[..1], high);
        replace(&mut cursor, found, low)?;
        refill(at, town, &whole(missing, &high[..width]));
        add(&mut cursor, at, new)
    }

    fn remove(&mut self, txn: &mut RwTxn<'_>, town: &[u8], id: Id) -> Outcome {
        let mut cursor = self.seek(txn, town, id)?;
        let Self { database, found, block, .. } = self;
        let Ok(offset) = find(block, id) else { return Ok(()) };
        block.drain(offset..offset + 8 - usize::from(block[0]));
        if block.len() > 1 {
            return replace(&mut cursor, found, block);
        }
        #[expect(unsafe_code, reason = "heed's cursors don't track what borrows from the page")]
        // SAFETY: nothing borrowed from the database is alive: `seek` copies.
        unsafe {
            cursor.del_current()?;
        }
        drop(cursor);
        if found == town
            && let Some((key, second)) =
                database.get_greater_than(txn, town)?.filter(|(key, _)| key.starts_with(town))
        {
            // The second block becomes the first.
            refill(found, key, &[]);
            refill(block, second, &[]);
            database.delete(txn, found)?;
            database.put(txn, town, block)?;
        }
        Ok(())
    }

    fn each(
        &self,
        txn: &RoTxn<'_, AnyTls>,
        town: &[u8],
        mut work: impl FnMut(Id) -> Outcome,
    ) -> Outcome {
        for entry in self.database.prefix_iter(txn, town)? {
            ids(entry?.1).try_for_each(&mut work)?;
        }
        Ok(())
    }

    fn each_after(
        &self,
        txn: &RoTxn<'_, AnyTls>,
        town: &[u8],
        after: u64,
        mut work: impl FnMut(Id) -> Outcome<bool>,
    ) -> Outcome {
        let after = after.to_be_bytes();
        let [mut at, mut high] = [Vec::new(), Vec::new()];
        refill(&mut at, town, &after);
        refill(&mut high, town, &[0xFF; 8]);
        let first = self.database.get_lower_than_or_equal_to(txn, &at)?;
        let low = first.map_or(town, |(key, _)| key);
        let range = (Bound::Included(low), Bound::Included(high.as_slice()));
        for entry in self.database.range(txn, &range)? {
            let (key, block) = entry?;
            if !key.starts_with(town) {
                continue;
            }
            for id in ids(block).filter(|id| *id > after) {
                if !work(id)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn count(&self, txn: &RoTxn<'_, AnyTls>, town: &[u8]) -> Outcome<u64> {
        let mut count = 0;
        for entry in self.database.prefix_iter(txn, town)? {
            let (zeros, ids) = entry?.1.split_first().ok_or("an empty block")?;
            count += ids.len() / (8 - usize::from(*zeros));
        }
        Ok(count as u64)
    }
}

fn add(cursor: &mut RwRevRange<'_, Bytes, Bytes>, key: &[u8], block: &[u8]) -> Outcome {
    #[expect(unsafe_code, reason = "heed's cursors don't track what borrows from the page")]
    // SAFETY: nothing borrowed from the database is alive: `Packed::seek` copies.
    unsafe {
        cursor.put_current_with_options::<Bytes>(PutFlags::empty(), key, block)?;
    }
    Ok(())
}

fn replace(cursor: &mut RwRevRange<'_, Bytes, Bytes>, found: &[u8], block: &[u8]) -> Outcome {
    #[expect(unsafe_code, reason = "heed's cursors don't track what borrows from the page")]
    // SAFETY: as above, and `found` is the key at the cursor.
    unsafe {
        cursor.put_current(found, block)?;
    }
    Ok(())
}

/// Returns the offset in bytes of a primary key in a block (`Ok`), or the offset at which it belongs (`Err`).
fn find(block: &[u8], id: Id) -> Result<usize, usize> {
    let Some((&missing, ids)) = block.split_first() else { return Err(0) };
    if zeros(id) < usize::from(missing) {
        return Err(block.len());
    }
    match 8 - missing {
        1 => find_among::<1>(ids, id),
        2 => find_among::<2>(ids, id),
        3 => find_among::<3>(ids, id),
        4 => find_among::<4>(ids, id),
        5 => find_among::<5>(ids, id),
        6 => find_among::<6>(ids, id),
        7 => find_among::<7>(ids, id),
        _ => find_among::<8>(ids, id),
    }
}

fn find_among<const WIDTH: usize>(ids: &[u8], id: Id) -> Result<usize, usize> {
    let Some(id) = id.last_chunk::<WIDTH>() else { return Err(1) };
    let offset = ids.as_chunks::<WIDTH>().0.binary_search(id);
    offset.map(|at| 1 + at * WIDTH).map_err(|at| 1 + at * WIDTH)
}

/// Returns the number of zeros at the start of a primary key that it does not need.
fn zeros(id: Id) -> usize {
    ((u64::from_be_bytes(id) | 1).leading_zeros() / 8) as usize
}

/// Returns a primary key without these zeros.
pub(super) fn short(id: &Id) -> &[u8] {
    &id[zeros(*id)..]
}

/// Returns a primary key that lacks zeros with all of its bytes.
pub(super) fn whole(zeros: usize, bytes: &[u8]) -> Id {
    let mut id = [0; 8];
    id[zeros..].copy_from_slice(bytes);
    id
}

/// Returns the primary keys in a block.
fn ids(block: &[u8]) -> impl Iterator<Item = Id> {
    let zeros = block.first().map_or(0, |zeros| usize::from(*zeros));
    let ids = block.get(1..).unwrap_or_default().chunks_exact(8 - zeros);
    ids.map(move |bytes| whole(zeros, bytes))
}

fn refill(buffer: &mut Vec<u8>, one: &[u8], other: &[u8]) {
    buffer.clear();
    buffer.extend_from_slice(one);
    buffer.extend_from_slice(other);
}
