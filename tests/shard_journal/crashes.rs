use std::{fs, thread};

use index_table::{Error, Result, Store};

use crate::{
    NoteRepository, SHARDS, TestResult, create, data_of, expect, killed, many_checkpoints, note,
    options, segment, write,
};

#[test]
fn commits_of_all_shards_are_recovered_after_a_kill() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let store = options().open(&path)?;
    let notes = NoteRepository::open(&store)?;
    for step in 0..12 {
        for tenant in 0..SHARDS {
            write(&store, &notes, tenant, step)?;
            if step % 4 == u32::from(tenant) {
                let left = killed(&path, &dir.path().join(format!("{step}")))?;
                let steps: Vec<u32> =
                    (0..SHARDS).map(|it| step + u32::from(it <= tenant)).collect();
                // The process may be killed again after recovery.
                for _ in 0..2 {
                    expect(&Store::open(&left)?, &steps)?;
                }
            }
        }
    }
    drop((store, notes));
    // A closed store doesn't need the journal.
    for at in 0..3 {
        fs::remove_file(path.join(format!("shards.journal.{at}")))?;
    }
    expect(&Store::open(&path)?, &[12; 3])
}

#[test]
fn data_files_without_writes_since_the_checkpoint_are_recovered() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    create(&path)?;
    let store = options().open(&path)?;
    let old = killed(&path, &dir.path().join("old"))?;
    let notes = NoteRepository::open(&store)?;
    let steps = [40, 25, 10];
    for step in 0..40 {
        for (tenant, steps) in (0..).zip(steps) {
            if step < steps {
                write(&store, &notes, tenant, step)?;
            }
        }
    }
    let left = killed(&path, &dir.path().join("left"))?;
    // Any of the data files may lack all commits.
    for lacking in 1..8_u8 {
        let image = killed(&left, &dir.path().join(format!("{lacking}")))?;
        for shard in (0..SHARDS).filter(|shard| lacking & 1 << shard != 0) {
            fs::copy(data_of(&old, shard), data_of(&image, shard))?;
        }
        let store = options().open(&image)?;
        expect(&store, &steps)?;
        let notes = NoteRepository::open(&store)?;
        write(&store, &notes, 2, 10)?;
        expect(&store, &[40, 25, 11])?;
    }
    Ok(())
}

#[test]
fn recovery_accepts_any_sectors_written_since_the_checkpoint() -> TestResult {
    const SECTOR: usize = 512;
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    create(&path)?;
    let store = options().open(&path)?;
    let old = killed(&path, &dir.path().join("old"))?;
    let notes = NoteRepository::open(&store)?;
    for step in 0..30 {
        for tenant in 0..SHARDS {
            write(&store, &notes, tenant, step)?;
        }
    }
    let left = killed(&path, &dir.path().join("left"))?;
    let mut random = 7_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for round in 0..6 {
        let image = killed(&left, &dir.path().join(format!("image {round}")))?;
        for shard in 0..SHARDS {
            let (mut mixed, new) =
                (fs::read(data_of(&old, shard))?, fs::read(data_of(&left, shard))?);
            mixed.resize(new.len(), 0);
            let share = next() % 100;
            for (to, from) in mixed.chunks_mut(SECTOR).zip(new.chunks(SECTOR)) {
                if next() % 100 < share {
                    to.copy_from_slice(from);
                }
            }
            fs::write(data_of(&image, shard), mixed)?;
        }
        let store = options().open(&image)?;
        expect(&store, &[30; 3])?;
        let notes = NoteRepository::open(&store)?;
        write(&store, &notes, 1, 30)?;
        expect(&store, &[30, 31, 30])?;
    }
    Ok(())
}

#[test]
fn checkpoints_run_concurrently_with_the_writers_of_all_shards() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let store = many_checkpoints().open(&path)?;
    let notes = NoteRepository::open(&store)?;
    for round in 0..3_u32 {
        thread::scope(|scope| {
            let writers: Vec<_> = (0..SHARDS)
                .map(|tenant| {
                    let (store, notes) = (&store, &notes);
                    scope.spawn(move || {
                        (round * 60..round * 60 + 60)
                            .try_for_each(|step| write(store, notes, tenant, step))
                    })
                })
                .collect();
            writers.into_iter().try_for_each(|writer| writer.join().expect("no panic"))
        })?;
        let left = killed(&path, &dir.path().join(format!("{round}")))?;
        expect(&Store::open(&left)?, &[round * 60 + 60; 3])?;
    }
    let last = (0..3).map(|file| segment(&path, file)).collect::<std::io::Result<Vec<_>>>()?;
    assert!(last.iter().all(|segment| *segment > 10), "{last:?}");
    drop((store, notes));
    expect(&Store::open(&path)?, &[180; 3])
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

#[test]
fn large_transactions_are_records_of_several_frames() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let store = options().open(&path)?;
    let notes = NoteRepository::open(&store)?;
    let many = |tenant: u8, from: u32| (from..from + 1500).map(move |id| note(tenant, id, 0));
    let rolled_back: Result<(), Error> = store.transaction(|txn| {
        many(0, 0).try_for_each(|row| notes.insert(txn, &row))?;
        Err(Error::WriteInProgress)
    });
    assert!(rolled_back.is_err());
    // Two large transactions run at the same time. The frames of each record stay together.
    thread::scope(|scope| {
        let writers = [0, 1].map(|tenant| {
            let (store, notes) = (&store, &notes);
            scope.spawn(move || {
                store.transaction(|txn| {
                    many(tenant, 10_000).try_for_each(|row| notes.insert(txn, &row))
                })
            })
        });
        writers.into_iter().try_for_each(|writer| writer.join().expect("no panic"))
    })?;
    store.transaction(|txn| {
        for (at, from) in [(0, 30_000), (1, 40_000), (2, 50_000)] {
            let outcome = txn.nested(|txn| {
                many(0, from).try_for_each(|row| notes.insert(txn, &row))?;
                if at == 1 { Err(Error::WriteInProgress) } else { Ok(()) }
            });
            assert_eq!(outcome.is_err(), at == 1);
        }
        Ok(())
    })?;
    // Changes that don't fit into the memory, in nested transactions of two shards. Some are rolled back.
    store.transaction(|txn| {
        // A nested transaction can't lock a shard.
        for tenant in [1, 2] {
            notes.get(txn, tenant, 0)?;
        }
        let outcome = txn.nested(|txn| {
            for (at, from) in [(0, 60_000), (1, 70_000), (2, 80_000), (3, 90_000)] {
                many(2, from).take(750).try_for_each(|row| notes.insert(txn, &row))?;
                let outcome = txn.nested(|txn| {
                    many(2, from).skip(750).try_for_each(|row| notes.insert(txn, &row))?;
                    many(1, from).try_for_each(|row| notes.insert(txn, &row))?;
                    if at == 1 || at == 3 { Err(Error::WriteInProgress) } else { Ok(()) }
                });
                assert_eq!(outcome.is_err(), at == 1 || at == 3);
            }
            Ok::<_, Error>(())
        });
        many(2, 70_000).skip(750).try_for_each(|row| notes.insert(txn, &row))?;
        many(2, 90_000).take(750).try_for_each(|row| notes.delete(txn, 2, row.id).map(drop))?;
        outcome
    })?;
    let left = killed(&path, &dir.path().join("left"))?;
    let store = Store::open(&left)?;
    let notes = NoteRepository::open(&store)?;
    let txn = store.read()?;
    let rows = [
        (0, &[10_000, 30_000, 50_000][..]),
        (1, &[10_000, 60_000, 80_000]),
        (2, &[60_000, 70_000, 80_000]),
    ];
    for (tenant, from) in rows {
        let ids = notes.find_by_tenant(&txn, tenant).rows().map(|row| row.map(|row| row.id));
        let ids = ids.collect::<Result<Vec<_>>>()?;
        assert!(ids.into_iter().eq(from.iter().flat_map(|from| *from..from + 1500)));
    }
    assert!(notes.verify(&txn).run()?.is_clean());
    Ok(())
}
