use index_table::{IndexKey, IndexTable, Result, WriteTxn};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexKey)]
struct Code(String);

#[derive(Serialize, Deserialize, IndexTable)]
struct Country {
    #[primary_key]
    code: Code,
}

fn add(countries: &CountryRepository, txn: &mut WriteTxn<'_>) -> Result<Code> {
    countries.insert_with(txn, |code| Country { code })
}

fn main() {}
