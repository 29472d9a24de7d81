//! Processes that are killed during a change of a table.

use std::{path::Path, thread, time::Duration};

use index_table::{IndexState, IndexTable, OnDuplicate, Result, RowVersion};
use serde::{Deserialize, Serialize};

use super::{
    Beside, Failure, Known, open, say,
    scenarios::{fill, prove, step},
};
use crate::shop::Shop;

/// Opens a table with two declarations in turn, so that indexes are built each time.
pub(super) fn build(path: &Path) -> Result<()> {
    let store = crate::options().open(path.join("store"))?;
    say("open");
    loop {
        drop(crate::shop::indexed::ItemRepository::open(&store)?);
        drop(crate::shop::ItemRepository::open(&store)?);
        say("done");
    }
}

/// Checks that both declarations can be opened, and that their indexes match the rows.
pub(super) fn prove_built(path: &Path, known: &mut Known) -> Result<(), Failure> {
    let proven = || -> Result<_> {
        let store = crate::options().open(path.join("store"))?;
        store.check()?;
        let items = crate::shop::indexed::ItemRepository::open(&store)?;
        items.verify(&store.read()?).run()
    };
    let report = proven().map_err(|error| error.to_string())?;
    if !report.is_clean() {
        return Err(report.to_string());
    }
    open(path)?.prove(&known.model)
}

/// The items with their unique indexes alone. A unique index under construction does not reject duplicates, so the
/// unique indexes are not built while others write.
mod forgotten {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "items")]
    #[allow(clippy::duplicated_attributes, reason = "two indexes may both be unique")]
    #[index(code, unique)]
    #[index(hash(url), unique, name = "once")]
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

/// Opens the table with another declaration, so that the next opening builds the other indexes.
pub(super) fn forget_indexes(path: &Path, known: &mut Known) -> Result<Option<Beside>, Failure> {
    if known.model.steps == 0 {
        fill(path, known)?;
        known.filled = known.model.steps;
    }
    let opened = crate::options()
        .open(path.join("store"))
        .and_then(|store| forgotten::ItemRepository::open(&store).map(drop));
    opened.map(|()| None).map_err(|error| error.to_string())
}

/// Writes, and builds indexes at the same time.
pub(super) fn build_online(path: &Path) -> Result<()> {
    let shop = Shop::online(crate::options().open(path.join("store"))?)?;
    thread::scope(|scope| {
        scope.spawn(|| {
            if let Err(error) = shop.items.build(&shop.store).batch_bytes(4000).run() {
                say(&format!("error: {error}"));
            }
        });
        step(&shop)
    })
}

/// Checks the store as after writes, and counts incomplete builds.
pub(super) fn prove_built_online(path: &Path, known: &mut Known) -> Result<(), Failure> {
    let catalog = crate::options().open(path.join("store")).and_then(|store| store.catalog());
    let catalog = catalog.map_err(|error| error.to_string())?;
    let mut indexes = catalog.tables.iter().flat_map(|table| &table.indexes);
    let is_building = |state: &IndexState| matches!(state, IndexState::Building { rows: 1.., .. });
    known.cut += u64::from(indexes.any(|index| is_building(&index.state)));
    prove(path, known)
}

/// A row of a bulk load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(load)]
#[index(code, unique)]
struct Loaded {
    #[primary_key]
    id: u32,
    load: u32,
    code: u32,
}

const LOADED: u32 = 400;

/// Loads unordered rows, which replace half of the rows of the previous load.
pub(super) fn load(path: &Path) -> Result<()> {
    let store = crate::options().open(path.join("store"))?;
    let rows = LoadedRepository::open(&store)?;
    say("open");
    let first = (rows.all(&store.read()?).count()? as u32 * 2 / LOADED).saturating_sub(1);
    for load in first.. {
        let new = (0..LOADED).map(|n| {
            let id = load * (LOADED / 2) + n * 79 % LOADED;
            Loaded { id, load, code: !id }
        });
        rows.bulk_load(&store, new).on_duplicate(OnDuplicate::Replace).run()?;
        say("done");
    }
    Ok(())
}

/// Checks that each load is complete or has changed nothing.
pub(super) fn prove_loaded(path: &Path, known: &mut Known) -> Result<(), Failure> {
    let looked = || -> Result<_> {
        let store = crate::options().open(path.join("store"))?;
        store.check()?;
        let rows = LoadedRepository::open(&store)?;
        let txn = store.read()?;
        let report = rows.verify(&txn).run()?;
        let loads = (rows.all(&txn).count()? as u32 * 2 / LOADED).saturating_sub(1);
        let expected = (0..loads * (LOADED / 2) + LOADED / 2).map(|id| {
            let load = (id / (LOADED / 2)).min(loads - 1);
            Loaded { id, load, code: !id }
        });
        let is_right = loads == 0 || rows.all(&txn).rows().map_while(Result::ok).eq(expected);
        Ok((is_right && report.is_clean(), u64::from(loads)))
    };
    let (is_right, loads) = looked().map_err(|error| error.to_string())?;
    if !is_right {
        return Err(format!("{loads} loads, and other rows or entries than expected"));
    }
    known.find(loads, 1)
}

/// A table of an earlier version.
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

/// Creates a table with rows of an older version.
pub(super) fn fill_older(path: &Path, _: &mut Known) -> Result<Option<Beside>, Failure> {
    let filled = || -> Result<()> {
        let store = crate::options().open(path.join("store"))?;
        let entries = older::EntryRepository::open(&store)?;
        store.transaction(|txn| (0..OLDER).try_for_each(|id| entries.insert(txn, &older(id))))
    };
    filled().map(|()| None).map_err(|error| error.to_string())
}

pub(super) fn upgrade(path: &Path) -> Result<()> {
    let store = crate::options().open(path.join("store"))?;
    let entries = EntryRepository::open(&store)?;
    say("open");
    entries.upgrade(&store).batch_bytes(4000).progress(|_| say("done")).run()?;
    thread::sleep(Duration::from_mins(1));
    Ok(())
}

/// Checks that each row has its values in one of the versions, and that the upgrade can continue.
pub(super) fn prove_upgraded(path: &Path, known: &mut Known) -> Result<(), Failure> {
    let mut proven = || -> Result<Option<String>> {
        let store = crate::options().open(path.join("store"))?;
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
