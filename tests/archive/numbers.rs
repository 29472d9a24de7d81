//! The numbers of `insert_with` in two generations of an archive: a shard was restored from its backup, and assigns numbers again.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, SystemTime},
};

use index_table::{IndexTable, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

use crate::{TestResult, fresh, last_commit, wait_for_archive};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "letters", shard_by = tenant)]
struct Letter {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u32,
    text: String,
}

const TENANT: u32 = 15;

fn insert(store: &Store, letters: &LetterRepository, text: &str) -> Result<u32> {
    store.transaction(|txn| {
        letters.insert_with(txn, TENANT, |number| Letter {
            tenant: TENANT,
            number,
            text: text.to_owned(),
        })
    })
}

/// Returns the texts in a restored store, in the order of their numbers, and the next number.
fn texts_and_next(path: &Path) -> Result<(Vec<String>, u32)> {
    let store = Store::open(path)?;
    assert!(store.unavailable_shards().is_empty());
    let letters = LetterRepository::open(&store)?;
    let rows = letters.all(&store.read()?).rows().collect::<Result<Vec<_>>>()?;
    assert!((1..).zip(&rows).all(|(number, row)| row.number == number), "{rows:?}");
    let texts = rows.into_iter().map(|row| row.text).collect();
    Ok((texts, insert(&store, &letters, "next")?))
}

#[test]
fn each_generation_has_the_numbers_that_it_has_assigned() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = |name: &str| dir.path().join(name);
    let (shop, archive) = (path("store"), path("archive"));
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..);
    let options = Store::options().shard("a", "a").shard("b", "b").map("letters", map);
    let store = options.archive(&archive).open(&shop)?;
    let letters = LetterRepository::open(&store)?;
    for number in 1..=3 {
        assert_eq!(insert(&store, &letters, "before")?, number);
    }
    store.backup_to(path("backup"))?;
    for number in 4..=5 {
        assert_eq!(insert(&store, &letters, "lost")?, number);
    }
    let commit = last_commit(&store)?;
    thread::sleep(Duration::from_millis(2));
    let time = SystemTime::now();
    wait_for_archive(&store);
    drop((store, letters));

    fs::remove_dir_all(shop.join("b"))?;
    let store = Store::options().archive(&archive).open(&shop)?;
    let letters = LetterRepository::open(&store)?;
    store.restore_shard(&store.shard("b")?, path("backup").join("shard.1"))?;
    assert_eq!(insert(&store, &letters, "again")?, 4);
    wait_for_archive(&store);
    drop((store, letters));

    let restore = || Store::restore_archive(&archive);
    let first = ["before", "before", "before", "lost", "lost"].map(String::from).to_vec();
    let to = fresh(dir.path(), "restored");
    restore().until(time).run(&to)?;
    assert_eq!(texts_and_next(&to)?, (first.clone(), 6));
    let to = fresh(dir.path(), "restored");
    restore().until_commit(commit).run(&to)?;
    assert_eq!(texts_and_next(&to)?, (first, 6));
    let to = fresh(dir.path(), "restored");
    restore().run(&to)?;
    let second = ["before", "before", "before", "again"].map(String::from).to_vec();
    assert_eq!(texts_and_next(&to)?, (second, 5));
    Ok(())
}
