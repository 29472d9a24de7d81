//! Names lose their `r#`, fields keep it.
#![allow(missing_docs, unreachable_pub, dead_code, clippy::all, clippy::pedantic)]
#![deny(warnings)]

use index_table::{IndexTable, ReadTxn, Result};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(view = r#View)]
#[index(r#type, include = [r#match])]
#[index(each(r#match), include = [r#match])]
#[index(r#unique, allow(few_values))]
#[index(desc(r#type), computed(r#fn: u8), filter = r#if, name = "raw")]
struct Event {
    #[primary_key]
    r#mod: u64,
    r#type: String,
    r#match: Vec<u32>,
    r#unique: bool,
}

impl Event {
    fn r#fn(&self) -> u8 {
        7
    }

    fn r#if(&self) -> bool {
        self.r#unique
    }
}

fn main() {
    let _ = query;
}

fn query(events: &EventRepository, txn: &ReadTxn<'_>) -> Result<()> {
    for entry in events.find_by_type(txn, "click").entries() {
        let entry = entry?;
        let _: (&str, u64, &Vec<u32>) = (entry.r#type, entry.r#mod, &entry.r#match);
    }
    for entry in events.find_by_match_range(txn, 1..5).entries() {
        let entry = entry?;
        let _: (u32, &Vec<u32>) = (entry.r#match, &entry.all_match);
    }
    for entry in events.find_by_raw(txn, "click", 7).entries() {
        let entry = entry?;
        let _: (String, u8) = (entry.r#type, entry.r#fn);
    }
    events.find_by_unique(txn, true).count()?;
    if let Some(View { r#mod: _, r#type, r#match, r#unique: _ }) = events.get_view(txn, 7)? {
        let _: (&str, Vec<u32>) = (r#type, r#match);
    }
    Ok(())
}
