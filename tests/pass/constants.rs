//! Constants, statics and unit structs that have the names of variables in the generated code.
#![allow(missing_docs, unreachable_pub, dead_code, clippy::all, clippy::pedantic)]
#![deny(warnings)]
#![allow(dead_code, non_upper_case_globals, non_camel_case_types)]

use index_table::IndexTable;
use serde::{Deserialize, Serialize};

const key: u8 = 0;
const index: usize = 0;
static entries: u8 = 0;
static entry: u8 = 0;
struct element;
struct field0;
const field1: u8 = 0;

#[derive(Serialize, Deserialize, IndexTable)]
#[table(view)]
#[index(year, genre, include = [phone])]
#[index(each(cast), strategy = "full")]
struct Film {
    #[primary_key]
    genre: String,
    #[primary_key]
    title: String,
    year: u16,
    phone: String,
    cast: Vec<String>,
}

fn main() {}
