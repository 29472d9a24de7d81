//! The comparison of a copy of a reference table with the first copy.

use super::TableCheck;
use crate::{
    engine::{Cursor as _, Query, Read as _},
    model::{
        KeyRange,
        entry::{Position, RawEntry},
        error::Result,
        schema::Source,
    },
    placement::LentEntries,
    upkeep::verify::{
        finding::FindingKind,
        raw_finding::{Fix, RawFinding},
    },
};

/// The number of rows that a step compares.
const ROWS: usize = 64;

impl TableCheck<'_> {
    /// Compares the next rows of both copies.
    pub(super) fn compare_copies(&mut self) -> Result<()> {
        let Some(original) = self.first_copy else {
            self.next_stage();
            return Ok(());
        };
        let query =
            || Query { position: self.after.clone(), ..Query::new(Source::Facts, KeyRange::ALL) };
        let mut originals = original.cursor(query())?;
        let mut copies = self.reader.cursor(query())?;
        let mut is_there = [originals.advance()?, copies.advance()?];
        let (mut last, mut found) = (None, Vec::new());
        for _ in 0..ROWS {
            let [original, copy] = [&originals, &copies].map(LentEntries::entry);
            let (at, reason) = match is_there {
                [false, false] => break,
                [true, true] if original.primary_key == copy.primary_key => {
                    let differs = original.data != copy.data;
                    (original, differs.then_some("the first copy has another row"))
                }
                [true, is_copy] if !is_copy || original.primary_key < copy.primary_key => {
                    (original, Some("the first copy has this row, and this copy lacks it"))
                }
                _ => (copy, Some("the first copy lacks this row")),
            };
            found.extend(reason.map(|reason| {
                let at = RawEntry { data: &[], ..at };
                RawFinding::new(FindingKind::DifferentCopy, Source::Facts, at, reason, Fix::None)
            }));
            let key = at.primary_key.to_vec();
            let is_at = |is_there: bool, entry: RawEntry<'_>| is_there && entry.primary_key == key;
            let steps = [is_at(is_there[0], original), is_at(is_there[1], copy)];
            last = Some(key);
            if steps[0] {
                is_there[0] = originals.advance()?;
            }
            if steps[1] {
                is_there[1] = copies.advance()?;
            }
        }
        self.findings.extend(found);
        match last {
            Some(primary_key) if is_there != [false, false] => {
                self.after = Some(Position { key: Vec::new(), primary_key });
            }
            _ => self.next_stage(),
        }
        Ok(())
    }
}
