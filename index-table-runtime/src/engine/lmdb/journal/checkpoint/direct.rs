//! Direct commits: transactions that are too large for the journal.
//!
//! A transaction with more changes than [`Limits::transaction`](super::Limits::transaction) is not written twice: the journal
//! gets a *direct record* without changes, LMDB's commit makes the data file durable, and a checkpoint follows. S is the state of
//! the last checkpoint, and N is the number of the transaction.
//!
//! 1. The committing thread, with the turn to write, waits for a checkpoint in progress, and opens the files for the next one.
//! 2. It appends the direct record with N, and syncs the journal.
//! 3. LMDB commits with syncs: it writes the pages, syncs the data file, and then writes the meta page of N through a descriptor
//!    whose writes are synced. Only then is the commit visible, in this process and in others.
//! 4. The same thread makes a checkpoint of N. No other transaction begins before it is durable.
//!
//! After a kill or a power failure, the next opening finds:
//!
//! | during | journal | data file | the opening |
//! |---|---|---|---|
//! | 1, 2 | S, maybe the direct record | no meta page of N | goes back to S, and applies the records, without N |
//! | 3 | S, the direct record | no meta page of N | the same |
//! | 3, 4 | S, the direct record | the meta page of N, so all its pages are durable | takes the data file as it is |
//! | later | the checkpoint of N | any later state | goes back to N, and applies the records |
//!
//! If LMDB can't commit, a notice takes the direct record back, and the meta page of N does not count. LMDB's sync may have
//! taken the error of earlier writes, which the next checkpoint would then miss. So another descriptor, which was opened
//! before the commit, syncs the data file after an error of the disk. If it gets an error too, no further checkpoint is made,
//! and the store has to be opened again. On a full disk, a write fails and not a sync, so the store continues.
//!
//! Data files with an archive, which gets its records from the journal, and data files that share a journal have no direct
//! commits.

use std::{fs::File, io, sync::atomic::Ordering::SeqCst, thread, time::Instant};

use heed::{EnvFlags, FlagSetMode};

use super::SHORT;
use crate::engine::lmdb::{
    journal::{
        common::{DATA_SYNC, Missed, Opened, Turn},
        member::{Held, Member},
    },
    names::{Env, FILE},
};

/// The number of attempts to pin the state of the commit.
const TRIES: usize = 5;

const NOT_PINNED: &str =
    "no reader slot was free for the checkpoint of a large transaction, which is complete";

/// A direct commit, from the end of step 1 to step 4.
pub(in crate::engine::lmdb) struct Direct<'j> {
    turn: Turn<'j>,
    opened: Opened,
    synced: Synced,
    /// Gets the errors of writes since before the commit.
    witness: File,
}

/// While this exists, commits of LMDB are synced.
struct Synced(Env);

impl Synced {
    fn begin(env: Env) -> heed::Result<Self> {
        set_no_sync(&env, FlagSetMode::Disable)?;
        Ok(Self(env))
    }
}

impl Drop for Synced {
    fn drop(&mut self) {
        // With the flag, commits would only take longer.
        let _ = set_no_sync(&self.0, FlagSetMode::Enable);
    }
}

#[expect(unsafe_code, reason = "threads must not change the flags at the same time")]
fn set_no_sync(env: &Env, mode: FlagSetMode) -> heed::Result<()> {
    // SAFETY: only the thread with the turn to write changes the flags. LMDB reads this flag in commits only.
    unsafe { env.set_flags(EnvFlags::NO_SYNC, mode) }
}

impl Member {
    /// Prepares a direct commit. The calling thread must have the turn to write.
    pub(in crate::engine::lmdb) fn begin_direct(&self) -> io::Result<Direct<'_>> {
        let common = &*self.common;
        let turn = common.turn();
        common.record_streamed();
        if let Some(reason) = common.refused() {
            return Err(io::Error::other(reason));
        }
        let env = self.shard().and_then(|shard| Some(shard.lock().as_ref()?.env.clone()));
        let env = env.ok_or(io::ErrorKind::NotFound)?;
        let opened = common.open()?;
        let witness = File::open(env.path().join(FILE))?;
        let synced = Synced::begin(env).map_err(|error| match error {
            heed::Error::Io(error) => error,
            error => io::Error::other(error),
        })?;
        Ok(Direct { turn, opened, synced, witness })
    }

    /// Records that a direct commit is visible, and makes its checkpoint.
    pub(in crate::engine::lmdb) fn committed_directly(
        &self,
        Direct { turn, opened, synced, .. }: Direct<'_>,
        mut held: Held<'_>,
        number: u64,
    ) {
        drop(synced);
        held.set_number(number);
        drop(held);
        let common = &*self.common;
        let mut opened = Some(opened);
        let mut begun = common.begin(&mut opened);
        for _ in 1..TRIES {
            if !matches!(begun, Err(Missed::Now | Missed::File(_))) {
                break;
            }
            thread::sleep(SHORT);
            begun = common.begin(&mut opened);
        }
        common.is_due.store(false, SeqCst);
        common.lock().since = Instant::now();
        let outcome = begun.and_then(|mut making| {
            common.finish(&mut making, true)?;
            common.record(making);
            Ok(())
        });
        match outcome {
            Ok(()) => {}
            Err(Missed::Ever(reason)) => common.refuse(reason),
            Err(Missed::Now | Missed::File(_)) => common.refuse(NOT_PINNED),
        }
        drop(turn);
    }

    /// Stops all writes if a direct commit that has met an error of the disk may have taken the error of earlier writes.
    pub(in crate::engine::lmdb) fn fail_direct(&self, direct: &Direct<'_>) {
        if direct.witness.sync_data().is_err() {
            self.refuse(DATA_SYNC);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::{Path, PathBuf},
        time::Duration,
    };

    use index_table::{Durability, IndexTable, Options, Store};
    use serde::{Deserialize, Serialize};

    use super::super::super::{
        block::HEAD,
        files::{self, OWN, write_at},
        found::Found,
        frame::{self, Body, Header, Kind, Place, Salt, Section},
        log,
        marked::data,
        marker::{self, Marker},
        snapshot::last_number,
        tail::{self, file_of},
    };

    type TestResult = Result<(), Box<dyn std::error::Error>>;

    #[derive(Serialize, Deserialize, IndexTable)]
    struct Note {
        #[primary_key]
        id: u32,
    }

    /// Returns options with a journal that makes no checkpoint while the store is open.
    fn options() -> Options {
        let options = Store::options().durability(Durability::Journal);
        options.checkpoint(u64::MAX, u64::MAX, Duration::from_hours(1))
    }

    /// Copies files whose names begin with a word.
    fn copy(from: &Path, to: &Path, word: &str) -> std::io::Result<()> {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(word) {
                fs::copy(entry.path(), to.join(entry.file_name()))?;
            }
        }
        Ok(())
    }

    /// Appends frames to the journal in a directory: a direct record, and possibly a notice that takes it back.
    fn append(directory: &Path, number: u64, is_taken_back: bool) -> TestResult {
        let Some(Marker::Needed(known)) = marker::find(&data(directory)?)? else {
            return Err("the journal is not needed".into());
        };
        let found = Found::read(directory, &known).map_err(|_| "no journal")?;
        let (source, mut at) = (found.source(), found.tail.end);
        let salt = Salt { sequence: at.sequence, ..found.checkpoint.salt };
        let last = found.tail.records.last().and_then(|it| it.frames.last()).ok_or("no record")?;
        let link = tail::frame(source.files, source.checkpoint, *last, |frame| Some(frame.link()));
        let mut header = Header {
            kind: Kind::Direct,
            record: found.tail.next,
            time: log::nanoseconds(),
            durable: Place { sequence: at.sequence, offset: HEAD },
            checkpoint: salt.sequence,
            link: link.ok().flatten().ok_or("no frame")?,
        };
        let path = files::path(directory, OWN, file_of(at.sequence, files::FILES));
        let file = fs::File::options().write(true).open(path)?;
        let mut bytes = Vec::new();
        let direct = [Section { shard: 0, number, changes: &[] }];
        for body in [Body::Sections(&direct), Body::Record(header.record)] {
            let link = frame::write(&mut bytes, &salt, at.offset, &header, body);
            write_at(&file, at.offset, &bytes)?;
            at.offset += bytes.len() as u64;
            header = Header {
                kind: Kind::TakeBack,
                record: header.record + 1,
                link: link.ok_or("a long frame")?,
                ..header
            };
            if !is_taken_back {
                break;
            }
        }
        Ok(())
    }

    fn count(directory: &Path, inserted: Option<u32>) -> Result<u64, index_table::Error> {
        let store = options().open(directory)?;
        let notes = NoteRepository::open(&store)?;
        if let Some(id) = inserted {
            store.transaction(|txn| notes.insert(txn, &Note { id }))?;
        }
        store.check()?;
        notes.all(&store.read()?).count()
    }

    #[test]
    fn a_direct_record_counts_if_the_data_file_has_its_transaction() -> TestResult {
        let dir = tempfile::tempdir()?;
        let path = |name: &str| -> PathBuf { dir.path().join(name) };
        let store = options().open(path("store"))?;
        let notes = NoteRepository::open(&store)?;
        let insert = |id| store.transaction(|txn| notes.insert(txn, &Note { id }));
        (0..3).try_for_each(insert)?;
        copy(&path("store"), &path("before"), "")?;
        insert(3)?;
        copy(&path("store"), &path("after"), "")?;
        drop((notes, store));
        let number = last_number(&data(&path("after"))?)?.ok_or("no number")?;
        let cases =
            [("before", false, 3), ("before", true, 3), ("after", false, 4), ("after", true, 3)];
        for (number_of, (from, is_taken_back, expected)) in cases.into_iter().enumerate() {
            let made = path(&format!("made{number_of}"));
            copy(&path("before"), &made, "journal.")?;
            copy(&path(from), &made, "data.mdb")?;
            append(&made, number, is_taken_back)?;
            // As after a second power failure.
            let again = path(&format!("again{number_of}"));
            copy(&made, &again, "")?;
            for made in [made, again] {
                assert_eq!(count(&made, None)?, expected, "{from} {is_taken_back}");
                assert_eq!(count(&made, Some(9))?, expected + 1);
                assert_eq!(count(&made, None)?, expected + 1);
            }
        }
        // Without the record, the data file has a commit that the journal lacks.
        let made = path("without");
        copy(&path("before"), &made, "journal.")?;
        copy(&path("after"), &made, "data.mdb")?;
        assert!(count(&made, None).is_err());
        Ok(())
    }
}
