use index_table::IndexTable;
use serde::{Deserialize, Serialize};

type Name = String;
type Decade = u16;

#[derive(Serialize, Deserialize, IndexTable)]
#[index(title, computed(name: Name), computed(decade: Decade), sparse)]
struct Film {
    #[primary_key]
    id: u64,
    title: String,
    year: u16,
    rating: Option<u8>,
    cast: Vec<String>,
}

impl Film {
    fn name(&self) -> Name {
        self.title.clone()
    }

    fn decade(&self) -> Decade {
        self.year / 10
    }
}

fn query(films: &FilmRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = films.find_by_title(txn, "M").first()?;
    Ok(())
}

fn main() {}
