use index_table::{IndexTable, Store};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
struct Account {
    #[primary_key]
    id: u64,
    balance: i64,
}

enum Refused {
    Overdrawn,
    Store(index_table::Error),
}

impl From<index_table::Error> for Refused {
    fn from(error: index_table::Error) -> Self {
        Self::Store(error)
    }
}

fn withdraw(store: &Store, accounts: &AccountRepository, amount: i64) -> Result<bool, Refused> {
    store.transaction(|txn| {
        let account = accounts.get(txn, 1)?;
        if account.is_none_or(|account| account.balance < amount) {
            return Err(Refused::Overdrawn);
        }
        Ok(accounts.update(txn, 1, |account| account.balance -= amount)?)
    })
}

fn close(store: &Store, accounts: &AccountRepository) -> Result<(), Refused> {
    store.transaction(|txn| {
        match accounts.get(txn, 1)? {
            Some(account) if account.balance != 0 => Err(Refused::Overdrawn),
            _ => Ok(drop(accounts.delete(txn, 1)?)),
        }
    })?;
    Ok(())
}

fn main() {}

// 2 errors
