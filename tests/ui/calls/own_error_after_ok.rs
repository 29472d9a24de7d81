use index_table::{IndexTable, Store};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
struct Account {
    #[primary_key]
    id: u64,
    balance: i64,
}

struct Overdrawn;

impl From<index_table::Error> for Overdrawn {
    fn from(_: index_table::Error) -> Self {
        Self
    }
}

fn deposit(store: &Store, accounts: &AccountRepository, amount: i64) -> index_table::Result<()> {
    store
        .transaction(|txn| {
            let Some(account) = accounts.get(txn, 1)? else { return Ok(()) };
            if account.balance < 0 {
                return Err(Overdrawn);
            }
            accounts.update(txn, 1, |account| account.balance += amount)?;
            Ok(())
        })
        .or(Ok(()))
}

fn main() {}
