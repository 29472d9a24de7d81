//! The comparison of copies with their rows, before the switch.

use std::collections::BTreeMap;

use super::{
    copy::{Mover, Until, tables_of},
    entries::MovedIndex,
    rows::{renewed, tracked},
};
use crate::{
    engine::Read as _,
    model::{
        error::{Error, Result},
        maintain::Image,
    },
    placement::{self, shards::MoveRecord},
    store::OpenTable,
};

impl Mover<'_> {
    /// Compares the copies with the rows, entry by entry, except for rows that have changed since.
    pub(super) fn verify(&self) -> Result<()> {
        let MoveRecord { from, to, .. } = *self.record();
        for table in self.tables.iter() {
            if let Some(moved) = MovedIndex::of(self.record(), table)? {
                self.verify_entries(&moved)?;
                continue;
            }
            let of_shards = tables_of(table)?;
            let (mut after, mut image) = (None::<Vec<u8>>, Image::default());
            loop {
                let txn = self.engine.read()?;
                let reader = txn.reader(of_shards);
                let (source, target) = (reader.of_shard(from)?, reader.of_shard(to)?);
                let rows = self.chunk(source, table, after.as_deref(), Until::Full)?;
                let copies =
                    self.chunk(target, table, after.as_deref(), Until::Last(rows.last.as_deref()))?;
                let mut all: BTreeMap<&[u8], [Option<&[u8]>; 2]> = BTreeMap::new();
                for (key, row) in &rows.rows {
                    all.entry(key).or_default()[0] = Some(row);
                }
                for (key, row) in &copies.rows {
                    all.entry(key).or_default()[1] = Some(row);
                }
                for (key, [row, copy]) in all {
                    let row = row.map(|row| renewed(&table.rows, key, row)).transpose()?;
                    let mut is_equal = row.as_deref() == copy;
                    if let (true, Some(row)) = (is_equal, &row) {
                        table.rows.load_stored(&mut image, row, key)?;
                        is_equal = Self::has_entries([source, target], table, &image)?;
                    }
                    if !is_equal && !self.moving.tracker.has(&tracked(table, key)) {
                        return Err(self.not_equal(table, key));
                    }
                }
                after = rows.last;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Whether both shards have the same entries of a row in local indexes. Eventual indexes may lag behind.
    fn has_entries(
        [source, target]: [placement::Reader<'_>; 2],
        table: &OpenTable,
        image: &Image,
    ) -> Result<bool> {
        let routing = tables_of(table)?.routing();
        for (index, declared) in table.schema.indexes.iter().enumerate() {
            if routing.global(index).is_some() || declared.eventual {
                continue;
            }
            for key in image.keys(index) {
                let entry = |reader: placement::Reader<'_>| -> Result<Option<Vec<u8>>> {
                    Ok(reader.entry(index, key, image.primary_key())?.map(<[u8]>::to_vec))
                };
                let copy = entry(target)?;
                // An entry of an older version of the row has other data.
                if copy.is_none() || entry(source)?.is_none() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn not_equal(&self, table: &OpenTable, primary_key: &[u8]) -> Error {
        let MoveRecord { id, map, .. } = self.record();
        let key = table.schema.show_primary_key(primary_key);
        Error::ShardRefused {
            what: format!("the switch of move {id} of shard map `{map}`"),
            reason: format!(
                "the copy of the row with primary key {key} of table `{}` is not equal to it; `verify` finds damage of the \
                 source, `Store::cancel_move` removes the copies, and `resume_move` copies again",
                table.schema.name
            ),
        }
    }
}
