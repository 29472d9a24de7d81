//! The changes that each operation adds to the stream.

use std::time::{Duration, SystemTime};

use index_table::{
    ChangeKind::{Deleted, Inserted, Updated},
    Error, IndexTable, OnDuplicate, Result, Store, WriteTxn,
};
use serde::{Deserialize, Serialize};

use crate::{Invoice, InvoiceRepository, Seen, all_stores, invoice, seen, stores::plain_stores};

/// Returns the changes that a transaction adds.
fn changes_of(
    store: &Store,
    invoices: &InvoiceRepository,
    write: impl FnMut(&mut WriteTxn<'_>) -> Result<()>,
) -> Result<Vec<Seen>> {
    let mut changes = invoices.changes(store, "of a test")?;
    changes.skip_to(u64::MAX)?;
    store.transaction(write)?;
    let batch = changes.next_batch(usize::MAX)?;
    Ok(seen(&batch))
}

#[test]
fn each_written_row_is_a_change_in_the_order_of_the_writes() -> Result<()> {
    for store in all_stores()? {
        let invoices = InvoiceRepository::open(&store)?;
        let of = |write: &mut dyn FnMut(&mut WriteTxn<'_>) -> Result<()>| {
            changes_of(&store, &invoices, write)
        };
        assert_eq!(of(&mut |txn| invoices.insert(txn, &invoice(1, 10)))?, [(Inserted, 1, 10)]);
        assert_eq!(of(&mut |txn| invoices.put(txn, &invoice(2, 20)))?, [(Inserted, 2, 20)]);
        assert_eq!(of(&mut |txn| invoices.put(txn, &invoice(2, 21)))?, [(Updated, 2, 21)]);
        assert_eq!(of(&mut |txn| invoices.put(txn, &invoice(2, 21)))?, []);
        let replaced = of(&mut |txn| invoices.replace(txn, &invoice(2, 22)).map(drop))?;
        assert_eq!(replaced, [(Updated, 2, 22)]);
        let updated = of(&mut |txn| invoices.update(txn, 2, |row| row.amount += 1).map(drop))?;
        assert_eq!(updated, [(Updated, 2, 23)]);
        assert_eq!(of(&mut |txn| invoices.update(txn, 2, |_| ()).map(drop))?, []);
        let by = Invoice { number: 3, ..invoice(2, 24) };
        let by = of(&mut |txn| invoices.put_by_reference(txn, &by))?;
        assert_eq!(by, [(Deleted, 2, 23), (Inserted, 3, 24)]);
        let moved = of(&mut |txn| invoices.update(txn, 3, |row| row.number = 4).map(drop))?;
        assert_eq!(moved, [(Deleted, 3, 24), (Inserted, 4, 24)]);
        assert_eq!(of(&mut |txn| invoices.delete(txn, 4).map(drop))?, [(Deleted, 4, 24)]);
        assert_eq!(of(&mut |txn| invoices.delete(txn, 4).map(drop))?, []);
        assert_eq!(of(&mut |txn| invoices.remove(txn, 1).map(drop))?, [(Deleted, 1, 10)]);
        let several = of(&mut |txn| {
            invoices.insert(txn, &invoice(9, 1))?;
            invoices.insert(txn, &invoice(8, 2))?;
            invoices.update(txn, 9, |row| row.amount = 3)?;
            invoices.find_by_customer(txn, 1).query().delete(txn).map(drop)
        })?;
        let expected = [(Inserted, 9, 1), (Inserted, 8, 2), (Updated, 9, 3), (Deleted, 8, 2)];
        assert_eq!(several, [&expected[..], &[(Deleted, 9, 3)]].concat());
        assert!(store.verify()?.is_clean());
    }
    Ok(())
}

#[test]
fn a_write_that_is_rolled_back_adds_no_change() -> Result<()> {
    for store in all_stores()? {
        let invoices = InvoiceRepository::open(&store)?;
        let changes = changes_of(&store, &invoices, |txn| {
            invoices.insert(txn, &invoice(1, 10))?;
            let refused = invoices.insert(txn, &invoice(1, 11));
            assert!(matches!(refused, Err(Error::DuplicateKey { .. })));
            let undone: Result<()> = txn.nested(|txn| {
                invoices.insert(txn, &invoice(2, 20))?;
                Err(Error::WriteInProgress)
            });
            assert!(undone.is_err());
            txn.nested(|txn| invoices.insert(txn, &invoice(3, 30)))
        })?;
        assert_eq!(changes, [(Inserted, 1, 10), (Inserted, 3, 30)]);
        let mut changes = invoices.changes(&store, "later")?;
        let mut txn = store.write()?;
        invoices.insert(&mut txn, &invoice(4, 40))?;
        drop(txn);
        assert_eq!(seen(&changes.next_batch(9)?), [(Inserted, 1, 10), (Inserted, 3, 30)]);
    }
    Ok(())
}

#[test]
fn a_bulk_load_adds_its_rows_to_the_stream() -> Result<()> {
    for store in all_stores()? {
        let invoices = InvoiceRepository::open(&store)?;
        let rows = (0..300).rev().map(|number| invoice(number, 1));
        invoices.bulk_load(&store, rows).run()?;
        let mut changes = invoices.changes(&store, "loader")?;
        let batch = changes.next_batch(1000)?;
        let inserted: Vec<_> = (0..300).map(|number| (Inserted, number, 1)).collect();
        assert_eq!(seen(&batch), inserted);
        batch.commit(&store)?;

        let rows = [invoice(7, 1), invoice(8, 2), invoice(300, 3)];
        invoices.bulk_load(&store, rows).on_duplicate(OnDuplicate::Replace).run()?;
        let batch = changes.next_batch(1000)?;
        assert_eq!(seen(&batch), [(Updated, 8, 2), (Inserted, 300, 3)]);
        batch.commit(&store)?;

        let rows = [invoice(7, 4), invoice(301, 5)];
        invoices.bulk_load(&store, rows).on_duplicate(OnDuplicate::Skip).run()?;
        assert_eq!(seen(&changes.next_batch(1000)?), [(Inserted, 301, 5)]);
    }
    Ok(())
}

#[test]
fn a_bulk_load_without_changes_repeats_no_effects() -> Result<()> {
    for store in all_stores()? {
        let invoices = InvoiceRepository::open(&store)?;
        let mut changes = invoices.changes(&store, "mailer")?;
        store.transaction(|txn| invoices.insert(txn, &invoice(1, 1)))?;
        let rows = (1..300).map(|number| invoice(number, 2));
        let load = invoices.bulk_load(&store, rows).on_duplicate(OnDuplicate::Replace);
        let report = load.without_changes().run()?;
        assert_eq!((report.written, report.replaced), (299, 1));
        store.transaction(|txn| {
            let rows = [invoice(300, 3)];
            invoices.bulk_load_in(txn, rows).without_changes().run()?;
            invoices.put(txn, &invoice(1, 3))
        })?;
        let batch = changes.next_batch(1000)?;
        assert_eq!(seen(&batch), [(Inserted, 1, 1), (Updated, 1, 3)]);
        assert_eq!(invoices.all(&store.read()?).count()?, 300);
        assert!(invoices.verify(&store.read()?).run()?.is_clean());
    }
    Ok(())
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(changes, expires = ends)]
struct Session {
    #[primary_key]
    id: u32,
    ends: SystemTime,
}

#[test]
fn an_expired_row_is_deleted_in_the_stream() -> Result<()> {
    for store in plain_stores()? {
        let sessions = SessionRepository::open(&store)?;
        let (now, later) = (SystemTime::now(), SystemTime::now() + Duration::from_hours(1));
        store.transaction(|txn| {
            sessions.insert(txn, &Session { id: 1, ends: now })?;
            sessions.insert(txn, &Session { id: 2, ends: later })
        })?;
        let mut changes = sessions.changes(&store, "archive")?;
        changes.next_batch(100)?.commit(&store)?;
        sessions.expire(&store, now, 100)?;
        let batch = changes.next_batch(100)?;
        let deleted: Vec<_> = batch.iter().map(|change| (change.kind, change.key)).collect();
        assert_eq!(deleted, [(Deleted, 1)]);
    }
    Ok(())
}
