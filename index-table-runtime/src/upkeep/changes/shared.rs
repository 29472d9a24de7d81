//! Several workers of one consumer, which share the keys of the rows.
//!
//! A hash of the primary key assigns each key to one of [`SLOTS`] slots. Each slot has a position in the stream and a
//! holder, and each worker has a lease. A slot is free if it has no holder, or if the lease of its holder has ended. A worker
//! takes free slots up to its share, and releases slots beyond its share. So a slot has one holder at a time, which receives
//! the changes of the slot in their order.
//!
//! A worker extends its lease by writing its end again. Another process that has read a lease compares it with its own
//! [`Instant`]: the lease has ended if it was not extended for its length. So corrections of the system's clock, and
//! differences between the clocks of several machines, don't extend a lease. The system's clock decides only whether a lease
//! has ended that this process reads for the first time, or that was extended since it was last read, if the clock was
//! not corrected in the meantime.
//!
//! A batch has the positions of its slots. A commit fails if the holder or the position of a slot has changed since. So each
//! change is committed once, even if leases end early.
//!
//! The position of the consumer is the least position of its slots. After all leases have ended, the consumer can again
//! be used without workers: it skips the changes before the positions of their slots, and its first commit removes the
//! slots.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crate::{
    background::clock,
    engine::{Read as _, Space, Write as _},
    locks::{Mutex, OfProcess},
    model::{
        error::{Error, Result},
        key::hash,
        stream::Mark,
    },
    placement::{Reader, Writer},
};

/// The number of slots.
pub(crate) const SLOTS: u8 = 32;

/// The first byte of the keys of slots and workers.
const SHARED: u8 = 3;

/// Returns the slot of a primary key.
pub(crate) fn slot_of(primary_key: &[u8]) -> u8 {
    let [first, ..] = hash(primary_key);
    first % SLOTS
}

/// A slot of a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) number: u8,
    pub(crate) at: Mark,
    /// The worker that holds it; 0 if there is none.
    pub(crate) holder: u64,
}

/// The lease of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) worker: u64,
    /// Its end by the clock of the worker, in milliseconds since 1970.
    pub(crate) until: u64,
    /// Its length in milliseconds; 0 if an earlier release has written it.
    pub(crate) length: u64,
}

/// A lease that this process has read.
#[derive(Debug, Clone, Copy)]
struct Seen {
    lease: Lease,
    /// When it was first read.
    at: Instant,
    has_ended: bool,
}

/// The maximum number of leases that this process remembers.
const MOST_SEEN: usize = 4096;

/// The leases that this process has read. The numbers of workers are random.
static SEEN: OfProcess<Mutex<BTreeMap<u64, Seen>>> = OfProcess::new(Mutex::default);

impl Lease {
    fn encode(self) -> [u8; 16] {
        let both = u128::from(self.until) << 64 | u128::from(self.length);
        both.to_be_bytes()
    }

    fn decode(worker: u64, record: &[u8]) -> Option<Self> {
        let (until, length) = record.split_first_chunk()?;
        let length = if length.is_empty() { [0; 8] } else { length.try_into().ok()? };
        let [until, length] = [*until, length].map(u64::from_be_bytes);
        Some(Self { worker, until, length })
    }

    /// Whether the lease has ended. `now` is the time by the system's clock.
    fn has_ended(self, now: u64) -> bool {
        let steady_since = clock::steady_since();
        let mut seen = SEEN.lock();
        if seen.len() >= MOST_SEEN {
            seen.retain(|_, own| !own.has_ended && !own.lease.is_over(own.at.elapsed(), now));
            if seen.len() >= MOST_SEEN {
                seen.clear();
            }
        }
        let first = Seen { lease: self, at: Instant::now(), has_ended: self.until <= now };
        let own = seen.entry(self.worker).or_insert(first);
        if own.lease != self {
            // It was extended since it was read.
            let has_ended = first.has_ended && steady_since <= own.at;
            *own = Seen { has_ended, ..first };
        }
        own.has_ended |= self.is_over(own.at.elapsed(), now);
        own.has_ended
    }

    /// Whether the lease has ended at a time after it was first read.
    fn is_over(self, since: Duration, now: u64) -> bool {
        match self.length {
            0 => self.until <= now,
            length => since >= Duration::from_millis(length),
        }
    }
}

/// The slots and the workers of a consumer.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) slots: Vec<Slot>,
    workers: Vec<Lease>,
}

/// The keys of a consumer's slots and workers.
#[derive(Debug)]
pub(crate) struct Keys(Vec<u8>);

impl Keys {
    pub(crate) fn of(consumer: &str) -> Self {
        let len = u16::try_from(consumer.len()).unwrap_or(u16::MAX);
        Self([&[SHARED], &len.to_be_bytes()[..], consumer.as_bytes()].concat())
    }

    fn slot(&self, slot: u8) -> Vec<u8> {
        [self.0.as_slice(), &[0, slot]].concat()
    }

    fn worker(&self, worker: u64) -> Vec<u8> {
        [self.0.as_slice(), &[1], &worker.to_be_bytes()].concat()
    }

    /// Reads the slots and the workers; both are empty if the consumer is not shared.
    pub(crate) fn group(&self, reader: Reader<'_>) -> Result<Group> {
        let (mut group, mut from) = (Group::default(), self.0.clone());
        while let Some((key, record)) = reader.at_or_above(Space::Changes, &from)?
            && let Some(rest) = key.strip_prefix(self.0.as_slice())
        {
            let damaged = || Error::Corrupt {
                table: reader.table().name,
                index: None,
                key: "of the workers of its change stream".to_owned(),
                reason: "the record is damaged, or from a later release".to_owned(),
            };
            match rest {
                [0, number] => {
                    let slot = Slot::decode(*number, record);
                    group.slots.push(slot.ok_or_else(damaged)?);
                }
                [1, worker @ ..] => {
                    let worker = worker.try_into().ok().map(u64::from_be_bytes);
                    let lease = worker.and_then(|worker| Lease::decode(worker, record));
                    group.workers.push(lease.ok_or_else(damaged)?);
                }
                _ => return Err(damaged()),
            }
            key.clone_into(&mut from);
            from.push(0);
        }
        Ok(group)
    }

    pub(crate) fn set_slot(&self, writer: &mut Writer<'_, '_>, slot: Slot) -> Result<()> {
        writer.put(Space::Changes, &self.slot(slot.number), &slot.encode())
    }

    /// Removes all slots and workers.
    pub(crate) fn clear(&self, writer: &mut Writer<'_, '_>, group: &Group) -> Result<()> {
        for slot in &group.slots {
            writer.remove(Space::Changes, &self.slot(slot.number))?;
        }
        for lease in &group.workers {
            writer.remove(Space::Changes, &self.worker(lease.worker))?;
        }
        Ok(())
    }

    /// Extends the lease of a worker, removes expired leases, and assigns the worker its share of the slots. If the
    /// consumer is not shared yet, it gets slots at its position.
    pub(crate) fn join(
        &self,
        writer: &mut Writer<'_, '_>,
        group: &mut Group,
        at: Mark,
        lease: Lease,
        now: u64,
    ) -> Result<()> {
        let worker = lease.worker;
        writer.put(Space::Changes, &self.worker(worker), &lease.encode())?;
        group.workers.retain(|other| other.worker != worker);
        let is_running = |other: &Lease| !other.has_ended(now);
        let (running, ended): (Vec<_>, Vec<_>) = group.workers.drain(..).partition(is_running);
        for Lease { worker, .. } in ended {
            writer.remove(Space::Changes, &self.worker(worker))?;
        }
        group.workers = running;
        group.workers.push(lease);
        self.fill(writer, group, at)?;
        let share = usize::from(SLOTS).div_ceil(group.workers.len());
        let mut held = group.held(worker).count();
        let workers = &group.workers;
        for slot in &mut group.slots {
            let is_free = workers.iter().all(|other| other.worker != slot.holder);
            if slot.holder == worker && held > share {
                (slot.holder, held) = (0, held - 1);
            } else if is_free && held < share {
                (slot.holder, held) = (worker, held + 1);
            } else {
                continue;
            }
            self.set_slot(writer, *slot)?;
        }
        Ok(())
    }

    /// Adds the slots at this position, unless there are slots.
    pub(crate) fn fill(
        &self,
        writer: &mut Writer<'_, '_>,
        group: &mut Group,
        at: Mark,
    ) -> Result<()> {
        if !group.slots.is_empty() {
            return Ok(());
        }
        group.slots = (0..SLOTS).map(|number| Slot { number, at, holder: 0 }).collect();
        group.slots.iter().try_for_each(|slot| self.set_slot(writer, *slot))
    }

    /// Ends the lease of a worker, and releases its slots. Returns false if the worker has no lease here.
    pub(crate) fn leave(&self, writer: &mut Writer<'_, '_>, worker: u64) -> Result<bool> {
        let group = self.group(writer.reader())?;
        if group.workers.iter().all(|lease| lease.worker != worker) {
            return Ok(false);
        }
        for slot in group.held(worker) {
            self.set_slot(writer, Slot { holder: 0, ..*slot })?;
        }
        writer.remove(Space::Changes, &self.worker(worker))?;
        Ok(true)
    }

    /// Ends all leases, and releases all slots.
    pub(crate) fn release(&self, writer: &mut Writer<'_, '_>, group: &Group) -> Result<()> {
        for slot in group.slots.iter().filter(|slot| slot.holder != 0) {
            self.set_slot(writer, Slot { holder: 0, ..*slot })?;
        }
        for lease in &group.workers {
            writer.remove(Space::Changes, &self.worker(lease.worker))?;
        }
        Ok(())
    }
}

impl Slot {
    fn encode(self) -> Vec<u8> {
        [&self.at.encode()[..], &self.holder.to_be_bytes()].concat()
    }

    fn decode(number: u8, record: &[u8]) -> Option<Self> {
        let (at, holder) = record.split_at_checked(16)?;
        let holder = u64::from_be_bytes(holder.try_into().ok()?);
        Some(Self { number, at: Mark::decode(at)?, holder })
    }
}

impl Group {
    /// Returns the slots of a worker.
    pub(crate) fn held(&self, worker: u64) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(move |slot| slot.holder == worker)
    }

    pub(crate) fn slot(&self, number: u8) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.number == number)
    }

    /// Whether a worker has or had a lease here.
    pub(crate) const fn has_workers(&self) -> bool {
        !self.workers.is_empty()
    }

    /// Whether a worker has a lease at this time.
    pub(crate) fn is_in_use(&self, now: u64) -> bool {
        self.workers.iter().any(|lease| !lease.has_ended(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_slots_and_leases_are_those_of_the_format() {
        let format = include_str!("../../../../docs/FORMAT.md");
        let keys = Keys::of("é");
        let slot = Slot { number: 31, at: Mark { number: 3, end: 75 }, holder: 7 };
        let record = slot.encode();
        assert_eq!(Slot::decode(31, &record), Some(slot));
        assert_eq!(Slot::decode(31, &record[1..]), None);
        let lease = Lease { worker: 7, until: 258, length: 30_000 };
        assert_eq!(Lease::decode(7, &lease.encode()), Some(lease));
        assert_eq!(Lease::decode(7, &lease.encode()[..8]), Some(Lease { length: 0, ..lease }));
        assert_eq!(Lease::decode(7, &lease.encode()[..9]), None);
        let lease = lease.encode().to_vec();
        for bytes in [record, keys.slot(31), keys.worker(7), lease] {
            let hex: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let vector = format!("`{}`", hex.join(" "));
            assert!(format.contains(&vector), "{vector}");
        }
        let slot = format!("The slot of the primary key `6b6579` is {}.", slot_of(b"key"));
        assert!(format.contains(&slot), "{slot}");
    }
}
