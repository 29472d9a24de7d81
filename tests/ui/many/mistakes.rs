use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(nmae = "customers", version = 0)]
#[index(twon, strategy = "ful")]
#[index(town, town, include = [phne, id], unqiue)]
#[index(each(tags), each(last_name))]
#[index(phone, strategy = "partial")]
struct Customer {
    #[primary_key(id)]
    id: u64,
    town: String,
    last_name: String,
    #[serde(flatten)]
    phone: String,
    tags: Vec<String>,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    customers.get(txn, 7)?;
    Ok(())
}

fn main() {}

// 12 mistakes
