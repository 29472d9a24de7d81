//! The tool with the type of the films in `examples/movies/films.jsonl`.
//!
//! ```text
//! cargo run --release -p index-table-admin --example films -- load data/films films examples/movies/films.jsonl --create
//! cargo run --release -p index-table-admin --example films -- find data/films films cast_year "Buster Keaton"
//! ```

use std::process::ExitCode;

use index_table::IndexTable;
use serde::{Deserialize, Serialize};

/// A film, by its title and year. For data with several films of this key, see `load --on-duplicate`.
#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "films")]
#[indexes((each(cast), year), (each(genres)), (year))]
struct Film {
    #[primary_key]
    title: String,
    #[primary_key]
    year: u16,
    #[serde(default)]
    cast: Vec<String>,
    #[serde(default)]
    genres: Vec<String>,
}

fn main() -> ExitCode {
    index_table_admin::main::<(Film,)>()
}
