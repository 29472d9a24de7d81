//! Verification and repair of global indexes, whose entries are in other shards than their rows.

use std::{cell::Cell, path::Path};

use index_table::{
    Durability, FindingKind, IndexTable, Options, Result, ShardMap, Store, VerifyReport,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "people", shard_by = tenant)]
#[indexes(
    (computed(sort_name: String), scope = "global"),
    (computed(code: u32), unique, scope = "global"),
    (name)
)]
struct Person {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    name: String,
}

thread_local! {
    /// Whether the methods return other values than when the rows were written.
    static CHANGED: Cell<bool> = const { Cell::new(false) };
}

impl Person {
    fn sort_name(&self) -> String {
        if CHANGED.get() && self.id == 1 { self.name.to_lowercase() } else { self.name.clone() }
    }

    fn code(&self) -> u32 {
        let code = self.tenant * 100 + self.id;
        if CHANGED.get() && self.tenant == 1 { code + 50 } else { code }
    }
}

fn options() -> Options {
    let map = ShardMap::ranges().to("a", ..100u32).to("b", 100u32..200).to("c", 200u32..);
    ["a", "b", "c"]
        .into_iter()
        .fold(Store::options(), |options, name| options.shard(name, name))
        .map("people", map)
        .map("people.code", ShardMap::ranges().to("c", ..200u32).to("b", 200u32..))
        .durability(Durability::Relaxed)
}

fn fill(store: &Store) -> Result<PersonRepository> {
    let people = PersonRepository::open(store)?;
    store.transaction(|txn| {
        for tenant in [1, 100, 200] {
            for id in 0..3 {
                people
                    .insert(txn, &Person { tenant, id, name: format!("Person {tenant} {id}") })?;
            }
        }
        Ok(())
    })?;
    Ok(people)
}

fn counts(report: &VerifyReport, index: &str) -> Vec<(FindingKind, usize)> {
    let kinds = [
        FindingKind::Stale,
        FindingKind::Missing,
        FindingKind::Dangling,
        FindingKind::WrongShard,
        FindingKind::Malformed,
        FindingKind::Duplicate,
    ];
    let count = |kind| {
        report.findings.iter().filter(|it| it.kind == kind && it.index == Some(index)).count()
    };
    kinds.into_iter().map(|kind| (kind, count(kind))).filter(|(_, count)| *count > 0).collect()
}

#[test]
fn global_entries_are_compared_with_the_rows_of_all_shards() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    for store in [options().in_memory()?, options().open(dir.path())?] {
        let people = fill(&store)?;
        let verify = || people.verify(&store.read()?).run();
        let report = verify()?;
        assert!(report.is_clean(), "{report}");
        assert_eq!((report.rows, report.entries), (9, 27));

        CHANGED.set(true);
        let report = verify()?;
        let wrong = [(FindingKind::Stale, 3), (FindingKind::Missing, 3)];
        assert_eq!(counts(&report, "sort_name"), wrong, "{report}");
        assert_eq!(counts(&report, "code"), wrong, "{report}");
        assert_eq!(counts(&report, "name"), []);

        // The entries of a single shard can't be compared with rows in other shards.
        let shard = store.shard("b")?;
        assert!(people.verify(&store.read_on(&shard)?).run()?.is_clean());
        let repaired = store.transaction_on(&shard, |txn| people.repair(txn).run())?;
        assert_eq!(repaired.findings.len(), 0);

        // The verification is done in parts, which cursors continue.
        let (mut findings, mut next) = (0, None);
        loop {
            let txn = store.read()?;
            let verify = people.verify(&txn).limit(3);
            let report = match &next {
                Some(next) => verify.after(next).run()?,
                None => verify.run()?,
            };
            findings += report.findings.len();
            next = report.next;
            if next.is_none() {
                break;
            }
        }
        assert_eq!(findings, 12);

        let repaired = store.transaction(|txn| people.repair(txn).run())?;
        assert_eq!(repaired.left, 0);
        assert_eq!(counts(&repaired, "sort_name"), wrong, "{repaired}");
        let report = verify()?;
        assert!(report.is_clean(), "{report}");
        let txn = store.read()?;
        assert_eq!(people.find_by_sort_name(&txn, "person 200 1").rows().count(), 1);
        assert_eq!(people.get_by_code(&txn, 152)?.map(|person| person.id), Some(2));
        CHANGED.set(false);
    }
    Ok(())
}

/// Runs `work` on a database of a shard.
pub(crate) fn raw(
    path: &Path,
    shard: &str,
    index: &str,
    work: impl FnOnce(
        heed::Database<'_, heed::types::Bytes, heed::types::Bytes>,
        &mut heed::RwTxn<'_>,
    ) -> heed::Result<()>,
) -> heed::Result<()> {
    let path = path.join(shard);
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: no other code has the files of this test open.
    let env = unsafe { heed::EnvOpenOptions::new().max_dbs(40).map_size(1 << 28).open(path)? };
    let txn = env.write_txn()?;
    env.create_databases_and_commit(txn, |opener, txn| {
        work(opener.open_database(txn, Some(index))?.expect("the index"), txn)?;
        Ok::<_, heed::Error>(heed::CommitOrAbort::<(), ()>::Commit(()))
    })?;
    Ok(())
}

/// Copies the entries of an index from shard `c` to shard `a`, and removes the entries of shard `b`.
fn damage(path: &Path, index: &str) -> heed::Result<()> {
    let mut entries = Vec::new();
    raw(path, "c", index, |index, txn| {
        for entry in index.iter(txn)? {
            let (key, value) = entry?;
            entries.push((key.to_vec(), value.to_vec()));
        }
        Ok(())
    })?;
    assert!(!entries.is_empty());
    raw(path, "a", index, |index, txn| {
        entries.iter().try_for_each(|(key, value)| index.put(txn, key, value))
    })?;
    raw(path, "b", index, |index, txn| index.clear(txn))
}

#[test]
fn entries_in_the_wrong_shard_are_found_and_removed() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    drop(fill(&options().open(dir.path())?)?);
    // Shard `c` has the entries of 0..200, and shard `b` the others.
    damage(dir.path(), "people.code").expect("damaged");
    let store = Store::open(dir.path())?;
    let people = PersonRepository::open(&store)?;
    let report = people.verify(&store.read()?).run()?;
    let wrong = counts(&report, "code");
    assert!(wrong.contains(&(FindingKind::WrongShard, 3)), "{report}");
    assert!(wrong.contains(&(FindingKind::Missing, 6)), "{report}");
    assert!(store.read()?.stats().shards == 0);
    let repaired = store.transaction(|txn| people.repair(txn).run())?;
    assert_eq!(repaired.left, 0, "{repaired}");
    let report = people.verify(&store.read()?).run()?;
    assert!(report.is_clean(), "{report}");
    let txn = store.read()?;
    assert_eq!(people.by_code(&txn).count()?, 9);
    assert_eq!(people.get_by_code(&txn, 20_002)?.map(|person| person.id), Some(2));
    Ok(())
}
