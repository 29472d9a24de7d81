//! The comparison of the totals of aggregates with the rows.

use super::TableCheck;
use crate::{
    engine::{Read as _, Space},
    model::{aggregate::Totals, entry::RawEntry, error::Result, key::DecodeError, schema::Source},
    upkeep::{
        aggregates::{GROUPS, Pass},
        verify::{
            finding::FindingKind,
            raw_finding::{Fix, RawFinding},
            resume_point::Stage,
            stop::check_stop,
        },
    },
    write::queue::Queued,
};

impl TableCheck<'_> {
    /// Returns the next aggregate, if there is one.
    pub(super) fn totals_after(&self, aggregate: Option<usize>) -> Option<Stage> {
        // The walks of the parts check the totals of all shards.
        if self.only_global.is_some() {
            return None;
        }
        let first = self.vtable.schema.indexes.len();
        let is_readable = |next: &usize| !self.unreadable.incomplete.contains(&(first + next));
        let mut next = aggregate.map_or(0, |aggregate| aggregate + 1)..self.vtable.aggregates.len();
        next.find(is_readable).map(Stage::Totals)
    }

    /// Compares the records of some groups with all rows. The next step continues after these groups.
    pub(super) fn compare_totals(&mut self) -> Result<()> {
        let Stage::Totals(aggregate) = self.stage else { return Ok(()) };
        let Some(declared) = self.vtable.aggregates.get(aggregate) else { return Ok(()) };
        let space = Space::Aggregate(aggregate);
        let last = self.last.as_ref().or(self.after.as_ref()).map(|at| at.key.clone());
        let (rows, reader) = (self.vtable, self.reader);
        // The check of the rows has reported unreadable rows.
        // When it was asked to stop, the rest of the rows is passed over.
        let is_own =
            |primary_key: &[u8]| check_stop(self.stop).is_ok() && !self.is_copy(primary_key);
        let after = last.as_deref();
        let mut is_whole = true;
        let unreadable = &mut |error: DecodeError, _: &[u8]| {
            is_whole &= !error.is_of_conversion();
            Ok(())
        };
        let mut pass = Pass::of(rows, reader, aggregate, after, GROUPS, &is_own, unreadable)?;
        check_stop(self.stop)?;
        if !is_whole {
            // The totals count rows that only another conversion reads.
            self.next_stage();
            return Ok(());
        }
        let end = pass.groups.last_key_value().filter(|_| pass.is_partial);
        let end = end.map(|(group, _)| group.clone());
        if declared.eventual {
            self.subtract_queued(aggregate, (after, end.as_deref()), &mut pass)?;
        }
        let mut found = Vec::new();
        let mut report = |group: &[u8], reason: String, right: Option<&Totals>| {
            let fix = match right.map_or(Ok(None), |right| right.record(declared)) {
                Ok(record) => Fix::Totals(aggregate, record),
                Err(_) => Fix::None,
            };
            let at = RawEntry { key: group, ..RawEntry::NOWHERE };
            let finding = RawFinding::new(FindingKind::WrongTotals, Source::Facts, at, reason, fix);
            found.push(RawFinding { aggregate: Some(declared), ..finding });
        };
        for (group, right) in &pass.groups {
            let stored = reader.get(space, group)?;
            let totals = Totals::decode(stored, declared);
            let is_right = totals.as_ref().is_ok_and(|totals| totals.is_same(right));
            // A group with rows has a record. The changes in messages can leave a group without totals.
            if is_right && (stored.is_some() || declared.eventual) {
                continue;
            }
            let shown = match (stored, totals) {
                (None, _) => "the group is missing".to_owned(),
                (_, Ok(totals)) => format!("the aggregate has {}", totals.show(declared)),
                (_, Err(error)) => format!("the record can't be read ({error})"),
            };
            report(
                group,
                format!("{shown}, and the table has {}", right.show(declared)),
                Some(right),
            );
        }
        let mut from = last.map_or_else(|| vec![0], next_key);
        while let Some((group, _)) = reader.at_or_above(space, &from)? {
            if end.as_deref().is_some_and(|end| group > end) {
                break;
            }
            if !pass.groups.contains_key(group) {
                report(group, "no row is in the group".to_owned(), None);
            }
            from = next_key(group.to_vec());
        }
        self.findings.extend(found);
        match end {
            Some(end) => self.stepped(RawEntry { key: &end, ..RawEntry::NOWHERE }),
            None => self.next_stage(),
        }
        Ok(())
    }
}

impl TableCheck<'_> {
    /// Subtracts the changes that are not applied yet from the totals of the rows. The difference is the totals that an
    /// eventual aggregate should have.
    fn subtract_queued(
        &mut self,
        aggregate: usize,
        (after, end): (Option<&[u8]>, Option<&[u8]>),
        pass: &mut Pass,
    ) -> Result<()> {
        let queued = match self.queued.take() {
            Some(queued) => queued,
            None => Queued::read(self.vtable.schema, self.reader)?,
        };
        for (group, changes) in queued.totals().of_aggregate(aggregate) {
            let is_in_pass =
                after.is_none_or(|after| group > after) && end.is_none_or(|end| group <= end);
            if is_in_pass {
                pass.groups.entry(group.to_vec()).or_default().remove_all(changes);
            }
        }
        self.queued = Some(queued);
        Ok(())
    }
}

/// Returns the least key after this key.
fn next_key(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}
