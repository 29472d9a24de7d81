use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(title, filter = is_shown, filter = is_shown, name = "shown")]
#[index(rating, sparse, sparse)]
#[index(year, filter = "is_shown", name = "quoted")]
#[index(year, filter, name = "other")]
struct Film {
    #[primary_key]
    id: u64,
    title: String,
    year: u16,
    rating: Option<u8>,
    cast: Vec<String>,
}

impl Film {
    fn is_shown(&self) -> bool {
        true
    }
}

fn query(films: &FilmRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = films.find_by_shown(txn, "M").first()?;
    Ok(())
}

fn main() {}

// 4 mistakes
