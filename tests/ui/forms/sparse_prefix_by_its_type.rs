use index_table::IndexTable;
use serde::{Deserialize, Serialize};

type Year = Option<u16>;

#[derive(Serialize, Deserialize, IndexTable)]
#[index(rating, year, sparse)]
#[index(rating, year, sparse, name = "rated", allow(redundant))]
struct Film {
    #[primary_key]
    id: u64,
    rating: Option<u8>,
    year: Year,
}

fn query(films: &FilmRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = films.find_by_rating_year(txn, 7, 1931).first()?;
    let _ = films.find_by_rated_rating(txn, 7).first()?;
    Ok(())
}

fn main() {}
