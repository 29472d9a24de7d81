use index_table::{IndexTable, Store};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
struct Account {
    #[primary_key]
    id: u64,
    balance: i64,
}

fn deposit(store: &Store, accounts: &AccountRepository, amount: i64) -> index_table::Result<()> {
    store.transaction(|txn| {
        for id in 1..=3 {
            accounts.update(txn, id, |account| account.balance += amount)?;
        }
    })
}

fn main() {}
