//! Stores that are killed instead of closed.

use std::{fs, thread};

use index_table::{Durability, Error, Result, Store};

use crate::{
    Kind, TestResult, killed,
    kinds::{
        SHARDS, created, data_files, expect, journal, many_checkpoints, note, open, options,
        segment, write, write_each,
    },
    on_each_kind,
};

on_each_kind! {
    a_store_that_is_closed_and_opened_has_its_commits,
    commits_of_a_killed_process_are_recovered,
    data_files_without_writes_since_the_checkpoint_are_recovered,
    recovery_accepts_any_sectors_written_since_the_checkpoint,
    checkpoints_run_concurrently_with_writers,
    large_transactions_are_recorded_in_parts,
}

fn a_store_that_is_closed_and_opened_has_its_commits(kind: Kind) -> TestResult {
    let dir = tempfile::tempdir()?;
    for round in 0..3 {
        let (store, notes) = open(&options(kind), dir.path())?;
        expect(&store, &[round * 7; 3])?;
        (round * 7..round * 7 + 7).try_for_each(|step| write_each(&store, &notes, step))?;
        expect(&store, &[round * 7 + 7; 3])?;
    }
    // A closed store needs nothing of the journal.
    journal(kind, dir.path()).iter().try_for_each(fs::remove_file)?;
    expect(&Store::open(dir.path())?, &[21; 3])
}

fn commits_of_a_killed_process_are_recovered(kind: Kind) -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let (store, notes) = open(&options(kind), &path)?;
    for step in 0..12 {
        for tenant in 0..SHARDS {
            write(&store, &notes, tenant, step)?;
            if step % 4 == u32::from(tenant) {
                let left = killed(&path, &dir.path().join(format!("{step}")))?;
                let steps = [0, 1, 2].map(|it| step + u32::from(it <= tenant));
                // The process may be killed again after recovery.
                let second = kind.of(Durability::Full, Durability::Journal);
                for durability in [Durability::Journal, second] {
                    expect(&Store::options().durability(durability).open(&left)?, &steps)?;
                }
            }
        }
    }
    Ok(())
}

fn data_files_without_writes_since_the_checkpoint_are_recovered(kind: Kind) -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let (store, notes) = created(kind, &path)?;
    let old = killed(&path, &dir.path().join("old"))?;
    let steps = [30, 20, 10];
    for step in 0..30 {
        for (tenant, _) in (0..).zip(steps).filter(|(_, steps)| step < *steps) {
            write(&store, &notes, tenant, step)?;
        }
    }
    let left = killed(&path, &dir.path().join("left"))?;
    // Any of the data files may lack all commits.
    let files = data_files(kind, &old).into_iter().zip(data_files(kind, &left));
    let files: Vec<_> = files.map(|(old, new)| (fs::read(old), new)).collect();
    for lacking in 1..1_u8 << files.len() {
        let image = dir.path().join(format!("{lacking}"));
        killed(&left, &image)?;
        let of_image = data_files(kind, &image).into_iter();
        for (at, (to, (old, _))) in of_image.zip(&files).enumerate() {
            if lacking & 1 << at != 0 {
                fs::write(to, old.as_ref().expect("a data file"))?;
            }
        }
        let (store, notes) = open(&options(kind), &image)?;
        expect(&store, &steps)?;
        write(&store, &notes, 2, 10)?;
        expect(&store, &[30, 20, 11])?;
    }
    Ok(())
}

fn recovery_accepts_any_sectors_written_since_the_checkpoint(kind: Kind) -> TestResult {
    const SECTOR: usize = 512;
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let (store, notes) = created(kind, &path)?;
    let old = killed(&path, &dir.path().join("old"))?;
    (0..30).try_for_each(|step| write_each(&store, &notes, step))?;
    let left = killed(&path, &dir.path().join("left"))?;
    let mut random = 7_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for round in 0..4 {
        let image = killed(&left, &dir.path().join(format!("image {round}")))?;
        for (from, to) in data_files(kind, &old).iter().zip(data_files(kind, &image)) {
            let (mut mixed, new) = (fs::read(from)?, fs::read(&to)?);
            mixed.resize(new.len(), 0);
            let share = next() % 100;
            for (to, from) in mixed.chunks_mut(SECTOR).zip(new.chunks(SECTOR)) {
                if next() % 100 < share {
                    to.copy_from_slice(from);
                }
            }
            fs::write(to, mixed)?;
        }
        let (store, notes) = open(&options(kind), &image)?;
        expect(&store, &[30; 3])?;
        write(&store, &notes, 1, 30)?;
        expect(&store, &[30, 31, 30])?;
    }
    Ok(())
}

fn checkpoints_run_concurrently_with_writers(kind: Kind) -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let (store, notes) = open(&many_checkpoints(kind), &path)?;
    for round in 0..2_u32 {
        thread::scope(|scope| {
            let writers: Vec<_> = (0..SHARDS)
                .map(|tenant| {
                    let (store, notes) = (&store, &notes);
                    scope.spawn(move || {
                        (round * 50..round * 50 + 50)
                            .try_for_each(|step| write(store, notes, tenant, step))
                    })
                })
                .collect();
            writers.into_iter().try_for_each(|writer| writer.join().expect("no panic"))
        })?;
        let left = killed(&path, &dir.path().join(format!("{round}")))?;
        expect(&options(kind).open(&left)?, &[round * 50 + 50; 3])?;
    }
    // Each checkpoint starts a segment.
    for file in journal(kind, &path) {
        assert!(segment(&file)? > 10, "{}: segment {}", file.display(), segment(&file)?);
        assert!(fs::metadata(&file)?.len() < 4 << 20, "{}", file.display());
    }
    drop((store, notes));
    expect(&Store::open(&path)?, &[100; 3])
}

fn large_transactions_are_recorded_in_parts(kind: Kind) -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let (store, notes) = open(&options(kind), &path)?;
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
    notes.bulk_load(&store, many(0, 20_000)).run()?;
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
    let (store, notes) = open(&options(kind), &left)?;
    let txn = store.read()?;
    store.check()?;
    let rows = [
        (0, &[10_000, 20_000, 30_000, 50_000][..]),
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
