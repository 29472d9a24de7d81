//! Entries of sampled leaves, with the number of entries that each represents.
#![expect(clippy::cast_precision_loss, reason = "the numbers of represented entries are estimates")]

use std::ops::Bound;

use super::{
    layout::Layout,
    names::FILE,
    pages::{self, Fault},
    read::{Parts, Reader},
    short::Counter,
};
use crate::{
    engine::Sampled,
    model::{
        KeyRange,
        entry::{KeyBuffer, RawEntry, ShortEntry},
        error::{Error, Result},
        schema::{IndexSchema, Source},
    },
};

/// The maximum number of physical entries that are read for a leaf. A leaf has fewer, unless many entries were removed
/// since the snapshot.
const MOST: usize = 1 << 12;

impl<'t> Reader<'t> {
    /// Calls `each` with the entries in at most about `leaves` leaves of a database, in the order of their keys. Returns
    /// the number of these entries; `None` if no sample can be taken at the moment.
    ///
    /// The sum of the represented entries is the number of entries in the database, which LMDB maintains. If an index
    /// has blocks, the sum is an estimate.
    pub(crate) fn sample(
        self,
        source: Source,
        leaves: usize,
        each: &mut dyn FnMut(Sampled<'_>),
    ) -> Result<Option<u64>> {
        let stored = self.len_of(source)?;
        let path = &self.engine.path;
        let leaves = match pages::sample(&path.join(FILE), self.name_of(source)?, leaves) {
            Ok(Some(leaves)) => leaves,
            Ok(None) | Err(Fault::Damaged(_)) => return Ok(None),
            Err(Fault::Io(source)) => return Err(Error::Io { path: path.clone(), source }),
        };
        let (mut read, mut found) = (Vec::with_capacity(leaves.len()), 0.0);
        for leaf in leaves {
            let mut entries: Vec<(&'t [u8], &'t [u8])> = Vec::new();
            let from = Bound::Included(leaf.start.as_slice());
            for entry in self.walk_from(source, false, KeyRange::ALL, Some(from))?.take(MOST) {
                let (key, value) = entry?;
                if leaf.end.as_ref().is_some_and(|end| key >= end.as_slice()) {
                    break;
                }
                entries.push((key, value));
            }
            found += leaf.weight * entries.len() as f64;
            read.push((leaf.weight, entries));
        }
        let (scale, split) = (stored as f64 / found, self.split_of(source)?);
        let (mut count, mut buffer) = (0, KeyBuffer::new());
        for (leaf, (weight, entries)) in read.into_iter().enumerate() {
            for (key, value) in entries {
                let Some((entry, several)) = split.entry(key, value) else { continue };
                let RawEntry { key, primary_key, .. } = entry.in_buffer(&mut buffer);
                let (read, leaves, weight) = (several.entries as u64, weight, weight * scale);
                let (entries, bytes) = (read as f64 * weight, several.bytes as f64 * weight);
                count += read;
                each(Sampled { key, primary_key, leaf, leaves, read, entries, bytes });
            }
        }
        Ok(Some(count))
    }

    /// Estimates the share of a database's entries in a range of keys, from 0 to 1, from the pages on the way to both ends.
    /// Returns `None` if it can't be estimated at the moment.
    pub(crate) fn share_of(self, source: Source, range: &KeyRange) -> Result<Option<f64>> {
        let (path, end) = (&self.engine.path, range.end());
        let name = self.name_of(source)?;
        match pages::share(&path.join(FILE), name, range.start(), end.as_deref()) {
            Ok(share) => Ok(share),
            Err(Fault::Damaged(_)) => Ok(None),
            Err(Fault::Io(source)) => Err(Error::Io { path: path.clone(), source }),
        }
    }

    /// Whether a physical entry has several entries of an index, so that LMDB does not maintain their number.
    pub(crate) fn is_packed(self, source: Source) -> Result<bool> {
        let Source::Index(index) = source else { return Ok(false) };
        Ok(matches!(self.index(index)?.0.layout, Layout::Blocks { .. }))
    }

    fn split_of(self, source: Source) -> Result<Split> {
        let parts = Parts::of(self.tables.schema, source);
        let Source::Index(index) = source else { return Ok(Split::Single(parts)) };
        let (own, index) = self.index(index)?;
        Ok(match own.layout {
            Layout::Blocks { primary_key } => Split::Blocks { index, primary_key },
            Layout::Entries | Layout::Unique | Layout::ShortUnique { .. } => Split::Single(parts),
        })
    }
}

/// The way to split a physical entry.
enum Split {
    Single(Parts),
    /// Each physical entry has several primary keys of one index key.
    Blocks {
        index: &'static IndexSchema,
        primary_key: usize,
    },
}

struct Several {
    entries: usize,
    bytes: usize,
}

impl Split {
    /// Returns an entry, and the number of entries with their bytes; `None` if it is damaged.
    fn entry<'t>(&self, at: &'t [u8], value: &'t [u8]) -> Option<(ShortEntry<'t>, Several)> {
        match self {
            Self::Single(parts) => {
                let entry = parts.entry(at, value)?;
                let bytes = entry.key.len() + entry.primary_key.len() + entry.data.len();
                Some((entry, Several { entries: 1, bytes }))
            }
            Self::Blocks { index, primary_key } => {
                let key = at.get(..index.key_len(at).ok()?)?;
                let entries = Counter::new(*primary_key).count(value)? as usize;
                let bytes = entries * (key.len() + primary_key);
                let entry = RawEntry { key, primary_key: &[], data: &[] };
                Some((entry.into(), Several { entries, bytes }))
            }
        }
    }
}
