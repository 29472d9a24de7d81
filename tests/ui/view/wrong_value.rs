use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(view = "Borrowed")]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(view, view = Twin)]
#[table(version =, view("Twin"))]
struct Supplier {
    #[primary_key]
    id: u64,
    town: String,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(view =)]
#[index(town, view)]
struct Employee {
    #[primary_key]
    id: u64,
    town: String,
}

fn query(
    customers: &CustomerRepository,
    suppliers: &SupplierRepository,
    employees: &EmployeeRepository,
    txn: &index_table::ReadTxn<'_>,
) -> index_table::Result<()> {
    customers.get_view(txn, 7)?;
    suppliers.get_view(txn, 7)?;
    employees.get_view(txn, 7)?;
    Ok(())
}

fn main() {}

// 6 mistakes
