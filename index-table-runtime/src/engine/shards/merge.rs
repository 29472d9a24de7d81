//! Streams of entries from several shards, merged in the order of (index key, primary key).
//!
//! The merge is a binary heap of streams. Each stream has the first bytes of its entry in the heap, so most comparisons
//! read neither the stream nor the entry.

use std::cmp::Ordering;

use super::Reader;
use crate::{
    engine::{self, EntryResult, LongLived},
    model::{
        entry::RawEntry,
        error::{Boxed, Result},
    },
};

/// A stream of entries.
trait Stream {
    /// Goes to the next entry. Returns false at the end.
    fn advance(&mut self) -> Result<bool, Boxed>;

    /// Returns the current entry.
    fn entry(&self) -> RawEntry<'_>;
}

impl Stream for engine::LentEntries<'_> {
    fn advance(&mut self) -> Result<bool, Boxed> {
        engine::Cursor::advance(self)
    }

    fn entry(&self) -> RawEntry<'_> {
        engine::Cursor::entry(self)
    }
}

/// A stream of entries that live as long as the transaction, with the current entry.
struct Kept<'t> {
    entries: engine::Entries<'t>,
    entry: RawEntry<'t>,
}

impl Stream for Kept<'_> {
    fn advance(&mut self) -> Result<bool, Boxed> {
        let next = self.entries.next().transpose()?;
        self.entry = next.unwrap_or(RawEntry::NOWHERE);
        Ok(next.is_some())
    }

    fn entry(&self) -> RawEntry<'_> {
        self.entry
    }
}

/// The first bytes of the entry that a stream is at. They decide most comparisons without the entry itself.
#[derive(Clone, Copy)]
struct Head {
    /// The first eight bytes of the key, as a number; inverted if the streams are read in reverse.
    key: u64,
    /// The same of the primary key.
    primary_key: u64,
    /// The length of the key; [`LONG`] if the key is longer than its first bytes.
    length: u8,
    /// The position of the stream.
    stream: usize,
}

/// The length of all keys that are longer than the bytes in a [`Head`].
const LONG: u8 = 9;

/// Returns the first eight bytes as a number. Missing bytes are zeros.
#[inline]
fn first_bytes(bytes: &[u8]) -> u64 {
    if let Some(first) = bytes.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    let missing = 8 - bytes.len();
    let number = bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    number.checked_shl(8 * missing as u32).unwrap_or_default()
}

impl Head {
    fn new(entry: &RawEntry<'_>, reverse: bool, stream: usize) -> Self {
        let mask = if reverse { u64::MAX } else { 0 };
        Self {
            key: first_bytes(entry.key) ^ mask,
            primary_key: first_bytes(entry.primary_key) ^ mask,
            length: u8::try_from(entry.key.len()).map_or(LONG, |length| length.min(LONG)),
            stream,
        }
    }

    /// Returns true if this entry is before the other one; `None` if the first bytes do not decide it.
    #[inline]
    fn is_before(&self, other: &Self) -> Option<bool> {
        if self.key != other.key {
            return Some(self.key < other.key);
        }
        let is_same_key = self.length == other.length && self.length != LONG;
        if is_same_key && self.primary_key != other.primary_key {
            return Some(self.primary_key < other.primary_key);
        }
        None
    }
}

/// Several streams as one.
struct Merged<S> {
    streams: Vec<S>,
    /// From the last key to the first.
    reverse: bool,
    /// The streams that are at an entry, as a binary heap. The first one has the next entry.
    heap: Vec<Head>,
    /// The positions of streams that must be advanced before the next entry is known.
    pending: Vec<usize>,
    /// The entry of the first stream was returned.
    is_returned: bool,
}

impl<S: Stream> Merged<S> {
    fn new(streams: Vec<S>, reverse: bool) -> Self {
        let pending = (0..streams.len()).rev().collect();
        let heap = Vec::with_capacity(streams.len());
        Self { streams, reverse, heap, pending, is_returned: false }
    }

    /// Goes to the next entry. Returns false at the end. After an error, the next call continues.
    fn advance(&mut self) -> Result<bool, Boxed> {
        if self.is_returned {
            self.is_returned = false;
            self.advance_first()?;
        }
        if !self.pending.is_empty() {
            self.advance_pending()?;
        }
        self.is_returned = !self.heap.is_empty();
        Ok(self.is_returned)
    }

    #[cold]
    fn advance_pending(&mut self) -> Result<(), Boxed> {
        while let Some(at) = self.pending.last().copied() {
            let Some(stream) = self.streams.get_mut(at) else { break };
            let is_at_entry = stream.advance()?;
            let head = is_at_entry.then(|| Head::new(&stream.entry(), self.reverse, at));
            self.pending.pop();
            if let Some(head) = head {
                self.heap.push(head);
                self.rise();
            }
        }
        Ok(())
    }

    /// Advances the first stream.
    #[inline]
    fn advance_first(&mut self) -> Result<(), Boxed> {
        let Some(first) = self.heap.first_mut() else { return Ok(()) };
        let at = first.stream;
        let Some(stream) = self.streams.get_mut(at) else { return Ok(()) };
        match stream.advance() {
            Ok(true) => {
                *first = Head::new(&stream.entry(), self.reverse, at);
                self.sink();
            }
            Ok(false) => self.remove_first(),
            Err(error) => {
                self.remove_first();
                self.pending.push(at);
                return Err(error);
            }
        }
        Ok(())
    }

    #[cold]
    fn remove_first(&mut self) {
        self.heap.swap_remove(0);
        self.sink();
    }

    /// Returns the stream with the next entry.
    #[inline]
    fn first(&self) -> Option<&S> {
        self.streams.get(self.heap.first()?.stream)
    }

    /// Returns true if the entry of one stream is before that of another one.
    #[inline]
    fn is_before(&self, one: &Head, other: &Head) -> bool {
        one.is_before(other).unwrap_or_else(|| self.is_before_by_entry(one, other))
    }

    #[inline(never)]
    fn is_before_by_entry(&self, one: &Head, other: &Head) -> bool {
        let entry = |head: &Head| self.streams.get(head.stream).map_or(RawEntry::NOWHERE, S::entry);
        let (one, other) = (entry(one), entry(other));
        let order = (one.key, one.primary_key).cmp(&(other.key, other.primary_key));
        order == if self.reverse { Ordering::Greater } else { Ordering::Less }
    }

    /// Moves the last stream of the heap up to its position.
    fn rise(&mut self) {
        let mut at = self.heap.len().saturating_sub(1);
        while let (Some(parent), Some(head)) =
            (at.checked_sub(1).map(|at| at / 2), self.heap.get(at))
        {
            if !self.heap.get(parent).is_some_and(|parent| self.is_before(head, parent)) {
                break;
            }
            self.heap.swap(at, parent);
            at = parent;
        }
    }

    /// Moves the first stream of the heap down to its position.
    #[inline]
    fn sink(&mut self) {
        let mut at = 0;
        while let (Some(head), Some(left)) = (self.heap.get(at), self.heap.get(2 * at + 1)) {
            let (mut first, mut child) = (left, 2 * at + 1);
            if let Some(right) = self.heap.get(child + 1)
                && self.is_before(right, left)
            {
                (first, child) = (right, child + 1);
            }
            if !self.is_before(first, head) {
                break;
            }
            self.heap.swap(at, child);
            at = child;
        }
    }
}

/// Merges streams without the entries whose rows are in shards that are not available.
struct Available<'t, S> {
    merged: Merged<S>,
    /// Knows the available shards; `None`: all entries are returned.
    rows: Option<Reader<'t>>,
}

impl<S: Stream> Available<'_, S> {
    /// Goes to the next entry. Returns false at the end.
    #[inline]
    fn advance(&mut self) -> Result<bool, Boxed> {
        if self.rows.is_none() { self.merged.advance() } else { self.advance_to_available() }
    }

    #[cold]
    fn advance_to_available(&mut self) -> Result<bool, Boxed> {
        while self.merged.advance()? {
            let entry = self.merged.first().map_or(RawEntry::NOWHERE, S::entry);
            if self.rows.is_none_or(|rows| rows.has_shard_of(entry.primary_key)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The entries of several shards. Each entry is borrowed until the next step.
pub(crate) struct LentEntries<'t>(Box<Available<'t, engine::LentEntries<'t>>>);

impl<'t> LentEntries<'t> {
    pub(super) fn new(
        streams: Vec<engine::LentEntries<'t>>,
        reverse: bool,
        rows: Option<Reader<'t>>,
    ) -> Self {
        Self(Box::new(Available { merged: Merged::new(streams, reverse), rows }))
    }
}

impl engine::Cursor for LentEntries<'_> {
    #[inline(never)]
    fn advance(&mut self) -> Result<bool, Boxed> {
        self.0.advance()
    }

    fn entry(&self) -> RawEntry<'_> {
        self.0.merged.first().map_or(RawEntry::NOWHERE, Stream::entry)
    }

    fn row(&self) -> Option<&[u8]> {
        self.0.merged.first().and_then(engine::Cursor::row)
    }
}

/// The entries of several shards, which live as long as the transaction.
pub(crate) struct Entries<'t>(Box<Available<'t, Kept<'t>>>);

impl<'t> Entries<'t> {
    pub(super) fn new(
        streams: Vec<engine::Entries<'t>>,
        reverse: bool,
        rows: Option<Reader<'t>>,
    ) -> Self {
        let kept = |entries| Kept { entries, entry: RawEntry::NOWHERE };
        let merged = Merged::new(streams.into_iter().map(kept).collect(), reverse);
        Self(Box::new(Available { merged, rows }))
    }
}

impl<'t> Iterator for Entries<'t> {
    type Item = EntryResult<'t>;

    #[inline(never)]
    fn next(&mut self) -> Option<Self::Item> {
        match self.0.advance() {
            Ok(true) => self.0.merged.first().map(|kept| Ok(kept.entry)),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

impl<'t> LongLived<'t> for Entries<'t> {
    fn row(&self) -> Option<&'t [u8]> {
        self.0.merged.first().and_then(|kept| LongLived::row(&kept.entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream of pairs of keys and primary keys. An empty pair is an error.
    struct Pairs {
        pairs: std::vec::IntoIter<(Vec<u8>, Vec<u8>)>,
        current: (Vec<u8>, Vec<u8>),
    }

    impl Stream for Pairs {
        fn advance(&mut self) -> Result<bool, Boxed> {
            let Some(next) = self.pairs.next() else { return Ok(false) };
            if next == <(Vec<u8>, Vec<u8>)>::default() {
                return Err(crate::Error::WriteInProgress.into());
            }
            self.current = next;
            Ok(true)
        }

        fn entry(&self) -> RawEntry<'_> {
            RawEntry { key: &self.current.0, primary_key: &self.current.1, ..RawEntry::NOWHERE }
        }
    }

    fn merged(streams: &[Vec<(Vec<u8>, Vec<u8>)>], reverse: bool) -> Merged<Pairs> {
        let streams = streams.iter().map(|pairs| {
            let mut pairs = pairs.clone();
            if reverse {
                pairs.reverse();
            }
            Pairs { pairs: pairs.into_iter(), current: Default::default() }
        });
        Merged::new(streams.collect(), reverse)
    }

    fn all(mut merged: Merged<Pairs>) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut all = Vec::new();
        while matches!(merged.advance(), Ok(true)) {
            all.extend(merged.first().map(|stream| stream.current.clone()));
        }
        all
    }

    /// Keys with equal first bytes, with zeros at the end, and of up to 20 bytes.
    fn bytes(random: &mut u64) -> Vec<u8> {
        let mut below = |below: u64| {
            *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (*random >> 33) % below
        };
        let length = [0, 1, 4, 7, 8, 9, 12, 20][below(8) as usize];
        let zeros = below(2) * length;
        (0..length).map(|at| if at < zeros { 0 } else { [0, 1, 0xFF][below(3) as usize] }).collect()
    }

    #[test]
    fn streams_are_merged_in_the_order_of_keys_and_primary_keys() {
        let mut random = 7;
        for count in [1, 2, 3, 5, 16, 40] {
            for _ in 0..20 {
                let mut streams = vec![Vec::new(); count];
                let mut expected = Vec::new();
                for _ in 0..200 {
                    let pair = (bytes(&mut random), bytes(&mut random));
                    // An empty pair is an error of these streams.
                    if pair.0.len() + pair.1.len() > 0 && !expected.contains(&pair) {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        streams[(random >> 33) as usize % count].push(pair.clone());
                        expected.push(pair);
                    }
                }
                for stream in &mut streams {
                    stream.sort();
                }
                expected.sort();
                assert_eq!(all(merged(&streams, false)), expected);
                expected.reverse();
                assert_eq!(all(merged(&streams, true)), expected);
            }
        }
    }

    #[test]
    fn a_stream_continues_after_an_error() {
        let pair = |key: u8| (vec![key], vec![key]);
        let streams = [vec![pair(1), (vec![], vec![]), pair(4)], vec![pair(2), pair(3)]];
        let (mut merged, mut keys, mut errors) = (merged(&streams, false), Vec::new(), 0);
        loop {
            match merged.advance() {
                Ok(false) => break,
                Ok(true) => keys.extend(merged.first().map(|stream| stream.current.0[0])),
                Err(_) => errors += 1,
            }
        }
        assert_eq!((keys, errors), (vec![1, 2, 3, 4], 1));
    }
}
