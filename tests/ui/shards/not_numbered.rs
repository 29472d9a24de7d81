//! Rows of a table with a shard key are numbered after the shard key, or not at all.

use index_table::{IndexTable, Result, WriteTxn};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(shard_by = hash(id))]
struct Event {
    #[primary_key]
    id: u64,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(shard_by = tenant)]
struct Page {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    name: String,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(shard_by = tenant)]
struct Line {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    invoice: u64,
    #[primary_key]
    line: u32,
}

fn event(events: &EventRepository, txn: &mut WriteTxn<'_>) -> Result<u64> {
    events.insert_with(txn, |id: u64| Event { id })
}

fn page(pages: &PageRepository, txn: &mut WriteTxn<'_>) {
    pages.insert_with(txn, |name: String| Page { tenant: 1, name });
}

fn line(lines: &LineRepository, txn: &mut WriteTxn<'_>) {
    lines.insert_with(txn, |line: u32| Line { tenant: 1, invoice: 2, line });
}

fn main() {}

// 3 mistakes
