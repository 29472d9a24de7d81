//! Methods that return other results than when the rows were written.

use std::{cell::Cell, time::Duration};

use index_table::{Error, Event, FindingKind, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

use crate::counts;

thread_local! {
    static CHANGED: Cell<bool> = const { Cell::new(false) };
    static LONG: Cell<bool> = const { Cell::new(false) };
}

#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(computed(group: u64), name = "packed")]
#[index(computed(group: u64), include = [name], name = "covered")]
#[index(computed(label: String), unique, name = "once")]
#[index(name, filter = is_in, name = "filtered")]
struct Row {
    #[primary_key]
    id: u32,
    name: String,
}

impl Row {
    fn group(&self) -> u64 {
        u64::from(self.id % 10) + u64::from(CHANGED.get())
    }

    fn label(&self) -> String {
        if LONG.get() { "x".repeat(600) } else { format!("{} {}", CHANGED.get(), self.id) }
    }

    fn is_in(&self) -> bool {
        self.id.is_multiple_of(2) ^ (CHANGED.get() && self.id.is_multiple_of(5))
    }
}

/// There are more findings than one round repairs.
#[test]
fn entries_of_changed_methods_are_found_and_repaired() -> Result<()> {
    const ROWS: u32 = 3000;
    let dir = tempfile::tempdir().expect("a directory");
    let lmdb = Store::options().map_size(1 << 26).open(dir.path())?;
    for store in [lmdb, Store::in_memory()] {
        CHANGED.set(false);
        let rows = RowRepository::open(&store)?;
        let row = |id| Row { id, name: format!("row {id}") };
        store.transaction(|txn| (0..ROWS).try_for_each(|id| rows.insert(txn, &row(id))))?;
        let (mut reports, txn) = (Vec::new(), store.read()?);
        assert!(rows.verify(&txn).progress(|at| reports.push(at)).run()?.is_clean());
        assert!(reports.len() > 2 && reports.is_sorted_by(|one, next| one.done < next.done));
        let last = reports.last().expect("the end");
        assert_eq!((Some(last.done), last.left), (last.total, Some(Duration::ZERO)));
        drop(txn);

        CHANGED.set(true);
        let watcher = rows.watch(&store).start()?;
        let report = rows.verify(&store.read()?).run()?;
        let moved = u64::from(ROWS) * 3;
        let filtered = u64::from(ROWS) / 10;
        assert_eq!(
            counts(&report),
            [(FindingKind::Missing, moved + filtered), (FindingKind::Stale, moved + filtered)]
        );
        assert_eq!((report.findings.len(), report.left), (1000, 2 * (moved + filtered)));
        let mut txn = store.write()?;
        let mut reports = Vec::new();
        let repaired = rows.repair(&mut txn).progress(|at| reports.push(at)).run()?;
        assert!(reports.len() > 3 && reports.is_sorted_by(|one, next| one.done <= next.done));
        let (first, last) = (reports[0], reports[reports.len() - 1]);
        assert_eq!((first.done, Some(last.done)), (0, last.total), "{first} … {last}");
        assert_eq!((&repaired.counts, repaired.left), (&report.counts, 0));
        assert_eq!((repaired.rows, repaired.entries), (report.rows, report.entries));
        assert!(rows.verify(&txn).run()?.is_clean());
        assert_eq!(rows.find_by_packed(&txn, 10).count()?, 300);
        txn.commit()?;
        // The events of a watcher of the index may differ from its new entries.
        assert!(matches!(watcher.try_recv(), Ok(Event::Lagged(_))));
        store.transaction(|txn| rows.repair(txn).run())?;
        assert!(watcher.try_recv().is_err(), "a repair without findings sent an event");

        LONG.set(true);
        let result = store.transaction(|txn| rows.repair(txn).run());
        assert!(matches!(result, Err(Error::KeyTooLong { index: Some("once"), .. })));
        LONG.set(false);
        assert!(rows.verify(&store.read()?).run()?.is_clean(), "a failed repair was committed");
    }
    Ok(())
}
