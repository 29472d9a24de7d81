//! Two stores that have written to the same archive: a copy of a store was opened with it by mistake.

use std::{path::Path, time::SystemTime};

use index_table::CommitNumber;

use crate::{
    Archived, Checked, Kind, Random, Rows, TestResult, change, directories::copied, last_commit,
    on_each_kind, open, wait_for_archive,
};

on_each_kind! { a_commit_of_two_copies_of_a_store_is_not_restored_from_either_by_chance }

fn a_commit_of_two_copies_of_a_store_is_not_restored_from_either_by_chance(
    kind: Kind,
) -> TestResult {
    let (it, mut random, mut rows) = (Archived::new(kind)?, Random(15), Rows::new());
    let copy = it.path("copy");
    let mut write =
        |path: &Path, count: u32, rows: &mut Rows| -> Checked<Vec<(CommitNumber, Rows)>> {
            let (store, orders) = open(&it.options(), path)?;
            let mut commits = Vec::new();
            for _ in 0..count {
                change(&store, &orders, rows, &mut random)?;
                commits.push((last_commit(&store)?, rows.clone()));
            }
            wait_for_archive(&store);
            Ok(commits)
        };
    let before = write(&it.store, 20, &mut rows)?;
    copied(&it.store, &copy)?;
    let mut others = rows.clone();
    let original = write(&it.store, 50, &mut rows)?;
    let time = SystemTime::now();
    // By mistake, the copy is opened with the same archive.
    write(&copy, 20, &mut others)?;
    for (commit, rows) in [&before[5], &before[19]] {
        it.has(commit, rows)?;
    }
    // The copy has as many commits, in each shard of several.
    for (commit, _) in &original[kind.of(2..18, 5..9)] {
        let reason = it.lacks(it.restore().until_commit(commit.clone()));
        assert!(reason.contains("two copies"), "{reason}");
    }
    // Only the original has these commits.
    for (commit, rows) in &original[40..] {
        it.has(commit, rows)?;
    }
    // At a time, the store is the one that began last before it.
    for (time, rows) in [(time, &rows), (SystemTime::now(), &others)] {
        assert!(it.restored(it.restore().until(time))?.1 == *rows);
    }
    Ok(())
}
