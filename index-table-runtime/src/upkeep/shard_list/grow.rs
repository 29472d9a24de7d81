//! The first further shard of a store with one data file. [`Growing`] has the steps, and the states that a crash leaves.
//!
//! The tables in use are opened in the new first shard while their transactions go on. Then, with the turn to write, they are used
//! through the shards. Transactions that began before have the only data file, in which their snapshot has all rows; a writer
//! that was waiting for its turn begins again.

use crate::{
    model::{
        error::{Error, Result},
        shard::ShardNumber,
    },
    store::{Growing, Store},
    upkeep::shards,
    write::changes::{self, Orders},
};

/// The number of the shard in the first data file.
const FIRST: ShardNumber = 0;

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
        let (grown, declared) = shards::open_in_all(engines, of_store, table.rows, (None, true))?;
        tables.push((table, grown, declared));
    }
    growing.finish(store, || {
        tables.into_iter().try_for_each(|(table, grown, declared)| {
            table.grow(grown, &declared)?;
            if let Some(own) = table.in_shard(FIRST).filter(|_| table.rows.changes.is_some()) {
                let last = changes::last_order(main.read()?.reader(&own)?)?;
                let _ = table.shared.orders.set(Orders::after(last));
            }
            Ok(())
        })
    })
}
