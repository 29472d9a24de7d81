//! Names lose their `r#`, fields keep it.
#![deny(warnings)]

use index_table::{IndexTable, ReadTxn, Result};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(r#type, include = [r#match])]
#[index(each(r#match), include = [r#match])]
#[index(r#unique)]
struct Event {
    #[primary_key]
    r#mod: u64,
    r#type: String,
    r#match: Vec<u32>,
    r#unique: bool,
}

fn main() {
    let _ = ask;
}

fn ask(events: &EventRepository, txn: &ReadTxn<'_>) -> Result<()> {
    for entry in events.find_by_type(txn, "click").entries() {
        let entry = entry?;
        let _: (&str, u64, &Vec<u32>) = (entry.r#type, entry.r#mod, &entry.r#match);
    }
    for entry in events.find_by_match_range(txn, 1..5).entries() {
        let entry = entry?;
        let _: (u32, &Vec<u32>) = (entry.r#match, &entry.all_match);
    }
    events.find_by_unique(txn, true).count()?;
    Ok(())
}
