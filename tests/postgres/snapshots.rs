//! What read transactions see beside writers.

use std::{sync::mpsc, thread, time::Duration};

use index_table::{Error, IndexTable};
use serde::{Deserialize, Serialize};

use super::{TestResult, postgres::Schema};

/// The day to which new receipts belong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "days")]
struct Day {
    #[primary_key]
    id: u32,
    number: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "receipts")]
#[index(day)]
struct Receipt {
    #[primary_key]
    id: u32,
    day: u32,
}

/// A report of a day that is over must have all of its receipts.
#[test]
fn a_serializable_read_has_the_result_of_an_order_of_the_writers() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let (clerk, manager, reporter) = (schema.open()?, schema.open()?, schema.open()?);
    let days = DayRepository::open(&clerk)?;
    let receipts = ReceiptRepository::open(&clerk)?;
    let (of_manager, of_reporter) =
        (DayRepository::open(&manager)?, DayRepository::open(&reporter)?);
    let reports = ReceiptRepository::open(&reporter)?;
    clerk.transaction(|txn| days.insert(txn, &Day { id: 0, number: 1 }))?;

    let mut txn = clerk.write()?;
    let day = days.get(&txn, 0)?.map_or(0, |day| day.number);
    manager.transaction(|txn| of_manager.update(txn, 0, |day| day.number += 1))?;
    // The day is over, and its last receipt is missing. A plain read can't know that.
    let snapshot = reporter.read()?;
    assert_eq!(of_reporter.get(&snapshot, 0)?, Some(Day { id: 0, number: 2 }));
    drop(snapshot);
    let (send, receive) = mpsc::channel();
    let report = thread::scope(|scope| {
        let report = scope.spawn(|| {
            let txn = reporter.read_serializable();
            let _ = send.send(());
            let txn = txn?;
            let number = of_reporter.get(&txn, 0)?.map_or(0, |day| day.number);
            Ok::<_, Error>((number, reports.find_by_day(&txn, 1).count()?))
        });
        // It waits for the clerk.
        assert!(receive.recv_timeout(Duration::from_millis(300)).is_err());
        receipts.insert(&mut txn, &Receipt { id: 1, day })?;
        txn.commit()?;
        report.join().expect("a thread")
    });
    assert_eq!(report?, (2, 1));

    let writes = clerk.write()?;
    assert!(matches!(clerk.read_serializable(), Err(Error::WriteInProgress)));
    drop(writes);
    // Later commits of the same client don't change the snapshot.
    let txn = clerk.read_serializable()?;
    clerk.transaction(|txn| receipts.insert(txn, &Receipt { id: 2, day: 1 }))?;
    assert_eq!(receipts.find_by_day(&txn, 1).count()?, 1);
    Ok(())
}
