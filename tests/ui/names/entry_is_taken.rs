use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town)]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
}

struct CustomerByTown;

#[derive(Serialize, Deserialize, IndexTable)]
#[index(year)]
struct Film {
    #[primary_key]
    id: u64,
    year: u16,
}

#[derive(Debug, Clone, PartialEq)]
struct FilmByYear {
    year: u16,
    count: usize,
}

fn query(
    customers: &CustomerRepository,
    films: &FilmRepository,
    txn: &index_table::ReadTxn<'_>,
) -> index_table::Result<()> {
    let _ = customers.find_by_town(txn, "Redmond").first()?;
    for film in films.find_by_year(txn, 2001).entries() {
        let _ = film?.year;
    }
    Ok(())
}

fn main() {}

// 10 errors
