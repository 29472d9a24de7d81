//! Packed blocks. A block is one physical entry with up to 512 bytes of primary keys under one index key.
//!
//! The first block of a key is stored under the key alone. Each further block is stored under the key and a lower
//! bound of its primary keys. The value has the block's [short](super::short) primary keys in order. So a primary key
//! belongs to the last block at or below (key, primary key), which one seek finds for any number of rows. Keys are
//! self-delimiting, so every LMDB key that starts with a key is a block of that key.
//!
//! If a new primary key is after all keys of a full block, a new block is started. So rows in the order of their
//! primary keys fill their blocks. Otherwise, the full block is split in half. An empty block is removed. If it was
//! the first block, the second block takes its position, so that a key with rows always has a block under the key
//! alone. Blocks don't merge.

use std::{
    ops::Bound,
    sync::atomic::{AtomicBool, Ordering},
};

use heed::{PutFlags, RwTxn};

use super::{
    journal::recorder::Recorder,
    named::Named,
    short::{Packed, write_one, zeros},
};
use crate::model::entry::ShortKey;

/// The maximum bytes of primary keys in one block: 64 keys of 8 bytes, or 170 keys of 3 bytes. According to the
/// measurement in `docs/LAYOUT.md`, sizes from 256 to 1024 bytes make little difference.
pub(super) const BLOCK: usize = 512;

/// The maximum length of a primary key in a block. Blocks of longer primary keys would save no space.
pub(super) const LONGEST: usize = 64;

/// The unread primary keys of one block, and their index key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block<'t> {
    key: &'t [u8],
    packed: Packed<'t>,
}

impl<'t> Block<'t> {
    pub(super) const EMPTY: Self = Self { key: &[], packed: Packed::EMPTY };

    /// Returns the block in a physical entry; `None` if the entry is not a block of `key`.
    pub(super) fn of(
        key: &[u8],
        primary_key: usize,
        physical: &'t [u8],
        packed: Packed<'t>,
    ) -> Option<Self> {
        is_block_of(key, primary_key, physical)
            .then(|| Self { key: physical.get(..key.len()).unwrap_or_default(), packed })
    }

    pub(super) const fn key(&self) -> &'t [u8] {
        self.key
    }

    /// Returns the number of unread primary keys.
    pub(super) fn len(&self) -> usize {
        self.packed.len()
    }

    /// Keeps the primary keys that are greater than `primary_key`, or equal if `inclusive`.
    pub(super) fn after(self, primary_key: &[u8], inclusive: bool) -> Self {
        let at = match self.packed.place(primary_key) {
            Ok(at) if !inclusive => self.packed.after(at),
            Ok(at) | Err(at) => at,
        };
        Self { packed: self.packed.from(at), ..self }
    }

    /// Keeps the primary keys that are less than `primary_key`, or equal if `inclusive`.
    pub(super) fn before(self, primary_key: &[u8], inclusive: bool) -> Self {
        let at = match self.packed.place(primary_key) {
            Ok(at) if inclusive => self.packed.after(at),
            Ok(at) | Err(at) => at,
        };
        Self { packed: self.packed.up_to(at), ..self }
    }

    #[inline]
    pub(super) fn next(&mut self) -> Option<ShortKey<'t>> {
        self.packed.next()
    }

    #[inline]
    pub(super) fn next_back(&mut self) -> Option<ShortKey<'t>> {
        self.packed.next_back()
    }
}

pub(super) fn is_block_of(key: &[u8], primary_key: usize, physical: &[u8]) -> bool {
    physical.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.len() == primary_key)
}

/// The error of a change of a malformed block, inside of an error of heed.
#[derive(Debug, thiserror::Error)]
#[error("the block is malformed")]
pub(super) struct Malformed {
    /// The name of the database.
    pub(super) database: String,
    /// The LMDB key of the block.
    pub(super) at: Vec<u8>,
}

/// Reads a block that is to be changed.
#[inline]
fn read<'b>(
    database: &Named<'_>,
    at: &[u8],
    value: &'b [u8],
    primary_key: usize,
) -> heed::Result<Packed<'b>> {
    Packed::read(value, primary_key).ok_or_else(|| malformed(database.name(), at))
}

#[cold]
fn malformed(database: &str, at: &[u8]) -> heed::Error {
    heed::Error::Decoding(Malformed { database: database.to_owned(), at: at.to_vec() }.into())
}

/// Buffers for one change.
#[derive(Default)]
pub(super) struct Scratch {
    /// The recorder of changes for the journal.
    pub(super) recorder: Recorder,
    /// The index key and the primary key.
    at: Vec<u8>,
    /// The physical key of the block that was found.
    found: Vec<u8>,
    /// The changed block.
    packed: Vec<u8>,
    /// The new block after a block that was split.
    split: Vec<u8>,
}

/// The forecast for the next change of an index, based on the last change.
///
/// In most indexes, either nearly every key has one row, or nearly every key has several. For each case, a different
/// order of operations saves a descent. The forecast affects only speed.
#[derive(Debug, Default)]
pub(super) struct Forecast {
    single_rows: AtomicBool,
}

impl Forecast {
    /// Whether keys are expected to have one row each.
    fn single_rows(&self) -> bool {
        self.single_rows.load(Ordering::Relaxed)
    }

    fn learn(&self, single_rows: bool) {
        self.single_rows.store(single_rows, Ordering::Relaxed);
    }
}

/// Adds a primary key to an index key, if it is missing.
///
/// Cost: one seek. A key that is probably new is written unless it exists. Otherwise, the cursor that found the
/// block writes it; heed allocates, since it copies the bound of a range.
pub(super) fn insert(
    database: &Named<'_>,
    forecast: &Forecast,
    txn: &mut RwTxn<'_>,
    key: &[u8],
    primary_key: &[u8],
    Scratch { recorder, at, found, packed, split }: &mut Scratch,
) -> heed::Result<()> {
    let zeros = zeros(primary_key);
    if forecast.single_rows() {
        write_one(primary_key, zeros, packed);
        if database.put_if_missing(txn, recorder, key, packed)? {
            return Ok(());
        }
        forecast.learn(false);
    }
    join(at, key, primary_key);
    let mut range =
        database.rev_range_mut(txn, &(Bound::Unbounded, Bound::Included(at.as_slice())))?;
    let is_at_end = match range.next().transpose()? {
        Some((physical, block)) if is_block_of(key, primary_key.len(), physical) => {
            let block = read(database, physical, block, primary_key.len())?;
            let Err(offset) = block.place_with(primary_key, zeros) else { return Ok(()) };
            refill(found, physical);
            block.write_with(offset, (primary_key, zeros), packed);
            offset == block.keys().len()
        }
        // The cursor is on the entry before the new entry, or has no position in an empty database.
        _ => {
            forecast.learn(true);
            write_one(primary_key, zeros, packed);
            put_at(&mut range, key, packed)?;
            return recorder.put(database.name(), key, packed);
        }
    };
    // The first byte is not a part of a primary key.
    if packed.len() <= BLOCK + 1 {
        put_current(&mut range, found, packed)?;
        return recorder.put(database.name(), found, packed);
    }
    if is_at_end {
        write_one(primary_key, zeros, packed);
        put_at(&mut range, at, packed)?;
        return recorder.put(database.name(), at, packed);
    }
    let all = read(database, found, packed, primary_key.len())?;
    let half = all.offset_of(all.len() / 2);
    let mut high = all.from(half);
    high.write(split);
    if let Some(separator) = high.next() {
        join_short(at, key, separator);
    }
    packed.truncate(half + 1);
    put_current(&mut range, found, packed)?;
    put_at(&mut range, at, split)?;
    recorder.put(database.name(), found, packed)?;
    recorder.put(database.name(), at, split)
}

/// Removes a primary key from an index key. Returns false if it was missing.
pub(super) fn remove(
    database: &Named<'_>,
    forecast: &Forecast,
    txn: &mut RwTxn<'_>,
    key: &[u8],
    primary_key: &[u8],
    Scratch { recorder, at, found, packed, .. }: &mut Scratch,
) -> heed::Result<bool> {
    if forecast.single_rows() {
        if remove_single(database, txn, recorder, key, primary_key, found, packed)? {
            return Ok(true);
        }
        forecast.learn(false);
    }
    join(at, key, primary_key);
    let mut range =
        database.rev_range_mut(txn, &(Bound::Unbounded, Bound::Included(at.as_slice())))?;
    let is_empty = match range.next().transpose()? {
        Some((physical, block)) if is_block_of(key, primary_key.len(), physical) => {
            let block = read(database, physical, block, primary_key.len())?;
            let Ok(offset) = block.place(primary_key) else { return Ok(false) };
            refill(found, physical);
            block.write_without(offset, packed);
            block.len() == 1
        }
        _ => return Ok(false),
    };
    if is_empty {
        #[expect(unsafe_code, reason = "heed's cursors don't track what borrows from the page")]
        // SAFETY: nothing borrowed from the database is alive: `found` and `packed` are copies.
        unsafe {
            range.del_current()?;
        }
        drop(range);
        recorder.delete(database.name(), found)?;
        if found.len() == key.len() {
            promote_second_block(database, txn, recorder, key, primary_key.len(), (found, packed))?;
        }
        return Ok(true);
    }
    put_current(&mut range, found, packed)?;
    recorder.put(database.name(), found, packed)?;
    Ok(true)
}

/// Removes the first block of a key if it has only this primary key. Otherwise, returns false, and nothing has
/// changed.
///
/// The cursor steps from the block to the next block, which may have to take its position.
fn remove_single(
    database: &Named<'_>,
    txn: &mut RwTxn<'_>,
    recorder: &mut Recorder,
    key: &[u8],
    primary_key: &[u8],
    found: &mut Vec<u8>,
    packed: &mut Vec<u8>,
) -> heed::Result<bool> {
    let mut range = database.range_mut(txn, &(Bound::Included(key), Bound::Unbounded))?;
    match range.next().transpose()? {
        Some((physical, block)) if physical == key && is_only(block, primary_key) => {}
        _ => return Ok(false),
    }
    #[expect(unsafe_code, reason = "heed's cursors don't track what borrows from the page")]
    // SAFETY: nothing borrowed from the database is alive: `key` and `primary_key` are the
    // caller's.
    unsafe {
        range.del_current()?;
    }
    recorder.delete(database.name(), key)?;
    match range.next().transpose()? {
        Some((physical, block)) if is_block_of(key, primary_key.len(), physical) => {
            refill(found, physical);
            refill(packed, block);
        }
        _ => return Ok(true),
    }
    drop(range);
    promote(database, txn, recorder, key, found, packed)?;
    Ok(true)
}

/// Whether a block has this primary key alone.
fn is_only(block: &[u8], primary_key: &[u8]) -> bool {
    let packed = Packed::read(block, primary_key.len());
    packed.is_some_and(|packed| packed.len() == 1 && packed.place(primary_key).is_ok())
}

/// Moves the second block of a key, whose first block was removed, to the key alone.
fn promote_second_block(
    database: &Named<'_>,
    txn: &mut RwTxn<'_>,
    recorder: &mut Recorder,
    key: &[u8],
    primary_key: usize,
    (found, packed): (&mut Vec<u8>, &mut Vec<u8>),
) -> heed::Result<()> {
    match database.get_greater_than(txn, key)? {
        Some((physical, block)) if is_block_of(key, primary_key, physical) => {
            refill(found, physical);
            refill(packed, block);
        }
        _ => return Ok(()),
    }
    promote(database, txn, recorder, key, found, packed)
}

fn promote(
    database: &Named<'_>,
    txn: &mut RwTxn<'_>,
    recorder: &mut Recorder,
    key: &[u8],
    second: &[u8],
    packed: &[u8],
) -> heed::Result<()> {
    database.delete(txn, recorder, second)?;
    database.put(txn, recorder, key, packed)
}

type Cursor<'t> = heed::RwRevRange<'t, heed::types::Bytes, heed::types::Bytes>;

/// Overwrites the block under the cursor.
fn put_current(cursor: &mut Cursor<'_>, found: &[u8], packed: &[u8]) -> heed::Result<()> {
    #[expect(unsafe_code, reason = "heed's cursors don't track what borrows from the page")]
    // SAFETY: key and data are scratch buffers, not borrowed from the database, and `found` is a
    // copy of the key that the cursor is on.
    let written = unsafe { cursor.put_current(found, packed)? };
    if written { Ok(()) } else { Err(heed::MdbError::NotFound.into()) }
}

/// Writes a new block through the cursor, which is already in the right page.
fn put_at(cursor: &mut Cursor<'_>, at: &[u8], packed: &[u8]) -> heed::Result<()> {
    #[expect(unsafe_code, reason = "heed's cursors don't track what borrows from the page")]
    // SAFETY: key and data are scratch buffers or the caller's, not borrowed from the database.
    unsafe {
        cursor.put_current_with_options::<heed::types::Bytes>(PutFlags::empty(), at, packed)
    }
}

fn join(buffer: &mut Vec<u8>, key: &[u8], primary_key: &[u8]) {
    refill(buffer, key);
    buffer.extend_from_slice(primary_key);
}

/// Joins an index key and a primary key that lacks bytes.
fn join_short(buffer: &mut Vec<u8>, key: &[u8], primary_key: ShortKey<'_>) {
    refill(buffer, key);
    buffer.resize(key.len() + primary_key.zeros, 0);
    buffer.extend_from_slice(primary_key.bytes);
}

pub(super) fn refill(buffer: &mut Vec<u8>, bytes: &[u8]) {
    buffer.clear();
    buffer.extend_from_slice(bytes);
}

impl Scratch {
    /// Frees the memory of a large row. Only `at` can have more than keys and blocks.
    pub(super) fn forget_large(&mut self) {
        const LARGE: usize = 1 << 16;
        if self.at.capacity() > LARGE {
            self.at = Vec::new();
        }
    }

    /// Returns the recorder, and the concatenation of index key and primary key.
    pub(super) fn joined(&mut self, key: &[u8], primary_key: &[u8]) -> (&mut Recorder, &[u8]) {
        join(&mut self.at, key, primary_key);
        (&mut self.recorder, &self.at)
    }
}
