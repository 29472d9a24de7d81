//! Generated code uses the path of `crate = …`.
#![allow(missing_docs, unreachable_pub, dead_code, clippy::all, clippy::pedantic)]
#![deny(warnings)]

use serde::{Deserialize, Serialize};

mod vendor {
    pub use index_table as tables;
}

#[derive(Deserialize, vendor::tables::RowVersion)]
#[table(crate = crate::vendor::tables)]
struct Older {
    id: u64,
}

impl From<Older> for Customer {
    fn from(Older { id }: Older) -> Self {
        Self { id, town: String::new() }
    }
}

// The derive does not use the path `::index_table`.
#[derive(Serialize, Deserialize, vendor::tables::IndexTable)]
#[table(crate = crate::vendor::tables, repository = Customers, view = Borrowed, version = 2, previous = Older)]
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
