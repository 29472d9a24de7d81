//! The consumer of the ledger: it receives all changes of each tenant, in their order, and each once, wherever the table is.

use index_table::{ChangeKind, Changes, Result, Store, WriteTxn};

use crate::{
    app::{App, Handle},
    failure::{Outcome, wrong},
    tables::{Booking, ENTRIES, Entry, Tables},
};

/// The most changes in a batch.
const BATCH: usize = 400;

/// Opens the consumer of the ledger, which every store has.
pub(crate) fn open(tables: &Tables, store: &Store) -> Result<Changes<Entry>> {
    tables.ledger.changes(store, "book")
}

/// Records that the consumer of the ledger has received a change.
fn book(
    (app, tables): (&App, &Tables),
    txn: &mut WriteTxn<'_>,
    kind: ChangeKind,
    entry: &Entry,
) -> Outcome {
    let tenant = entry.tenant;
    let last = tables.bookings.get(txn, tenant)?.map_or(0, |it| it.value);
    let (expected, next) = match kind {
        ChangeKind::Inserted => (last + 1, entry.value),
        _ => (last.saturating_sub(ENTRIES), last),
    };
    let is_known = matches!(kind, ChangeKind::Inserted | ChangeKind::Deleted);
    // A restored shard is older.
    if app.is_whole() && (!is_known || entry.value != expected) {
        return wrong(format!("the consumer of the ledger: {kind:?} {entry:?} after value {last}"));
    }
    Ok(tables.bookings.put(txn, &Booking { tenant, value: next })?)
}

/// The consumer of the ledger, if it is open.
pub(crate) struct Bookkeeper(Option<Changes<Entry>>);

impl Bookkeeper {
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    /// Receives a batch of the ledger. Returns the number of changes.
    pub(crate) fn take(&mut self, app: &App, handle: &Handle) -> Outcome<usize> {
        let (store, tables) = (&handle.store, &handle.tables);
        let changes = match &mut self.0 {
            Some(changes) => changes,
            none => none.insert(open(tables, store)?),
        };
        let batch = changes.next_batch(BATCH)?;
        if batch.is_empty() {
            return Ok(0);
        }
        store.try_transaction(|txn| {
            batch.commit_in(txn)?;
            batch.iter().try_for_each(|it| book((app, tables), txn, it.kind, &it.row))
        })?;
        Ok(batch.len())
    }
}
