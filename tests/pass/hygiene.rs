//! Fields that have the names of variables in the generated code.
#![allow(missing_docs, unreachable_pub, dead_code, clippy::all, clippy::pedantic)]
#![deny(warnings)]

use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(view)]
#[index(txn, store, row, change, include = [index, entries, key])]
#[index(each(element), entry, strategy = "full")]
#[index(table, name = "all")]
#[index(bounds, unique)]
#[index(desc(entries), computed(computed0: String), computed(element: u8), sparse, filter = entry, name = "forms")]
struct Names {
    #[primary_key]
    txn: u64,
    #[primary_key]
    row: String,
    store: u8,
    change: bool,
    entry: char,
    element: Vec<String>,
    index: Option<String>,
    entries: Option<f64>,
    key: Vec<u8>,
    table: [u8; 4],
    bounds: Option<u16>,
    field0: i128,
}

/// Methods whose names are, too.
impl Names {
    fn computed0(&self) -> String {
        String::new()
    }

    fn element(&self) -> u8 {
        self.store
    }

    fn entry(&self) -> bool {
        self.change
    }
}

fn main() {}
