//! Processes that are killed while a group writer commits, or an index worker applies messages.

use std::path::Path;

use index_table::{IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

use super::{Failure, Known, say};

/// The rows of both scenarios, numbered from 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "messages")]
#[index(topic)]
#[index(each(words), consistency = "eventual")]
struct Message {
    #[primary_key]
    id: u32,
    topic: u8,
    words: Vec<String>,
}

fn message(id: u32) -> Message {
    let words = (0..id % 4).map(|word| format!("word {}", (id + word) % 9)).collect();
    Message { id, topic: (id % 5) as u8, words }
}

/// The number of closures that wait for a commit at the same time.
const WAITING: u32 = 8;

fn open(path: &Path) -> Result<(Store, MessageRepository)> {
    let store = crate::options().open(path.join("store"))?;
    let messages = MessageRepository::open(&store)?;
    Ok((store, messages))
}

fn count(store: &Store, messages: &MessageRepository) -> Result<u32> {
    Ok(messages.all(&store.read()?).count()? as u32)
}

/// Submits closures that are committed in groups.
pub(super) fn submit(path: &Path) -> Result<()> {
    let (store, messages) = open(path)?;
    let writer = store.writer()?;
    let first = count(&store, &messages)?;
    say("open");
    for first in (first..).step_by(WAITING as usize) {
        let submitted: Vec<_> = (first..first + WAITING)
            .map(|id| {
                let messages = messages.clone();
                writer.submit(move |txn| messages.insert(txn, &message(id)))
            })
            .collect();
        for submitted in submitted {
            submitted.wait()?;
            say("done");
        }
    }
    Ok(())
}

/// Writes one row after another while an index worker runs.
pub(super) fn queue(path: &Path) -> Result<()> {
    let (store, messages) = open(path)?;
    let _worker = store.start_index_worker()?;
    say("open");
    for id in count(&store, &messages)?.. {
        store.transaction(|txn| messages.insert(txn, &message(id)))?;
        say("done");
    }
    Ok(())
}

/// Checks that the acknowledged rows are present, and up to `more` further rows, and that the indexes match.
fn prove(path: &Path, known: &mut Known, more: u64) -> Result<(), Failure> {
    let looked = || -> Result<_> {
        let (store, messages) = open(path)?;
        store.check()?;
        while messages.drain(&store, 100)?.applied > 0 {}
        let txn = store.read()?;
        let count = messages.all(&txn).count()? as u32;
        let are_first = messages.all(&txn).rows().map_while(Result::ok).eq((0..count).map(message));
        let report = messages.verify(&txn).run()?;
        let words = (0..count).map(|id| message(id).words.len() as u64).sum::<u64>();
        let entries = messages.by_words(&txn).stale().keys().count() as u64;
        let is_right = are_first && report.is_clean() && entries == words;
        Ok((u64::from(count), is_right))
    };
    let (count, is_right) = looked().map_err(|error| error.to_string())?;
    if !is_right {
        return Err(format!("{count} messages, and others or other entries than expected"));
    }
    known.find(count, more)
}

pub(super) fn prove_submitted(path: &Path, known: &mut Known) -> Result<(), Failure> {
    prove(path, known, u64::from(WAITING))
}

pub(super) fn prove_queued(path: &Path, known: &mut Known) -> Result<(), Failure> {
    prove(path, known, 1)
}
