//! Recounting the aggregates of a table from its rows.
//!
//! A recount takes a limited number of groups at a time, in the order of their keys, and reads all rows for them. So
//! memory doesn't grow with the number of groups.

use std::collections::BTreeMap;

use crate::{
    engine::{Cursor as _, Query, Read as _},
    model::{
        KeyRange, aggregate::Totals, error::Result, key::DecodeError, maintain::Image,
        row_vtable::TableRows, schema::Source,
    },
    placement::Reader,
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
        rows: &TableRows,
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
            match rows.load_unchecked(&mut image, fact.data, Some(position)) {
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
