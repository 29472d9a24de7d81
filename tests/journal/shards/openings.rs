//! Durabilities, stores that grow, and shards opened as plain stores.

use std::fs;

use index_table::{Durability, Error, Options, ShardMap, Store};

use super::{NoteRepository, TestResult, expect, journal, killed, options, write};

#[test]
fn full_is_refused_and_relaxed_has_no_journal() -> TestResult {
    let dir = tempfile::tempdir()?;
    let outcome = options().durability(Durability::Full).open(dir.path());
    assert!(
        matches!(&outcome, Err(Error::NotOffered { what }) if what.contains("one sync")),
        "{outcome:?}"
    );
    let path = dir.path().join("relaxed");
    let store = options().durability(Durability::Relaxed).open(&path)?;
    let notes = NoteRepository::open(&store)?;
    write(&store, &notes, 0, 0)?;
    assert!(!path.join("shards.journal.0").exists());
    Ok(())
}

#[test]
fn shards_with_and_without_a_journal_are_opened_together() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let options = journal()
        .shard("a", "a")
        .shard_with("b", "b", Store::options().durability(Durability::Relaxed))
        .map("notes", ShardMap::ranges().to("a", ..1_u8).to("b", 1_u8..));
    let store = options.open(&path)?;
    let notes = NoteRepository::open(&store)?;
    for step in 0..5 {
        write(&store, &notes, 0, step)?;
        write(&store, &notes, 1, step)?;
    }
    let left = killed(&path, &dir.path().join("left"))?;
    expect(&Store::open(&left)?, &[5, 5])
}

fn growing() -> Options {
    Store::options()
        .add_shard("new", "new")
        .map("notes", ShardMap::ranges().to("main", ..1_u8).to("new", 1_u8..))
}

#[cfg(unix)]
#[test]
fn a_store_that_was_not_closed_grows_beside_readers() -> TestResult {
    for durability in [Durability::Journal, Durability::Relaxed] {
        let dir = tempfile::tempdir()?;
        let (open, old) = (dir.path().join("open"), dir.path().join("old"));
        let store = journal().open(&open)?;
        let notes = NoteRepository::open(&store)?;
        for step in 0..5 {
            write(&store, &notes, 0, step)?;
        }
        killed(&open, &old)?;
        drop((notes, store));
        // A process that reads the store.
        fs::write(old.join("lock.mdb"), "")?;
        let beside = fs::File::open(&old)?;
        beside.lock_shared()?;
        let options = growing().durability(durability);
        for _ in 0..2 {
            let store = options.open(&old)?;
            expect(&store, &[5, 0])?;
        }
        drop(beside);
    }
    Ok(())
}

#[test]
fn stores_of_any_durability_grow() -> TestResult {
    let dir = tempfile::tempdir()?;
    for (at, durability) in
        [Durability::Full, Durability::Relaxed, Durability::Journal, Durability::Journal]
            .into_iter()
            .enumerate()
    {
        let path = dir.path().join(format!("{at}"));
        {
            let store = journal().durability(durability).open(&path)?;
            let notes = NoteRepository::open(&store)?;
            for step in 0..5 {
                write(&store, &notes, 0, step)?;
            }
            // One of the stores was killed, so its own journal is needed.
            if at == 3 {
                killed(&path, &dir.path().join("killed"))?;
            }
        }
        let path = if at == 3 { dir.path().join("killed") } else { path };
        {
            let store = growing().open(&path)?;
            let notes = NoteRepository::open(&store)?;
            expect(&store, &[5, 0])?;
            write(&store, &notes, 0, 5)?;
            write(&store, &notes, 1, 0)?;
            assert!(!path.join("journal.1").exists());
            expect(&store, &[6, 1])?;
        }
        expect(&Store::open(&path)?, &[6, 1])?;
    }
    Ok(())
}

#[test]
fn a_shard_without_pending_records_opens_as_a_plain_store() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    {
        let store = options().open(&path)?;
        let notes = NoteRepository::open(&store)?;
        (0..5).try_for_each(|step| write(&store, &notes, 1, step))?;
        let left = killed(&path, &dir.path().join("left"))?;
        for options in [Store::options(), journal()] {
            let outcome = options.open(left.join("s1"));
            assert!(matches!(outcome, Err(Error::ShardRefused { .. })), "{outcome:?}");
        }
        expect(&options().open(&left)?, &[0, 5, 0])?;
    }
    // A copy of the shard alone belongs to no store.
    let (shard, aside) = (path.join("s1"), dir.path().join("aside"));
    for (at, options) in [(5, Store::options()), (6, journal())] {
        Store::restore(&shard, &aside)?;
        fs::remove_dir_all(&shard)?;
        {
            let store = options.open(&aside)?;
            let notes = NoteRepository::open(&store)?;
            write(&store, &notes, 1, at)?;
            if at == 6 {
                // A plain store that is killed has its own journal.
                let own = killed(&path, &dir.path().join("own"))?;
                killed(&aside, &own.join("s1"))?;
            }
        }
        fs::rename(&aside, &shard)?;
        expect(&super::options().open(&path)?, &[0, at + 1, 0])?;
    }
    expect(&Store::open(dir.path().join("own"))?, &[0, 7, 0])
}

#[test]
fn a_store_can_have_more_shards_than_one_checkpoint_block() -> TestResult {
    let dir = tempfile::tempdir()?;
    let names: Vec<String> = (0..30).map(|shard| format!("s{shard}")).collect();
    let map = names
        .iter()
        .zip(0_u8..)
        .fold(ShardMap::list().to("s0", [u8::MAX]), |map, (name, at)| map.to(name, [at]));
    let all = names.iter().fold(Store::options(), |options, name| options.shard(name, name));
    let store = all.map("notes", map);
    let path = dir.path().join("store");
    let store = store.open(&path)?;
    let notes = NoteRepository::open(&store)?;
    for tenant in 0..30 {
        for step in 0..u32::from(tenant % 3) {
            write(&store, &notes, tenant, step)?;
        }
    }
    let left = killed(&path, &dir.path().join("left"))?;
    let steps: Vec<u32> = (0..30).map(|tenant| tenant % 3).collect();
    expect(&Store::open(&left)?, &steps)
}
