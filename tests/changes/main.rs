//! `#[table(changes)]`: the durable change stream of a table.

mod away;
mod consumers;
mod continued;
mod declaration;
mod moved;
mod random;
mod random_shards;
mod releases;
mod retention;
mod shards;
#[path = "../support/stores.rs"]
mod stores;
mod workers;
mod writes;

use index_table::{ChangeBatch, ChangeKind, IndexTable, Result};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "invoices", shard_by = hash(number), changes)]
#[index(customer)]
#[index(reference, unique, scope = "global")]
#[aggregate(customer, sum = [amount])]
struct Invoice {
    #[primary_key]
    number: u32,
    customer: u8,
    reference: u32,
    amount: i64,
}

/// Returns a plain and a sharded store of each engine.
fn all_stores() -> Result<Vec<stores::Tried>> {
    stores::stores("invoices")
}

fn invoice(number: u32, amount: i64) -> Invoice {
    Invoice { number, customer: 1, reference: number, amount }
}

/// The kind, the key and the amount of a change.
type Seen = (ChangeKind, u32, i64);

fn seen(batch: &ChangeBatch<Invoice>) -> Vec<Seen> {
    let seen = batch.iter().map(|change| {
        assert_eq!(change.key, change.row.number);
        (change.kind, change.key, change.row.amount)
    });
    seen.collect()
}
