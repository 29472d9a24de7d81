//! Consumers that continue in another store.

use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use index_table::{ChangeKind, Error, OnDuplicate, Result, ShardMap, Store};

use crate::{InvoiceRepository, all_stores, invoice, seen};

const ROWS: u32 = 30;

/// Loads all rows without changes.
fn load(
    (from, old): (&InvoiceRepository, &Store),
    (to, new): (&InvoiceRepository, &Store),
) -> Result<()> {
    let txn = old.read()?;
    let rows = from.all(&txn).rows().collect::<Result<Vec<_>>>()?;
    to.bulk_load(new, rows).on_duplicate(OnDuplicate::Replace).without_changes().run().map(drop)
}

fn fill(store: &Store, invoices: &InvoiceRepository) -> Result<()> {
    (0..ROWS).try_for_each(|id| store.transaction(|txn| invoices.put(txn, &invoice(id, 1))))
}

/// Receives and commits all changes.
fn take_all(store: &Store, invoices: &InvoiceRepository, consumer: &str) -> Result<usize> {
    let (mut changes, mut count) = (invoices.changes(store, consumer)?, 0);
    loop {
        let batch = changes.next_batch(7)?;
        if batch.is_empty() {
            return Ok(count);
        }
        count += batch.iter().count();
        batch.commit(store)?;
    }
}

#[test]
fn consumers_receive_exactly_the_changes_of_the_new_store() -> Result<()> {
    for at in 0..all_stores()?.len() {
        for new in all_stores()? {
            let old = all_stores()?.swap_remove(at);
            let (from, to) = (InvoiceRepository::open(&old)?, InvoiceRepository::open(&new)?);
            fill(&old, &from)?;
            assert_eq!(take_all(&old, &from, "mailer")?, ROWS as usize);
            assert_eq!(take_all(&old, &from, "mirror")?, ROWS as usize);
            load((&from, &old), (&to, &new))?;
            assert_eq!(to.continue_consumers(&new, &from, &old.read()?)?, 2);
            // The second call changes nothing.
            assert_eq!(to.continue_consumers(&new, &from, &old.read()?)?, 2);
            let names = to.change_consumers(&new.read()?)?;
            let names: Vec<_> = names.iter().map(|it| (it.name.as_str(), it.lag.changes)).collect();
            assert_eq!(names, [("mailer", 0), ("mirror", 0)]);

            for id in [3, ROWS] {
                new.transaction(|txn| to.put(txn, &invoice(id, 2)))?;
            }
            for name in ["mailer", "mirror"] {
                let batch = to.changes(&new, name)?.next_batch(100)?;
                let expected = [(ChangeKind::Updated, 3, 2), (ChangeKind::Inserted, ROWS, 2)];
                assert_eq!(seen(&batch), expected, "{name}");
                batch.commit(&new)?;
            }
            // An existing consumer moves forward to the last change.
            new.transaction(|txn| to.put(txn, &invoice(4, 2)))?;
            assert_eq!(to.continue_consumers(&new, &from, &old.read()?)?, 2);
            assert_eq!(take_all(&new, &to, "mailer")?, 0);
        }
    }
    Ok(())
}

#[test]
fn consumers_that_lack_changes_do_not_continue() -> Result<()> {
    for at in 0..all_stores()?.len() {
        for new in all_stores()? {
            let old = all_stores()?.swap_remove(at);
            let (from, to) = (InvoiceRepository::open(&old)?, InvoiceRepository::open(&new)?);
            fill(&old, &from)?;
            take_all(&old, &from, "a")?;
            from.changes(&old, "late")?.next_batch(10)?.commit(&old)?;
            let refused = to.continue_consumers(&new, &from, &old.read()?);
            match refused {
                Err(Error::ChangesLeft { table: "invoices", consumer, changes }) => {
                    assert_eq!((consumer.as_str(), changes), ("late", u64::from(ROWS) - 10));
                }
                refused => panic!("{refused:?}"),
            }
            assert!(to.change_consumers(&new.read()?)?.is_empty());

            // A batch that is received and not committed counts.
            let mut late = from.changes(&old, "late")?;
            let batch = late.next_batch(100)?;
            let refused = to.continue_consumers(&new, &from, &old.read()?);
            assert!(matches!(refused, Err(Error::ChangesLeft { changes: 20, .. })), "{refused:?}");
            batch.commit(&old)?;
            drop(late);
            let wrong = to.continue_consumers(&new, &from, &new.read()?);
            assert!(matches!(wrong, Err(Error::WrongStore { .. })), "{wrong:?}");
            assert_eq!(to.continue_consumers(&new, &from, &old.read()?)?, 2);
            // A consumer with changes left can be removed instead.
            old.transaction(|txn| from.put(txn, &invoice(1, 3)))?;
            assert!(from.remove_change_consumer(&old, "late")?);
            take_all(&old, &from, "a")?;
            assert_eq!(to.continue_consumers(&new, &from, &old.read()?)?, 1);
        }
    }
    Ok(())
}

const CONSUMERS: u32 = 40;
const PATH: &str = "INDEX_TABLE_CONTINUED";
const NAME: &str =
    "continued::a_process_that_is_killed_meanwhile_leaves_a_call_that_can_be_repeated";

fn sharded(path: &Path) -> Result<Store> {
    let map = ShardMap::hashed(["a", "b", "c"]);
    let options = Store::options().shard("a", "a").shard("b", "b").shard("c", "c");
    options.map("invoices", map).open(path)
}

fn open_both(path: &Path, is_sharded: bool) -> Result<(Store, Store)> {
    let (old, new) = (path.join("old"), path.join("new"));
    let open = |path: &Path| if is_sharded { sharded(path) } else { Store::open(path) };
    Ok((open(&old)?, open(&new)?))
}

#[test]
fn a_process_that_is_killed_meanwhile_leaves_a_call_that_can_be_repeated() -> Result<()> {
    if let Some(path) = std::env::var_os(PATH) {
        let path = Path::new(&path);
        let (old, new) = open_both(path, path.join("sharded").exists())?;
        let (from, to) = (InvoiceRepository::open(&old)?, InvoiceRepository::open(&new)?);
        std::fs::write(path.join("begun"), "").expect("a file");
        to.continue_consumers(&new, &from, &old.read()?)?;
        return Ok(());
    }
    for is_sharded in [false, true] {
        let mut counts = BTreeSet::new();
        for round in 0..6 {
            let dir = tempfile::tempdir().expect("a directory");
            if is_sharded {
                std::fs::write(dir.path().join("sharded"), "").expect("a file");
            }
            {
                let (old, new) = open_both(dir.path(), is_sharded)?;
                let (from, to) = (InvoiceRepository::open(&old)?, InvoiceRepository::open(&new)?);
                fill(&old, &from)?;
                load((&from, &old), (&to, &new))?;
                // Changes of the new store that no consumer may receive.
                new.transaction(|txn| to.put(txn, &invoice(ROWS, 1)))?;
                for consumer in 0..CONSUMERS {
                    let mut changes = from.changes(&old, &format!("consumer {consumer:02}"))?;
                    changes.skip_before(&old.read()?)?;
                }
            }
            kill(dir.path(), Duration::from_millis(round * 4));
            let (old, new) = open_both(dir.path(), is_sharded)?;
            let (from, to) = (InvoiceRepository::open(&old)?, InvoiceRepository::open(&new)?);
            counts.insert(to.change_consumers(&new.read()?)?.len());
            let continued = to.continue_consumers(&new, &from, &old.read()?)?;
            assert_eq!(continued, u64::from(CONSUMERS));
            new.transaction(|txn| to.put(txn, &invoice(1, 9)))?;
            for consumer in 0..CONSUMERS {
                let mut changes = to.changes(&new, &format!("consumer {consumer:02}"))?;
                assert_eq!(seen(&changes.next_batch(100)?), [(ChangeKind::Updated, 1, 9)]);
            }
        }
        assert!(counts.iter().any(|it| (1..CONSUMERS as usize).contains(it)), "{counts:?}");
    }
    Ok(())
}

/// Starts a process that continues the consumers, and kills it.
fn kill(path: &Path, after: Duration) {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", NAME])
        .env(PATH, path)
        .stdout(Stdio::null())
        .spawn()
        .expect("a process");
    let begun = Instant::now();
    while !path.join("begun").exists() && begun.elapsed() < Duration::from_mins(1) {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(after);
    let _ = child.kill();
    child.wait().expect("its end");
}
