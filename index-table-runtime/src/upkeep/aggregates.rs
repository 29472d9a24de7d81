//! Recounting the aggregates of a table from its rows.
//!
//! A recount takes a limited number of groups at a time, in the order of their keys, and reads all rows for them. So
//! memory doesn't grow with the number of groups.

use std::collections::BTreeMap;

use crate::{
    engine::{Cursor as _, Query, Read as _, Reader, Space, Write as _, Writer},
    model::{
        KeyRange, aggregate::Totals, error::Result, key::DecodeError, maintain::Image,
        row_vtable::RowVtable, schema::Source,
    },
    write::aggregates,
};

/// The maximum number of groups in a pass.
pub(super) const GROUPS: usize = 1 << 16;

/// The totals of some groups, in the order of their keys.
#[derive(Debug, Default)]
pub(super) struct Pass {
    pub(super) groups: BTreeMap<Vec<u8>, Totals>,
    /// Whether there may be further groups after the last one.
    pub(super) is_partial: bool,
}

impl Pass {
    /// Reads all rows that `is_own` selects by their primary keys, for the first groups after `after`. Rows that can't be
    /// decoded are passed to `unreadable`.
    pub(super) fn of(
        rows: &RowVtable,
        reader: Reader<'_>,
        aggregate: usize,
        after: Option<&[u8]>,
        most: usize,
        is_own: &dyn Fn(&[u8]) -> bool,
        unreadable: &mut dyn FnMut(DecodeError, &[u8]) -> Result<()>,
    ) -> Result<Self> {
        let position = rows.schema.indexes.len() + aggregate;
        let (mut pass, mut image) = (Self::default(), Image::default());
        let mut facts = reader.cursor(Query::new(Source::Facts, KeyRange::ALL))?;
        while facts.advance()? {
            let fact = facts.entry();
            if !is_own(fact.primary_key) {
                continue;
            }
            match (rows.load_unchecked)(&mut image, fact.data, Some(position)) {
                Ok(loaded) => loaded?,
                Err(error) => {
                    unreadable(error, fact.primary_key)?;
                    continue;
                }
            }
            if let Some(aggregate) = rows.aggregates.get(aggregate) {
                image.check_groups(rows.schema, std::slice::from_ref(aggregate))?;
            }
            let (group, summands) = image.group(position);
            if after.is_some_and(|after| group <= after) {
                continue;
            }
            if let Some(totals) = pass.groups.get_mut(group) {
                totals.add(summands);
                continue;
            }
            let is_beyond = pass.is_partial
                && pass.groups.last_key_value().is_some_and(|(last, _)| group > last.as_slice());
            if is_beyond {
                continue;
            }
            let mut totals = Totals::default();
            totals.add(summands);
            pass.groups.insert(group.to_vec(), totals);
            if pass.groups.len() > most {
                pass.groups.pop_last();
                pass.is_partial = true;
            }
        }
        Ok(pass)
    }
}

/// Empties the aggregates at these positions, and counts all rows.
///
/// # Errors
///
/// [`Error::AggregateOverflow`](crate::Error::AggregateOverflow), [`Error::Corrupt`](crate::Error::Corrupt)
pub(super) fn build(
    rows: &RowVtable,
    writer: &mut Writer<'_, '_>,
    aggregates: impl Iterator<Item = usize>,
) -> Result<()> {
    for aggregate in aggregates {
        let Some(declared) = rows.aggregates.get(aggregate) else { continue };
        writer.clear_space(Space::Aggregate(aggregate))?;
        let mut after: Option<Vec<u8>> = None;
        loop {
            let unreadable: &mut dyn FnMut(_, &[u8]) -> _ =
                &mut |error, key| Err(rows.corrupt(error, key));
            let reader = writer.reader();
            let (after_group, all) = (after.as_deref(), |_: &[u8]| true);
            let pass = Pass::of(rows, reader, aggregate, after_group, GROUPS, &all, unreadable)?;
            for (group, totals) in &pass.groups {
                aggregates::write_first(rows, writer, (aggregate, declared), group, totals)?;
            }
            if !pass.is_partial {
                break;
            }
            after = pass.groups.into_iter().next_back().map(|(group, _)| group);
        }
    }
    Ok(())
}
