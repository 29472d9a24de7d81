//! Restores of a store with several shards to commit numbers that lack the numbers of some shards: those of write
//! transactions and events, and of snapshots without a shard.

use std::collections::BTreeSet;

use index_table::{CommitNumber, IndexTable, Store};
use serde::{Deserialize, Serialize};

use crate::{Random, TestResult, fresh, shards::options, wait_for_archive};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes", shard_by = tenant, shard_map = "orders")]
struct Note {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
}

type Notes = BTreeSet<(u32, u32)>;

/// Inserts or deletes notes of some tenants in one transaction. Returns its number.
fn change(
    store: &Store,
    notes: &NoteRepository,
    rows: &mut Notes,
    (random, tenants): (&mut Random, &[u32]),
) -> index_table::Result<CommitNumber> {
    let mut changed = Vec::new();
    for _ in 0..=random.below(2) {
        let tenant = tenants[random.below(tenants.len() as u32) as usize];
        let added = (tenant, random.below(1 << 16));
        let removed = rows.iter().find(|row| row.0 == tenant && added.1 % 4 == 0).copied();
        if let Some(removed) = removed {
            rows.remove(&removed);
        }
        rows.insert(added);
        changed.push((added, removed));
    }
    store.transaction(|txn| {
        for ((tenant, id), removed) in &changed {
            if let Some((tenant, id)) = removed {
                notes.delete(txn, *tenant, *id)?;
            }
            notes.put(txn, &Note { tenant: *tenant, id: *id })?;
        }
        Ok(txn.commit_number())
    })
}

fn rows_of(store: &Store) -> index_table::Result<Notes> {
    let notes = NoteRepository::open(store)?;
    let txn = store.read()?;
    notes.all(&txn).rows().map(|row| row.map(|row| (row.tenant, row.id))).collect()
}

#[test]
fn a_restore_to_the_number_of_a_write_transaction_has_no_later_commit() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let (mut random, mut rows, mut then) = (Random(7), Notes::new(), Vec::new());
    for round in 0..4 {
        // Once without the last shard, whose number is then 0 in the snapshots too.
        let is_missing = round == 2;
        let options = options(&archive);
        let options = if is_missing { options.only(["a", "b"]) } else { options };
        let tenants: &[u32] = if is_missing { &[1, 2, 15] } else { &[1, 2, 15, 25, 26] };
        let store = options.open(&path)?;
        let notes = NoteRepository::open(&store)?;
        for _ in 0..60 {
            let number = change(&store, &notes, &mut rows, (&mut random, tenants))?;
            then.push((number, rows.clone()));
            if is_missing {
                then.push((store.read()?.commit_number(), rows.clone()));
            }
        }
        wait_for_archive(&store);
    }
    for at in (0..then.len()).step_by(13) {
        let (number, rows) = &then[at];
        let to = fresh(dir.path(), "restored");
        Store::restore_archive(&archive).until_commit(number.clone()).run(&to)?;
        let restored = rows_of(&Store::open(&to)?)?;
        let more: Vec<_> = restored.symmetric_difference(rows).collect();
        assert!(more.is_empty(), "commit {at}, {number}: {more:?}");
    }
    Ok(())
}
