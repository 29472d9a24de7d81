//! `#[table(changes)]`: the durable change stream of a table.

mod consumers;
mod declaration;
mod random;
mod retention;
mod shards;
#[path = "../support/stores.rs"]
mod stores;
mod workers;
mod writes;

use index_table::{ChangeBatch, ChangeKind, IndexTable};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "invoices", changes)]
#[index(customer)]
#[index(reference, unique)]
#[aggregate(customer, sum = [amount])]
struct Invoice {
    #[primary_key]
    number: u32,
    customer: u8,
    reference: u32,
    amount: i64,
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
