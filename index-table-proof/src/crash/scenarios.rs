//! What processes are killed in.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use heed::{CommitOrAbort, Database, EnvFlags, EnvOpenOptions, types::Bytes};
use index_table::{Durability, IndexTable, Result, RowVersion, Store};
use serde::{Deserialize, Serialize};

use super::{Failure, Known, Scenario, advance, open, say};
use crate::{
    random::Random,
    shop::{INDEXES, Model, Shop},
};

pub(super) const SCENARIOS: [Scenario; 7] = [
    Scenario { name: "writes", rounds: 50, child: write, before: nothing, after: prove },
    Scenario { name: "a growing map", rounds: 4, child: grow, before: nothing, after: prove },
    Scenario {
        name: "beside a process",
        rounds: 50,
        child: write,
        before: keep_open,
        after: prove,
    },
    Scenario { name: "copies", rounds: 25, child: copy, before: nothing, after: prove_copies },
    Scenario { name: "a repair", rounds: 20, child: repair, before: damage, after: prove_repaired },
    Scenario { name: "a build", rounds: 20, child: build, before: fill, after: prove_built },
    Scenario {
        name: "an upgrade",
        rounds: 1,
        child: upgrade,
        before: fill_older,
        after: prove_upgraded,
    },
];

fn write_with(options: &index_table::Options, path: &Path) -> Result<()> {
    let shop = Shop::new(options.open(path.join("store"))?)?;
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
    write_with(&Store::options(), path)
}

fn grow(path: &Path) -> Result<()> {
    write_with(&Store::options().map_size(1 << 16), path)
}

#[expect(clippy::unnecessary_wraps, reason = "others fail")]
fn nothing(_: &Path, _: &mut Known) -> Result<Option<Shop>, Failure> {
    Ok(None)
}

fn keep_open(path: &Path, _: &mut Known) -> Result<Option<Shop>, Failure> {
    open(path).map(Some)
}

fn prove(path: &Path, known: &mut Known) -> Result<(), Failure> {
    let shop = open(path)?;
    advance(&shop, known)?;
    shop.prove(&known.model)
}

/// Writes, and copies the store all the time.
fn copy(path: &Path) -> Result<()> {
    let store = Store::open(path.join("store"))?;
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

/// A copy that is there is whole, and of a state that was committed.
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
            let shop = Store::open(&copy).and_then(Shop::new).map_err(|error| error.to_string())?;
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
fn fill(path: &Path, known: &mut Known) -> Result<Option<Shop>, Failure> {
    if known.model.steps < FILLED {
        let shop = open(path)?;
        while known.model.steps < FILLED {
            shop.step(&mut known.model)?.map_err(|error| error.to_string())?;
        }
    }
    Ok(None)
}

/// Changes entries behind the store's back.
fn damage(path: &Path, known: &mut Known) -> Result<Option<Shop>, Failure> {
    fill(path, known)?;
    let mut random = Random(known.random);
    for index in INDEXES {
        let damaged = damage_index(&path.join("store"), &format!("items.{index}"), &mut random);
        damaged.map_err(|error| error.to_string())?;
    }
    Ok(None)
}

fn damage_index(path: &Path, name: &str, random: &mut Random) -> heed::Result<()> {
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: nothing else has the files open, and what is damaged need not survive the machine.
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
    let shop = Shop::new(Store::open(path.join("store"))?)?;
    say("open");
    shop.store.transaction(|txn| shop.items.repair(txn).run())?;
    say("done");
    thread::sleep(Duration::from_mins(1));
    Ok(())
}

/// The repair was done or it was not; when it is run again, all is well.
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

/// The items with two indexes more.
mod indexed {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "items")]
    #[index(group)]
    #[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
    #[index(name, group, strategy = "full", name = "whole")]
    #[index(each(tags), name = "tagged", include = [note])]
    pub(super) struct Item {
        #[primary_key]
        id: u32,
        group: u8,
        name: String,
        amount: i32,
        code: u64,
        tags: Vec<String>,
        note: Option<String>,
        url: String,
    }
}

/// Opens a table declared in two ways by turns, so that indexes are built each time.
fn build(path: &Path) -> Result<()> {
    let store = Store::open(path.join("store"))?;
    say("open");
    loop {
        drop(indexed::ItemRepository::open(&store)?);
        drop(crate::shop::ItemRepository::open(&store)?);
        say("done");
    }
}

/// Both declarations can be opened, and their indexes are what the rows say.
fn prove_built(path: &Path, known: &mut Known) -> Result<(), Failure> {
    let proven = || -> Result<_> {
        let store = Store::open(path.join("store"))?;
        store.check()?;
        let items = indexed::ItemRepository::open(&store)?;
        items.verify(&store.read()?).run()
    };
    let report = proven().map_err(|error| error.to_string())?;
    if !report.is_clean() {
        return Err(report.to_string());
    }
    open(path)?.prove(&known.model)
}

/// A table as it was in an earlier version.
mod older {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "entries")]
    #[index(town)]
    pub(super) struct Entry {
        #[primary_key]
        pub(super) id: u32,
        pub(super) town: String,
        pub(super) text: String,
    }
}

#[derive(Deserialize, RowVersion)]
#[allow(dead_code, reason = "fields that only rows have")]
struct EntryV1 {
    id: u32,
    town: String,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "entries", version = 2, previous = EntryV1)]
#[index(town, strategy = "full")]
#[index(len)]
struct Entry {
    #[primary_key]
    id: u32,
    town: String,
    len: u16,
    text: Option<String>,
}

impl From<EntryV1> for Entry {
    fn from(old: EntryV1) -> Self {
        let EntryV1 { id, town, text } = old;
        Self { id, town, len: text.len() as u16, text: Some(text).filter(|text| !text.is_empty()) }
    }
}

const OLDER: u32 = 1500;

fn older(id: u32) -> older::Entry {
    let (town, text) = (format!("town {}", id % 13), "x".repeat(id as usize % 90));
    older::Entry { id, town, text }
}

/// Makes a table of rows that are of an older version.
fn fill_older(path: &Path, _: &mut Known) -> Result<Option<Shop>, Failure> {
    let filled = || -> Result<()> {
        let store = Store::options().durability(Durability::None).open(path.join("store"))?;
        let entries = older::EntryRepository::open(&store)?;
        store.transaction(|txn| (0..OLDER).try_for_each(|id| entries.insert(txn, &older(id))))
    };
    filled().map(|()| None).map_err(|error| error.to_string())
}

fn upgrade(path: &Path) -> Result<()> {
    let store = Store::open(path.join("store"))?;
    let entries = EntryRepository::open(&store)?;
    say("open");
    entries.upgrade(&store).batch_bytes(4000).progress(|_| say("done")).run()?;
    thread::sleep(Duration::from_mins(1));
    Ok(())
}

/// Rows are what they were, each in one version or the other, and the upgrade can go on.
fn prove_upgraded(path: &Path, known: &mut Known) -> Result<(), Failure> {
    let mut proven = || -> Result<Option<String>> {
        let store = Store::open(path.join("store"))?;
        store.check()?;
        let entries = EntryRepository::open(&store)?;
        let look = || -> Result<Option<String>> {
            let txn = store.read()?;
            let report = entries.verify(&txn).run()?;
            let rows = entries.all(&txn).rows().collect::<Result<Vec<_>>>()?;
            let expected = (0..OLDER).map(|id| {
                let older::Entry { id, town, text } = older(id);
                Entry::from(EntryV1 { id, town, text })
            });
            let is_right = report.is_clean() && rows.into_iter().eq(expected);
            Ok((!is_right).then(|| report.to_string()))
        };
        if let Some(wrong) = look()? {
            return Ok(Some(wrong));
        }
        let upgraded = entries.upgrade(&store).run()?.upgraded;
        known.cut += u64::from(upgraded > 0 && upgraded < u64::from(OLDER));
        look()
    };
    proven().map_err(|error| error.to_string())?.map_or(Ok(()), Err)
}
