//! Building the indexes of a table of a sharded store: local indexes in all shards at the same time, each through the
//! store of its shard, and then the global indexes in transactions of all shards.
//!
//! The entries of a global index lead to rows in all shards. So a build that reads the rows of one shard must leave
//! these indexes out.

use std::time::Instant;

use super::{Build, BuildOptions, BuildReport, BuiltIndex, Chosen};
use crate::{
    engine::shards::{self, Locks},
    model::{error::Result, schema::IndexState},
    store::{OpenTable, Store, parts_of},
    upkeep::parallel::{self, Sum},
    usage::Progress,
};

pub(super) fn run(build: Build<'_>, tables: &shards::Tables) -> Result<BuildReport> {
    let Build { store, table, rows, options, limit, mut progress } = build;
    table.check_store(store.inner.id)?;
    // The threads would wait for this one.
    store.inner.refuse_nested_write()?;
    let global = rows.distribution.global();
    let local = BuildOptions { chosen: Chosen::Without(global), ..options };
    let run = |(store, table): (Store, std::sync::Arc<OpenTable>), progress: &dyn Fn(Progress)| {
        let progress: Box<dyn FnMut(Progress)> = Box::new(progress);
        let (store, table, progress) = (&store, &table, Some(progress));
        Build { store, table, rows, options: local, limit, progress }.run()
    };
    let (mut sum, started) = (Sum::default(), Instant::now());
    let mut report = |part, at: Progress| {
        let (done, total) = sum.add(part, at);
        if let Some(progress) = &mut progress {
            progress(Progress::new(at.unit, done, Some(total), started));
        }
    };
    let parts = parts_of(store, tables, None)?;
    let whole = parts.len();
    let mut reports = parallel::each(parts, run, &mut report);
    let is_left_out =
        |global: &[usize]| matches!(options.chosen, Chosen::Without(it) if it == global);
    if !global.is_empty() && !is_left_out(global) {
        let options = BuildOptions { chosen: Chosen::Only(global), ..options };
        let progress: Box<dyn FnMut(Progress)> = Box::new(|at| report(whole, at));
        let build = Build { store, table, rows, options, limit, progress: Some(progress) };
        let locks = Locks::These(tables.routing().all_shards().iter().copied().collect());
        reports.push(build.run_batches(|store| store.write_with(&locks)));
    }
    let mut report =
        BuildReport { table: rows.schema.name, indexes: Vec::new(), rows: 0, steps: 0 };
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
        let position = rows.schema.indexes.iter().position(|declared| declared.name == index.name);
        if let Some(position) = position.filter(|_| index.state == IndexState::Readable) {
            table.became_readable(position);
        }
    }
    Ok(report)
}
