use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(title, filter = by_value, name = "by_value")]
#[index(title, filter = exclusive, name = "exclusive")]
#[index(title, filter = associated, name = "associated")]
#[index(title, filter = with_an_argument, name = "with_an_argument")]
#[index(title, filter = reference, name = "reference")]
#[index(title, filter = option, name = "option")]
#[index(title, filter = nothing, name = "nothing")]
#[index(title, filter = unsafe_method, name = "unsafe_method")]
#[index(title, filter = without_arguments, name = "without_arguments")]
#[index(title, filter = many_arguments, name = "many_arguments")]
struct Film {
    #[primary_key]
    id: u64,
    title: String,
    shown: bool,
}

impl Film {
    fn by_value(self) -> bool {
        self.shown
    }

    fn exclusive(&mut self) -> bool {
        self.shown
    }

    fn associated(film: &Film) -> bool {
        film.shown
    }

    fn with_an_argument(&self, id: u64) -> bool {
        self.id == id
    }

    fn reference(&self) -> &bool {
        &self.shown
    }

    fn option(&self) -> Option<bool> {
        Some(self.shown)
    }

    fn nothing(&self) {}

    unsafe fn unsafe_method(&self) -> bool {
        self.shown
    }

    fn without_arguments() -> bool {
        true
    }

    fn many_arguments(&self, _: u8, _: u8, _: u8) -> bool {
        self.shown
    }
}

fn query(films: &FilmRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = films.find_by_option(txn, "M").first()?;
    Ok(())
}

fn main() {}

// 10 mistakes
