//! Opening a table of a sharded store. The table is opened in each shard that can have its rows or entries, as in a plain
//! store. Then the [global indexes](all_shards::build_global) are built over all shards.

use std::{ptr, sync::Arc};

use super::{
    all_shards, changes,
    copies::Copies,
    hidden, numbers,
    opening::{self, Origin, ShardPart},
    parallel, references, renaming,
};
use crate::{
    engine::{self, Cursor as _, Query, Read as _, ReadRecords as _, WriteRecords as _},
    model::{
        KeyRange,
        error::{Error, Result},
        reference::ReferenceSchema,
        row_vtable::TableRows,
        schema::{ANALYSIS, Source, TableSchema},
        shard::{Distribution, Routing, ShardNumber},
    },
    placement::{
        self, Tables,
        shards::{self, Identity, Moving, OpenTables},
    },
    store::{Declared, Engines, Member, OpenTable, Shards, Store},
    usage::Progress,
    write,
};

/// Opens a table in all available shards that can have its rows or entries. Builds its indexes, unless `online`.
pub(super) fn open(
    store: &Store,
    shards: &Shards,
    rows: &TableRows,
    online: bool,
) -> Result<Arc<OpenTable>> {
    if shards.is_read_only() {
        store.inner.open_followed.get_or_init(|| open_followed);
    } else if rows.has_rows() {
        renaming::rename_in_shards(store, shards, rows)?;
    }
    let main = open_main_table(store, shards, rows, online)?;
    let opened = store
        .inner
        .open_once(rows, |engine| open_in_all(engine, shards, rows, (main.as_ref(), online)));
    let opened = opened.and_then(|table| {
        if !online && !table.is_all_readable(store.inner.opened()) {
            // The table may be in use already, opened without its indexes.
            all_shards::finish(store, rows, &table)?;
        }
        Ok(table)
    });
    if opened.is_err() && shards.is_read_only() {
        // Another process may have moved rows, or detached a shard, since this process opened the store.
        shards.read()?;
        shards.check_version()?;
    }
    let table = opened?;
    if shards.is_read_only() && shards.has_grown() {
        table.will_be_global()?;
    }
    if !online {
        remove_hidden(store, shards, &table)?;
    }
    Ok(table)
}

/// Removes the hidden entries that a process has left when it ended. They stay if a shard is not available, or during a move.
fn remove_hidden(store: &Store, shards: &Shards, table: &OpenTable) -> Result<()> {
    let prefix = format!("{}.", table.schema.name);
    if shards.is_read_only() || !shards.hidden().iter().any(|map| map.starts_with(&prefix)) {
        return Ok(());
    }
    let Some(_turn) = shards.move_turn() else { return Ok(()) };
    match hidden::remove(store, shards, table) {
        Err(Error::ShardUnavailable { .. }) => Ok(()),
        removed => removed,
    }
}

/// Opens the table of the main rows of parts, if the main rows can be in other shards than the parts.
fn open_main_table(
    store: &Store,
    shards: &Shards,
    rows: &TableRows,
    online: bool,
) -> Result<Option<Arc<OpenTable>>> {
    // Only tables without a shard key are placed.
    let is_to_main_row = rows.references.iter().any(ReferenceSchema::is_to_main_row);
    if rows.distribution != Distribution::Whole || !is_to_main_row {
        return Ok(None);
    }
    let routing = shards.routing(rows.schema, rows.distribution)?;
    let main = main_rows_elsewhere(shards, rows, &routing)?.and_then(|main| main.main);
    main.map(|main| open(store, shards, &store.rows_of(main.0())?, online)).transpose()
}

/// Returns the reference of the table to main rows that can be in other shards.
///
/// # Errors
///
/// [`Error::SchemaMismatch`]: rows can be in other shards than their referenced rows.
fn main_rows_elsewhere(
    shards: &Shards,
    rows: &TableRows,
    routing: &Routing,
) -> Result<Option<&'static ReferenceSchema>> {
    let routing_of = |schema, distribution| shards.routing(schema, distribution);
    references::check_shards(rows, routing, shards.is_placed(rows.schema.name), routing_of)
}

pub(super) fn open_in_all(
    engines: &Engines,
    shards: &Shards,
    rows: &TableRows,
    (main_table, online): (Option<&Arc<OpenTable>>, bool),
) -> Result<(Tables, Declared)> {
    // Without its struct, the table is opened as it is. Rows without a type are not written to a table with copies in each shard.
    let is_read = shards.is_read_only() || !rows.has_rows();
    shards.add_first_maps(rows.schema, rows.distribution)?;
    let former = &|index: &str| renaming::former_of_global(shards, rows, index);
    shards.add_global_maps(rows.schema, rows.distribution.global(), former)?;
    let routing = shards.routing(rows.schema, rows.distribution)?;
    let main = main_rows_elsewhere(shards, rows, &routing)?;
    let routing = if main.is_some() { routing.with_main_rows_elsewhere() } else { routing };
    let new = shards.compare(&routing, rows.distribution, main)?;
    let (mut opened, mut copies) = (Vec::new(), Copies::default());
    if routing.is_reference() {
        for (number, shard) in shards.members() {
            opened.push(open_in(shards, number, &shard, (&routing, &mut copies), (rows, online))?);
        }
    } else {
        // Opening builds local indexes, which takes long for a large table. So the shards are opened in parallel.
        let all = shards.members().collect();
        let open = |(number, shard), _: &dyn Fn(Progress)| {
            let copies = &mut Copies::default();
            open_in(shards, number, &shard, (&routing, copies), (rows, online))
        };
        for in_shard in parallel::each(all, open, |_, _| ()) {
            opened.push(in_shard?);
        }
    }
    let mut tables = finish_opened(shards, &routing, opened)?;
    if routing.is_reference() && !is_read {
        copies.fill()?;
    }
    if routing.all_shards().is_empty()
        && tables.iter().all(Option::is_none)
        && let Some((at, (_, shard))) =
            shards.members().enumerate().find(|(_, (_, shard))| shard.opened().is_ok())
        && let Some(table) = tables.get_mut(at)
        && (!is_read || has_table(shard.engine()?, rows.schema)?)
    {
        // All of its shards are detached, so it has no rows until keys are assigned to a shard.
        let part = ShardPart { is_added: true, ..ShardPart::default() };
        *table = Some(opening::open_with(&shard.store()?, rows, Some(part), online)?);
    }
    let first = tables.iter().flatten().next();
    let first = first.map(|table| (table.record.clone(), table.declared_apart()));
    let Some((record, (declaration, lacking))) = first else {
        let first = routing.all_shards().first().copied().unwrap_or(0);
        shards.shard(first)?.opened()?;
        return Err(Error::SchemaMismatch {
            table: rows.schema.name,
            difference: "all shards with its rows are detached".to_owned(),
            way_out: "attach a shard with `attach_shard`, or open the repository in a process that writes the store",
        });
    };
    if rows.changes.is_some() && !is_read {
        let in_shards = shards.members().zip(&tables);
        let opened = in_shards.filter_map(|((_, shard), table)| Some((shard, table.as_deref()?)));
        let opened = opened.map(|(shard, table)| Ok((shard.store()?, table)));
        changes::align(&opened.collect::<Result<Vec<_>>>()?)?;
    }
    let last_change = last_change(shards, rows, &tables)?;
    let opened = tables.iter().map(|it| it.as_ref().map(|table| table.databases()).transpose());
    let opened = opened.collect::<Result<Vec<Option<OpenTables>>>>()?;
    let mut kept: Vec<_> = tables.into_iter().flatten().collect();
    let tables = shards::Tables::new(routing, shards, opened);
    // Until the transaction ends, no main row is deleted.
    let mut checked = None;
    if let Some(main) = main_table {
        kept.push(Arc::clone(main));
        let main = main.tables.several().cloned();
        shards.add_parts(
            &tables,
            main.ok_or_else(|| Error::internal("a table that is not in shards"))?,
        );
        if new.is_some() && !shards.is_read_only() {
            let txn = checked.insert(shards.write()?);
            references::check_main_rows(rows, placement::Reader::Several(txn.reader(&tables)))?;
        }
    }
    // Without its struct, the distribution of a table that was never opened is not known.
    if let Some(new) = new.filter(|_| rows.has_rows()) {
        shards.keep(rows.schema.name, new)?;
    }
    drop(checked);
    let tables = Tables::Several(tables);
    if online {
        if !is_read {
            all_shards::align(engines, &tables, rows, None)?;
        }
    } else {
        all_shards::build_global(engines, &tables, rows)?;
    }
    let unreadable = all_shards::unreadable(engines, &tables, rows)?;
    // Without its struct, in a store that can be written, each query looks in the catalog whether its index is readable.
    let stays = rows.has_rows() || shards.is_read_only();
    let is_readable = |index| stays && !unreadable.contains(&index) && !lacking.contains(&index);
    let readable = rows.schema.positions().map(is_readable).collect();
    let declared = Declared {
        record,
        declaration,
        lacking,
        readable,
        last_change,
        kept,
        ..Declared::default()
    };
    Ok((tables, declared))
}

/// Completes a table in the shards that come from elsewhere.
fn finish_opened(
    shards: &Shards,
    routing: &Routing,
    opened: Vec<Option<Opened>>,
) -> Result<Vec<Option<Arc<OpenTable>>>> {
    let in_shard = |number: ShardNumber| Some(opened.get(number as usize)?.as_ref()?.table.clone());
    for ((number, shard), own) in shards.members().zip(&opened) {
        if let Some(own) = own {
            own.complete(shards, routing, (number, &shard), &in_shard)?;
        }
    }
    Ok(opened.into_iter().map(|own| own.map(|own| own.table)).collect())
}

/// Returns the place of the last change in the order of all shards.
fn last_change(
    shards: &Shards,
    rows: &TableRows,
    tables: &[Option<Arc<OpenTable>>],
) -> Result<u64> {
    let mut last = 0;
    if rows.changes.is_some() {
        for ((_, shard), table) in shards.members().zip(tables) {
            if let Some(table) = table {
                last = write::changes::last_order(shard.store()?.read()?.reader(table)?)?.max(last);
            }
        }
    }
    Ok(last)
}

/// A table in a shard.
pub(super) struct Opened {
    pub(super) table: Arc<OpenTable>,
    /// Whether the shard comes from elsewhere, and this table was checked now.
    is_checked: bool,
}

impl Opened {
    /// If the shard comes from elsewhere, raises its numbers, copies the kept analysis to it, and then records that the table was
    /// checked. `in_other` returns the table in another shard.
    pub(super) fn complete(
        &self,
        shards: &Shards,
        routing: &Routing,
        (number, shard): (ShardNumber, &Member<'_>),
        in_other: &dyn Fn(ShardNumber) -> Option<Arc<OpenTable>>,
    ) -> Result<()> {
        self.complete_unchecked(shards, routing, (number, shard), in_other)?;
        if self.is_checked {
            Identity::write_checked(shard.engine()?, self.table.rows.schema.name)?;
        }
        Ok(())
    }

    /// Does this without the record.
    pub(super) fn complete_unchecked(
        &self,
        shards: &Shards,
        routing: &Routing,
        (number, shard): (ShardNumber, &Member<'_>),
        in_other: &dyn Fn(ShardNumber) -> Option<Arc<OpenTable>>,
    ) -> Result<()> {
        if !self.is_checked {
            return Ok(());
        }
        let of_shard = (number, &shard.store()?, &*self.table);
        numbers::raise_in(shards, routing, of_shard, in_other)?;
        copy_analysis(shards, of_shard, in_other)
    }
}

/// Copies the kept analysis of another shard to a shard that comes from elsewhere, and may have an earlier one.
fn copy_analysis(
    shards: &Shards,
    (number, store, table): (ShardNumber, &Store, &OpenTable),
    in_other: &dyn Fn(ShardNumber) -> Option<Arc<OpenTable>>,
) -> Result<()> {
    for other in shards.current_shards().into_iter().filter(|other| *other != number) {
        let (Some(in_other), Ok(of_other)) = (in_other(other), shards.member(other)?.store())
        else {
            continue;
        };
        let txn = of_other.read()?;
        if let Some(record) = txn.reader(&in_other)?.record(ANALYSIS)? {
            return store.transaction(|txn| txn.writer(table)?.0.put_record(ANALYSIS, record));
        }
    }
    Ok(())
}

/// Opens a table in a shard. Returns `None` if the shard can't have rows or entries of the table, or is not available.
pub(super) fn open_in(
    shards: &Shards,
    number: ShardNumber,
    shard: &Member<'_>,
    (routing, copies): (&Routing, &mut Copies),
    (rows, online): (&TableRows, bool),
) -> Result<Option<Opened>> {
    let Ok(opened) = shard.opened() else { return Ok(None) };
    let identity = if opened.lmdb().is_some() { Identity::read(opened)? } else { None };
    let unchecked = identity.filter(|identity| {
        let checked = identity.checked.as_deref();
        checked.is_some_and(|tables| tables.iter().all(|table| table != rows.schema.name))
    });
    // A shard from which all rows were moved away can have changes that are not committed yet, and messages.
    let is_kept = rows.changes.is_some() || (routing.is_split() && rows.schema.has_eventual());
    // A follower does not open the table when the move switches.
    let is_kept =
        is_kept || (shards.is_read_only() && is_target(shards, rows.schema, routing.map(), number));
    let is_kept = is_kept && has_table(opened, rows.schema)?;
    let is_own = routing.all_shards().contains(&number);
    let is_from_one_file =
        shards.is_first_file(number) && shards.is_from_one_file(rows.schema.name)?;
    if !is_own && !is_kept {
        if (unchecked.is_some() || is_from_one_file)
            && moves_with_copies(shards, routing.map(), number).is_empty()
            && has_table(opened, rows.schema)?
            && has_rows(&shard.store()?, rows)?
        {
            let difference = format!(
                "its rows are in shard `{}`, and it is declared to have none there",
                shard.name()
            );
            return Err(mismatch(rows.schema, difference));
        }
        return Ok(None);
    }
    // The other shards get their copies when a writer opens the table.
    if shards.is_read_only()
        && routing.is_reference()
        && !shards.is_first_file(number)
        && !has_table(opened, rows.schema)?
        && shards.is_from_one_file(rows.schema.name)?
    {
        return Ok(None);
    }
    let is_from_elsewhere = unchecked.is_some();
    let has_global = !rows.distribution.global().is_empty();
    let is_untyped = !rows.has_rows() && !shards.is_read_only();
    if is_from_elsewhere && (shards.is_read_only() && has_global || is_untyped) {
        return Err(Error::ShardUnavailable {
            shard: shard.name().to_string(),
            reason: format!(
                "its files were replaced, or come from another store, so the global indexes of table `{}` may not match them; open \
                 the table in a process that writes the store, which checks it",
                rows.schema.name
            ),
        });
    }
    let has_main_rows_elsewhere = routing.has_main_rows_elsewhere();
    // With other maps, declared since, the rows are checked, and the global indexes are built.
    let has_first_maps = is_from_one_file && routing.all_shards() == [number];
    let origin = match (is_from_elsewhere, has_first_maps) {
        (true, _) => Origin::Elsewhere,
        (false, true) => Origin::OneFile,
        (false, false) => Origin::Store,
    };
    let part =
        ShardPart { is_added: !is_own, origin, has_main_rows_elsewhere, shards: Some(shards) };
    // A shard that is being attached or restored does not belong to the store yet.
    if is_from_elsewhere && shards.shard(number).is_ok_and(|own| ptr::eq(own, &raw const **shard)) {
        shards.announce_replaced();
    }
    let table = opening::open_with(&shard.store()?, rows, Some(part), online)?;
    if origin == Origin::OneFile && shards.is_read_only() {
        table.will_be_global()?;
    }
    if is_from_one_file && !has_first_maps && !routing.is_reference() {
        check_rows(shards, number, shard, routing, &table)?;
    }
    if is_from_elsewhere {
        if routing.is_reference() {
            copies.check(&shard.store()?, &table, shard.name())?;
        } else {
            check_rows(shards, number, shard, routing, &table)?;
        }
    }
    let is_checked = is_from_elsewhere && !opened.is_read_only();
    if routing.is_reference() {
        copies.add(shard.store()?, &table)?;
    }
    Ok(Some(Opened { table, is_checked }))
}

/// Opens a table in a further shard, to which its rows move. Its caller prevents other threads from opening tables.
pub(super) fn open_target(
    store: &Store,
    shards: &Shards,
    table: &OpenTable,
    tables: &shards::Tables,
    number: ShardNumber,
) -> Result<()> {
    let shard = shards.member(number)?;
    let opened = open_in_further(&shard.store()?, &table.rows)?;
    if table.rows.changes.is_some() {
        changes::join(shards, table, (&shard.store()?, &opened))?;
    }
    tables.add(number, shard.name(), table.keep(&opened)?);
    all_shards::align(&store.inner.engines, &table.tables, &table.rows, Some(table))
}

/// Opens a table in a shard that has no keys of it. If the shard comes from elsewhere, and has no rows of the table, the table is
/// recorded as checked; otherwise readers and followers could not open it after rows have come. The shard has no entries of the
/// table's global indexes either, because such an opening empties its parts of them.
pub(super) fn open_in_further(shard: &Store, rows: &TableRows) -> Result<Arc<OpenTable>> {
    let part = ShardPart { is_added: true, ..ShardPart::default() };
    let table = opening::open_with(shard, rows, Some(part), false)?;
    let engine = shard.inner.engine()?;
    if engine.lmdb().is_some() && !engine.is_read_only() && !has_any_row(shard, &table)? {
        Identity::write_checked(engine, rows.schema.name)?;
    }
    Ok(table)
}

/// Whether an unfinished move brings keys of a table, or entries of its global indexes, to a shard.
fn is_target(shards: &Shards, schema: &TableSchema, map: &str, number: ShardNumber) -> bool {
    let is_of = |moved: &str| {
        moved == map || moved.split_once('.').is_some_and(|(table, _)| table == schema.name)
    };
    let moves = shards.moves();
    moves.iter().any(|moving| moving.record.to == number && is_of(&moving.record.map))
}

/// Opens the tables in use in the shards of a follower to which their rows move or have moved. Called after each record
/// that can change the shard maps, so that a table is open in the target of a move before the switch. A table that can't
/// be opened in a shard yet is opened after a later record; until then, its queries fail.
fn open_followed(store: &Store, shards: &Shards) {
    let _opening = store.inner.lock_opening();
    for table in store.inner.tables_in_use() {
        let Some(tables) = table.tables.several() else { continue };
        for (number, shard) in shards.members() {
            let routing = tables.routing();
            if tables.in_shard(number).is_some()
                || !(routing.all_shards().contains(&number)
                    || is_target(shards, table.schema, routing.map(), number))
            {
                continue;
            }
            let is_there = shard.engine().and_then(|engine| has_table(engine, table.schema));
            if !matches!(is_there, Ok(true)) {
                continue;
            }
            let part = Some(ShardPart::default());
            let opened =
                shard.store().and_then(|of| opening::open_with(&of, &table.rows, part, false));
            if let Ok(opened) = opened.and_then(|opened| table.keep(&opened)) {
                tables.add(number, shard.name(), opened);
            }
        }
    }
}

/// When a shard becomes available, continues the order of all shards after the last place in its streams.
pub(super) fn raise_orders(table: &OpenTable, shard: &Store, own: &OpenTable) -> Result<()> {
    if let Some(orders) = table.shared.orders.get().filter(|_| table.rows.changes.is_some()) {
        orders.raise(write::changes::last_order(shard.read()?.reader(own)?)?);
    }
    Ok(())
}

pub(super) fn has_table(engine: &engine::Engine, schema: &TableSchema) -> Result<bool> {
    // A shard that was attached can have the table by a former name.
    let is_own = |name: &str| name == schema.name || schema.was.contains(&name);
    Ok(engine.catalog()?.iter().any(|(name, _)| is_own(name)))
}

/// Whether a table has rows in a shard without keys of it. Without rows, it may be there from earlier. Its indexes there don't
/// matter, but an opening for writing must leave no state of a global index, which other openings would find.
fn has_rows(store: &Store, rows: &TableRows) -> Result<bool> {
    let part = ShardPart { is_added: true, ..ShardPart::default() };
    let table = opening::open_with(store, rows, Some(part), true)?;
    has_any_row(store, &table)
}

fn has_any_row(store: &Store, table: &OpenTable) -> Result<bool> {
    let first = Query { limit: Some(1), ..Query::new(Source::Facts, KeyRange::ALL) };
    let txn = store.read()?;
    Ok(txn.reader(table)?.count(&first)?.found > 0)
}

/// Checks that all rows in a restored, rebuilt or grown shard belong to it. Queries would not find other rows.
fn check_rows(
    shards: &Shards,
    number: ShardNumber,
    shard: &Member<'_>,
    routing: &Routing,
    table: &OpenTable,
) -> Result<()> {
    let store = shard.store()?;
    let txn = store.read()?;
    refuse_foreign(shards, (number, shard.name()), routing, txn.reader(table)?)
}

/// Checks that all rows of a table in a shard belong to the shard.
pub(super) fn refuse_foreign(
    shards: &Shards,
    (number, name): (ShardNumber, &str),
    routing: &Routing,
    reader: placement::Reader<'_>,
) -> Result<()> {
    let Some((primary_key, own)) = foreign_row(shards, number, routing, reader)? else {
        return Ok(());
    };
    let place = match own {
        Some(own) => format!("belongs to shard `{}`", shards.shard(own)?.name()),
        None => "belongs to no shard".to_owned(),
    };
    let schema = routing.schema();
    let key = schema.show_primary_key(&primary_key);
    let difference = format!("the row with primary key {key} is in shard `{name}`, and {place}");
    Err(mismatch(schema, difference))
}

/// Returns the primary key of the first row in a shard that does not belong to it, with the shard of the row. Copies of
/// unfinished moves don't count.
pub(super) fn foreign_row(
    shards: &Shards,
    number: ShardNumber,
    routing: &Routing,
    reader: placement::Reader<'_>,
) -> Result<Option<(Vec<u8>, Option<ShardNumber>)>> {
    let copied = moves_with_copies(shards, routing.map(), number);
    let mut rows = reader.cursor(Query::new(Source::Facts, KeyRange::ALL))?;
    while rows.advance()? {
        let primary_key = rows.entry().primary_key;
        let own = routing.shard_of(primary_key);
        let has_key = |moving: &Arc<Moving>| {
            routing.map_key(primary_key).is_some_and(|key| moving.record.has(&key))
        };
        if own != Some(number) && !copied.iter().any(has_key) {
            return Ok(Some((primary_key.to_vec(), own)));
        }
    }
    Ok(None)
}

/// Returns the unfinished moves of a map that have left copies in a shard.
fn moves_with_copies(shards: &Shards, map: &str, number: ShardNumber) -> Vec<Arc<Moving>> {
    let mut moves = shards.moves();
    moves.retain(|moving| moving.record.map == map && moving.record.copier() == number);
    moves
}

pub(super) fn mismatch(schema: &TableSchema, difference: String) -> Error {
    Error::SchemaMismatch {
        table: schema.name,
        difference,
        way_out: "declare a shard map, or a place, that gives all rows of a shard to it; the \
                  copies of a reference table have to be equal",
    }
}
