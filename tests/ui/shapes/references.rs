use index_table::{IndexTable, RowVersion};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(view)]
#[index(town, age, unique)]
#[index(town, include = [phone])]
#[index(photo, include = [age])]
#[index(hash(name))]
struct Customer {
    #[primary_key]
    code: &'static str,
    name: &'static str,
    town: &'static str,
    age: u8,
    phone: Option<&'static str>,
    photo: &'static [u8],
    tags: Vec<&'static str>,
    #[serde(skip)]
    label: &'static str,
}

#[derive(Deserialize, RowVersion)]
struct CustomerV1 {
    name: &'static str,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    customers.get(txn, "a")?;
    customers.get_view(txn, "a")?;
    customers.find_by_town(txn, "Redmond").entries().next();
    customers.get_by_town_age(txn, "Redmond", 18)?;
    customers.find_by_photo(txn, b"").count()?;
    Ok(())
}

fn main() {}

// 7 mistakes
