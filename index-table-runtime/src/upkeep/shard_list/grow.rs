//! The first further shard of a store with one data file. [`Growing`] has the steps, and the states that a crash leaves.
//!
//! The tables in use are opened in the new first shard while their transactions go on. Then, with the turn to write, they are used
//! through the shards. Transactions that began before have the only data file, in which their snapshot has all rows; a writer
//! that was waiting for its turn begins again.

use crate::{
    model::error::{Error, Result},
    placement::shards::FIRST,
    store::{Growing, Store},
    upkeep::shards,
    write::changes::{self, Orders},
};

/// Makes a store with one data file a store with one shard. The caller has the lock of opening tables.
pub(super) fn grow(store: &Store) -> Result<()> {
    let growing = Growing::begin(store)?;
    let engines = growing.engines();
    let of_store =
        engines.several().ok_or_else(|| Error::internal("a grown store without shards"))?;
    let main = of_store.member(FIRST)?.store()?;
    let mut tables = Vec::new();
    for table in store.inner.tables_in_use() {
        table.will_be_global()?;
        let (grown, declared) = shards::open_in_all(engines, of_store, &table.rows, (None, true))?;
        tables.push((table, grown, declared));
    }
    growing.finish(store, || {
        // What can fail comes first, so that after an error all tables still have one data file.
        let txn = main.read()?;
        let mut last = Vec::new();
        for (table, _, declared) in &tables {
            let own = declared.kept.first().filter(|_| table.rows.changes.is_some());
            last.push(own.map(|own| changes::last_order(txn.reader(own)?)).transpose()?);
        }
        for ((table, grown, declared), last) in tables.into_iter().zip(last) {
            if let Some(last) = last {
                let _ = table.shared.orders.set(Orders::after(last));
            }
            table.grow(grown, &declared)?;
        }
        Ok(())
    })
}
