//! Other tables of the store, which declare the features that `customers` does not.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use index_table::{IndexTable, Store};
use serde::{Deserialize, Serialize};

use crate::{Result, SOME};

#[derive(Debug, Serialize, Deserialize, IndexTable)]
#[table(name = "invoices", expires = expires_at, changes)]
#[index(amount)]
#[aggregate(sum = [amount])]
struct Invoice {
    #[primary_key]
    number: u64,
    #[revision]
    revision: u64,
    amount: i64,
    expires_at: Option<SystemTime>,
}

#[derive(Debug, Serialize, Deserialize, IndexTable)]
#[table(name = "scans", part_of = Invoice)]
struct Scan {
    #[primary_key]
    number: u64,
    pdf: Vec<u8>,
}

#[derive(Debug, Serialize, Deserialize, IndexTable)]
#[table(name = "payments")]
#[index(invoice)]
#[aggregate(invoice, sum = [amount], consistency = "eventual")]
struct Payment {
    #[primary_key]
    id: u64,
    #[references(Invoice, on_delete = "cascade")]
    invoice: u64,
    amount: i64,
}

/// Repositories that keep the tables open.
pub(crate) struct Others(
    #[expect(dead_code, reason = "kept open")]
    (InvoiceRepository, ScanRepository, PaymentRepository),
);

impl Others {
    /// Opens the tables, and writes some rows.
    pub(crate) fn open(store: &Store) -> Result<Self> {
        let invoices = InvoiceRepository::open(store)?;
        let scans = ScanRepository::open(store)?;
        let payments = PaymentRepository::open(store)?;
        let mut txn = store.write()?;
        for number in 0..SOME {
            let expires_at = Some(UNIX_EPOCH + Duration::from_secs(number));
            let amount = number.cast_signed();
            let invoice = Invoice { number, revision: 0, amount, expires_at };
            invoices.insert(&mut txn, &invoice)?;
            scans.insert(&mut txn, &Scan { number, pdf: vec![7; 100] })?;
            payments.insert(&mut txn, &Payment { id: number, invoice: number, amount })?;
        }
        txn.commit()?;
        Ok(Self((invoices, scans, payments)))
    }
}
