//! The crate is found where `crate = …` says.
#![deny(warnings)]

use serde::{Deserialize, Serialize};

mod vendor {
    pub use index_table as tables;
}

// What `::index_table` means is nothing to the derive.
#[derive(Serialize, Deserialize, vendor::tables::IndexTable)]
#[table(crate = crate::vendor::tables, repository = Customers, view = Borrowed, version = 2)]
#[index(town, name = "home")]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
}

fn main() {
    let _ = |customers: &Customers, txn: &vendor::tables::ReadTxn<'_>| {
        let _: Option<Borrowed<'_>> = customers.get_view(txn, 7).ok().flatten();
        customers.find_by_home(txn, "Redmond").count().is_ok()
    };
}
