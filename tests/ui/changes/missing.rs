use index_table::{IndexTable, Store};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
struct Invoice {
    #[primary_key]
    number: u64,
}

fn mail(invoices: &InvoiceRepository, store: &Store) -> index_table::Result<u64> {
    let changes = invoices.changes(store, "mailer")?;
    changes.lag().map(|lag| lag.changes)
}

fn main() {}
