//! Building the indexes of a table of a sharded store: local indexes in all shards at the same time, each through the
//! store of its shard, and then the global indexes in transactions of all shards.
//!
//! The entries of a global index lead to rows in all shards. So a build that reads the rows of one shard must leave
//! these indexes out.

use std::{sync::Arc, time::Instant};

use super::{Build, BuildOptions, BuildReport, BuiltIndex, Chosen, NotBuilt};
use crate::{
    engine::{Read as _, is_of_left_shard},
    model::{error::Result, index_state::IndexState, schema::Source},
    placement::shards::{self, Locks},
    store::{OpenTable, Store, WriteTxn, engine_of, parts_of},
    upkeep::{
        all_shards,
        parallel::{self, Sum},
        upgrade,
    },
    usage::Progress,
};

pub(super) fn run(build: Build<'_>, tables: &shards::Tables) -> Result<BuildReport, NotBuilt> {
    let Build { store, table, rows, options, limit, stop, mut progress } = build;
    table.check_store(store.inner.id)?;
    // The threads would wait for this thread.
    store.inner.refuse_nested_write()?;
    let (opened, _held) = (store.inner.opened(), engine_of(store)?.hold_moves());
    if tables.routing().is_reference() {
        // All copies are built in the same transactions, so they stay equal.
        all_shards::align(&store.inner.engines, &table.tables, rows, Some(table))?;
        let build = Build { store, table, rows, options, limit, stop, progress };
        return build.run_batches(|store, needed| begin(store, tables, needed));
    }
    let global = rows.distribution.global();
    let local =
        BuildOptions { chosen: Chosen::Without(global), renews: rows.renews_in_shard(), ..options };
    let run = |(store, table): (Store, Arc<OpenTable>), progress: &dyn Fn(Progress)| {
        let progress: Box<dyn FnMut(Progress)> = Box::new(progress);
        let (store, table, progress) = (&store, &table, Some(progress));
        let build = Build { store, table, rows, options: local, limit, stop, progress };
        match build.try_run() {
            Err(NotBuilt::Other(error)) if is_of_left_shard(&error) => {
                Ok(BuildReport::of_nothing(rows))
            }
            done => done,
        }
    };
    let parts = parts_of(store, table, None)?;
    let (mut sum, started) = (Sum::default(), Instant::now());
    if progress.is_some() {
        for (item, rows) in expected(&parts, global)? {
            sum.add(item, Progress::new("rows", 0, Some(rows), started));
        }
    }
    let mut report = |part, at: Progress| {
        let (done, total) = sum.add(part, at);
        if let Some(progress) = &mut progress {
            progress(Progress::new(at.unit, done, Some(total), started));
        }
    };
    let whole = parts.len();
    let mut reports = parallel::each(parts.clone(), run, &mut report);
    let needs_all = |it: &Result<_, NotBuilt>| matches!(it, Err(NotBuilt::NeedsAllShards));
    if tables.are_complete() && reports.iter().any(needs_all) {
        upgrade::renew_lists(store, table)?;
        reports = parallel::each(parts, run, &mut report);
    }
    let is_left_out =
        |global: &[usize]| matches!(options.chosen, Chosen::Without(it) if it == global);
    if !global.is_empty() && !is_left_out(global) {
        let options = BuildOptions { chosen: Chosen::Only(global), ..options };
        let progress: Box<dyn FnMut(Progress)> = Box::new(|at| report(whole, at));
        let progress = Some(progress);
        let build = Build { store, table, rows, options, limit, stop, progress };
        reports.push(build.run_batches(|store, needed| begin(store, tables, needed)));
    }
    let mut report = BuildReport::of_nothing(rows);
    for of_shard in reports {
        let BuildReport { indexes, rows, steps, .. } = of_shard?;
        report.rows += rows;
        report.steps += steps;
        for BuiltIndex { name, state } in indexes {
            match report.indexes.iter_mut().find(|index| index.name == name) {
                None => report.indexes.push(BuiltIndex { name, state }),
                // The state of a shard in which it is not readable.
                Some(index) if index.state == IndexState::Readable => index.state = state,
                Some(_) => {}
            }
        }
    }
    for index in &report.indexes {
        let position = rows.schema.position_of(index.name);
        if let Some(position) = position.filter(|_| index.state == IndexState::Readable) {
            table.became_readable_in(position, opened);
        }
    }
    Ok(report)
}

/// Begins a batch in the shards of the table. A shard may have got the table since the last batch, or since an earlier run
/// of this batch, which then has `needed` it.
fn begin<'s>(store: &'s Store, tables: &shards::Tables, needed: &Locks) -> Result<WriteTxn<'s>> {
    match needed {
        Locks::None => {
            let own = tables.routing().all_shards().iter().copied().collect();
            store.write_with(&Locks::These(own))
        }
        Locks::These(_) | Locks::All => store.write_with(needed),
    }
}

/// Returns the numbers of rows that the builds in the shards will read, by their positions, and then the number for the
/// global indexes. They are the total of the progress before each build reports its own.
fn expected(parts: &[(Store, Arc<OpenTable>)], global: &[usize]) -> Result<Vec<(usize, u64)>> {
    let (mut expected, mut all, mut is_global_built) = (Vec::new(), 0, false);
    for (part, (store, table)) in parts.iter().enumerate() {
        let txn = match store.read() {
            Err(error) if is_of_left_shard(&error) => continue,
            begun => begun?,
        };
        let reader = txn.reader(table)?;
        let rows = reader.stored(Source::Facts)?.unwrap_or(0);
        all += rows;
        let mut is_built = false;
        for index in table.schema.positions() {
            if table.state(reader, index)?.is_some() {
                let is_global = global.contains(&index);
                is_built |= !is_global;
                is_global_built |= is_global;
            }
        }
        if is_built {
            expected.push((part, rows));
        }
    }
    if is_global_built {
        expected.push((parts.len(), all));
    }
    Ok(expected)
}
