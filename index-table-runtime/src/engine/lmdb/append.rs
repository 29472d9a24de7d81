//! Appending entries in the order of their database, after all existing entries.
//!
//! LMDB appends without a search, and fills its pages; in random order, they become two thirds full. It refuses to
//! append an entry that is not after all others. From that entry on, all entries are written without appending.

use heed::RwTxn;

use super::{
    blocks::BLOCK,
    journal::recorder::Recorder,
    named::Named,
    short::{short, write_all},
};

/// The block that is being filled.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// The index key.
    key: Vec<u8>,
    /// The LMDB key: the index key, and from the second block on a primary key.
    at: Vec<u8>,
    /// The length of a whole primary key.
    primary_key: usize,
    /// The whole primary keys.
    packed: Vec<u8>,
    /// The written block.
    value: Vec<u8>,
}

/// The result of adding an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// The entry is in the block.
    Yes,
    /// The entry is not after the previous entries.
    No,
    /// The database has entries after the block; see [`Block::entries`].
    NotLast,
}

impl Block {
    /// Adds an entry. If the current block is full or has another key, it is written first.
    pub(super) fn add(
        &mut self,
        database: &Named<'_>,
        txn: &mut RwTxn<'_>,
        recorder: &mut Recorder,
        key: &[u8],
        primary_key: &[u8],
    ) -> heed::Result<Taken> {
        let len = primary_key.len();
        if !self.packed.is_empty() && self.key == key {
            let last = self.packed.len().checked_sub(len).and_then(|at| self.packed.get(at..));
            match last.unwrap_or_default().cmp(primary_key) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => return Ok(Taken::Yes),
                std::cmp::Ordering::Greater => return Ok(Taken::No),
            }
            // The new primary key is the greatest, so it decides how many bytes all others lack.
            let count = self.packed.len().checked_div(len).unwrap_or_default() + 1;
            if count * short(primary_key).len() > BLOCK {
                if !self.write(database, txn, recorder)? {
                    return Ok(Taken::NotLast);
                }
                self.packed.clear();
                self.at.truncate(self.key.len());
                self.at.extend_from_slice(primary_key);
            }
            self.packed.extend_from_slice(primary_key);
            return Ok(Taken::Yes);
        }
        if !self.write(database, txn, recorder)? {
            return Ok(Taken::NotLast);
        }
        for (buffer, bytes) in
            [(&mut self.key, key), (&mut self.at, key), (&mut self.packed, primary_key)]
        {
            buffer.clear();
            buffer.extend_from_slice(bytes);
        }
        self.primary_key = len;
        Ok(Taken::Yes)
    }

    /// Writes the block, if there is one. Returns false if the database has a later entry.
    pub(super) fn write(
        &mut self,
        database: &Named<'_>,
        txn: &mut RwTxn<'_>,
        recorder: &mut Recorder,
    ) -> heed::Result<bool> {
        if self.packed.is_empty() {
            return Ok(true);
        }
        write_all(&self.packed, self.primary_key, &mut self.value);
        database.append(txn, recorder, &self.at, &self.value)
    }

    /// Returns the index key, and the primary keys that are not written yet.
    pub(super) fn entries(&self) -> (&[u8], impl Iterator<Item = &[u8]>) {
        (&self.key, self.packed.chunks(self.primary_key.max(1)))
    }
}
