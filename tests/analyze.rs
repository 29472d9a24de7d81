//! The analysis of tables: distributions of keys in stores of each kind, and advice.

use index_table::{
    Error, IndexTable, Result, ShardMap, Store,
    report::{Advice, AdviceKind},
};
use serde::{Deserialize, Serialize};

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// Each index is for one kind of advice, or for none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(state)]
#[index(flag, allow(few_values))]
#[index(worker)]
#[index(note)]
#[index(number)]
#[index(code, unique)]
#[index(retried)]
#[index(town)]
struct Job {
    #[primary_key]
    id: u32,
    state: String,
    flag: bool,
    worker: u32,
    note: u32,
    number: u32,
    code: u32,
    retried: Option<u32>,
    town: u32,
}

fn job(id: u32) -> Job {
    let is_rare = id.is_multiple_of(20);
    Job {
        id,
        state: if is_rare { "new" } else { "done" }.to_owned(),
        flag: id.is_multiple_of(2),
        worker: id % 200,
        note: id,
        number: id,
        code: id,
        retried: is_rare.then_some(id),
        town: id % 300,
    }
}

/// Reads a query to its end.
macro_rules! read {
    ($query:expr) => {
        $query.try_for_each(|found| found.map(drop))?
    };
}

fn load(store: &Store, rows: u32) -> Result<JobRepository> {
    let jobs = JobRepository::open(store)?;
    store.transaction(|txn| (0..rows).try_for_each(|id| jobs.insert(txn, &job(id))))?;
    Ok(jobs)
}

#[test]
fn each_kind_of_advice_is_for_its_index_alone() -> TestResult {
    let dir = tempfile::tempdir()?;
    for store in [Store::open(dir.path())?, Store::in_memory()] {
        let jobs = load(&store, 2000)?;
        let txn = store.read()?;
        for _ in 0..5 {
            read!(jobs.find_by_state(&txn, "new").keys());
        }
        read!(jobs.by_flag(&txn).keys());
        for _ in 0..10 {
            read!(jobs.by_worker(&txn).rows());
        }
        read!(jobs.find_by_number(&txn, 7).keys());
        for id in 0..300 {
            read!(jobs.find_by_retried(&txn, Some(id % 100 * 20)).keys());
            read!(jobs.find_by_town(&txn, id).keys());
        }

        let usage = jobs.usage();
        let analysis = jobs.analyze(&txn)?;
        let found: Vec<_> = analysis.advice.iter().map(|it| (it.index, it.kind)).collect();
        let expected = [
            (Some("state"), AdviceKind::Skewed),
            (Some("flag"), AdviceKind::NotDiscriminating),
            (Some("worker"), AdviceKind::Include),
            (Some("note"), AdviceKind::NeverQueried),
            (Some("number"), AdviceKind::Volatile),
            (Some("retried"), AdviceKind::Skewed),
        ];
        assert_eq!(found, expected, "{analysis}");
        let attributes = [
            r#"#[index(state, filter = in_state, name = "state")]"#,
            r#"#[index(flag, strategy = "full")]"#,
            "#[index(worker, include = [state, flag, note, number, code, retried, town])]",
            "#[index(note)]",
            r#"#[index(number, consistency = "eventual")]"#,
            "#[index(retried, sparse)]",
        ];
        for (advice, attribute) in analysis.advice.iter().zip(attributes) {
            assert!(advice.change.contains(attribute), "{advice}");
        }
        let skewed = &analysis.advice[0].reason;
        assert!(
            skewed.contains(r#"1900 of 2000 entries (95.0 %) have the key "done""#),
            "{skewed}"
        );
        assert_eq!(jobs.usage(), usage, "an analysis is no query");
    }
    Ok(())
}

#[test]
fn a_small_table_has_no_advice() -> TestResult {
    let store = Store::in_memory();
    let jobs = load(&store, 900)?;
    let analysis = jobs.analyze(&store.read()?)?;
    assert!(analysis.advice.is_empty(), "{analysis}");
    let [state, flag, ..] = analysis.indexes.as_slice() else { panic!("eight indexes") };
    assert_eq!((state.entries, state.keys[0].distinct, flag.keys[0].rows.min), (900, 2, 450));
    Ok(())
}

#[test]
fn an_index_without_skewed_queries_is_not_skewed() -> TestResult {
    let store = Store::in_memory();
    let jobs = load(&store, 2000)?;
    let txn = store.read()?;
    read!(jobs.find_by_state(&txn, "done").keys());
    let analysis = jobs.analyze(&txn)?;
    assert!(analysis.advice.iter().all(|it| it.index != Some("state")), "{analysis}");
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(shard_by = tenant)]
#[index(town, tenant)]
#[index(email, unique, scope = "global")]
struct Guest {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    town: u8,
    email: String,
}

/// Loads 1,200 guests, of which the tenant 7 has `hot`.
fn guests(store: &Store, hot: u32) -> Result<GuestRepository> {
    let guests = GuestRepository::open(store)?;
    store.transaction(|txn| {
        (0..1200).try_for_each(|id| {
            let tenant = if id < hot { 7 } else { 100 + id % 600 };
            let email = format!("{id}@example.com");
            guests.insert(txn, &Guest { tenant, id, town: (id % 3) as u8, email })
        })
    })?;
    Ok(guests)
}

#[test]
fn an_analysis_of_shards_is_that_of_one_store() -> TestResult {
    let dir = tempfile::tempdir()?;
    let sharded = Store::options()
        .shard("north", "north")
        .shard("south", "south")
        .map("guest", ShardMap::ranges().to("north", ..300u32).to("south", 300u32..))
        .open(dir.path())?;
    let plain = Store::in_memory();
    let in_shards = guests(&sharded, 600)?.analyze(&sharded.read()?)?;
    let mut in_one = guests(&plain, 600)?.analyze(&plain.read()?)?;
    assert!(in_shards.bytes > 0 && in_one.bytes == 0);
    in_one.bytes = in_shards.bytes;
    for (one, shards) in in_one.indexes.iter_mut().zip(&in_shards.indexes) {
        one.bytes = shards.bytes;
    }
    assert_eq!(in_shards.rows, 1200);
    assert_eq!(in_shards.shard_key, in_one.shard_key);
    assert_eq!(in_shards.indexes, in_one.indexes);

    let hot = |it: &&Advice| it.kind == AdviceKind::HotShardKey;
    let advice = in_shards.advice.iter().find(hot).ok_or("no advice")?;
    assert_eq!(advice.index, None);
    assert!(
        advice.reason.starts_with("600 of 1200 rows (50.0 %) have the shard key 7"),
        "{advice}"
    );
    assert!(advice.change.contains("shard_by = (tenant, id)"), "{advice}");
    assert!(in_shards.to_string().contains("(shard key)  tenant"), "{in_shards}");
    Ok(())
}

#[test]
fn an_even_shard_key_is_not_hot() -> TestResult {
    let store = Store::in_memory();
    let analysis = guests(&store, 0)?.analyze(&store.read()?)?;
    assert!(analysis.advice.iter().all(|it| it.kind != AdviceKind::HotShardKey), "{analysis}");
    assert_eq!(analysis.shard_key.map(|key| key.distinct), Some(600));
    Ok(())
}

mod before {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "note")]
    pub(crate) struct Note {
        #[primary_key]
        pub(crate) id: u32,
        pub(crate) word: u32,
    }
}

#[derive(Serialize, Deserialize, IndexTable)]
#[index(word)]
struct Note {
    #[primary_key]
    id: u32,
    word: u32,
}

#[test]
fn an_index_under_construction_is_not_analyzed() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    {
        let notes = before::NoteRepository::open(&store)?;
        store.transaction(|txn| notes.insert(txn, &before::Note { id: 1, word: 2 }))?;
    }
    let notes = NoteRepository::open_online(&store)?;
    let analysis = notes.analyze(&store.read()?)?;
    assert!(!analysis.indexes[0].readable && analysis.indexes[0].keys.is_empty(), "{analysis}");
    assert_eq!(analysis.rows, 1);
    notes.build(&store).run()?;
    let analysis = notes.analyze(&store.read()?)?;
    assert!(analysis.indexes[0].readable, "{analysis}");
    assert_eq!(analysis.indexes[0].keys[0].distinct, 1);
    Ok(())
}

mod later {
    use index_table::IndexTable;
    use serde::{Deserialize, Serialize};

    /// The guests without one index, and with another.
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "guest", shard_by = tenant)]
    #[index(town, tenant)]
    #[index(id)]
    pub(super) struct Guest {
        #[primary_key]
        tenant: u32,
        #[primary_key]
        id: u32,
        town: u8,
        email: String,
    }
}

#[test]
fn a_kept_analysis_is_read_by_later_processes() -> TestResult {
    let dir = tempfile::tempdir()?;
    let options = || {
        let map = ShardMap::ranges().to("north", ..300u32).to("south", 300u32..);
        Store::options().shard("north", "north").shard("south", "south").map("guest", map)
    };
    let sharded = options().open(dir.path().join("sharded"))?;
    let on_disk = Store::open(dir.path().join("plain"))?;
    for store in [Store::in_memory(), Store::clone(&sharded), on_disk.clone()] {
        let all = guests(&store, 600)?;
        assert_eq!(all.kept_analysis(&store.read()?)?, None);
        let analysis = all.analyze(&store.read()?)?;
        let before = std::time::SystemTime::now() - std::time::Duration::from_secs(1);
        store.transaction(|txn| all.keep_analysis(txn, &analysis))?;
        let kept = all.kept_analysis(&store.read()?)?.ok_or("no analysis")?;
        assert_eq!(kept.analysis, analysis);
        assert!(kept.time > before && kept.time <= std::time::SystemTime::now());
        assert!(kept.analysis.advice.iter().any(|it| it.kind == AdviceKind::HotShardKey));

        // A later analysis replaces the kept analysis.
        store.transaction(|txn| all.delete(txn, 7, 1).map(drop))?;
        let analysis = all.analyze(&store.read()?)?;
        store.transaction(|txn| all.keep_analysis(txn, &analysis))?;
        let kept = all.kept_analysis(&store.read()?)?.ok_or("no analysis")?;
        assert_eq!((kept.analysis.rows, &kept.analysis), (1199, &analysis));

        let other = JobRepository::open(&store);
        if let Ok(jobs) = other {
            let refused = store.transaction(|txn| jobs.keep_analysis(txn, &analysis));
            assert!(matches!(refused, Err(Error::SchemaMismatch { .. })), "{refused:?}");
        }

        // An analysis names indexes that are still declared.
        drop(all);
        let all = later::GuestRepository::open(&store)?;
        let kept = all.kept_analysis(&store.read()?)?.ok_or("no analysis")?.analysis;
        let names = |indexes: &[index_table::report::IndexAnalysis]| {
            indexes.iter().map(|index| index.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&kept.indexes), ["town_tenant"]);
        assert!(kept.indexes.iter().all(|it| analysis.indexes.contains(it)));
        assert_eq!(kept.shard_key, analysis.shard_key);
        let kept = store
            .catalog()?
            .tables
            .iter()
            .find(|it| it.name == "guest")
            .map(|it| it.unreadable.clone());
        assert_eq!(kept, Some(None));
    }
    drop((sharded, on_disk));
    let store = Store::open(dir.path().join("sharded"))?;
    let all = later::GuestRepository::open(&store)?;
    assert_eq!(all.kept_analysis(&store.read()?)?.map(|kept| kept.analysis.rows), Some(1199));
    Ok(())
}
