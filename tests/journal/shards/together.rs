//! Transactions across several shards, which are recovered in all of their shards or in none.

use std::{fs, ops::Range, path::Path, thread};

use index_table::{Error, Result, Store};

use super::{
    NoteRepository, SHARDS, TestResult, create, data_of, expect, expect_of, killed,
    many_checkpoints, note, options, segment, write,
};

/// Runs a step of all tenants in one transaction.
fn write_all(store: &Store, notes: &NoteRepository, step: u32) -> Result<()> {
    store.transaction(|txn| {
        for tenant in [1, 0, 2] {
            for id in step * 3..step * 3 + 5 {
                notes.put(txn, &note(tenant, id % 200, step))?;
            }
            notes.delete(txn, tenant, step * 5 % 200)?;
        }
        Ok(())
    })
}

#[cfg(unix)]
#[test]
fn a_reader_opens_no_part_of_a_transaction_beside_readers_of_a_shard() -> TestResult {
    let dir = tempfile::tempdir()?;
    let left = lacking(dir.path(), 3, 2)?;
    // A process that has one shard open, which is therefore not recovered.
    fs::write(left.join("s0/lock.mdb"), "")?;
    let beside = fs::File::open(left.join("s0"))?;
    beside.lock_shared()?;
    let outcome = options().read_only(true).open(&left);
    let is_refused = matches!(&outcome, Err(error @ Error::ReopenNeeded { .. })
        if error.to_string().contains("for writing"));
    assert!(is_refused, "{outcome:?}");
    drop(beside);
    let store = options().read_only(true).open(&left)?;
    expect(&store, &[3; 3])?;
    // All shards have the last transaction.
    let beside = fs::File::open(left.join("s0"))?;
    beside.lock_shared()?;
    drop(store);
    expect(&options().read_only(true).open(&left)?, &[3; 3])
}

/// Returns the files of a store killed after this number of steps of all tenants. Its data files have the
/// steps before `lacking`.
fn lacking(
    dir: &Path,
    steps: u32,
    lacking: u32,
) -> Result<std::path::PathBuf, Box<dyn std::error::Error>> {
    let path = dir.join("store");
    create(&path)?;
    let store = options().open(&path)?;
    let notes = NoteRepository::open(&store)?;
    for step in 0..steps {
        if step == lacking {
            killed(&path, &dir.join("before"))?;
        }
        write_all(&store, &notes, step)?;
    }
    let left = killed(&path, &dir.join("left"))?;
    for shard in 0..SHARDS {
        fs::copy(data_of(&dir.join("before"), shard), data_of(&left, shard))?;
    }
    Ok(left)
}

fn journal(store: &Path, file: u8) -> std::path::PathBuf {
    store.join(format!("shards.journal.{file}"))
}

/// Returns the range of the bytes in which two files differ.
fn difference(one: &[u8], other: &[u8]) -> Option<Range<usize>> {
    let differs = |at: &usize| one.get(*at) != other.get(*at);
    let length = one.len().max(other.len());
    Some((0..length).find(differs)?..(0..length).rfind(differs)? + 1)
}

#[test]
fn a_torn_record_is_applied_to_no_shard() -> TestResult {
    let dir = tempfile::tempdir()?;
    let left = lacking(dir.path(), 8, 7)?;
    let before = dir.path().join("before");
    let (file, written) = (0..3)
        .find_map(|file| {
            let files = [&before, &left].map(|store| fs::read(journal(store, file)));
            let [Ok(before), Ok(after)] = files else { return None };
            Some((file, (difference(&before, &after)?, before, after)))
        })
        .ok_or("nothing was written")?;
    let (place, before, after) = written;
    for cut in (place.start..place.end).step_by(place.len() / 5).chain([place.end - 1, place.end]) {
        let image = killed(&left, &dir.path().join(format!("{cut}")))?;
        let mut torn = before.clone();
        torn.resize(after.len(), 0);
        torn[place.start..cut].copy_from_slice(&after[place.start..cut]);
        fs::write(journal(&image, file), torn)?;
        let steps = if cut == place.end { 8 } else { 7 };
        expect(&options().open(&image)?, &[steps; 3])?;
        fs::remove_dir_all(image)?;
    }
    Ok(())
}

#[test]
fn recovery_completes_data_files_that_lack_any_commits() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    create(&path)?;
    let store = options().open(&path)?;
    let notes = NoteRepository::open(&store)?;
    let mut images = Vec::new();
    // Transactions of one shard alternate with transactions of all shards, so that LMDB's transaction numbers
    // differ between shards.
    let mut steps = [0_u32; 3];
    for round in 0..12_u8 {
        if round % 4 == 0 {
            images.push(killed(&path, &dir.path().join(format!("at {round}")))?);
        }
        let round_tenant = round % 3;
        for tenant in (0..SHARDS).filter(|tenant| round % 2 == 0 || *tenant == round_tenant) {
            steps[usize::from(tenant)] += 1;
        }
        if round % 2 == 1 {
            write(&store, &notes, round_tenant, steps[usize::from(round_tenant)] - 1)?;
            continue;
        }
        let steps = &steps;
        store.transaction(|txn| {
            for (tenant, step) in (0..).zip(steps) {
                let step = step - 1;
                for id in step * 3..step * 3 + 5 {
                    notes.put(txn, &note(tenant, id % 200, step))?;
                }
                notes.delete(txn, tenant, step * 5 % 200)?;
            }
            Ok(())
        })?;
    }
    images.push(killed(&path, &dir.path().join("left"))?);
    let left = dir.path().join("left");
    for chosen in [[0, 1, 2], [3, 0, 1], [1, 3, 0], [2, 2, 3], [3, 3, 0], [0, 0, 0]] {
        let image = killed(&left, &dir.path().join(format!("{chosen:?}")))?;
        for (shard, from) in (0..).zip(chosen) {
            fs::copy(data_of(&images[from], shard), data_of(&image, shard))?;
        }
        let store = options().open(&image)?;
        expect(&store, &steps)?;
        let notes = NoteRepository::open(&store)?;
        let last = steps.iter().copied().max().unwrap_or_default();
        store.transaction(|txn| {
            (0..SHARDS).try_for_each(|tenant| notes.put(txn, &note(tenant, 1000 + last, 0)))
        })?;
        drop((store, notes));
        fs::remove_dir_all(image)?;
    }
    Ok(())
}

#[test]
fn an_interrupted_recovery_continues_with_the_other_shards() -> TestResult {
    let dir = tempfile::tempdir()?;
    let left = lacking(dir.path(), 8, 3)?;
    let whole = killed(&left, &dir.path().join("whole"))?;
    expect(&options().open(&whole)?, &[8; 3])?;
    for recovered in 1..8_u8 {
        let image = killed(&left, &dir.path().join(format!("{recovered}")))?;
        for shard in (0..SHARDS).filter(|shard| recovered & 1 << shard != 0) {
            fs::copy(data_of(&whole, shard), data_of(&image, shard))?;
        }
        let store = options().open(&image)?;
        expect(&store, &[8; 3])?;
        write_all(&store, &NoteRepository::open(&store)?, 8)?;
        expect(&store, &[9; 3])?;
    }
    Ok(())
}

#[test]
fn a_missing_shard_gets_its_part_later() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = lacking(dir.path(), 8, 3)?;
    let (place, away) = (path.join("s2"), dir.path().join("away"));
    fs::rename(&place, &away)?;
    {
        let store = many_checkpoints().open(&path)?;
        let notes = NoteRepository::open(&store)?;
        for step in 8..100 {
            store.transaction(|txn| {
                for tenant in [1, 0] {
                    for id in step * 3..step * 3 + 5 {
                        notes.put(txn, &note(tenant, id % 200, step))?;
                    }
                    notes.delete(txn, tenant, step * 5 % 200)?;
                }
                Ok(())
            })?;
        }
        let outcome = write_all(&store, &notes, 100);
        assert!(matches!(outcome, Err(index_table::Error::ShardUnavailable { .. })), "{outcome:?}");
        let txn = store.read()?;
        for tenant in 0..2 {
            expect_of(&notes, &txn, tenant, 100)?;
        }
        assert!((0..3).all(|file| segment(&path, file).is_ok_and(|segment| segment > 3)));
    }
    fs::rename(&away, &place)?;
    expect(&options().open(&path)?, &[100, 100, 8])
}

#[test]
fn checkpoints_run_between_commits_of_several_threads() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let store = many_checkpoints().open(&path)?;
    let notes = NoteRepository::open(&store)?;
    let key = |thread: u32, step: u32| 1000 + thread * 1000 + step;
    thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|thread| {
                let (store, notes) = (&store, &notes);
                scope.spawn(move || {
                    (0..60).try_for_each(|step| {
                        store.transaction(|txn| {
                            // Two or three shards, in any order.
                            let tenants =
                                [thread, (thread + step + 1) % 3, (thread + 2 * step) % 3];
                            tenants.into_iter().try_for_each(|tenant| {
                                notes.put(txn, &note(tenant as u8, key(thread, step), step))
                            })
                        })
                    })
                })
            })
            .collect();
        writers.into_iter().try_for_each(|writer| writer.join().expect("no panic"))
    })?;
    let left = killed(&path, &dir.path().join("left"))?;
    let recovered = Store::open(&left)?;
    let recovered_notes = NoteRepository::open(&recovered)?;
    let (found, expected) = (recovered.read()?, store.read()?);
    let found = recovered_notes.all(&found).rows().collect::<Result<Vec<_>>>()?;
    assert!(found == notes.all(&expected).rows().collect::<Result<Vec<_>>>()?);
    assert!((0..3).all(|file| segment(&path, file).is_ok_and(|segment| segment > 3)));
    Ok(())
}

#[test]
fn large_transactions_of_several_shards_are_records_of_several_frames() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    create(&path)?;
    let store = options().open(&path)?;
    let before = killed(&path, &dir.path().join("before"))?;
    let notes = NoteRepository::open(&store)?;
    store.transaction(|txn| {
        for id in 0..3000 {
            notes.insert(txn, &note((id % 3) as u8, id, 0))?;
        }
        let failed: Result<()> = txn.nested(|txn| {
            (5000..7000).try_for_each(|id| notes.insert(txn, &note((id % 3) as u8, id, 0)))?;
            Err(index_table::Error::WriteInProgress)
        });
        assert!(failed.is_err());
        txn.nested(|txn| {
            (3000..6000).try_for_each(|id| notes.insert(txn, &note((id % 3) as u8, id, 0)))
        })
    })?;
    let left = killed(&path, &dir.path().join("left"))?;
    for lacks in [0_u8, 2, 7] {
        let image = killed(&left, &dir.path().join(format!("{lacks}")))?;
        for shard in (0..SHARDS).filter(|shard| lacks & 1 << shard != 0) {
            fs::copy(data_of(&before, shard), data_of(&image, shard))?;
        }
        let store = options().open(&image)?;
        let notes = NoteRepository::open(&store)?;
        let txn = store.read()?;
        assert_eq!(notes.all(&txn).count()?, 6000);
        assert!(notes.verify(&txn).run()?.is_clean());
    }
    Ok(())
}

#[test]
fn a_shard_without_writes_does_not_retain_segments() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let store = many_checkpoints().open(&path)?;
    let notes = NoteRepository::open(&store)?;
    for tenant in 0..SHARDS {
        write(&store, &notes, tenant, 0)?;
    }
    let old = killed(&path, &dir.path().join("old"))?;
    for step in 1..250 {
        write(&store, &notes, 0, step)?;
    }
    for file in 0..3 {
        assert!(segment(&path, file)? > 10);
        let length = fs::metadata(path.join(format!("shards.journal.{file}")))?.len();
        assert!(length < 4 << 20, "{length} bytes");
    }
    let left = killed(&path, &dir.path().join("left"))?;
    expect(&Store::open(&left)?, &[250, 1, 1])?;
    // The checkpoints have not changed the data files of shards without writes.
    let image = killed(&path, &dir.path().join("image"))?;
    for shard in 1..SHARDS {
        assert!(fs::read(data_of(&old, shard))? == fs::read(data_of(&image, shard))?);
    }
    Ok(())
}
