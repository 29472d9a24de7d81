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
        txn.nested(|txn| {
            accounts.update(txn, 1, |account| account.balance += amount)?;
        })?;
        Ok(())
    })
}

fn main() {}
