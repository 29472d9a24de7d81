//! The scenarios.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use heed::{CommitOrAbort, Database, EnvFlags, EnvOpenOptions, types::Bytes};
use index_table::Result;

use super::{
    Beside, Failure, Known, Scenario, advance, archive, changed,
    evolution::{
        build, build_online, fill_older, forget_indexes, load, prove_built, prove_built_online,
        prove_loaded, prove_upgraded, upgrade,
    },
    groups::{prove_queued, prove_submitted, queue, submit},
    large, open, over_time,
    replaced::{kill_writer, kill_writer_of_shards},
    say, shards, together,
};
use crate::{
    random::Random,
    shop::{INDEXES, Model, Shop},
};

/// The scenario of transactions of several shards.
pub(crate) const TOGETHER: &str = "shards together";

pub(crate) const SCENARIOS: [Scenario; 22] = [
    Scenario {
        name: "writes",
        rounds: 50,
        awaited: 2,
        is_beside: false,
        is_cut_off: false,
        needs_power: false,
        has_journal: false,
        child: write,
        before: nothing,
        after: prove,
    },
    Scenario {
        name: "a growing map",
        rounds: 4,
        awaited: 2,
        is_beside: false,
        is_cut_off: false,
        needs_power: false,
        has_journal: false,
        child: grow,
        before: nothing,
        after: prove,
    },
    Scenario {
        name: "beside a process",
        rounds: 50,
        awaited: 2,
        is_beside: true,
        is_cut_off: false,
        needs_power: false,
        has_journal: false,
        child: write,
        before: keep_open,
        after: prove,
    },
    Scenario {
        name: "copies",
        rounds: 25,
        awaited: 2,
        is_beside: false,
        is_cut_off: true,
        needs_power: false,
        has_journal: false,
        child: copy,
        before: nothing,
        after: prove_copies,
    },
    Scenario {
        name: "a repair",
        rounds: 20,
        awaited: 0,
        is_beside: false,
        is_cut_off: true,
        needs_power: false,
        has_journal: false,
        child: repair,
        before: damage,
        after: prove_repaired,
    },
    Scenario {
        name: "a build",
        rounds: 20,
        awaited: 2,
        is_beside: false,
        is_cut_off: false,
        needs_power: false,
        has_journal: false,
        child: build,
        before: fill,
        after: prove_built,
    },
    Scenario {
        name: "an online build",
        rounds: 20,
        awaited: 2,
        is_beside: false,
        is_cut_off: true,
        needs_power: false,
        has_journal: false,
        child: build_online,
        before: forget_indexes,
        after: prove_built_online,
    },
    Scenario {
        name: "a bulk load",
        rounds: 8,
        awaited: 2,
        is_beside: false,
        is_cut_off: false,
        needs_power: false,
        has_journal: false,
        child: load,
        before: nothing,
        after: prove_loaded,
    },
    Scenario {
        name: "an upgrade",
        rounds: 1,
        awaited: 2,
        is_beside: false,
        is_cut_off: true,
        needs_power: false,
        has_journal: false,
        child: upgrade,
        before: fill_older,
        after: prove_upgraded,
    },
    Scenario {
        name: "group commits",
        rounds: 50,
        awaited: 2,
        is_beside: false,
        is_cut_off: false,
        needs_power: false,
        has_journal: false,
        child: submit,
        before: nothing,
        after: prove_submitted,
    },
    Scenario {
        name: "an index worker",
        rounds: 50,
        awaited: 2,
        is_beside: false,
        is_cut_off: false,
        needs_power: false,
        has_journal: false,
        child: queue,
        before: nothing,
        after: prove_queued,
    },
    Scenario {
        name: "a replaced writer",
        rounds: 1,
        awaited: 0,
        is_beside: false,
        is_cut_off: false,
        needs_power: true,
        has_journal: false,
        child: write,
        before: kill_writer,
        after: prove,
    },
    Scenario {
        name: "a changed durability",
        rounds: 4,
        awaited: 2,
        is_beside: false,
        is_cut_off: false,
        needs_power: true,
        has_journal: false,
        child: changed::write,
        before: changed::keep_reader,
        after: prove,
    },
    Scenario {
        name: "shards",
        rounds: 50,
        awaited: 6,
        is_beside: false,
        is_cut_off: false,
        needs_power: false,
        has_journal: true,
        child: shards::write,
        before: nothing,
        after: shards::prove,
    },
    Scenario {
        name: TOGETHER,
        rounds: 50,
        awaited: 6,
        is_beside: false,
        is_cut_off: false,
        needs_power: false,
        has_journal: true,
        child: together::write,
        before: nothing,
        after: together::prove,
    },
    Scenario {
        name: "a replaced writer of shards",
        rounds: 1,
        awaited: 0,
        is_beside: false,
        is_cut_off: false,
        needs_power: true,
        has_journal: true,
        child: together::write,
        before: kill_writer_of_shards,
        after: together::prove,
    },
    Scenario {
        name: "an online build of shards",
        rounds: 20,
        awaited: 2,
        is_beside: false,
        is_cut_off: true,
        needs_power: false,
        has_journal: true,
        child: together::online::write,
        before: together::online::forget,
        after: together::online::prove,
    },
    Scenario {
        name: "the growth of a store",
        rounds: 4,
        awaited: 12,
        is_beside: false,
        is_cut_off: false,
        needs_power: false,
        has_journal: true,
        child: together::growth::write,
        before: nothing,
        after: together::growth::prove,
    },
    Scenario {
        name: "rows over time",
        rounds: 50,
        awaited: 4,
        is_beside: false,
        is_cut_off: false,
        needs_power: false,
        has_journal: false,
        child: over_time::write,
        before: nothing,
        after: over_time::prove,
    },
    Scenario {
        name: "an archive",
        rounds: 10,
        awaited: 6,
        is_beside: false,
        is_cut_off: false,
        needs_power: false,
        has_journal: false,
        child: archive::write,
        before: nothing,
        after: archive::prove,
    },
    Scenario {
        name: "an archive of shards",
        rounds: 10,
        awaited: 6,
        is_beside: false,
        is_cut_off: false,
        needs_power: false,
        has_journal: true,
        child: archive::write_shards,
        before: nothing,
        after: archive::prove_shards,
    },
    Scenario {
        name: "large transactions",
        rounds: 20,
        awaited: 4,
        is_beside: false,
        is_cut_off: false,
        needs_power: false,
        has_journal: true,
        child: large::write,
        before: nothing,
        after: large::prove,
    },
];

fn write_with(options: &index_table::Options, path: &Path) -> Result<()> {
    let shop = Shop::new(options.open(path.join("store"))?)?;
    step(&shop)
}

/// Does one step after another.
pub(super) fn step(shop: &Shop) -> Result<()> {
    say("open");
    let mut model = Model::default();
    model.advance(shop.steps()?);
    loop {
        match shop.step(&mut model) {
            Ok(Ok(())) => say("done"),
            Ok(Err(error)) => return Err(error),
            Err(wrong) => say(&format!("error: {wrong}")),
        }
    }
}

fn write(path: &Path) -> Result<()> {
    write_with(&crate::options(), path)
}

fn grow(path: &Path) -> Result<()> {
    write_with(&crate::options().map_size(1 << 16), path)
}

#[expect(clippy::unnecessary_wraps, reason = "others fail")]
fn nothing(_: &Path, _: &mut Known) -> Result<Option<Beside>, Failure> {
    Ok(None)
}

fn keep_open(path: &Path, _: &mut Known) -> Result<Option<Beside>, Failure> {
    open(path).map(|shop| Some(Beside::Shop(shop)))
}

pub(super) fn prove(path: &Path, known: &mut Known) -> Result<(), Failure> {
    let shop = open(path)?;
    advance(&shop, known)?;
    shop.prove(&known.model)
}

/// Writes, and copies the store continuously.
fn copy(path: &Path) -> Result<()> {
    let store = crate::options().open(path.join("store"))?;
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0.. {
                let to = path.join(format!("copy-{}-{number}", std::process::id()));
                let copied =
                    if number % 2 == 0 { store.compact_to(&to) } else { store.backup_to(&to) };
                if let Err(error) = copied {
                    say(&format!("error: {error}"));
                }
            }
        });
        write(path)
    })
}

/// Checks that an existing copy is complete and has a committed state.
fn prove_copies(path: &Path, known: &mut Known) -> Result<(), Failure> {
    prove(path, known)?;
    let copies = fs::read_dir(path).map_err(|error| error.to_string())?;
    let mut copies: Vec<PathBuf> =
        copies.map_while(|entry| entry.ok().map(|it| it.path())).collect();
    copies.retain(|copy| !copy.ends_with("store"));
    for copy in copies {
        if copy.extension().is_some_and(|extension| extension == "partial") {
            known.cut += 1;
        } else {
            let shop = crate::options()
                .create(false)
                .open(&copy)
                .and_then(Shop::new)
                .map_err(|error| error.to_string())?;
            let steps = shop.steps().map_err(|error| error.to_string())?;
            if steps > known.model.steps {
                return Err(format!("a copy has {steps} transactions"));
            }
            let mut model = Model::default();
            model.advance(steps);
            shop.prove(&model)?;
        }
        fs::remove_dir_all(&copy).map_err(|error| error.to_string())?;
    }
    Ok(())
}

const FILLED: u64 = 60;

/// Makes a table to work on.
pub(super) fn fill(path: &Path, known: &mut Known) -> Result<Option<Beside>, Failure> {
    if known.model.steps < FILLED {
        let shop = open(path)?;
        while known.model.steps < FILLED {
            shop.step(&mut known.model)?.map_err(|error| error.to_string())?;
        }
    }
    Ok(None)
}

/// Changes entries without the store.
fn damage(path: &Path, known: &mut Known) -> Result<Option<Beside>, Failure> {
    fill(path, known)?;
    // With a journal, an image of the disk has to be recovered before LMDB can open it.
    drop(open(path)?);
    let mut random = Random(known.random);
    for index in INDEXES {
        let damaged = damage_index(&path.join("store"), &format!("items.{index}"), &mut random);
        damaged.map_err(|error| error.to_string())?;
    }
    Ok(None)
}

fn damage_index(path: &Path, name: &str, random: &mut Random) -> heed::Result<()> {
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: no other process has the files open, and the damage need not survive a crash of the machine.
    let env = unsafe { EnvOpenOptions::new().max_dbs(20).flags(EnvFlags::NO_SYNC).open(path)? };
    let txn = env.write_txn()?;
    let done = env.create_databases_and_commit(txn, |opener, txn| {
        let Some(database): Option<Database<'_, Bytes, Bytes>> =
            opener.open_database(txn, Some(name))?
        else {
            return Ok(CommitOrAbort::<(), ()>::Abort(()));
        };
        let entries = database
            .iter(txn)?
            .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())));
        let entries = entries.collect::<heed::Result<Vec<_>>>()?;
        for (mut key, mut value) in entries {
            match random.below(6) {
                0 => _ = database.delete(txn, &key)?,
                1 => {
                    value.push(7);
                    database.put(txn, &key, &value)?;
                }
                2 => {
                    key.push(random.below(256) as u8);
                    database.put(txn, &key, &value)?;
                }
                _ => {}
            }
        }
        Ok::<_, heed::Error>(CommitOrAbort::Commit(()))
    });
    done.map(drop)
}

fn repair(path: &Path) -> Result<()> {
    let shop = Shop::new(crate::options().open(path.join("store"))?)?;
    say("open");
    shop.store.transaction(|txn| shop.items.repair(txn).run())?;
    say("done");
    thread::sleep(Duration::from_mins(1));
    Ok(())
}

/// Checks that the repair was done completely or not at all, and that another run repairs everything.
fn prove_repaired(path: &Path, known: &mut Known) -> Result<(), Failure> {
    let shop = open(path)?;
    let repaired = shop.store.transaction(|txn| shop.items.repair(txn).run());
    let repaired = repaired.map_err(|error| error.to_string())?;
    known.cut += u64::from(!repaired.is_clean());
    if repaired.left > 0 || known.said > 0 && !repaired.is_clean() {
        return Err(repaired.to_string());
    }
    shop.prove(&known.model)
}
