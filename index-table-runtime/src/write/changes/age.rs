//! The ages of changes, in spite of corrections of the system's clock.
//!
//! A change has the time of its write by the system's clock. If the clock is corrected, the distance of this time from now is
//! not the age of the change. So a writer compares the time of each change with the time of the change before it. If they
//! are far apart, it compares this distance with the time that has [passed](clock) in its process. The difference is a
//! correction, which is recorded in the stream with the number of the last change before it. The age of a change is
//! the distance of its time from now, without the corrections after it.
//!
//! The time before the process was started can't be measured: the clock was corrected, or nothing was written. Up to half
//! the time for which changes are kept counts as passed, so a single correction removes no recent change, and changes are
//! removed in the end.

use crate::{
    background::clock::{self, Passed},
    engine::{Read, Space, Write as _},
    model::{
        error::Result,
        stream::{CLOCK, ChangeStream},
    },
    placement::Writer,
};

/// The maximum number of recorded corrections. Further corrections are added to the oldest.
const MOST: usize = 16;

/// The corrections of the clock that a stream has recorded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Corrections {
    /// The last change when the clock was last observed, and the time by the clock.
    observed: (u64, u64),
    /// The number of the last change before each correction, and the milliseconds by which it moved the clock forward.
    list: Vec<(u64, i64)>,
}

impl ChangeStream {
    /// Returns the milliseconds for which changes are kept; `None` without a limit.
    fn kept(&self) -> Option<u64> {
        (self.keep != u64::MAX && !self.until_consumed).then(|| self.keep.saturating_mul(1000))
    }

    /// Whether the distance of two times is long in comparison with the time for which changes are kept.
    #[inline]
    pub(super) fn is_long(&self, from: u64, to: u64) -> bool {
        from.abs_diff(to) / 125 > self.keep && !self.until_consumed
    }
}

impl Corrections {
    pub(super) fn read<'t>(stream: &ChangeStream, reader: impl Read<'t>) -> Result<Self> {
        if stream.kept().is_none() {
            return Ok(Self::default());
        }
        let Some(record) = reader.get(Space::Changes, &CLOCK)? else { return Ok(Self::default()) };
        let damaged =
            || super::damaged(reader.table(), "the clock of its change stream".to_owned());
        Self::decode(record).ok_or_else(damaged)
    }

    fn decode(record: &[u8]) -> Option<Self> {
        let (numbers, []) = record.as_chunks() else { return None };
        let mut numbers = numbers.iter().map(|number| u64::from_be_bytes(*number));
        let observed = (numbers.next()?, numbers.next()?);
        let mut list = Vec::new();
        while let Some(number) = numbers.next() {
            list.push((number, numbers.next()?.cast_signed()));
        }
        Some(Self { observed, list })
    }

    fn encode(&self) -> Vec<u8> {
        let list = self.list.iter().flat_map(|(number, by)| [*number, by.cast_unsigned()]);
        let numbers = [self.observed.0, self.observed.1].into_iter().chain(list);
        numbers.flat_map(u64::to_be_bytes).collect()
    }

    fn write(&self, writer: &mut Writer<'_, '_>) -> Result<()> {
        writer.put(Space::Changes, &CLOCK, &self.encode())
    }

    /// Adds the correction between a change, with its time, and the next observation of the clock. `passed` returns the time
    /// that has passed since a time. Returns false if there was none.
    fn note(
        &mut self,
        stream: &ChangeStream,
        (last, time): (u64, u64),
        now: u64,
        passed: impl Fn(u64) -> Passed,
    ) -> bool {
        let Some(kept) = stream.kept() else { return false };
        let from = if self.observed.0 == last { self.observed.1 } else { time };
        if !stream.is_long(from, now) {
            return false;
        }
        let by = if now < from {
            i64::try_from(from - now).map_or(i64::MIN, |by| -by)
        } else {
            let until = passed(now);
            let Passed { measured, unmeasured } = passed(from);
            let counted = measured.saturating_sub(until.measured)
                + unmeasured.saturating_sub(until.unmeasured).min(kept / 2);
            i64::try_from((now - from).saturating_sub(counted)).unwrap_or(i64::MAX)
        };
        if by == 0 {
            return false;
        }
        self.observed = (last, now);
        match self.list.last_mut() {
            Some((number, sum)) if *number == last => *sum = sum.saturating_add(by),
            _ => self.list.push((last, by)),
        }
        if let [(_, first), (_, second), ..] = *self.list.as_slice()
            && self.list.len() > MOST
        {
            // The changes before the second correction are kept for the longer of the two times.
            self.list.remove(0);
            if let Some((_, sum)) = self.list.first_mut() {
                *sum = second.max(second.saturating_add(first));
            }
        }
        true
    }

    /// Returns the age of a change in milliseconds.
    pub(super) fn age(&self, (number, time): (u64, u64), now: u64) -> u64 {
        let after = self.list.iter().filter(|(last, _)| number <= *last);
        let by: i128 = after.map(|(_, by)| i128::from(*by)).sum();
        u64::try_from(i128::from(now) - i128::from(time) - by).unwrap_or_default()
    }

    /// Forgets the corrections before a removed change.
    pub(super) fn forget(&mut self, removed: u64, writer: &mut Writer<'_, '_>) -> Result<()> {
        let known = self.list.len();
        self.list.retain(|(last, _)| *last > removed);
        if self.list.len() == known { Ok(()) } else { self.write(writer) }
    }
}

/// Records the correction of the clock between the last change of a stream, with its time, and now.
#[cold]
#[inline(never)]
pub(super) fn note(
    stream: &ChangeStream,
    writer: &mut Writer<'_, '_>,
    last: (u64, u64),
    now: u64,
) -> Result<()> {
    let mut corrections = Corrections::read(stream, writer.reader())?;
    if corrections.note(stream, last, now, clock::passed_since) {
        corrections.write(writer)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;
    const STREAM: ChangeStream =
        ChangeStream { keep: 48 * 3600, bytes: u64::MAX, until_consumed: false };

    fn measured(measured: u64) -> impl Fn(u64) -> Passed {
        move |since| Passed { measured: measured.saturating_sub(since), unmeasured: 0 }
    }

    #[test]
    fn corrections_have_the_bytes_of_the_format() {
        let corrections = Corrections { observed: (3, 258), list: vec![(2, -1), (3, 7)] };
        let bytes = corrections.encode();
        assert_eq!(Corrections::decode(&bytes), Some(corrections));
        assert_eq!(Corrections::decode(&bytes[8..]), None);
        assert_eq!(Corrections::decode(&bytes[1..]), None);
        let hex: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let vector = format!("`{}`", hex.join(" "));
        assert!(include_str!("../../../../docs/FORMAT.md").contains(&vector), "{vector}");
    }

    #[test]
    fn a_correction_does_not_change_the_age_of_a_change() {
        let mut corrections = Corrections::default();
        // The clock moves forward by 1000 hours, an hour after the change 5.
        let passed =
            |since| Passed { measured: if since == 1101 * HOUR { 0 } else { HOUR }, unmeasured: 0 };
        assert!(corrections.note(&STREAM, (5, 100 * HOUR), 1101 * HOUR, passed));
        assert_eq!(corrections.age((5, 100 * HOUR), 1101 * HOUR), HOUR);
        assert_eq!(corrections.age((1, 98 * HOUR), 1101 * HOUR), 3 * HOUR);
        assert_eq!(corrections.age((6, 1101 * HOUR), 1103 * HOUR), 2 * HOUR);
        // And back: the change 6 is in the future.
        assert!(corrections.note(&STREAM, (6, 1101 * HOUR), 102 * HOUR, passed));
        assert_eq!(corrections.age((5, 100 * HOUR), 102 * HOUR), HOUR);
        assert_eq!(corrections.age((6, 1101 * HOUR), 103 * HOUR), HOUR);
    }

    #[test]
    fn a_measured_pause_is_no_correction() {
        let mut corrections = Corrections::default();
        let passed = |since| Passed { measured: 1000 * HOUR - since, unmeasured: 0 };
        assert!(!corrections.note(&STREAM, (5, 100 * HOUR), 1000 * HOUR, passed));
        assert!(!corrections.note(&STREAM, (5, 100 * HOUR), 101 * HOUR, measured(0)));
        assert_eq!(corrections, Corrections::default());
    }

    #[test]
    fn an_unmeasured_pause_counts_up_to_half_of_the_kept_time() {
        let mut corrections = Corrections::default();
        let mut now = 100 * HOUR;
        for pauses in 1..4 {
            let before = now;
            now += 1000 * HOUR;
            let passed = |since| Passed {
                measured: 0,
                unmeasured: if since == before { now - before } else { 0 },
            };
            assert!(corrections.note(&STREAM, (5, 100 * HOUR), now, passed));
            assert_eq!(corrections.age((5, 100 * HOUR), now), pauses * 24 * HOUR);
        }
        assert_eq!(corrections.list.len(), 1);
    }

    #[test]
    fn the_number_of_corrections_is_bounded() {
        let mut corrections = Corrections::default();
        let times = |number: u64| if number.is_multiple_of(2) { 1000 * HOUR } else { 1 };
        for number in 1..100 {
            let passed = |_| Passed::default();
            assert!(corrections.note(&STREAM, (number, times(number)), times(number + 1), passed));
            assert!(corrections.age((1, times(1)), times(number + 1)) <= 1000 * HOUR);
        }
        assert_eq!(corrections.list.len(), MOST);
    }
}
