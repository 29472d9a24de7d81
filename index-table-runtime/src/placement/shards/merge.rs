//! Streams of entries from several shards, merged in the order of (index key, primary key).
//!
//! The merge is a tree of losers over the streams. The first bytes of each stream's current entry are kept in an array,
//! so most comparisons read neither the stream nor the entry.

use std::cmp::Ordering;

use super::Reader;
use crate::{
    engine::{self, EntryResult, LongLived},
    model::{
        entry::{KeyBuffer, RawEntry, ShortEntry, ShortKey},
        error::{Boxed, Result},
        schema::Source,
        shard::{ShardNumber, first_bytes},
    },
};

/// A stream of entries.
trait Stream {
    /// Advances to the next entry. Returns false at the end.
    fn advance(&mut self) -> Result<bool, Boxed>;

    /// Returns the current entry.
    fn entry(&self) -> ShortEntry<'_>;
}

impl Stream for engine::LentEntries<'_> {
    fn advance(&mut self) -> Result<bool, Boxed> {
        engine::Cursor::advance(self)
    }

    fn entry(&self) -> ShortEntry<'_> {
        engine::Cursor::entry(self).into()
    }
}

/// A stream of entries that live as long as the transaction, with the current entry.
struct Kept<'t> {
    entries: engine::Entries<'t>,
    entry: ShortEntry<'t>,
}

impl Stream for Kept<'_> {
    #[expect(
        clippy::inline_always,
        reason = "a call would add 1.3 % to the cost of each merged entry"
    )]
    #[inline(always)]
    fn advance(&mut self) -> Result<bool, Boxed> {
        let next = self.entries.next().transpose()?;
        self.entry = next.unwrap_or(ShortEntry::NOWHERE);
        Ok(next.is_some())
    }

    fn entry(&self) -> ShortEntry<'_> {
        self.entry
    }
}

/// The first bytes of a stream's current entry. They decide most comparisons without the entry itself.
#[derive(Clone, Copy)]
struct Head {
    /// The first 15 bytes of the key, padded with zeros, and the length of the key, as a number. [`LONG`] represents
    /// the length of longer keys. The number is inverted if the streams are read in reverse.
    key: u128,
    /// The first eight bytes of the primary key, in the same form, without the length.
    primary_key: u64,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The whole key is in the head.
    Short,
    /// The head has only the start of the key.
    Long,
    /// The stream has no more entries.
    Ended,
}

/// The length of all keys that are longer than the bytes in a [`Head`].
const LONG: u128 = 16;

/// Returns up to 15 bytes as a number.
#[inline]
fn number(bytes: &[u8]) -> u128 {
    // Two overlapping loads are faster than a loop.
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let first = u128::from(u64::from_be_bytes(*first));
        return first << (8 * (bytes.len() - 8)) | u128::from(u64::from_be_bytes(*last));
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let first = u64::from(u32::from_be_bytes(*first));
        return u128::from(first << (8 * (bytes.len() - 4)) | u64::from(u32::from_be_bytes(*last)));
    }
    bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

impl Head {
    /// The head of a stream at its end. It sorts after all others.
    const END: Self = Self { key: u128::MAX, primary_key: u64::MAX, state: State::Ended };

    #[inline]
    fn new(entry: &ShortEntry<'_>, reverse: bool) -> Self {
        let length = entry.key.len();
        let (key, state) = if let Some(first) = entry.key.first_chunk() {
            (u128::from_be_bytes(*first) & !0xFF | LONG, State::Long)
        } else {
            let number = number(entry.key);
            let number = number.checked_shl(8 * (16 - length) as u32).unwrap_or_default();
            (number | length as u128, State::Short)
        };
        let ShortKey { bytes, zeros } = entry.primary_key;
        let primary_key = first_bytes(bytes).checked_shr(8 * zeros as u32).unwrap_or_default();
        if reverse {
            Self { key: !key, primary_key: !primary_key, state }
        } else {
            Self { key, primary_key, state }
        }
    }

    /// Returns whether this entry precedes the other entry, or `None` if the first bytes are equal.
    #[inline]
    fn is_before(&self, other: &Self) -> Option<bool> {
        if self.key != other.key {
            return Some(self.key < other.key);
        }
        if self.state == State::Short && self.primary_key != other.primary_key {
            return Some(self.primary_key < other.primary_key);
        }
        None
    }
}

/// Several streams as one.
struct Merged<S> {
    streams: Vec<S>,
    /// Whether the order is from the last key to the first.
    reverse: bool,
    /// The heads of the streams that have been advanced at least once.
    heads: Vec<Head>,
    /// A tree of losers. Node `n` has the children `2 * n` and `2 * n + 1`. For `k` streams, nodes `k` to `2 * k - 1` are
    /// the streams themselves. Each inner node has the stream that lost the comparison of its children, and node 0 has
    /// the stream with the next entry. So a step compares this stream's entry once in each level.
    losers: Vec<usize>,
    /// Whether the current entry has been returned.
    is_returned: bool,
}

impl<S: Stream> Merged<S> {
    fn new(streams: Vec<S>, reverse: bool) -> Self {
        let heads = Vec::with_capacity(streams.len());
        Self { streams, reverse, heads, losers: Vec::new(), is_returned: false }
    }

    /// Advances to the next entry. Returns false at the end. After an error, the next call continues with the failed
    /// stream.
    #[inline]
    fn advance(&mut self) -> Result<bool, Boxed> {
        if self.is_returned {
            let first = self.winner();
            let head = self.advance_stream(first)?;
            if let Some(own) = self.heads.get_mut(first) {
                *own = head;
            }
            self.replay(first);
        } else if self.losers.is_empty() {
            self.start()?;
        }
        let first = self.heads.get(self.winner());
        self.is_returned = first.is_some_and(|first| first.state != State::Ended);
        Ok(self.is_returned)
    }

    /// Advances each stream to its first entry, and compares these entries.
    #[cold]
    fn start(&mut self) -> Result<(), Boxed> {
        while self.heads.len() < self.streams.len() {
            let head = self.advance_stream(self.heads.len())?;
            self.heads.push(head);
        }
        let count = self.streams.len();
        self.losers = vec![0; count];
        // The winners of the inner nodes, followed by the streams themselves.
        let mut winners = vec![0; count];
        winners.extend(0..count);
        for node in (0..count).rev() {
            // Node 0 has one child.
            let child = |at: usize| winners.get(at.max(1)).copied().unwrap_or_default();
            let (left, right) = (child(2 * node), child(2 * node + 1));
            let (winner, loser) =
                if self.is_before(right, left) { (right, left) } else { (left, right) };
            if let (Some(own), Some(first)) = (self.losers.get_mut(node), winners.get_mut(node)) {
                (*own, *first) = (if node == 0 { winner } else { loser }, winner);
            }
        }
        Ok(())
    }

    /// Advances a stream, and returns its head.
    #[inline]
    fn advance_stream(&mut self, at: usize) -> Result<Head, Boxed> {
        let Some(stream) = self.streams.get_mut(at) else { return Ok(Head::END) };
        if stream.advance()? { Ok(Head::new(&stream.entry(), self.reverse)) } else { Ok(Head::END) }
    }

    /// Returns the position of the stream with the next entry.
    #[inline]
    fn winner(&self) -> usize {
        self.losers.first().copied().unwrap_or_default()
    }

    /// Compares the new head of the last winner with the losers on its path to the root.
    #[inline]
    fn replay(&mut self, first: usize) {
        let leaf = self.losers.len() + first;
        let (mut winner, mut node) = (first, leaf / 2);
        while node > 0 {
            let Some(loser) = self.losers.get(node).copied() else { break };
            if self.is_before(loser, winner) {
                if let Some(own) = self.losers.get_mut(node) {
                    *own = winner;
                }
                winner = loser;
            }
            node /= 2;
        }
        if let Some(root) = self.losers.first_mut() {
            *root = winner;
        }
    }

    /// Returns the stream with the next entry.
    #[inline]
    fn first(&self) -> Option<&S> {
        self.streams.get(self.winner())
    }

    /// Whether the entry of one stream precedes the entry of another stream.
    #[inline]
    fn is_before(&self, one: usize, other: usize) -> bool {
        let (Some(head), Some(of_other)) = (self.heads.get(one), self.heads.get(other)) else {
            return false;
        };
        head.is_before(of_other).unwrap_or_else(|| self.is_before_by_entry(one, other))
    }

    #[inline(never)]
    fn is_before_by_entry(&self, one: usize, other: usize) -> bool {
        let has_ended =
            |at: usize| self.heads.get(at).is_none_or(|head| head.state == State::Ended);
        if has_ended(one) || has_ended(other) {
            return !has_ended(one);
        }
        let entry = |at: usize| self.streams.get(at).map_or(ShortEntry::NOWHERE, S::entry);
        let (one, other) = (entry(one), entry(other));
        let order = one.key.cmp(other.key).then_with(|| one.primary_key.compare(other.primary_key));
        order == if self.reverse { Ordering::Greater } else { Ordering::Less }
    }
}

/// The entries that a merge leaves out.
pub(super) struct Filter<'t> {
    /// Leaves out entries whose rows are in shards that are not available to this reader.
    pub(super) rows: Option<Reader<'t>>,
    /// Leaves out copies of entries of other shards, and hidden entries.
    pub(super) omitted: Option<(Reader<'t>, Source)>,
    /// The shards of the streams.
    pub(super) shards: Vec<ShardNumber>,
}

impl Filter<'_> {
    /// Sets the shards of the streams.
    pub(super) fn of(self, shards: &[ShardNumber]) -> Self {
        Self { shards: shards.to_vec(), ..self }
    }

    /// Whether an entry of this stream is returned.
    fn keeps(&self, stream: usize, key: &[u8], primary_key: &[u8]) -> bool {
        let is_omitted = |(reader, source): (Reader<'_>, Source)| {
            let shard = self.shards.get(stream);
            shard.is_some_and(|it| reader.omits(source, (key, primary_key), *it))
        };
        self.rows.is_none_or(|rows| rows.has_shard_of(primary_key))
            && !self.omitted.is_some_and(is_omitted)
    }
}

/// A merge with a filter.
struct Filtered<'t, S> {
    merged: Merged<S>,
    filter: Option<Filter<'t>>,
}

impl<S: Stream> Filtered<'_, S> {
    /// Advances to the next entry. Returns false at the end.
    #[inline]
    fn advance(&mut self) -> Result<bool, Boxed> {
        if self.filter.is_none() { self.merged.advance() } else { self.advance_to_kept() }
    }

    #[cold]
    fn advance_to_kept(&mut self) -> Result<bool, Boxed> {
        while self.merged.advance()? {
            let (stream, mut buffer) = (self.merged.winner(), KeyBuffer::new());
            let entry = self.merged.first().map_or(ShortEntry::NOWHERE, S::entry);
            let RawEntry { key, primary_key, .. } = entry.in_buffer(&mut buffer);
            let keeps = |filter: &Filter<'_>| filter.keeps(stream, key, primary_key);
            if self.filter.as_ref().is_none_or(keeps) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The merged entries of several shards. Each entry is borrowed until the next step.
pub(crate) struct LentEntries<'t>(Box<Filtered<'t, engine::LentEntries<'t>>>);

impl<'t> LentEntries<'t> {
    pub(super) fn new(
        streams: Vec<engine::LentEntries<'t>>,
        reverse: bool,
        filter: Option<Filter<'t>>,
    ) -> Self {
        Self(Box::new(Filtered { merged: Merged::new(streams, reverse), filter }))
    }
}

impl engine::Cursor for LentEntries<'_> {
    #[inline(never)]
    fn advance(&mut self) -> Result<bool, Boxed> {
        self.0.advance()
    }

    fn entry(&self) -> RawEntry<'_> {
        self.0.merged.first().map_or(RawEntry::NOWHERE, engine::Cursor::entry)
    }

    fn row(&self) -> Option<&[u8]> {
        self.0.merged.first().and_then(engine::Cursor::row)
    }
}

/// The merged entries of several shards. They live as long as the transaction.
pub(crate) struct Entries<'t>(Box<Filtered<'t, Kept<'t>>>);

impl<'t> Entries<'t> {
    pub(super) fn new(
        streams: Vec<engine::Entries<'t>>,
        reverse: bool,
        filter: Option<Filter<'t>>,
    ) -> Self {
        let kept = |entries| Kept { entries, entry: ShortEntry::NOWHERE };
        let merged = Merged::new(streams.into_iter().map(kept).collect(), reverse);
        Self(Box::new(Filtered { merged, filter }))
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

        fn entry(&self) -> ShortEntry<'_> {
            let (key, primary_key) = &self.current;
            // Some primary keys lack the zeros at their start.
            let zeros = primary_key.iter().take_while(|&&byte| byte == 0).count() * (key.len() % 2);
            let primary_key = ShortKey { bytes: &primary_key[zeros..], zeros };
            ShortEntry { key, primary_key, data: &[] }
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

    /// Returns a key of up to 20 bytes. Many keys have equal first bytes or end with zeros.
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
