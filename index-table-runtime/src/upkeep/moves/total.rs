//! The number of rows that a move copies, for its progress.

use super::{
    copy::{Mover, tables_of},
    entries::MovedIndex,
};
use crate::{
    engine::{Query, Read as _},
    model::{
        End, KeyRange,
        error::Result,
        schema::Source,
        shard::{SLOTS, ShardNumber},
    },
    placement::shards::MoveRecord,
};

impl Mover<'_> {
    /// Returns the number of rows in the range; 0 for the entries of a global index. In a hash map, the number is
    /// estimated from the number of slots.
    ///
    /// Cost: the keys of the range are counted. In a hash map, the total number of rows is read.
    pub(super) fn count_rows(&self) -> Result<u64> {
        let MoveRecord { from, start, end, .. } = self.record();
        let txn = self.engine.read_on(*from)?;
        let mut rows = 0;
        for table in self.tables.iter() {
            if MovedIndex::of(self.record(), table)?.is_some() {
                continue;
            }
            let of_shards = tables_of(table)?;
            let reader = txn.reader(of_shards).of_shard(*from)?;
            if of_shards.routing().is_hashed() {
                let all = reader.count(&Query::new(Source::Facts, KeyRange::ALL))?.found;
                let (moved, owned) = (slots(start, end.as_deref()), self.slots_of(*from));
                let part =
                    u128::from(all) * u128::from(moved) / u128::from(owned.max(moved).max(1));
                rows += u64::try_from(part).unwrap_or(u64::MAX);
                continue;
            }
            let end = end.clone().map_or(End::Open, End::Before);
            let range = KeyRange { end, ..KeyRange::beginning_with(start) };
            rows += reader.count(&Query::new(Source::Facts, range))?.found;
        }
        Ok(rows)
    }

    /// Returns the number of slots of a shard in a hash map.
    fn slots_of(&self, shard: ShardNumber) -> u64 {
        let boundaries = self.engine.boundaries(&self.record().map);
        let segments = boundaries.map(|all| all.of_shard(shard)).unwrap_or_default();
        segments.iter().map(|(start, end)| slots(start, end.as_deref())).sum()
    }
}

/// Returns the number of slots in a range.
fn slots(start: &[u8], end: Option<&[u8]>) -> u64 {
    let number =
        |key: &[u8]| key.first_chunk().map_or(0, |slot| u64::from(u16::from_be_bytes(*slot)));
    end.map_or(u64::from(SLOTS), number).saturating_sub(number(start))
}
