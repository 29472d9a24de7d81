//! Loading the shards of a table at the same time, each in a transaction of its own.

use std::{collections::BTreeMap, path::PathBuf};

use super::{
    LoadReport, LoadedShard,
    apply::apply,
    gather::{FailedRow, Gathered, Gatherer, Policy},
};
use crate::{
    model::{
        error::{Error, Result},
        maintain::Image,
        shard::ShardNumber,
    },
    placement::shards::{self, Author, Held},
    store::{OpenTable, Shards, Store, engine_of, shard_id},
    upkeep::parallel::{self, Sum},
    usage::{Progress, ProgressReporter},
    write::Scratch,
};

/// A table whose rows are in several shards.
pub(super) struct Split<'a> {
    table: &'a OpenTable,
    tables: &'a shards::Tables,
    engine: &'a Shards,
    /// Keeps the shards of the rows the same until they are loaded.
    _held: Held<'a>,
}

/// The rows of each shard.
pub(super) struct Gatherers<'a> {
    split: Split<'a>,
    by_shard: BTreeMap<ShardNumber, Gatherer>,
    directory: PathBuf,
    memory: usize,
    policy: Policy,
    read: u64,
}

impl<'a> Split<'a> {
    /// Returns the table if its shards can be loaded separately, or `None` if it is loaded in one transaction.
    pub(super) fn of(store: &'a Store, table: &'a OpenTable) -> Result<Option<Self>> {
        let Some(tables) = table.tables.several() else { return Ok(None) };
        let routing = tables.routing();
        // The entries of a global index may be in other shards than their rows.
        let is_split = !routing.is_reference() && routing.global_indexes().is_empty();
        if !is_split || routing.shards().len() < 2 {
            return Ok(None);
        }
        // The threads of the shards would wait for the transaction of this thread.
        store.inner.refuse_nested_write()?;
        let engine = engine_of(store)?;
        Ok(Some(Self { table, tables, engine, _held: engine.hold_moves() }))
    }

    pub(super) fn with(self, directory: PathBuf, memory: usize, policy: Policy) -> Gatherers<'a> {
        let memory = memory / self.tables.routing().shards().len().max(1);
        let (split, by_shard) = (self, BTreeMap::new());
        Gatherers { split, by_shard, directory, memory, policy, read: 0 }
    }
}

impl Gatherers<'_> {
    pub(super) fn add(&mut self, image: &Image, number: u64) -> Result<()> {
        let Self { split: Split { tables, table, engine, .. }, by_shard, .. } = self;
        let routing = tables.routing();
        if routing.moves() {
            engine.note_change(&routing, image.primary_key(), Author::Row)?;
        }
        let shard = routing.shard_of(image.primary_key());
        let shard = shard.ok_or_else(|| tables.no_shard(image.primary_key()))?;
        let gatherer = by_shard.entry(shard).or_insert_with(|| {
            Gatherer::new(table.schema, &self.directory, self.memory, self.policy)
        });
        self.read += 1;
        gatherer.add(image, number)
    }

    pub(super) fn load(
        self,
        store: &Store,
        reporter: &mut ProgressReporter<'_>,
        failed: &mut Option<FailedRow>,
    ) -> Result<LoadReport> {
        let Self { split, by_shard, read, .. } = self;
        let table = split.table;
        let name = |shard| Ok(engine_of(store)?.shard(shard)?.name().to_string());
        let names = by_shard.keys().map(|shard| name(*shard)).collect::<Result<Vec<_>>>()?;
        let shards: Vec<_> = by_shard.keys().copied().collect();
        let load = |(shard, gatherer): (ShardNumber, Gatherer), progress: &dyn Fn(Progress)| {
            load(store, table, shard, gatherer, progress)
        };
        let mut sum = Sum::default();
        let outcomes = parallel::each(by_shard.into_iter().collect(), load, |shard, at| {
            let (done, total) = sum.add(shard, at);
            reporter.set(at.unit, done, total);
        });
        let engine = engine_of(store)?;
        for shard in shards {
            engine.count(shard);
        }
        let mut report = LoadReport { read, ..LoadReport::default() };
        let (mut not_loaded, mut failure) = (Vec::new(), None);
        for (shard, (outcome, row)) in names.into_iter().zip(outcomes) {
            match outcome {
                Ok(LoadReport { written, skipped, replaced, .. }) => {
                    report.written += written;
                    report.skipped += skipped;
                    report.replaced += replaced;
                    report.shards.push(LoadedShard { shard, written, skipped, replaced });
                }
                Err(error) => {
                    not_loaded.push(shard);
                    if failure.is_none() {
                        (failure, *failed) = (Some(error), row);
                    }
                }
            }
        }
        let Some(source) = failure else { return Ok(report) };
        if report.shards.is_empty() {
            return Err(source);
        }
        let loaded = report.shards.into_iter().map(|loaded| loaded.shard).collect();
        let (table, source) = (table.schema.name, Box::new(source));
        Err(Error::ShardsNotLoaded { table, loaded, not_loaded, source })
    }
}

/// Loads one shard.
fn load(
    store: &Store,
    table: &OpenTable,
    shard: ShardNumber,
    rows: Gatherer,
    progress: &dyn Fn(Progress),
) -> (Result<LoadReport>, Option<FailedRow>) {
    match rows.finish() {
        Ok(gathered) => {
            let outcome = load_gathered(store, table, shard, &gathered, progress);
            (outcome, gathered.failed.get().copied())
        }
        Err(error) => (Err(error), None),
    }
}

fn load_gathered(
    store: &Store,
    table: &OpenTable,
    shard: ShardNumber,
    gathered: &Gathered,
    progress: &dyn Fn(Progress),
) -> Result<LoadReport> {
    let id = shard_id(store, shard)?;
    let mut reporter = ProgressReporter::new(Some(Box::new(progress)), "", None);
    store.run_transaction(
        |_| store.write_on(&id),
        |txn| {
            let (mut writer, Scratch { old, new, .. }, written) = txn.writer(table)?;
            let not_sharded = || Error::internal("a shard of a table without shards");
            let sharded = writer.several().ok_or_else(not_sharded)?;
            let mut report = LoadReport::default();
            sharded.part(shard, &mut |writer| {
                if let Some(plan) = &mut written.plan {
                    plan.turn_to_shard(table.schema, shard, writer.reader())?;
                }
                report = apply(&table.rows, writer, [old, new], gathered, written, &mut reporter)?;
                Ok(())
            })?;
            Ok(report)
        },
    )
}
