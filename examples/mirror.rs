//! A copy of a store, which is kept up to date from its change stream.
//!
//! ```text
//! cargo run --example mirror
//! ```
//!
//! The mirror begins with the rows of one snapshot, and continues after the last change of this snapshot. It is stopped
//! between applying a batch and committing it, opened again, and applies the batch twice. At the end, both stores have
//! the same rows.

use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use index_table::{ChangeKind, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes", changes)]
#[index(topic)]
struct Note {
    #[primary_key]
    id: u32,
    topic: u8,
    text: String,
}

/// Writes some rows, which depend on the number of the round.
fn edit(store: &Store, notes: &NoteRepository, round: u32) -> Result<()> {
    store.transaction(|txn| {
        for step in 0..200_u32 {
            let id = (step * 7 + round * 31) % 150;
            if (step + round).is_multiple_of(5) {
                notes.delete(txn, id)?;
            } else {
                let text = format!("round {round}, step {step}");
                notes.put(txn, &Note { id, topic: (step % 9) as u8, text })?;
            }
        }
        Ok(())
    })
}

/// Applies up to `batches` batches. With `stops`, ends before the commit of the last one.
fn follow(store: &Store, mirror: &Path, batches: usize, stops: bool) -> Result<u64> {
    let mirror = Store::open(mirror)?;
    let (notes, copies) = (NoteRepository::open(store)?, NoteRepository::open(&mirror)?);
    let is_new = notes.change_consumers(&store.read()?)?.is_empty();
    let mut changes = notes.changes(store, "mirror")?;
    if is_new {
        let txn = store.read()?;
        let rows = notes.all(&txn).rows().collect::<Result<Vec<_>>>()?;
        copies.bulk_load(&mirror, rows).run()?;
        changes.skip_to(notes.last_change(&txn)?)?;
    }
    let mut applied = 0;
    for at in 1..=batches {
        let batch = changes.next_batch(64)?;
        mirror.transaction(|txn| {
            batch.iter().try_for_each(|change| match change.kind {
                ChangeKind::Deleted => copies.delete(txn, change.key).map(drop),
                _ => copies.put(txn, &change.row),
            })
        })?;
        applied += batch.len() as u64;
        if !(stops && at == batches) {
            batch.commit(store)?;
        }
    }
    Ok(applied)
}

fn rows(store: &Store) -> Result<Vec<Note>> {
    NoteRepository::open(store)?.all(&store.read()?).rows().collect()
}

fn run(out: &mut impl Write) -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let store = Store::open(directory.path().join("shop"))?;
    let mirror = directory.path().join("mirror");
    let notes = NoteRepository::open(&store)?;
    edit(&store, &notes, 0)?;
    follow(&store, &mirror, 0, false)?;
    for round in 1..20 {
        edit(&store, &notes, round)?;
        follow(&store, &mirror, 2, round % 2 == 0)?;
    }
    let lag = notes.changes(&store, "mirror")?.lag()?;
    writeln!(out, "the mirror is behind: {}", lag.changes > 0)?;
    while notes.changes(&store, "mirror")?.lag()?.changes > 0 {
        follow(&store, &mirror, 8, false)?;
    }
    let mirror = Store::open(&mirror)?;
    let (rows, copies) = (rows(&store)?, rows(&mirror)?);
    writeln!(out, "{} rows, equal in both stores: {}", rows.len(), rows == copies)?;
    writeln!(out, "verified: {}", store.verify()?.is_clean() && mirror.verify()?.is_clean())?;
    Ok(())
}

fn main() -> ExitCode {
    match run(&mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
