//! Opening a table of a sharded store: in each shard that can have rows of it, as in a plain store.

use std::sync::Arc;

use super::opening;
use crate::{
    engine::{
        Cursor as _, Query, Read as _, Tables,
        shards::{Engine, HasTables, Identity, Shard},
    },
    model::{
        KeyRange,
        error::{Error, Result},
        row_vtable::RowVtable,
        schema::{Source, TableSchema},
        shard::{Routing, ShardNumber},
    },
    store::{Declared, OpenTable, Store, store_of},
};

/// Opens a table in all available shards that can have rows of it, with all indexes built.
pub(super) fn open(
    store: &Store,
    shards: &Engine,
    rows: &'static RowVtable,
) -> Result<Arc<OpenTable>> {
    store.inner.open_once(rows, |_| {
        let routing = shards.routing(rows.schema, rows.distribution)?;
        let new = shards.compare(&routing, rows.distribution)?;
        let (mut tables, mut record) = (Vec::new(), None);
        for (number, shard) in (0..).zip(shards.shards()) {
            let opened = open_in(shards, number, shard, &routing, rows)?;
            if let Some(table) = &opened
                && record.is_none()
            {
                record = Some(table.record.clone());
            }
            tables.push(opened.map(|table| table as Arc<dyn HasTables>));
        }
        let Some(record) = record else {
            let first = routing.shards().first().copied().unwrap_or(0);
            shards.shard(first)?.opened()?;
            return Err(Error::internal("a table was opened in no shard"));
        };
        if let Some(new) = new {
            shards.keep(rows.schema.name, new)?;
        }
        let readable = vec![true; rows.schema.indexes.len()];
        let tables = Tables::Sharded(crate::engine::shards::Tables::new(routing, tables));
        Ok((tables, Declared { record, readable }))
    })
}

/// Opens a table in a shard; `None`: the shard has no rows of it, or is not available.
fn open_in(
    shards: &Engine,
    number: ShardNumber,
    shard: &Shard,
    routing: &Routing,
    rows: &'static RowVtable,
) -> Result<Option<Arc<OpenTable>>> {
    let Ok(opened) = shard.opened() else { return Ok(None) };
    let identity =
        if opened.engine().lmdb().is_some() { Identity::read(opened.engine())? } else { None };
    let unchecked = identity.filter(|identity| {
        let checked = identity.adopted.as_deref();
        checked.is_some_and(|tables| tables.iter().all(|table| table != rows.schema.name))
    });
    if !routing.shards().contains(&number) {
        if unchecked.is_some() && has_table(opened.engine(), rows.schema)? {
            let difference = format!("its rows are in shard `{}`, which was adopted", shard.name());
            return Err(mismatch(rows.schema, difference));
        }
        return Ok(None);
    }
    let table = opening::open(&store_of(shard)?, rows)?;
    if let Some(mut identity) = unchecked {
        check_rows(shards, number, shard, routing, &table)?;
        if let Some(tables) = &mut identity.adopted
            && !opened.engine().is_read_only()
        {
            tables.push(rows.schema.name.to_owned());
            identity.write(opened.engine())?;
        }
    }
    Ok(Some(table))
}

fn has_table(engine: &crate::engine::Engine, schema: &TableSchema) -> Result<bool> {
    Ok(engine.catalog()?.iter().any(|(name, _)| name == schema.name))
}

/// Refuses an adopted shard with a row of another one, which queries would not find.
fn check_rows(
    shards: &Engine,
    number: ShardNumber,
    shard: &Shard,
    routing: &Routing,
    table: &OpenTable,
) -> Result<()> {
    let store = store_of(shard)?;
    let txn = store.read()?;
    let mut rows = txn.reader(table)?.cursor(Query::new(Source::Facts, KeyRange::ALL))?;
    while rows.advance()? {
        let primary_key = rows.entry().primary_key;
        let own = routing.shard_of(primary_key);
        if own != Some(number) {
            let place = match own {
                Some(own) => format!("belongs to shard `{}`", shards.shard(own)?.name()),
                None => "belongs to no shard".to_owned(),
            };
            let key = table.schema.show_primary_key(primary_key);
            let difference = format!(
                "the row with primary key {key} is in shard `{}`, and {place}",
                shard.name()
            );
            return Err(mismatch(table.schema, difference));
        }
    }
    Ok(())
}

fn mismatch(schema: &TableSchema, difference: String) -> Error {
    Error::SchemaMismatch {
        table: schema.name,
        difference,
        way_out: "declare a shard map, or a place, that gives all rows of an adopted store to it",
    }
}
