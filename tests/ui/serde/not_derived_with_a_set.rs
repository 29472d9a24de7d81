use std::collections::HashSet;

use index_table::IndexTable;

#[derive(IndexTable)]
#[index(town, include = [tags])]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    tags: HashSet<u8>,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    customers.get(txn, 7)?;
    customers.find_by_town(txn, "Redmond").count()?;
    Ok(())
}

fn main() {}
