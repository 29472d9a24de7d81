//! Records in memory, and their order.
//!
//! Records are stored one after another in segments, so that no record moves when others arrive. While
//! records arrive in ascending order, nothing else is stored. At the first record out of order, each record
//! gets a [`Slot`]. Slots are sorted by eight bytes of the key at a time: by the first eight, then slots with
//! equal bytes by the next eight, and so on. The slot contains these bytes, so a comparison compares two
//! numbers, and a record is read once for each eight bytes that it shares with others.

use std::sync::Arc;

use super::record::{self, Lengths};

/// The maximum number of slots with equal bytes that are sorted by comparing the rest of their keys.
const FEW: usize = 16;

#[derive(Debug)]
pub(super) struct Arena {
    segments: Vec<Vec<u8>>,
    /// The size of a new segment, in bytes.
    segment: usize,
    /// The size of all segments, in bytes.
    allocated: usize,
    len: usize,
    /// The slots of the records; empty while they arrive in ascending order.
    slots: Vec<Slot>,
    order: Order,
    /// The location of the newest record.
    newest: u64,
}

/// The order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Each record is greater than the preceding record.
    Ascending,
    /// No record is less than the preceding record.
    NotDescending,
    /// Any other order.
    Any,
}

/// The location of a record, and a part of its key.
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// Eight bytes of the sort key.
    bytes: u64,
    /// The location: the segment, and the offset in it. Later records have greater locations.
    at: u64,
}

impl Arena {
    pub(super) fn new(segment: usize) -> Self {
        Self {
            segments: Vec::new(),
            segment,
            allocated: 0,
            len: 0,
            slots: Vec::new(),
            order: Order::Ascending,
            newest: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the memory in bytes, including the slots in case the records have to be sorted.
    #[inline]
    pub(super) fn memory(&self) -> usize {
        self.allocated + self.len.max(self.slots.capacity()) * size_of::<Slot>()
    }

    /// Takes the contents, and leaves the arena empty.
    pub(super) fn take(&mut self) -> Self {
        let empty = Self::new(self.segment);
        std::mem::replace(self, empty)
    }

    /// Adds an entry; `None` if a part of it is too long.
    #[inline]
    pub(super) fn push(
        &mut self,
        key: &[u8],
        primary_key: &[u8],
        data: &[u8],
        tail: &[u8],
    ) -> Option<()> {
        let (header, record) = Lengths::of(key, primary_key, data, tail)?;
        self.make_room(record);
        let last = self.segments.len() - 1;
        let Some(segment) = self.segments.last_mut() else { return Some(()) };
        let at = (last as u64) << 32 | segment.len() as u64;
        for part in [&header, key, primary_key, data, tail] {
            segment.extend_from_slice(part);
        }
        if self.len > 0 && self.order != Order::Any {
            match self.sort_key(self.newest).cmp(self.sort_key(at)) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => self.order = Order::NotDescending,
                std::cmp::Ordering::Greater => self.add_slots(),
            }
        }
        self.len += 1;
        self.newest = at;
        if self.order == Order::Any {
            self.add_slot(at);
        }
        Some(())
    }

    /// Ensures that the last segment has room for this number of bytes.
    #[inline]
    fn make_room(&mut self, bytes: usize) {
        let full = |segment: &Vec<u8>| segment.capacity() - segment.len() < bytes;
        if self.segments.last().is_none_or(full) {
            let segment = Vec::with_capacity(bytes.max(self.segment));
            self.allocated += segment.capacity();
            self.segments.push(segment);
        }
    }

    /// Adds a slot for every record.
    #[cold]
    fn add_slots(&mut self) {
        self.order = Order::Any;
        self.slots.reserve_exact(self.len + self.len / 2);
        let mut slots = std::mem::take(&mut self.slots);
        let mut at = 0;
        for _ in 0..self.len {
            let bytes = eight(self.sort_key(at), 0);
            slots.push(Slot { bytes, at });
            at = self.next(at);
        }
        self.slots = slots;
    }

    #[inline]
    fn add_slot(&mut self, at: u64) {
        if self.slots.len() == self.slots.capacity() {
            self.slots.reserve_exact(1024.max(self.slots.len() / 2));
        }
        self.slots.push(Slot { bytes: eight(self.sort_key(at), 0), at });
    }

    /// Returns the record at this location, and the bytes after it.
    #[inline]
    fn at(&self, at: u64) -> &[u8] {
        let segment = self.segments.get((at >> 32) as usize);
        segment.and_then(|segment| segment.get((at as u32) as usize..)).unwrap_or_default()
    }

    #[inline]
    fn sort_key(&self, at: u64) -> &[u8] {
        record::sort_key(self.at(at))
    }

    /// Returns the location of the record that arrived after this record.
    #[inline]
    fn next(&self, at: u64) -> u64 {
        let bytes = self.at(at);
        let len = Lengths::read(bytes).map_or(bytes.len(), Lengths::record);
        if len < bytes.len() { at + len as u64 } else { ((at >> 32) + 1) << 32 }
    }

    /// Returns the least and the greatest keys, if the records arrived in strictly ascending order.
    pub(super) fn ascending(&self) -> Option<(&[u8], &[u8])> {
        let ascending = self.len > 0 && self.order == Order::Ascending;
        ascending.then(|| (self.sort_key(0), self.sort_key(self.newest)))
    }

    /// Sorts the records.
    pub(super) fn sort(&mut self) {
        let mut slots = std::mem::take(&mut self.slots);
        self.sort_from(&mut slots, 0);
        self.slots = slots;
    }

    /// Sorts slots whose records have the same bytes up to `depth`. The slots contain the next eight bytes,
    /// padded with zeros.
    fn sort_from(&self, slots: &mut [Slot], depth: usize) {
        slots.sort_unstable_by_key(|slot| slot.bytes);
        for same in slots.chunk_by_mut(|one, other| one.bytes == other.bytes) {
            if same.len() < 2 {
                continue;
            }
            if same.len() <= FEW {
                let rest = |slot: &Slot| self.sort_key(slot.at).get(depth..).unwrap_or_default();
                same.sort_unstable_by(|one, other| {
                    rest(one).cmp(rest(other)).then(one.at.cmp(&other.at))
                });
                continue;
            }
            // Records that end here come first: they are prefixes of the others.
            let deeper = depth + 8;
            let mut ended = 0;
            for at in 0..same.len() {
                let Some(slot) = same.get_mut(at) else { break };
                let key = self.sort_key(slot.at);
                if key.len() <= deeper {
                    same.swap(at, ended);
                    ended += 1;
                } else {
                    slot.bytes = eight(key, deeper);
                }
            }
            let (ended, others) = same.split_at_mut(ended);
            ended.sort_unstable_by_key(|slot| (self.sort_key(slot.at).len(), slot.at));
            self.sort_from(others, deeper);
        }
    }

    /// Returns the records, in order if they are sorted.
    pub(super) fn records(self: &Arc<Self>) -> Records {
        Records { arena: Arc::clone(self), returned: 0, next: 0, at: 0, len: 0 }
    }
}

/// Returns eight bytes from this offset, padded with zeros, as a number with the same order.
#[inline]
fn eight(key: &[u8], from: usize) -> u64 {
    let rest = key.get(from..).unwrap_or_default();
    if let Some(bytes) = rest.first_chunk::<8>() {
        return u64::from_be_bytes(*bytes);
    }
    let mut bytes = [0; 8];
    for (to, from) in bytes.iter_mut().zip(rest) {
        *to = *from;
    }
    u64::from_be_bytes(bytes)
}

/// The records of an arena, one after another.
#[derive(Debug)]
pub(super) struct Records {
    arena: Arc<Arena>,
    returned: usize,
    /// The location of the next record, if records arrived in ascending order.
    next: u64,
    /// The location of the current record, and its length.
    at: u64,
    len: usize,
}

impl Records {
    /// Steps to the next record; `false` at the end.
    #[inline]
    pub(super) fn advance(&mut self) -> bool {
        let arena = &*self.arena;
        let at = match arena.order {
            _ if self.returned == arena.len => None,
            Order::Any => arena.slots.get(self.returned).map(|slot| slot.at),
            Order::Ascending | Order::NotDescending => {
                let at = self.next;
                self.next = arena.next(at);
                Some(at)
            }
        };
        let record = at.and_then(|at| Some((at, Lengths::read(arena.at(at))?.record())));
        (self.at, self.len) = record.unwrap_or_default();
        self.returned += usize::from(record.is_some());
        record.is_some()
    }

    /// Returns the current record.
    #[inline]
    pub(super) fn record(&self) -> &[u8] {
        self.arena.at(self.at).get(..self.len).unwrap_or_default()
    }
}
