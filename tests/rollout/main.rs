//! Two releases of a program that have a table open at the same time, each in a process of its own.

mod changes;
mod client;
#[cfg(feature = "postgres")]
#[path = "../support/postgres.rs"]
mod postgres;
mod random;
mod release;
mod steps;

use std::{env, error, path::Path};

use client::Place;
use index_table::{Durability, Result, Store};

type TestResult = std::result::Result<(), Box<dyn error::Error>>;

/// Opens a store in a file that several processes write.
fn open(path: &Path) -> Result<Store> {
    Store::options().map_size(1 << 26).durability(Durability::Full).open(path)
}

/// Runs `check` for a file and for a server.
fn on_both(check: impl Fn(&Place) -> TestResult) -> TestResult {
    let dir = tempfile::tempdir()?;
    check(&Place::File(dir.path().to_owned()))?;
    #[cfg(feature = "postgres")]
    if let Some(schema) = postgres::Schema::new() {
        schema.open()?;
        check(&Place::Server { url: schema.url().to_owned(), schema: schema.name().to_owned() })?;
    }
    Ok(())
}

/// The other process of the tests.
#[test]
fn other() -> TestResult {
    match env::var(client::PLACE) {
        Ok(place) => client::run(&Place::parse(&place)),
        Err(_) => Ok(()),
    }
}
