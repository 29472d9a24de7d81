//! Rows over time: revisions, references, aggregates, expiry, parts, change streams and analyses.

use std::time::{Duration, SystemTime};

use index_table::{Error, IndexTable, Store};
use serde::{Deserialize, Serialize};

use super::{CustomerRepository, TestResult, customer};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "invoices", expires = expires_at, changes)]
#[index(customer, amount)]
#[aggregate(customer, sum = [amount])]
#[aggregate(sum = [amount])]
struct Invoice {
    #[primary_key]
    number: u64,
    #[revision]
    revision: u64,
    #[references(Customer, on_delete = "restrict")]
    customer: u64,
    amount: i64,
    expires_at: Option<SystemTime>,
}

type Customer = super::Customer;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "invoice_scans", part_of = Invoice)]
struct InvoiceScan {
    #[primary_key]
    number: u64,
    pdf: Vec<u8>,
}

fn invoice(number: u64, amount: i64) -> Invoice {
    Invoice { number, revision: 0, customer: 7, amount, expires_at: None }
}

#[test]
fn documented_revisions_expiry_references_and_aggregates_hold() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path())?;
    let customers = CustomerRepository::open(&store)?;
    let invoices = InvoiceRepository::open(&store)?;
    let scans = InvoiceScanRepository::open(&store)?;
    let yesterday = SystemTime::now() - Duration::from_hours(24);
    store.transaction(|txn| {
        customers.insert(txn, &customer(7, "Alice", "Smith", "Redmond"))?;
        invoices.insert(txn, &invoice(1, 100))?;
        invoices.insert(txn, &invoice(2, 50))?;
        invoices.insert(txn, &Invoice { expires_at: Some(yesterday), ..invoice(3, 25) })?;
        scans.insert(txn, &InvoiceScan { number: 1, pdf: vec![1, 2, 3] })
    })?;

    let mut txn = store.write()?;
    let edited = Invoice { amount: 120, revision: 1, ..invoice(1, 0) };
    invoices.put(&mut txn, &edited)?;
    let stale = invoices.put(&mut txn, &edited);
    assert!(matches!(
        stale,
        Err(Error::Conflict { table: "invoices", key, expected: 1, found: Some(2) }) if key == "1"
    ));
    let refused = customers.delete(&mut txn, 7);
    assert!(matches!(refused, Err(Error::Referenced { .. })));
    let missing = invoices.insert(&mut txn, &Invoice { customer: 8, ..invoice(9, 1) });
    assert!(matches!(missing, Err(Error::MissingReference { .. })));

    let totals = invoices.aggregate_by_customer(&txn, 7)?;
    assert_eq!((totals.count, totals.sum_amount), (3, 195));
    for totals in invoices.aggregates_by_customer(&txn) {
        let t = totals?;
        assert_eq!((t.customer, t.sum_amount), (7, 195));
    }
    let all = invoices.aggregate(&txn)?;
    assert_eq!((all.count, all.sum_amount), (3, 195));
    txn.commit()?;

    let expired: u64 = invoices.expire(&store, SystemTime::now(), 1000)?;
    assert_eq!(expired, 1);
    let worker = store.start_expiry_worker();
    drop(worker);

    let mut changes = invoices.changes(&store, "mailer")?;
    let batch = changes.next_batch(100)?;
    let kinds: Vec<String> = batch.iter().map(|change| format!("{:?}", change.kind)).collect();
    assert_eq!(kinds.len(), 5, "{kinds:?}");
    batch.commit(&store)?;

    let txn = store.read()?;
    let report = customers.analyze(&txn)?;
    assert!(!report.indexes.is_empty());
    Ok(())
}
