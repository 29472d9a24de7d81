//! The workers that share a consumer.

use std::time::Duration;

use super::{
    Consumer, PartSpan, Span, beside, first, identity,
    shared::{self, Group, Lease, slot_of},
    with_leases,
};
use crate::{
    model::{
        error::Result,
        stream::{Mark, StoredChange, now},
    },
    placement::Writer,
    store::{Store, WriteTxn},
};

/// Receives the changes of a worker. Each attempt begins with `None`.
pub(crate) type Each<'e> = dyn FnMut(Option<(u64, StoredChange<'_>)>) -> Result<()> + 'e;

/// The maximum number of changes that a worker reads in one transaction to find changes of its slots.
const MOST_READ: usize = 4096;

impl Consumer {
    /// Calls `each` with the next changes in the slots of a worker, in their order, and extends its lease. `restart` is
    /// called before each attempt.
    pub(crate) fn next_of_worker(
        &self,
        store: &Store,
        (worker, lease): (u64, Duration),
        limit: usize,
        restart_and_each: &mut Each<'_>,
    ) -> Result<Span> {
        loop {
            let (span, is_at_end) = store.transaction(|txn| {
                restart_and_each(None)?;
                let own = self.join(txn, worker, lease)?;
                let mut parts = self.streams(txn)?;
                let identity = identity(&parts);
                if own.is_empty() {
                    return Ok((Span { parts: Vec::new(), worker, identity }, true));
                }
                for part in &mut parts {
                    let held = part.group.slots.iter().filter(|slot| own.contains(&slot.number));
                    let first = held.map(|slot| slot.at).min_by_key(|at| at.number);
                    part.begin(first.unwrap_or(part.at))?;
                }
                self.refuse_missed(parts.iter().map(|part| (part.reader, part.before)))?;
                let (mut taken, mut read, mut is_at_end) = (0, 0, true);
                while let Some(part) = first(&mut parts) {
                    if taken == limit || read == MOST_READ {
                        is_at_end = false;
                        break;
                    }
                    let Some((number, change)) = part.take()? else { break };
                    read += 1;
                    let slot = part.group.slot(slot_of(change.primary_key));
                    let is_own = |slot: &shared::Slot| own.contains(&slot.number);
                    if slot.is_some_and(|slot| is_own(slot) && slot.at.number < number) {
                        restart_and_each(Some((change.number(number), change)))?;
                        taken += 1;
                    } else if taken == 0 {
                        part.before = part.to;
                    }
                }
                let ends = parts.into_iter().map(|part| (part.shard, part.before, part.to));
                let ends: Vec<_> = ends.collect();
                let (mut writer, ..) = txn.writer(&self.table)?;
                let mut spans = Vec::new();
                for (shard, before, to) in ends {
                    // The slots of the worker have no changes before the first taken change.
                    let slots = beside(&mut writer, shard, |writer| {
                        let at = self.position(writer.reader())?;
                        let mut group = self.shared.group(writer.reader())?;
                        self.advance(writer, &mut group, at, &own, before)?;
                        let held = group.slots.iter().filter(|slot| own.contains(&slot.number));
                        Ok(held.map(|slot| (slot.number, slot.at.number)).collect())
                    })?;
                    if to != before {
                        spans.push(PartSpan { shard, from: before.number, to, slots });
                    }
                }
                Ok((Span { parts: spans, worker, identity }, is_at_end || taken > 0))
            })?;
            if is_at_end || limit == 0 {
                return Ok(span);
            }
        }
    }

    /// Extends the lease of a worker, and gives it its share of the slots. Returns the slots that it holds.
    fn join(&self, txn: &mut WriteTxn<'_>, worker: u64, lease: Duration) -> Result<Vec<u8>> {
        let leases = with_leases(&self.streams(txn)?).map(|part| part.shard);
        let (mut writer, ..) = txn.writer(&self.table)?;
        let now = now();
        let length = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        let until = now.saturating_add(length);
        let lease = Lease { worker, until, length: length.max(1) };
        let mut own = Vec::new();
        for shard in writer.with_changes() {
            beside(&mut writer, shard, |writer| {
                let at = self.position(writer.reader())?;
                let mut group = self.shared.group(writer.reader())?;
                if Some(shard) != leases {
                    self.shared.release(writer, &group)?;
                    return self.shared.fill(writer, &mut group, at);
                }
                self.shared.join(writer, &mut group, at, lease, now)?;
                own = group.held(worker).map(|slot| slot.number).collect();
                Ok(())
            })?;
        }
        Ok(own)
    }

    /// Moves these slots forward, and the consumer to the least position of all slots.
    pub(super) fn advance(
        &self,
        writer: &mut Writer<'_, '_>,
        group: &mut Group,
        at: Mark,
        slots: &[u8],
        to: Mark,
    ) -> Result<()> {
        let is_moved =
            |slot: &&mut shared::Slot| slots.contains(&slot.number) && slot.at.number < to.number;
        for slot in group.slots.iter_mut().filter(is_moved) {
            slot.at = to;
            self.shared.set_slot(writer, *slot)?;
        }
        let least = group.slots.iter().map(|slot| slot.at).min_by_key(|at| at.number);
        match least {
            Some(least) if least.number > at.number => self.set(writer, least),
            _ => Ok(()),
        }
    }

    /// Ends the lease of a worker.
    pub(crate) fn leave(&self, store: &Store, worker: u64) -> Result<()> {
        store.transaction(|txn| {
            let (mut writer, ..) = txn.writer(&self.table)?;
            for shard in writer.with_changes() {
                if beside(&mut writer, shard, |writer| self.shared.leave(writer, worker))? {
                    break;
                }
            }
            Ok(())
        })
    }
}
