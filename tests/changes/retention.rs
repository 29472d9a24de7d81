//! The removal of old changes, and consumers that are too slow.

use index_table::{Error, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

use crate::stores::plain_stores;

macro_rules! table {
    ($module:ident, $($changes:tt)*) => {
        mod $module {
            use super::*;

            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
            #[table(name = "notes", $($changes)*)]
            pub(super) struct Note {
                #[primary_key]
                pub(super) id: u32,
                pub(super) text: String,
            }

            pub(super) fn fill(
                store: &Store,
                notes: &NoteRepository,
                ids: std::ops::Range<u32>,
            ) -> Result<()> {
                store.transaction(|txn| {
                    let text = "x".repeat(80);
                    ids.clone().try_for_each(|id| notes.put(txn, &Note { id, text: text.clone() }))
                })
            }
        }
    };
}

table!(by_bytes, changes(bytes = 10_000));
table!(by_time, changes(keep = "1s"));
table!(by_consumers, changes(until_consumed));
table!(by_default, changes);

#[test]
fn writers_remove_changes_beyond_the_bytes() -> Result<()> {
    use by_bytes::{NoteRepository, fill};
    for store in plain_stores()? {
        let notes = NoteRepository::open(&store)?;
        let mut changes = notes.changes(&store, "mailer")?;
        fill(&store, &notes, 0..1000)?;
        // Each change has about 110 bytes, and old changes are removed after each 64th.
        let kept = notes.changes(&store, "late")?.lag()?;
        assert!((80..160).contains(&kept.changes), "{kept}");
        assert!((9_000..18_000).contains(&kept.bytes), "{kept}");

        let failed = changes.next_batch(10).expect_err("missed");
        let Error::ChangesMissed { table: "notes", consumer, missed } = &failed else {
            panic!("{failed:?}")
        };
        assert_eq!((consumer.as_str(), *missed), ("mailer", 1000 - kept.changes));
        assert!(failed.to_string().contains("`skip_removed`"), "{failed}");
        assert_eq!(notes.change_consumers(&store.read()?)?[1].missed, *missed);
        assert_eq!(changes.skip_removed()?, *missed);
        let batch = changes.next_batch(10)?;
        assert_eq!(batch.first().map(|change| change.number), Some(missed + 1));
        batch.commit(&store)?;
    }
    Ok(())
}

#[test]
fn the_last_change_is_kept_even_if_it_is_longer_than_the_bytes() -> Result<()> {
    use by_bytes::{Note, NoteRepository};
    for store in plain_stores()? {
        let notes = NoteRepository::open(&store)?;
        let text = "x".repeat(20_000);
        store.transaction(|txn| {
            (0..64).try_for_each(|id| notes.put(txn, &Note { id, text: text.clone() }))
        })?;
        let mut late = notes.changes(&store, "late")?;
        assert_eq!(late.lag()?.changes, 1);
        assert_eq!(late.next_batch(10)?.first().map(|change| change.key), Some(63));
    }
    Ok(())
}

#[test]
fn a_batch_of_removed_changes_can_still_be_committed() -> Result<()> {
    use by_bytes::{NoteRepository, fill};
    for store in plain_stores()? {
        let notes = NoteRepository::open(&store)?;
        fill(&store, &notes, 0..50)?;
        let mut changes = notes.changes(&store, "mailer")?;
        let batch = changes.next_batch(50)?;
        fill(&store, &notes, 50..1000)?;
        batch.commit(&store)?;
        assert!(matches!(changes.next_batch(50), Err(Error::ChangesMissed { .. })));
    }
    Ok(())
}

#[test]
fn old_changes_are_removed_by_a_call_and_their_numbers_are_not_reused() -> Result<()> {
    use by_time::{NoteRepository, fill};
    for store in plain_stores()? {
        let notes = NoteRepository::open(&store)?;
        fill(&store, &notes, 0..10)?;
        let mut changes = notes.changes(&store, "mailer")?;
        let first = changes.next_batch(1)?;
        while first[0].time.elapsed().unwrap_or_default().as_millis() < 1100 {
            assert_eq!(first.len(), 1);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert_eq!(notes.remove_old_changes(&store, 4)?, 4);
        assert_eq!(notes.remove_old_changes(&store, 1000)?, 6);
        assert_eq!(notes.remove_old_changes(&store, 1000)?, 0);
        assert!(matches!(changes.next_batch(1), Err(Error::ChangesMissed { missed: 10, .. })));
        let mut late = notes.changes(&store, "late")?;
        assert!(late.next_batch(1)?.is_empty());
        fill(&store, &notes, 10..11)?;
        assert_eq!(late.next_batch(1)?.first().map(|change| change.number), Some(11));
    }
    Ok(())
}

#[test]
fn changes_can_be_kept_until_all_consumers_have_committed_them() -> Result<()> {
    use by_consumers::{NoteRepository, fill};
    for store in plain_stores()? {
        let notes = NoteRepository::open(&store)?;
        fill(&store, &notes, 0..200)?;
        assert_eq!(notes.remove_old_changes(&store, 1000)?, 0, "there is no consumer yet");
        let mut slow = notes.changes(&store, "slow")?;
        let mut fast = notes.changes(&store, "fast")?;
        fast.next_batch(150)?.commit(&store)?;
        slow.next_batch(100)?.commit(&store)?;
        assert_eq!(notes.remove_old_changes(&store, 1000)?, 100);
        fill(&store, &notes, 200..1000)?;
        let slowest = slow.next_batch(1000)?;
        assert_eq!((slowest.len(), slowest[0].number), (900, 101));
        assert!(notes.remove_change_consumer(&store, "slow")?);
        assert_eq!(notes.remove_old_changes(&store, 1000)?, 50);
        fast.next_batch(1000)?.commit(&store)?;
        assert_eq!(notes.remove_old_changes(&store, 1000)?, 850);
        fill(&store, &notes, 1000..1001)?;
        assert_eq!(fast.next_batch(9)?.first().map(|change| change.number), Some(1001));
    }
    Ok(())
}

#[test]
fn changes_are_kept_for_days_by_default() -> Result<()> {
    use by_default::{NoteRepository, fill};
    for store in plain_stores()? {
        let notes = NoteRepository::open(&store)?;
        fill(&store, &notes, 0..1000)?;
        assert_eq!(notes.remove_old_changes(&store, 1000)?, 0);
        assert_eq!(notes.changes(&store, "late")?.lag()?.changes, 1000);
    }
    Ok(())
}
