use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(view)]
#[index(town, include = [copied, shown])]
#[index(name, include = [compared, copied])]
pub struct Customer {
    #[primary_key]
    id: u64,
    name: String,
    town: String,
    copied: Copied,
    shown: Option<Shown>,
    compared: Compared,
    none: None,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct Copied(u64);

#[derive(Debug, Serialize, Deserialize)]
pub struct Shown(u64);

#[derive(PartialEq, Serialize, Deserialize)]
pub struct Compared(u64);

#[derive(Serialize, Deserialize)]
pub struct None(u64);

fn main() {}

// 9 mistakes
