//! Replacing the rows of a copy of a reference table by the rows of another copy. Afterwards, its indexes are repaired.

use super::{BATCH, Part};
use crate::{
    engine::{Cursor as _, Query, Read as _},
    model::{
        KeyRange,
        entry::{Position, RawEntry},
        error::Result,
        maintain::{Change, Sink as _},
        schema::Source,
        shard::ShardNumber,
    },
    placement::shards,
    upkeep::verify::{
        finding::{FindingKind, VerifyReport},
        raw_finding::{Fix, RawFinding},
    },
    write::watch::Watched,
};

/// Rows with their primary keys, in order.
type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Makes the rows of the copy in shard `to` equal to the rows in shard `from`.
pub(super) fn replace(
    part: Part<'_>,
    writer: &mut shards::Writer<'_>,
    (from, to): (ShardNumber, ShardNumber),
    report: &mut VerifyReport,
    watched: &mut Watched,
) -> Result<()> {
    if !writer.is_reference() {
        return Ok(());
    }
    let mut after: Option<Vec<u8>> = None;
    loop {
        let mut rows = Rows::new();
        writer.part(from, &mut |writer| {
            let mut originals = writer.reader().cursor(facts(after.as_deref()))?;
            while rows.len() < BATCH && originals.advance()? {
                let RawEntry { primary_key, data, .. } = originals.entry();
                rows.push((primary_key.to_vec(), data.to_vec()));
            }
            Ok(())
        })?;
        let last = rows.last().map(|(key, _)| key.clone()).filter(|_| rows.len() == BATCH);
        let mut changed = Vec::new();
        writer.part(to, &mut |writer| {
            let (mut kept, mut surplus) = (vec![false; rows.len()], Vec::new());
            let mut copies = writer.reader().cursor(facts(after.as_deref()))?;
            while copies.advance()? {
                let RawEntry { primary_key, data, .. } = copies.entry();
                if last.as_deref().is_some_and(|last| primary_key > last) {
                    break;
                }
                match rows.binary_search_by(|(key, _)| key.as_slice().cmp(primary_key)) {
                    Ok(at) => {
                        let is_same = rows.get(at).is_some_and(|(_, row)| row == data);
                        if let Some(kept) = kept.get_mut(at) {
                            *kept = is_same;
                        }
                    }
                    Err(_) => surplus.push(primary_key.to_vec()),
                }
            }
            drop(copies);
            for primary_key in surplus {
                writer.change(Change::DeleteFact { primary_key: &primary_key })?;
                changed.push(primary_key);
            }
            for ((primary_key, row), _) in rows.iter().zip(kept).filter(|(_, kept)| !kept) {
                writer.change(Change::PutFact { primary_key, row })?;
                changed.push(primary_key.clone());
            }
            Ok(())
        })?;
        for primary_key in &changed {
            watched.note_untold();
            let at = RawEntry { primary_key, ..RawEntry::NOWHERE };
            let reason = "it differed from the other copy";
            let (kind, source) = (FindingKind::DifferentCopy, Source::Facts);
            let found = RawFinding::new(kind, source, at, reason, Fix::Delete);
            report.add_repaired(part.rows.schema, part.shard, &found);
        }
        if last.is_none() {
            return Ok(());
        }
        after = last;
    }
}

fn facts(after: Option<&[u8]>) -> Query {
    let position = after.map(|key| Position { key: Vec::new(), primary_key: key.to_vec() });
    Query { position, ..Query::new(Source::Facts, KeyRange::ALL) }
}
