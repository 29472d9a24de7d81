use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(title, desc(title))]
#[index(desc(year), year)]
#[index(desc(year), desc(year), name = "twice")]
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
    let _ = films.find_by_year(txn, 1931).first()?;
    Ok(())
}

fn main() {}

// 3 mistakes
