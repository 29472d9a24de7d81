//! Verification and repair: for all shards, and for one.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use heed::{CommitOrAbort, Database, EnvOpenOptions, types::Bytes};
use index_table::{Error, FindingKind, IndexTable, Options, Result, ShardMap, Store, VerifyReport};
use serde::{Deserialize, Serialize};

use crate::reference::{Town, TownRepository};

#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "people", shard_by = tenant)]
#[index(tenant, computed(sort_name: String))]
#[index(tenant, name, unique, name = "named")]
struct Person {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
    name: String,
}

/// Whether the method returns other values than when the rows were written.
static CHANGED: AtomicBool = AtomicBool::new(false);

impl Person {
    fn sort_name(&self) -> String {
        if CHANGED.load(Relaxed) && self.tenant >= 1000 {
            self.name.to_lowercase()
        } else {
            self.name.clone()
        }
    }
}

fn person(tenant: u32, id: u64) -> Person {
    Person { tenant, id, name: format!("Person {id}") }
}

fn options() -> Options {
    let map = ShardMap::ranges().to("a", ..100u32).to("b", 100u32..200).to("c", 200u32..);
    ["a", "b", "c"]
        .into_iter()
        .fold(Store::options(), |options, name| options.shard(name, name))
        .map("people", map)
}

/// Inserts three people in each shard, and two towns.
fn fill(store: &Store) -> Result<()> {
    let (people, towns) = (PersonRepository::open(store)?, TownRepository::open(store)?);
    store.transaction(|txn| {
        for tenant in [1, 100, 200] {
            (0..3).try_for_each(|id| people.insert(txn, &person(tenant, id)))?;
        }
        towns.insert(txn, &Town { code: 1, name: "Oslo".to_owned() })?;
        towns.insert(txn, &Town { code: 2, name: "Rome".to_owned() })
    })
}

/// Changes a shard as a plain store, so that the sharded store does not know it, and does not check the rows.
pub(crate) fn alone(path: &Path, change: impl Fn(&Store) -> Result<()>) -> Result<()> {
    let aside = path.with_extension("aside");
    Store::restore(path, &aside)?;
    Store::open(&aside).and_then(|store| change(&store))?;
    forget_that_it_was_alone(&aside).expect("a record");
    fs::remove_dir_all(path).expect("the directory");
    fs::rename(&aside, path).expect("the directory");
    Ok(())
}

/// Removes the record of a copy that it belongs to no store.
fn forget_that_it_was_alone(path: &Path) -> heed::Result<()> {
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: no other program has this directory open, and this process opens it here only.
    let env = unsafe { EnvOpenOptions::new().max_dbs(8).map_size(1 << 24).open(path)? };
    let txn = env.write_txn()?;
    env.create_databases_and_commit(txn, |opener, txn| {
        let records: Option<Database<'_, Bytes, Bytes>> =
            opener.open_database(txn, Some(".shard"))?;
        assert!(records.expect("a shard").delete(txn, b"alone")?);
        Ok::<_, heed::Error>(CommitOrAbort::<(), ()>::Commit(()))
    })?;
    Ok(())
}

/// Returns the kinds, shards and primary keys of all findings.
fn found(report: &VerifyReport) -> Vec<(FindingKind, &str, &str)> {
    let found = report.findings.iter().map(|it| {
        (it.kind, it.shard.as_deref().unwrap_or(""), it.primary_key.as_deref().unwrap_or(""))
    });
    found.collect()
}

#[test]
fn each_shard_is_verified() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    for store in [options().in_memory()?, options().open(dir.path())?] {
        fill(&store)?;
        let (people, towns) = (PersonRepository::open(&store)?, TownRepository::open(&store)?);
        let report = store.verify()?;
        assert!(report.is_clean(), "{report}");
        let rows: Vec<_> = report.tables.iter().map(|it| (it.table, it.rows, it.entries)).collect();
        assert_eq!(rows, [("people", 9, 18), ("towns", 6, 6)]);
        let shard = store.shard("b")?;
        let report = store.verify_on(&shard)?;
        let rows: Vec<_> = report.tables.iter().map(|it| (it.rows, it.entries)).collect();
        assert_eq!(rows, [(3, 6), (2, 2)]);
        assert!(people.verify(&store.read_on(&shard)?).run()?.is_clean());
        let sizes: Vec<_> =
            store.sizes()?.iter().map(|it| (it.rows, it.indexes[0].entries)).collect();
        assert_eq!(sizes, [(9, 9), (2, 2)]);
        let sizes = store.sizes_on(&shard)?;
        assert_eq!(sizes.iter().map(|it| it.rows).collect::<Vec<_>>(), [3, 2]);
        if store.unavailable_shards().is_empty() && sizes[0].bytes > 0 {
            assert!(store.sizes()?[0].bytes >= 3 * sizes[0].bytes);
        }
        let (mut steps, mut rows, mut next) = (0, 0, None);
        loop {
            let txn = store.read()?;
            let verify = people.verify(&txn).limit(2);
            let report = match &next {
                Some(next) => verify.after(next).run()?,
                None => verify.run()?,
            };
            assert!(report.is_clean(), "{report}");
            (rows, steps) = (rows + report.rows, steps + 1);
            next = report.next;
            if next.is_none() {
                break;
            }
        }
        assert_eq!(rows, 9);
        assert!(steps > 10);
        let txn = store.read()?;
        let cursor = towns.verify(&txn).limit(1).run()?.next.expect("a position");
        let refused = people.verify(&txn).after(&cursor).run();
        assert!(matches!(refused, Err(Error::InvalidCursor { .. })));
        let mut last = None;
        people.verify(&txn).progress(|at| last = Some((at.done, at.total))).run()?;
        let (done, total) = last.expect("progress");
        assert_eq!(Some(done), total);
    }
    Ok(())
}

#[test]
fn a_row_in_a_wrong_shard_is_found() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    fill(&options().open(dir.path())?)?;
    alone(&dir.path().join("b"), |store| {
        let people = PersonRepository::open(store)?;
        store.transaction(|txn| people.insert(txn, &person(7, 7)))
    })?;
    let store = Store::open(dir.path())?;
    let people = PersonRepository::open(&store)?;
    assert_eq!(people.get(&store.read()?, 7, 7)?, None);
    let report = people.verify(&store.read()?).run()?;
    assert_eq!(found(&report), [(FindingKind::WrongShard, "b", "(7, 7)")]);
    let report = store.transaction(|txn| people.repair(txn).run())?;
    assert_eq!((report.count(FindingKind::WrongShard), report.left), (0, 0));
    Ok(())
}

#[test]
fn indexes_are_repaired_in_each_shard_or_in_one() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = options().open(dir.path())?;
    let people = PersonRepository::open(&store)?;
    CHANGED.store(false, Relaxed);
    store.transaction(|txn| {
        people.insert(txn, &person(1, 1))?;
        people.insert(txn, &person(1000, 1))?;
        people.insert(txn, &person(1000, 2))
    })?;
    CHANGED.store(true, Relaxed);
    let report = people.verify(&store.read()?).run()?;
    assert_eq!((report.count(FindingKind::Stale), report.count(FindingKind::Missing)), (2, 2));
    assert!(
        report.findings.iter().all(|finding| finding.shard.as_deref() == Some("c")),
        "{report}"
    );
    for name in ["a", "b"] {
        let shard = store.shard(name)?;
        let report = store.transaction_on(&shard, |txn| people.repair(txn).run())?;
        assert!(report.is_clean());
    }
    let shard = store.shard("c")?;
    let report = store.transaction_on(&shard, |txn| people.repair(txn).run())?;
    assert_eq!((report.left, report.counts.values().sum::<u64>()), (0, 4));
    assert!(store.verify()?.is_clean());

    CHANGED.store(false, Relaxed);
    assert!(!store.verify()?.is_clean());
    let report = store.transaction(|txn| people.repair(txn).run())?;
    assert_eq!((report.left, report.counts.values().sum::<u64>()), (0, 4));
    assert!(store.verify()?.is_clean());
    Ok(())
}

#[test]
fn copies_that_differ_are_found_and_replaced() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    fill(&options().open(dir.path())?)?;
    alone(&dir.path().join("b"), |store| {
        let towns = TownRepository::open(store)?;
        store.transaction(|txn| {
            towns.delete(txn, 1)?;
            towns.update(txn, 2, |town| town.name = "Kyiv".to_owned())?;
            towns.insert(txn, &Town { code: 3, name: "Bonn".to_owned() })
        })
    })?;
    let store = Store::open(dir.path())?;
    let towns = TownRepository::open(&store)?;
    let report = towns.verify(&store.read()?).run()?;
    let different = |key| (FindingKind::DifferentCopy, "b", key);
    assert_eq!(found(&report), [different("1"), different("2"), different("3")]);
    // A repair can't determine which copy is right, so it changes no copy.
    let report = store.transaction(|txn| towns.repair(txn).run())?;
    assert!(report.is_clean(), "{report}");
    assert_eq!(towns.verify(&store.read()?).run()?.left, 3);

    let from = store.shard("b")?;
    let report = store.transaction(|txn| towns.repair(txn).copies_from(&from).run())?;
    assert_eq!((report.count(FindingKind::DifferentCopy), report.left), (6, 0));
    assert!(store.verify()?.is_clean());
    for shard in store.shard_ids() {
        let txn = store.read_on(&shard)?;
        assert_eq!(towns.all(&txn).keys().collect::<Result<Vec<_>>>()?, [2, 3]);
        assert_eq!(towns.find_by_name(&txn, "Bonn").keys().collect::<Result<Vec<_>>>()?, [3]);
    }
    let other = options().in_memory()?;
    let foreign = other.shard("a")?;
    let refused = store.transaction(|txn| towns.repair(txn).copies_from(&foreign).run());
    assert!(matches!(refused, Err(Error::ShardRefused { .. })), "{refused:?}");
    Ok(())
}

#[test]
fn a_verification_continues_after_a_unique_key_has_moved() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    for (at, steps) in (1..12).enumerate() {
        let store = Store::open(dir.path().join(at.to_string()))?;
        let people = PersonRepository::open(&store)?;
        store.transaction(|txn| (1..3).try_for_each(|id| people.insert(txn, &person(1, id))))?;
        let part = people.verify(&store.read()?).limit(steps).run()?;
        store.transaction(|txn| {
            people.update(txn, 1, 1, |person| person.name = "Zoe".to_owned())?;
            people.update(txn, 1, 2, |person| person.name = "Person 1".to_owned())
        })?;
        if let Some(next) = part.next {
            let rest = people.verify(&store.read()?).after(&next).run()?;
            assert!(rest.is_clean(), "after {steps} steps: {rest}");
        }
    }
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "plates", reference)]
#[index(code, unique)]
struct Plate {
    #[primary_key]
    id: u8,
    code: u8,
}

#[test]
fn a_repaired_copy_has_the_unique_keys_that_rows_have_exchanged() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    {
        let store = options().open(dir.path())?;
        let plates = PlateRepository::open(&store)?;
        store.transaction(|txn| {
            (1..4).try_for_each(|id| plates.insert(txn, &Plate { id, code: id }))
        })?;
    }
    alone(&dir.path().join("b"), |store| {
        let plates = PlateRepository::open(store)?;
        store.transaction(|txn| {
            plates.put(txn, &Plate { id: 1, code: 9 })?;
            plates.put(txn, &Plate { id: 2, code: 1 })?;
            plates.put(txn, &Plate { id: 1, code: 2 })
        })
    })?;
    let store = Store::open(dir.path())?;
    let (plates, from) = (PlateRepository::open(&store)?, store.shard("b")?);
    let report = store.transaction(|txn| plates.repair(txn).copies_from(&from).run())?;
    assert_eq!(report.left, 0);
    assert!(store.verify()?.is_clean());
    for shard in store.shard_ids() {
        let txn = store.read_on(&shard)?;
        for (id, code) in [(1, 2), (2, 1), (3, 3)] {
            assert_eq!(plates.get_by_code(&txn, code)?, Some(Plate { id, code }));
        }
        assert_eq!(plates.by_code(&txn).count()?, 3);
    }
    Ok(())
}
