//! An arbitrary record of the catalog is an error or can be decoded, without a panic.
#![no_main]

use index_table::IndexTable;
use index_table_runtime::fuzzing;
use libfuzzer_sys::fuzz_target;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "rows")]
#[index(town, name, include = [code])]
#[index(code, unique)]
#[index(each(tags), sparse)]
struct Row {
    #[primary_key]
    id: u32,
    name: String,
    town: Option<String>,
    code: i64,
    tags: Vec<String>,
}

fuzz_target!(|data: &[u8]| fuzzing::records::<Row>(data));
