//! The steps that change shards, keys and consumers of the open store.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::Duration,
};

use index_table::{Error, Move, Result, Store};

use crate::{
    app::{App, Handle},
    consume, copies,
    failure::{Outcome, wrong},
    script::Step,
    tables::PLACED,
};

/// Performs a step, and returns a word for the parent.
pub(crate) fn perform(app: &Arc<App>, step: &Step) -> Outcome {
    match step.name() {
        "open" => app.open(step.has("online"), step.has("field")).map(drop),
        "close" => {
            app.close();
            Ok(())
        }
        "sleep" => {
            thread::sleep(Duration::from_millis(step.number(1)));
            Ok(())
        }
        "check" => crate::whole::check(app),
        "backup" => copies::backup(app),
        "lose" => copies::lose(app, step.word(1)),
        "restore-shard" => copies::restore_shard(app, step),
        "restore-archive" => copies::restore_archive(app, step.has("paused")),
        "rebuild" => copies::rebuild(app),
        "follow" => copies::follow(app, step.number(1)),
        "compare-follower" => copies::compare_follower(app),
        "promote" => copies::promote(app),
        "read-only" => crate::forked::read_only(app, step.number(1)),
        "fork" => crate::forked::fork(app, step),
        "releases" => crate::releases::releases(app, step),
        _ => change(app, step, &app.handle()?),
    }
}

fn change(app: &Arc<App>, step: &Step, handle: &Handle) -> Outcome {
    let (store, tables) = (&handle.store, &handle.tables);
    match (step.name(), handle.shards()) {
        ("build", _) => {
            let steps = tables.fillers.build(store).batch_bytes(1000);
            let built = steps.progress(|_| app.rest()).run()?;
            let steps = tables.samples.build(store).batch_bytes(200);
            let samples = steps.progress(|_| app.rest()).run()?;
            if built.is_readable() && samples.is_readable() {
                app.record_built(handle)
            } else {
                wrong("the built indexes are not readable")
            }
        }
        ("upgrade", _) => Ok(store.upgrade().map(drop)?),
        ("drain", _) => {
            let drained = [
                tables.people.drain(store, 1000),
                tables.ledger.drain(store, 1000),
                tables.orders.drain(store, 1000),
            ];
            drained.into_iter().try_for_each(|drained| match drained {
                // The messages of other rows would wait too, as long as the move is interrupted.
                Err(error @ Error::ShardReadOnly { .. }) => wrong(error.to_string()),
                drained => Ok(drained.map(drop)?),
            })
        }
        ("remove-old", _) => {
            tables.people.remove_old_changes(store, u64::MAX)?;
            Ok(tables.orders.remove_old_changes(store, u64::MAX).map(drop)?)
        }
        ("add-consumer", _) => {
            consume::listing(app, step.word(1), || consume::add(app, handle, step))
        }
        ("remove-consumer", _) => {
            let killing = consume::killing(step);
            consume::listing(app, step.word(1), || {
                consume::remove(app, handle, step.word(1), &killing)
            })
        }
        ("share", _) => {
            let _guards = (app.consumers(), app.pause());
            app.leases.share(app, handle, step.word(1))
        }
        ("leave", _) => {
            let _guards = (app.consumers(), app.pause());
            app.leases.leave(app)
        }
        ("add", _) => {
            let name = step.word(1);
            if app.config.shards == 0 {
                app.mark("grown")?;
            }
            Ok(store.add_shard(name, name).map(drop)?)
        }
        ("remove", Some(shards)) => {
            let _paused = crate::whole::prepared(app, handle, step)?;
            moved(app, || Ok(shards.remove_shard(step.word(1))?))
        }
        ("detach", Some(shards)) => {
            let _paused = crate::whole::prepared(app, handle, step)?;
            app.mark("detached")?;
            app.detaches.fetch_add(1, SeqCst);
            moved(app, || Ok(shards.detach_shard(step.word(1))?))
        }
        ("attach", Some(shards)) => {
            let _consumers = app.consumers();
            // Without consumers beside it, each change that they then receive is compared.
            let alone = step.has("alone").then(|| app.pause());
            let attached = attach(app, shards, step.word(1))?;
            let since = attached.as_deref().filter(|_| alone.is_some());
            let _paused = alone.unwrap_or_else(|| app.pause());
            consume::expect(app, handle, since)
        }
        ("move", Some(shards)) => moved(app, || run_move(app, handle, shards, step)),
        ("move-table", Some(shards)) => {
            moved(app, || run_one(app, shards.move_table(step.word(1), step.word(2)), step))
        }
        ("resume", Some(shards)) => moved(app, || {
            for it in shards.moves()? {
                shards.resume_move(it.id).progress(|_| app.rest()).run()?;
            }
            Ok(())
        }),
        ("cancel", Some(shards)) => {
            Ok(shards.moves()?.iter().try_for_each(|it| shards.cancel_move(it.id))?)
        }
        ("empty", Some(shards)) => moved(app, || empty(app, handle, shards, step)),
        (_, None) => Ok(()),
        (name, _) => wrong(format!("there is no step `{name}`")),
    }
}

/// Attaches a shard, or, without a name, the first detached shard that is not refused. Returns its name.
fn attach(app: &App, shards: &Store, name: &str) -> Outcome<Option<String>> {
    let (store, mut outcome) = (app.current().0, Ok(None));
    // A promoted store has other directories than its original. After a rebuild, those of detached shards are not known.
    for (shard, path) in shards.shard_directories() {
        let place = path.strip_prefix(&store).unwrap_or(&path);
        let is_chosen = matches!(name, "" | "alone") || name == shard;
        let is_detached = shards.shard_ids().iter().all(|it| it.name() != shard);
        let is_there = place.file_name().is_some() && path.join("data.mdb").exists();
        if is_chosen && is_detached && is_there {
            outcome = shards.attach_shard(&shard, place).map(|_| Some(shard));
            if !matches!(outcome, Err(Error::ShardRefused { .. })) {
                break;
            }
        }
    }
    Ok(outcome?)
}

/// Records that the shards have other keys than in the backup.
fn moved(app: &App, change: impl FnOnce() -> Outcome) -> Outcome {
    app.mark("moved")?;
    let outcome = change();
    app.mark("moved")?;
    outcome
}

/// Moves keys of a map: `move MAP SHARD FIRST LAST [offline] [interrupted]`.
fn run_move(app: &App, handle: &Handle, shards: &Store, step: &Step) -> Outcome {
    let (map, to, first, last) = (step.word(1), step.word(2), step.number(3), step.number(4));
    let detaches = app.detaches.load(SeqCst);
    let moving = if matches!(map, "tenants" | "tickets") {
        // A move of keys without a shard would give them to a shard without their rows, which are in a detached shard.
        let has_shard = |tenant: &u32| has_shard(handle, map, *tenant);
        let tenants = first as u32..=last as u32;
        let tenants: Vec<_> =
            tenants.skip_while(|it| !has_shard(it)).take_while(has_shard).collect();
        let (Some(first), Some(last)) = (tenants.first(), tenants.last()) else { return Ok(()) };
        shards.move_range(map, *first..=*last, to)
    } else {
        shards.move_slots(map, first as u16..=last as u16, to)
    };
    let moved = run_one(app, moving, step);
    assigned_since(app, detaches)?;
    moved
}

/// Runs a move as the words `offline` and `interrupted` say.
fn run_one(app: &App, moving: Move<'_>, step: &Step) -> Outcome {
    let moving = if step.has("offline") { moving.offline() } else { moving };
    let moved = if step.has("interrupted") {
        let moving = moving.progress(|_| resume_unwind(Box::new(())));
        catch_unwind(AssertUnwindSafe(|| moving.run())).ok().transpose()
    } else {
        moving.progress(|_| app.rest()).run().map(Some)
    };
    Ok(moved.map(drop)?)
}

/// Moves everything from a shard to the others, in the given maps and tables or in all: `empty SHARD [MAP]…`.
fn empty(app: &App, handle: &Handle, shards: &Store, step: &Step) -> Outcome {
    let (name, detaches) = (step.word(1), app.detaches.load(SeqCst));
    let onto: Vec<_> =
        shards.shard_ids().iter().map(|it| it.name().to_owned()).filter(|it| it != name).collect();
    let emptied: Outcome = shards.map_names().into_iter().try_for_each(|map| {
        // As for a move, each key must have a shard.
        let is_whole = (0..app.config.tenants).all(|tenant| has_shard(handle, &map, tenant));
        if is_whole && (step.words.len() == 2 || step.has(&map)) {
            shards.rebalance(&map).onto(onto.clone()).exact().plan()?.run()?;
        }
        Ok(())
    });
    assigned_since(app, detaches)?;
    emptied?;
    let chosen = PLACED.into_iter().filter(|table| step.words.len() == 2 || step.has(table));
    Ok(move_tables_out(handle, shards, name, chosen)?)
}

/// Moves the tables without a shard key that are in a shard to another shard.
pub(crate) fn move_tables_out(
    handle: &Handle,
    shards: &Store,
    shard: &str,
    tables: impl Iterator<Item = &'static str>,
) -> Result<()> {
    let all = shards.shard_ids();
    let (own, other) =
        (all.iter().find(|it| it.name() == shard), all.iter().find(|it| it.name() != shard));
    let (Some(own), Some(other)) = (own, other) else { return Ok(()) };
    for table in tables {
        if handle.tables.is_placed_in(table, &shards.read_on(own)?)? {
            shards.move_table(table, other.name()).run()?;
        }
    }
    Ok(())
}

/// Returns whether a shard has the key of the tenant in a range map.
fn has_shard(handle: &Handle, map: &str, tenant: u32) -> bool {
    let (tables, store) = (&handle.tables, &handle.store);
    match map {
        "tenants" => tables.progress.shard_of(store, tenant).is_ok(),
        "tickets" => tables.tickets.shard_of(store, tenant).is_ok(),
        _ => true,
    }
}

/// Records that a move beside the detaching of a shard may have given the keys of this shard to another shard.
fn assigned_since(app: &App, detaches: u64) -> Outcome {
    if app.detaches.load(SeqCst) != detaches {
        app.mark("restored")?;
        app.mark("assigned")?;
    }
    Ok(())
}
