//! Counting the entries of a query.

use super::{entries::Kind, packed::count_blocks, reader::Reader};
use crate::{
    engine::{Count, Query, lmdb::layout::Layout},
    model::{error::Result, key::MAX_KEY_LEN},
};

pub(super) fn count(reader: Reader<'_>, query: &Query) -> Result<Count> {
    let limit = query.limit.unwrap_or(u64::MAX);
    if let Some(Layout::Blocks { primary_key }) = reader.layout(query.source)
        && query.position.is_none()
    {
        let source = query.source;
        // A fast path for the most frequent counts, which copies no bounds.
        if let Some(prefix @ [_, ..]) = query.bounds.as_prefix()
            && prefix.len() <= MAX_KEY_LEN
            && reader.guard.is_none()
        {
            let blocks = reader.database(source)?.prefix_iter(reader.txn, prefix);
            let blocks = blocks.map_err(|error| reader.engine.error(error))?;
            let blocks = blocks.map(|block| Ok(block.map_err(|error| reader.engine.error(error))?));
            return count_blocks(reader, source, primary_key, 0, blocks, limit);
        }
        let range = reader.walk_from(source, false, query.bounds.clone(), None)?;
        return count_blocks(reader, source, primary_key, 0, range, limit);
    } else if query.bounds.is_everything() && query.position.is_none() {
        // LMDB keeps this number, so no page is read.
        return Ok(Count { found: reader.len_of(query.source)?.min(limit), seeks: 0, steps: 0 });
    }
    match Kind::of(reader, query.clone())? {
        Kind::Blocks(entries) => entries.count_up_to(limit),
        Kind::Single { range, .. } => {
            let mut found = 0;
            for entry in range.take(usize::try_from(limit).unwrap_or(usize::MAX)) {
                entry?;
                found += 1;
            }
            Ok(Count { found, seeks: 1, steps: found })
        }
    }
}
