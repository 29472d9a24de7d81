mod people {
    use index_table::IndexTable;
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[index(town, salary)]
    #[aggregate(town, sum = [salary], min = [salary])]
    pub struct Employee {
        #[primary_key]
        pub id: u64,
        pub town: String,
        salary: u32,
    }
}

fn total(employees: &people::EmployeeRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<i128> {
    let totals = employees.aggregate_by_town(txn, "Oslo")?;
    assert!(totals.count > 1 && totals.town == "Oslo");
    assert!(totals.min_salary.is_some());
    Ok(totals.sum_salary)
}

fn main() {}

// 2 mistakes
