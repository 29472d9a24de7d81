//! The numbers that `insert_with` has assigned to keys whose shard changes.
//!
//! A number is not assigned again, also after its row was deleted, so the record of the last number goes to the new shard of
//! its key. If a shard is detached, its ranges belong to no shard. A remaining shard then keeps their numbers, until the ranges
//! are assigned to another shard. Such a record can be older than the record in the shard of the key, so a record never replaces
//! a greater number.

use std::sync::Arc;

use super::shards::{has_table, open_in_further, open_target};
use crate::{
    engine::{Read as _, Space, Write as _},
    model::{
        error::{Error, Result},
        numbering,
        shard::{Routing, ShardNumber, Span},
    },
    placement::{self, shards},
    store::{OpenTable, Shards, Store, transaction},
};

/// The limits of a batch.
const RECORDS: usize = 512;
const READ: usize = 1 << 14;

/// No leading fields of a primary key precede these bytes.
const START: &[u8] = &[0];

/// Some records of last numbers.
pub(super) struct Batch {
    /// The records, with the leading fields of their keys.
    pub(super) records: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The keys whose records are read, and the position of the next batch.
pub(super) struct Keys<'k> {
    next: Option<Vec<u8>>,
    /// The first key of the shard map after these keys.
    end: Option<&'k [u8]>,
    has: &'k dyn Fn(&[u8]) -> bool,
    /// Whether the table has one number for all rows, and no shard key.
    is_one: bool,
}

impl<'k> Keys<'k> {
    /// Returns all keys.
    fn all() -> Keys<'static> {
        Keys { next: Some(START.to_vec()), end: None, has: &|_| true, is_one: false }
    }

    /// Returns all keys of a table.
    fn of(routing: &Routing) -> Keys<'static> {
        Keys { is_one: routing.is_placed(), ..Keys::all() }
    }

    /// Returns the keys of a part of a shard map. `has` is for a hash map, in which the keys are not in the order of their
    /// slots.
    pub(super) fn within(
        routing: &Routing,
        (start, end): (&[u8], Option<&'k [u8]>),
        has: &'k dyn Fn(&[u8]) -> bool,
    ) -> Self {
        if routing.is_hashed() {
            return Self { has, ..Keys::all() };
        }
        let next = Some(start.max(START).to_vec());
        Self { next, end, has: &|_| true, is_one: routing.is_placed() }
    }

    /// Whether all records were read.
    pub(super) const fn are_read(&self) -> bool {
        self.next.is_none()
    }

    /// Reads the next batch.
    pub(super) fn read(&mut self, reader: placement::Reader<'_>) -> Result<Batch> {
        let mut records = Vec::new();
        if self.is_one {
            self.next = None;
            let record = reader.get(Space::Sequence, &[])?;
            records.extend(record.map(|record| (Vec::new(), record.to_vec())));
        }
        for _ in 0..READ {
            let found = match &self.next {
                Some(from) => reader.at_or_above(Space::Sequence, from)?,
                None => None,
            };
            let found = found.filter(|(key, _)| self.end.is_none_or(|end| *key < end));
            let Some((key, record)) = found else {
                self.next = None;
                break;
            };
            self.next = Some([key, &[0]].concat());
            if (self.has)(key) {
                records.push((key.to_vec(), record.to_vec()));
            }
            if records.len() >= RECORDS {
                break;
            }
        }
        Ok(Batch { records })
    }
}

impl Batch {
    /// Writes the records, except where a record with a greater number exists.
    pub(super) fn raise(&self, writer: &mut placement::Writer<'_, '_>) -> Result<()> {
        self.records.iter().try_for_each(|(key, record)| raise(writer, key, record))
    }
}

/// Writes the record of the last number after these leading fields, unless a record with a greater number exists.
pub(super) fn raise(
    writer: &mut placement::Writer<'_, '_>,
    key: &[u8],
    record: &[u8],
) -> Result<()> {
    let schema = writer.reader().table();
    let own = numbering::decode(schema, writer.reader().get(Space::Sequence, key)?)?;
    if numbering::decode(schema, Some(record))? > own {
        writer.put(Space::Sequence, key, record)?;
    }
    Ok(())
}

/// A table whose numbers a removed or detached shard may have.
pub(super) struct Numbered {
    pub(super) table: Arc<OpenTable>,
    /// The shard that keeps the numbers of keys without a shard.
    pub(super) keeper: ShardNumber,
}

impl Numbered {
    /// Returns the table if its rows are in several shards and it is in this shard, which leaves the store. Opens it in this
    /// shard, and in the shard that keeps its numbers. The caller has the lock of opening tables.
    pub(super) fn of(
        store: &Store,
        engine: &Shards,
        table: &Arc<OpenTable>,
        leaving: ShardNumber,
    ) -> Result<Option<Self>> {
        let Some(tables) = table.tables.several() else { return Ok(None) };
        let is_split = tables.routing().is_split();
        if !is_split || !has_table(engine.shard(leaving)?.engine()?, table.schema)? {
            return Ok(None);
        }
        let (own, present) = (tables.routing().shards().to_vec(), engine.current_shards());
        let others = own.into_iter().chain(present).filter(|shard| *shard != leaving);
        let others: Vec<_> = others.collect();
        let open = others.iter().find(|shard| tables.in_shard(**shard).is_some());
        let keeper = *open.or_else(|| others.first()).ok_or_else(no_shard)?;
        for shard in [leaving, keeper] {
            if tables.in_shard(shard).is_none() {
                open_target(store, engine, table, tables, shard)?;
            }
        }
        Ok(Some(Self { table: Arc::clone(table), keeper }))
    }

    /// Copies the numbers in a shard that leaves the store to the shards that get its keys by these maps. Also records the
    /// last place in the order of all shards of the change stream: the shard may have the only changes with these places.
    pub(super) fn hand_over(
        &self,
        txn: &mut shards::Txn<'_>,
        leaving: ShardNumber,
        changed: &[shards::Changed],
    ) -> Result<()> {
        let Some(tables) = self.table.tables.several() else { return Ok(()) };
        let routing = tables.routing();
        let changed = changed.iter().find(|changed| changed.map == routing.map());
        let owner = |shard_key: &[u8]| match changed {
            Some(changed) => changed.boundaries.shard_of(&routing.map_key_of(shard_key)),
            None => routing.shard_of_shard_key(shard_key),
        };
        if let (Some(_), Some(orders)) = (self.table.rows.changes, self.table.shared.orders.get()) {
            let mut writer = txn.writer(tables).ok_or_else(no_shard)?;
            writer.beside(self.keeper, &mut |writer| orders.keep(writer))?;
        }
        let mut keys = Keys::of(&routing);
        while !keys.are_read() {
            let batch = keys.read(txn.reader(tables).of_shard(leaving)?)?;
            for (key, record) in &batch.records {
                let to = owner(key).filter(|owner| *owner != leaving).unwrap_or(self.keeper);
                let mut writer = txn.writer(tables).ok_or_else(no_shard)?;
                writer.beside(to, &mut |writer| raise(writer, key, record))?;
            }
        }
        Ok(())
    }
}

fn no_shard() -> Error {
    Error::internal("no other shard for the numbers of a shard")
}

/// Raises the numbers of a shard that comes from elsewhere, for example from an older copy, to those that the other shards keep
/// for its keys. `opened` returns the table in another shard. The caller has the lock of opening tables.
pub(super) fn raise_in(
    engine: &Shards,
    routing: &Routing,
    (number, store, table): (ShardNumber, &Store, &OpenTable),
    opened: &dyn Fn(ShardNumber) -> Option<Arc<OpenTable>>,
) -> Result<()> {
    if !routing.is_split() {
        return Ok(());
    }
    let is_own = |key: &[u8]| routing.shard_of_shard_key(key) == Some(number);
    for other in engine.current_shards().into_iter().filter(|shard| *shard != number) {
        let shard = engine.member(other)?;
        if shard.opened().is_err() {
            continue;
        }
        let of_other = shard.store()?;
        let in_other = match opened(other) {
            Some(table) => table,
            None if has_table(shard.engine()?, table.schema)? => {
                open_in_further(&of_other, &table.rows)?
            }
            None => continue,
        };
        let mut keys = Keys { has: &is_own, ..Keys::of(routing) };
        while !keys.are_read() {
            let batch = keys.read(of_other.read()?.reader(&in_other)?)?;
            if !batch.records.is_empty() {
                store.transaction(|txn| batch.raise(&mut txn.writer(table)?.0))?;
            }
        }
    }
    Ok(())
}

/// Copies the numbers of a range that belongs to no shard to the shard that gets it. The caller has the lock of opening
/// tables, and a step.
pub(super) fn gather(
    store: &Store,
    engine: &Shards,
    table: &Arc<OpenTable>,
    (span, to): (&Span, ShardNumber),
) -> Result<()> {
    let Some(tables) = table.tables.several() else { return Ok(()) };
    let end = span.end.as_deref();
    let is_within = |key: &[u8]| {
        let key = tables.routing().map_key_of(key).into_owned();
        key >= span.start && end.is_none_or(|end| key.as_slice() < end)
    };
    for shard in engine.current_shards().into_iter().filter(|shard| *shard != to) {
        let Ok(open) = engine.shard(shard)?.engine() else { continue };
        if !has_table(open, table.schema)? {
            continue;
        }
        if tables.in_shard(shard).is_none() {
            open_target(store, engine, table, tables, shard)?;
        }
        let mut keys = Keys::within(&tables.routing(), (&span.start, end), &is_within);
        while !keys.are_read() {
            let batch = {
                let txn = engine.read_on(shard)?;
                keys.read(txn.reader(tables).of_shard(shard)?)?
            };
            if !batch.records.is_empty() {
                let attempt = || engine.write_alone(to, tables, &mut |writer| batch.raise(writer));
                transaction::run(attempt, |retry| engine.prepare(retry))?;
            }
        }
    }
    Ok(())
}
