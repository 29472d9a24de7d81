//! Changes with numbers of transactions of another cluster, after a dump of a server was restored.
//!
//! The numbers of transactions of the new cluster can be less than those of the old one. Then a change without a number would wait until the new
//! cluster has reached the number of its transaction, later changes of the same row would precede it, and a transaction with this number would
//! want its key. So each client numbers the changes when it opens a table, before it writes there. No identity of the cluster is compared: a
//! number is foreign if it is not less than that of the transaction which looks.
//!
//! If the numbers of the new cluster are greater, nothing is foreign: all old numbers are less than those of new transactions, as in one cluster.
//!
//! Each transaction numbers a part, in the order of the old numbers, until no number is foreign: the rest is then less than the numbers of all
//! later transactions. If the client ends before the last one, the next client that opens the table continues. Clients that open the table at the
//! same time number the same parts, so one of them has a conflict and runs again.

use crate::{
    engine::{self, Conflicts, Engine},
    model::{error::Result, row_vtable::TableRows, schema::Renaming},
    placement::Writer,
    store::{Store, transaction},
    write::changes,
};

/// The maximum number of changes that a transaction numbers.
const MOST: usize = 16_384;

/// Whether a table that is being opened has changes of another cluster.
pub(super) fn is_in(rows: &TableRows, writer: &Writer<'_, '_>) -> Result<bool> {
    if rows.changes.is_none() {
        return Ok(false);
    }
    let Some((own, _)) = writer.numbered() else { return Ok(false) };
    changes::has_foreign(writer.reader(), own)
}

/// Looks in a snapshot whether a table has changes of another cluster, and then [numbers](number) them. Without such changes, this waits for no
/// other client.
pub(super) fn number_if_any(
    store: &Store,
    engine: &Engine,
    rows: &TableRows,
    tables: &engine::Tables,
) -> Result<()> {
    if rows.changes.is_none() || !store.inner.engines.has_other_writers() {
        return Ok(());
    }
    let has_foreign = {
        let txn = engine.read()?;
        // All transactions with smaller numbers have ended in the snapshot.
        let number = txn.stamp().number().saturating_add(1);
        let reader = txn.reader(tables).map(|reader| changes::has_foreign(reader, number));
        reader.unwrap_or(Ok(false))?
    };
    if has_foreign { number(store, engine, rows) } else { Ok(()) }
}

/// Numbers the changes of another cluster. No client can have written to the table since the restoration: each
/// one calls this before.
pub(super) fn number(store: &Store, engine: &Engine, rows: &TableRows) -> Result<()> {
    loop {
        let mut is_left = false;
        let attempt = || {
            is_left = false;
            let rename = &mut |_: &mut Renaming<'_>| Ok(());
            let prepare = &mut |writer: engine::Writer<'_, '_>| {
                let mut writer = Writer::One(writer);
                is_left = some(rows, &mut writer)?;
                Ok(())
            };
            engine.open_or_rename(rows.schema, rows.parts(), false, rename, prepare)
        };
        let mut conflicts = Conflicts::default();
        transaction::run(attempt, |retry| {
            transaction::prepare(&store.inner.engines, retry, &mut conflicts)
        })?;
        if !is_left {
            return Ok(());
        }
    }
}

/// Numbers a part. Returns whether there is more.
fn some(rows: &TableRows, writer: &mut Writer<'_, '_>) -> Result<bool> {
    let (Some(stream), true) = (&rows.changes, is_in(rows, writer)?) else { return Ok(false) };
    let mut count = 0;
    loop {
        let numbered = changes::number(stream, writer, u64::MAX)?;
        count += numbered;
        if numbered < changes::AT_ONCE {
            return Ok(false);
        }
        if count >= MOST {
            return Ok(true);
        }
    }
}
