use index_table::IndexTable;

#[derive(IndexTable)]
#[index(town)]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    customers.get(txn, 7)?;
    customers.find_by_town(txn, "Redmond").count()?;
    Ok(())
}

fn main() {}
