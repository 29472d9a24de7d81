//! Scans whose entries are not in the order of the primary key. Their primary keys are sorted in memory, and
//! in temporary files beyond a bound.

use std::{env, ops::Bound, rc::Rc};

use super::{
    leaf::Leaf,
    primary_key::{PrimaryKey, is_at},
};
use crate::{
    model::error::Result,
    placement::Reader,
    sort::{Merge, Sorters},
};

/// The memory for the primary keys of all such scans of a combination, in bytes.
const MEMORY: usize = 4 << 20;

/// Primary keys in the direction of the combination, possibly with duplicates.
pub(super) struct SortedKeys {
    merge: Merge,
    /// Whether the bytes are complements, which are in descending order of the keys, because no encoded key
    /// is a prefix of another.
    reverse: bool,
    key: Vec<u8>,
}

impl SortedKeys {
    /// Returns the first primary key within `from`, which is after the last primary key read.
    pub(super) fn first<'txn>(&mut self, from: Bound<&[u8]>) -> Result<Option<PrimaryKey<'txn>>> {
        while self.merge.advance()? {
            self.key.clear();
            self.key.extend_from_slice(self.merge.entry().primary_key);
            if self.reverse {
                complement(&mut self.key);
            }
            if is_at(&self.key, from, self.reverse) {
                return Ok(Some(PrimaryKey::Sorted(Rc::from(self.key.as_slice()))));
            }
        }
        Ok(None)
    }
}

/// Reads these scans, and sorts their primary keys within `from`.
pub(super) fn sort<'txn>(
    leaves: &mut [&mut Leaf<'txn>],
    reader: Reader<'txn>,
    from: Bound<&[u8]>,
    reverse: bool,
) -> Result<()> {
    if leaves.is_empty() {
        return Ok(());
    }
    let mut sorters = Sorters::new(leaves.len(), &env::temp_dir(), MEMORY);
    let mut key = Vec::new();
    for (at, leaf) in leaves.iter_mut().enumerate() {
        leaf.read(reader, from, |primary_key| {
            key.clear();
            key.extend_from_slice(primary_key);
            if reverse {
                complement(&mut key);
            }
            sorters.push(at, &[], &key, &[], &[])
        })?;
    }
    for (leaf, sorted) in leaves.iter_mut().zip(sorters.finish_together()?) {
        leaf.read_sorted(SortedKeys { merge: sorted.read(), reverse, key: Vec::new() });
    }
    Ok(())
}

fn complement(key: &mut [u8]) {
    for byte in key {
        *byte = !*byte;
    }
}
