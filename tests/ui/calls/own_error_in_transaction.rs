use index_table::{IndexTable, Store};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
struct Account {
    #[primary_key]
    id: u64,
    balance: i64,
}

struct Overdrawn;

fn checked(balance: i64) -> Result<i64, Overdrawn> {
    if balance < 0 { Err(Overdrawn) } else { Ok(balance) }
}

fn withdraw(store: &Store, accounts: &AccountRepository, amount: i64) -> index_table::Result<bool> {
    store.transaction(|txn| {
        let Some(account) = accounts.get(txn, 1)? else { return Ok(false) };
        let balance = checked(account.balance - amount)?;
        accounts.update(txn, 1, |account| account.balance = balance)
    })
}

fn main() {}
