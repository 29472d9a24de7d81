//! Iteration over physical entries within bounds.

use std::{cmp::Ordering, ops::Bound};

use heed::{RoRange, RoRevRange, types::Bytes};

use super::{parts::Parts, reader::Reader};
use crate::{
    engine::{
        Query,
        lmdb::{env::Engine, layout::Layout, pages::Ahead},
    },
    model::{
        KeyRange,
        entry::{Position, ShortKey},
        error::{Boxed, Result},
        key::MAX_KEY_LEN,
        schema::Source,
    },
};

/// A key and a value of LMDB.
pub(in crate::engine::lmdb) type Physical<'t> = Result<(&'t [u8], &'t [u8]), Boxed>;

/// An iterator over physical entries within bounds.
pub(in crate::engine::lmdb) struct PhysicalRange<'t> {
    engine: &'t Engine,
    steps: Steps<'t>,
    bounds: KeyRange,
    /// The checks before the steps, if pages are checked.
    ahead: Option<Box<Checks<'t>>>,
}

struct Checks<'t> {
    ahead: Ahead<'t>,
    reader: Reader<'t>,
    database: &'t str,
}

enum Steps<'t> {
    Forward(RoRange<'t, Bytes, Bytes>),
    Reverse(RoRevRange<'t, Bytes, Bytes>),
    None,
}

impl<'t> Iterator for PhysicalRange<'t> {
    type Item = Physical<'t>;

    #[expect(clippy::inline_always, reason = "each yielded entry would be copied")]
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.ahead.is_some()
            && let Some(bad) = self.check_step()
        {
            return Some(Err(bad));
        }
        let Steps::Forward(range) = &mut self.steps else { return self.next_reverse() };
        match range.next()? {
            Ok((key, value)) if self.bounds.ends_after(key) => Some(Ok((key, value))),
            Ok(_) => None,
            Err(error) => Some(Err(self.failed(error))),
        }
    }
}

impl<'t> PhysicalRange<'t> {
    /// Checks the page that the next step reads. After damage, LMDB reads no further page.
    #[cold]
    fn check_step(&mut self) -> Option<Boxed> {
        let Checks { ahead, reader, database } = &mut **self.ahead.as_mut()?;
        let bad = ahead.step().err()?;
        let error = reader.bad_page(database, bad);
        self.steps = Steps::None;
        self.ahead = None;
        Some(error.into())
    }

    /// Steps backwards. It is not inlined, because most scans go forward, and are faster with less code.
    #[inline(never)]
    fn next_reverse(&mut self) -> Option<Physical<'t>> {
        let Steps::Reverse(range) = &mut self.steps else { return None };
        match range.next()? {
            Ok((key, value)) if key >= self.bounds.start() => Some(Ok((key, value))),
            Ok(_) => None,
            Err(error) => Some(Err(self.failed(error))),
        }
    }

    #[cold]
    fn failed(&self, error: heed::Error) -> Boxed {
        self.engine.error(error).into()
    }
}

impl<'t> Reader<'t> {
    /// Returns the physical entries of a query, in its direction, after its position.
    pub(super) fn walk(self, query: Query) -> Result<PhysicalRange<'t>> {
        let Query { source, bounds, reverse, position, inclusive, .. } = query;
        if let Some(position) = &position
            && let Some(Layout::Unique | Layout::ShortUnique { .. }) = self.layout(source)
            && let Some(inclusive) = self.key_place(source, position, reverse, inclusive)?
        {
            let at = place(&position.key, inclusive);
            return self.walk_from(source, reverse, bounds, Some(at));
        }
        let position = position.map(|position| position.bytes());
        let position = position.as_deref().map(|at| place(at, inclusive));
        self.walk_from(source, reverse, bounds, position)
    }

    /// If a scan of a unique index after this position starts at the key alone, returns whether it includes the entry
    /// of this key. Returns `None` if the scan starts at both keys.
    ///
    /// The position of the only entry of a key is the position of the key, for any primary key. If a key has several
    /// entries, the first is stored under the key, before all others, and each further entry is stored under the key
    /// and its primary key.
    fn key_place(
        self,
        source: Source,
        Position { key, primary_key }: &Position,
        reverse: bool,
        inclusive: bool,
    ) -> Result<Option<bool>> {
        let database = self.database(source)?;
        // Stepping on a damaged entry reports it.
        let value = self.value(database, key)?;
        let parts = Parts::of(self.tables.schema, source);
        let Some((first, _)) = value.and_then(|value| parts.first(value)) else {
            return Ok(Some(inclusive));
        };
        let order = first.compare(ShortKey::whole(primary_key));
        if order == Ordering::Equal {
            return Ok((reverse || inclusive).then_some(inclusive));
        }
        self.check_around(database, key)?;
        let next = database.get_greater_than(self.txn, key);
        let next = next.map_err(|error| self.engine.error(error))?;
        if next.is_none_or(|(next, _)| !next.starts_with(key)) {
            return Ok(Some(inclusive));
        }
        // The first entry is after the position of a forward scan, or no entry is after the position of a reverse scan.
        Ok((order == Ordering::Greater).then_some(!reverse))
    }

    pub(in crate::engine::lmdb) fn walk_from(
        self,
        source: Source,
        reverse: bool,
        bounds: KeyRange,
        position: Option<Bound<&[u8]>>,
    ) -> Result<PhysicalRange<'t>> {
        let database = self.database(source)?;
        let mut ahead = None;
        let steps = if reverse {
            let end = bounds.end();
            let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            match upper(position.unwrap_or(end)) {
                Some(end) => {
                    ahead = self.ahead(database, end, true)?;
                    database.rev_range(self.txn, &(Bound::Unbounded, end)).map(Steps::Reverse)
                }
                None => Ok(Steps::None),
            }
        } else {
            let start = match position {
                Some(Bound::Excluded(position)) => after(position),
                Some(Bound::Included(position)) => lower(position),
                Some(Bound::Unbounded) | None => lower(bounds.start()),
            };
            ahead = self.ahead(database, start, false)?;
            database.range(self.txn, &(start, Bound::Unbounded)).map(Steps::Forward)
        };
        let steps = steps.map_err(|error| self.engine.error(error))?;
        let ahead =
            ahead.map(|ahead| Box::new(Checks { ahead, reader: self, database: database.name() }));
        Ok(PhysicalRange { engine: self.engine, steps, bounds, ahead })
    }
}

/// Returns the lower bound for `start`. LMDB refuses empty keys and keys above its limit, but bounds can be such keys.
/// A long key is truncated: the truncated key is before all its extensions.
fn lower(start: &[u8]) -> Bound<&[u8]> {
    match start.get(..MAX_KEY_LEN) {
        _ if start.is_empty() => Bound::Unbounded,
        Some(cut) if cut.len() < start.len() => Bound::Excluded(cut),
        _ => Bound::Included(start),
    }
}

/// Returns the lower bound after `position`.
fn after(position: &[u8]) -> Bound<&[u8]> {
    match lower(position) {
        Bound::Included(position) => Bound::Excluded(position),
        bound => bound,
    }
}

/// Returns the upper bound for `end`; `None` if the range is empty.
fn upper(end: Bound<&[u8]>) -> Option<Bound<&[u8]>> {
    let (Bound::Included(bytes) | Bound::Excluded(bytes)) = end else { return Some(end) };
    match bytes.get(..MAX_KEY_LEN) {
        _ if bytes.is_empty() => None,
        Some(cut) if cut.len() < bytes.len() => Some(Bound::Included(cut)),
        _ => Some(end),
    }
}

/// Returns the bound at a position, with or without the entry at it.
pub(super) fn place(position: &[u8], inclusive: bool) -> Bound<&[u8]> {
    if inclusive { Bound::Included(position) } else { Bound::Excluded(position) }
}
