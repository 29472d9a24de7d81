//! The complete check of the open store, while its writers are paused.

use std::{
    collections::BTreeMap,
    sync::{Arc, RwLockWriteGuard},
    thread,
    time::{Duration, Instant},
};

use index_table::{Error, Result, Store};

use crate::{
    app::{App, Handle},
    check::if_present,
    consume::{Consumers, is_compared},
    failure::{Failure, Outcome, same, wrong},
    model::States,
    perform::move_tables_out,
    script::Step,
    tables::{Consumer, PLACED, Progress},
};

/// The time that a prepared step waits for a move beside it.
const MOVING: Duration = Duration::from_secs(2);

/// Checks the open store while its writers wait.
pub(crate) fn check(app: &Arc<App>) -> Outcome {
    let handle = app.handle()?;
    let _paused = app.pause();
    let progress = paused(app, &handle)?;
    let mut states = States::new(app.config.seed);
    for tenant in progress.keys() {
        match app.write_one(&handle, &mut states, *tenant) {
            // A restored shard has a journal of its own until the store is opened again.
            Err(Failure::Store(Error::ReopenNeeded { .. })) if app.has("restored") => {}
            Err(Failure::Store(Error::ReopenNeeded { path, .. })) => {
                return wrong(format!("the store can't be written: {}", path.display()));
            }
            Err(failure) if app.is_expected(&failure, false) => {}
            outcome => outcome?,
        }
    }
    Ok(())
}

/// Returns, if a step is `prepared`, a guard that stops the writers. Then little keeps the shard from leaving: moves have
/// ended, the shard has no rows with hashed keys and of tables without a shard key, all messages of eventual indexes are
/// applied, and all consumers have received all changes.
pub(crate) fn prepared<'a>(
    app: &'a App,
    handle: &Handle,
    step: &Step,
) -> Outcome<Option<RwLockWriteGuard<'a, ()>>> {
    if !step.has("prepared") {
        return Ok(None);
    }
    let paused = app.pause();
    if let Some(shards) = handle.shards().filter(|_| is_available(handle)) {
        let begun = Instant::now();
        // A move may run beside this step.
        while let Err(error) = end_moves(handle, shards, step.word(1)) {
            if !matches!(error, Error::ShardRefused { .. }) || begun.elapsed() > MOVING {
                return Err(error.into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        drain(app, handle)?;
        consumers(app, handle, &mut States::new(app.config.seed))?;
    }
    Ok(Some(paused))
}

/// Ends all moves, and moves the rows with hashed keys, and of tables without a shard key, out of a shard.
fn end_moves(handle: &Handle, shards: &Store, shard: &str) -> Result<()> {
    for it in shards.moves()? {
        shards.resume_move(it.id).run()?;
    }
    let others = shards.shard_ids().into_iter().map(|it| it.name().to_owned());
    let others: Vec<_> = others.filter(|it| it != shard).collect();
    shards.rebalance("events").onto(others).exact().plan()?.run()?;
    move_tables_out(handle, shards, shard, PLACED.into_iter())
}

fn is_available(handle: &Handle) -> bool {
    handle.shards().is_none_or(|it| it.unavailable_shards().is_empty())
}

/// Checks the store, and prints the progress of each tenant. The writers are paused.
pub(crate) fn paused(app: &App, handle: &Handle) -> Outcome<BTreeMap<u32, Progress>> {
    let is_available = is_available(handle);
    let mut states = States::new(app.config.seed);
    if is_available {
        drain(app, handle)?;
        consumers(app, handle, &mut states)?;
    }
    let txn = handle.store.read()?;
    let progress = app.check(&handle.tables, &txn).all(&mut states)?;
    compare_acknowledged(app, &progress)?;
    // The check of the rows accepts an index that is being built.
    if is_available && app.is_sound() && !handle.is_online {
        handle.tables.fillers.by_code(&txn).count().map_err(|error| wrong_index(&error))?;
    }
    drop(txn);
    references(handle)?;
    if is_available && app.is_sound() {
        let report = handle.store.verify()?;
        if !report.is_clean() {
            return wrong(format!("verify: {report}"));
        }
    }
    for row in progress.values() {
        app.acknowledge(row.tenant, row.n);
    }
    Ok(progress)
}

/// The copies of a reference table are equal in all available shards.
fn references(handle: &Handle) -> Outcome {
    let Some(shards) = handle.shards() else { return Ok(()) };
    let (mut first, tables) = (None, &handle.tables);
    for shard in shards.shard_ids() {
        let txn = match shards.read_on(&shard) {
            Err(Error::ShardUnavailable { .. }) => continue,
            txn => txn?,
        };
        let kinds = tables.kinds.all(&txn).rows().collect::<Result<Vec<_>>>()?;
        let consumers = tables.consumers.all(&txn).rows().collect::<Result<Vec<_>>>()?;
        let own = (kinds, consumers);
        match &first {
            None => first = Some(own),
            Some(first) => same(|| format!("the reference tables in shard {shard}"), &own, first)?,
        }
    }
    Ok(())
}

fn wrong_index(error: &Error) -> Failure {
    Failure::Wrong(format!("an index that the opening has built: {error}"))
}

/// No acknowledged operation is lost, and only tenants of a detached or lost shard are missing.
fn compare_acknowledged(app: &App, progress: &BTreeMap<u32, Progress>) -> Outcome {
    for (tenant, n) in app.acknowledged() {
        match progress.get(&tenant) {
            Some(row) if row.n < n => {
                return wrong(format!(
                    "tenant {tenant} has {} operations, and {n} were acknowledged",
                    row.n
                ));
            }
            None if !app.has("detached") => {
                return wrong(format!("tenant {tenant} is missing, and no shard was detached"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Applies all messages of eventual indexes.
fn drain(app: &App, handle: &Handle) -> Outcome {
    let (tables, store, begun) = (&handle.tables, &handle.store, Instant::now());
    while begun.elapsed() < Duration::from_secs(20) {
        tables.people.drain(store, u64::MAX)?;
        tables.orders.drain(store, u64::MAX)?;
        tables.ledger.drain(store, u64::MAX)?;
        let txn = store.read()?;
        let lags = [tables.people.lag(&txn)?, tables.orders.lag(&txn)?, tables.ledger.lag(&txn)?];
        if lags.iter().all(|lag| lag.messages == 0) {
            return Ok(());
        }
    }
    let txn = store.read()?;
    let lags = (tables.people.lag(&txn)?, tables.orders.lag(&txn)?, tables.ledger.lag(&txn)?);
    let moves = handle.shards().map(|it| it.moves().map(|it| it.len())).transpose()?;
    if moves.is_some_and(|it| it > 0) || app.has("detached") {
        Ok(())
    } else {
        wrong(format!("the queues stay: {lags:?}"))
    }
}

/// All consumers receive all changes.
fn consumers(app: &App, handle: &Handle, states: &mut States) -> Outcome {
    let (tables, store, begun) = (&handle.tables, &handle.store, Instant::now());
    let mut all = Consumers::new(&app.config);
    let mut late = None;
    while begun.elapsed() < Duration::from_secs(20) {
        if all.take(app, handle, &mut |_| true)? > 0 {
            continue;
        }
        late = first_late(app, handle, states)?;
        if late.is_none() {
            break;
        }
        // The lease of a killed worker ends after a while.
        thread::sleep(Duration::from_millis(50));
    }
    all.leave()?;
    if let Some(late) = late {
        return wrong(late);
    }
    let txn = store.read()?;
    let known = tables.consumers.all(&txn).rows().collect::<Result<Vec<_>>>()?;
    let is_unsettled = |name: &String| known.iter().any(|it| it.name == *name && !it.is_settled);
    let mut expected: Vec<_> = known.iter().map(|it| it.name.clone()).collect();
    expected.sort();
    for listed in [tables.people.change_consumers(&txn)?, tables.orders.change_consumers(&txn)?] {
        let is_listed = |name: &String| !is_unsettled(name) && !app.has(&format!("listing.{name}"));
        let mut names: Vec<_> = listed.into_iter().map(|it| it.name).filter(is_listed).collect();
        names.sort();
        let expected = expected.iter().filter(|it| is_listed(it)).cloned().collect();
        same(|| "the consumers".to_owned(), &names, &expected)?;
    }
    Ok(())
}

/// Returns a consumer that has not received a change.
fn first_late(app: &App, handle: &Handle, states: &mut States) -> Outcome<Option<String>> {
    let (tables, txn) = (&handle.tables, handle.store.read()?);
    for tenant in (0..app.config.tenants).filter(|_| app.is_whole()) {
        let progress = if_present(tables.progress.get(&txn, tenant))?.flatten();
        let booked = tables.bookings.get(&txn, tenant)?.map_or(0, |it| it.value);
        if let Some(row) = progress.filter(|row| booked < row.ledger) {
            let all = row.ledger;
            return Ok(Some(format!(
                "the consumer of the ledger has received {booked} of {all} entries of tenant {tenant}"
            )));
        }
    }
    for row in tables.received.all(&txn).rows() {
        let row = row?;
        let consumer = tables.consumers.get(&txn, &row.consumer)?;
        let is_lost = app.leases.is_lost(app, &row.consumer);
        let is_own = |it: Consumer| it.is_settled && row.is_settled && it.created == row.created;
        if is_lost || !consumer.is_some_and(is_own) {
            continue;
        }
        let Some(Some(progress)) = if_present(tables.progress.get(&txn, row.tenant))? else {
            continue;
        };
        if !is_compared(app, &progress, &row) {
            continue;
        }
        let state = states.get(row.tenant, progress.n);
        let streams = [
            ("people", row.people, state.people_changes.len() as u64),
            ("orders", row.orders, state.order_changes.len() as u64),
        ];
        for (stream, count, all) in streams {
            if count > all {
                return wrong(format!("consumer {} received changes twice", row.consumer));
            }
            if count < all {
                return Ok(Some(format!(
                    "consumer {} has received {count} of {all} changes in {stream}, tenant {}, from change {} on; \
                     people were written in {:?}",
                    row.consumer, row.tenant, row.first_people, progress.homes
                )));
            }
        }
    }
    Ok(None)
}
