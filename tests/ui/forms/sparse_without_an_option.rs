use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(title, year, sparse)]
#[index(desc(year), computed(decade: u16), sparse)]
struct Film {
    #[primary_key]
    id: u64,
    title: String,
    year: u16,
    rating: Option<u8>,
    cast: Vec<String>,
}

impl Film {
    fn decade(&self) -> u16 {
        self.year / 10
    }
}

fn query(films: &FilmRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = films.find_by_title(txn, "M").first()?;
    Ok(())
}

fn main() {}

// 2 mistakes
