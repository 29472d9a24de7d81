use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(computed(Customer::initial: char))]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    last_name: String,
}

impl Customer {
    fn initial(&self) -> char {
        self.town.chars().next().unwrap_or_default()
    }
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = customers.find_by_initial(txn, 'R').first()?;
    Ok(())
}

fn main() {}
