//! Building the indexes of a table in all shards, at the same time.

use std::time::Instant;

use super::{Build, BuildReport, BuiltIndex};
use crate::{
    engine::shards,
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
    let run = |(store, table): (Store, std::sync::Arc<OpenTable>), progress: &dyn Fn(Progress)| {
        let progress: Box<dyn FnMut(Progress)> = Box::new(progress);
        Build { store: &store, table: &table, rows, options, limit, progress: Some(progress) }.run()
    };
    let (mut sum, started) = (Sum::default(), Instant::now());
    let reports = parallel::each(parts_of(store, tables, None)?, run, |shard, at| {
        let (done, total) = sum.add(shard, at);
        if let Some(progress) = &mut progress {
            progress(Progress::new(at.unit, done, Some(total), started));
        }
    });
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
