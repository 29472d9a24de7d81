//! Streams of entries from several shards, merged in the order of (index key, primary key).

use std::cmp::Ordering;

use crate::{
    engine::{self, EntryResult, LongLived},
    model::{
        entry::RawEntry,
        error::{Boxed, Result},
    },
};

/// One stream, which is at an entry.
trait Stream {
    /// Goes to the next entry; `false`: there is none.
    fn advance(&mut self) -> Result<bool, Boxed>;

    /// The entry of the last step.
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

/// Entries that live as long as the transaction, with the last one.
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

/// Several streams as one.
struct Merged<S> {
    streams: Vec<S>,
    /// From the last key to the first.
    reverse: bool,
    /// The positions of streams that are at an entry, as a heap: the first of them has the next entry.
    heap: Vec<usize>,
    /// The positions of streams that have to go to their next entry.
    behind: Vec<usize>,
    /// The entry of the first stream has been given.
    is_given: bool,
}

impl<S: Stream> Merged<S> {
    fn new(streams: Vec<S>, reverse: bool) -> Self {
        let behind = (0..streams.len()).rev().collect();
        Self { streams, reverse, heap: Vec::new(), behind, is_given: false }
    }

    /// Goes to the next entry; `false`: there is none. Behind an error, it goes on.
    fn advance(&mut self) -> Result<bool, Boxed> {
        if self.is_given {
            self.is_given = false;
            self.advance_first()?;
        }
        while let Some(at) = self.behind.last().copied() {
            let is_at_entry = self.streams.get_mut(at).map_or(Ok(false), S::advance)?;
            self.behind.pop();
            if is_at_entry {
                self.heap.push(at);
                self.rise(self.heap.len() - 1);
            }
        }
        self.is_given = !self.heap.is_empty();
        Ok(self.is_given)
    }

    /// Lets the first stream go to its next entry.
    fn advance_first(&mut self) -> Result<(), Boxed> {
        let Some(first) = self.heap.first().copied() else { return Ok(()) };
        match self.streams.get_mut(first).map_or(Ok(false), S::advance) {
            Ok(true) => self.sink(),
            Ok(false) => self.remove_first(),
            Err(error) => {
                self.remove_first();
                self.behind.push(first);
                return Err(error);
            }
        }
        Ok(())
    }

    fn remove_first(&mut self) {
        self.heap.swap_remove(0);
        self.sink();
    }

    /// The stream with the next entry.
    fn first(&self) -> Option<&S> {
        self.streams.get(*self.heap.first()?)
    }

    /// Whether the stream at one place of the heap comes before the one at another place.
    fn is_before(&self, one: usize, other: usize) -> bool {
        let entry = |place: usize| {
            let stream = self.heap.get(place).and_then(|at| self.streams.get(*at));
            stream.map_or(RawEntry::NOWHERE, S::entry)
        };
        let (one, other) = (entry(one), entry(other));
        let order = (one.key, one.primary_key).cmp(&(other.key, other.primary_key));
        order == if self.reverse { Ordering::Greater } else { Ordering::Less }
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if !self.is_before(place, parent) {
                break;
            }
            self.heap.swap(place, parent);
            place = parent;
        }
    }

    /// Moves the first stream down to its place.
    fn sink(&mut self) {
        let mut place = 0;
        loop {
            let left = 2 * place + 1;
            let mut first = place;
            for child in [left, left + 1] {
                if child < self.heap.len() && self.is_before(child, first) {
                    first = child;
                }
            }
            if first == place {
                break;
            }
            self.heap.swap(place, first);
            place = first;
        }
    }
}

/// Entries of several shards, each lent until the next step.
pub(crate) struct LentEntries<'t>(Box<Merged<engine::LentEntries<'t>>>);

impl<'t> LentEntries<'t> {
    pub(super) fn new(streams: Vec<engine::LentEntries<'t>>, reverse: bool) -> Self {
        Self(Box::new(Merged::new(streams, reverse)))
    }
}

impl engine::Cursor for LentEntries<'_> {
    #[inline(never)]
    fn advance(&mut self) -> Result<bool, Boxed> {
        self.0.advance()
    }

    fn entry(&self) -> RawEntry<'_> {
        self.0.first().map_or(RawEntry::NOWHERE, Stream::entry)
    }

    fn row(&self) -> Option<&[u8]> {
        self.0.first().and_then(engine::Cursor::row)
    }
}

/// Entries of several shards, which live as long as the transaction.
pub(crate) struct Entries<'t>(Box<Merged<Kept<'t>>>);

impl<'t> Entries<'t> {
    pub(super) fn new(streams: Vec<engine::Entries<'t>>, reverse: bool) -> Self {
        let kept = |entries| Kept { entries, entry: RawEntry::NOWHERE };
        Self(Box::new(Merged::new(streams.into_iter().map(kept).collect(), reverse)))
    }
}

impl<'t> Iterator for Entries<'t> {
    type Item = EntryResult<'t>;

    #[inline(never)]
    fn next(&mut self) -> Option<Self::Item> {
        match self.0.advance() {
            Ok(true) => self.0.first().map(|kept| Ok(kept.entry)),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

impl<'t> LongLived<'t> for Entries<'t> {
    fn row(&self) -> Option<&'t [u8]> {
        self.0.first().and_then(|kept| LongLived::row(&kept.entries))
    }
}
