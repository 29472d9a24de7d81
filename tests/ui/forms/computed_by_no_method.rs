use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(computed(decade: u16))]
#[index(title, computed(initials: String))]
struct Film {
    #[primary_key]
    id: u64,
    title: String,
    year: u16,
    rating: Option<u8>,
    cast: Vec<String>,
}

impl Film {
    fn initials(title: &str) -> String {
        title.to_owned()
    }
}

fn query(films: &FilmRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = films.find_by_decade(txn, 193).first()?;
    Ok(())
}

fn main() {}

// 2 mistakes
