use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(computed(by_value: String))]
#[index(computed(associated: String))]
#[index(computed(with_an_argument: String))]
#[index(computed(borrowed: String))]
#[index(computed(title: String))]
struct Film {
    #[primary_key]
    id: u64,
    title: String,
}

impl Film {
    fn by_value(self) -> String {
        self.title
    }

    fn associated(film: &Film) -> String {
        film.title.clone()
    }

    fn with_an_argument(&self, letters: usize) -> String {
        self.title.chars().take(letters).collect()
    }

    fn borrowed(&self) -> &str {
        &self.title
    }
}

fn query(films: &FilmRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = films.find_by_borrowed(txn, "M").first()?;
    Ok(())
}

fn main() {}

// 5 mistakes
