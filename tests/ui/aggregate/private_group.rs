mod people {
    use index_table::IndexTable;
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[aggregate(town)]
    pub struct Employee {
        #[primary_key]
        pub id: u64,
        town: String,
    }
}

fn town(employees: &people::EmployeeRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<Option<String>> {
    let mut totals = employees.aggregates_by_town(txn);
    Ok(totals.next().transpose()?.map(|totals| totals.town))
}

fn main() {}
