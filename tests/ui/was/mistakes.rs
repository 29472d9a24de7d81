use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "clients", was = "clients")]
struct Same {
    #[primary_key]
    id: u32,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(was = "default")]
struct Default {
    #[primary_key]
    id: u32,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "clients", was = "")]
struct Empty {
    #[primary_key]
    id: u32,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "clients", was = [])]
struct EmptyList {
    #[primary_key]
    id: u32,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "clients", was = "customers", was = "buyers")]
struct Twice {
    #[primary_key]
    id: u32,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "clients", was = ["customers", "customers"])]
struct TwiceInTheList {
    #[primary_key]
    id: u32,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "clients", was = "old customers")]
struct NoName {
    #[primary_key]
    id: u32,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "clients", was = customers)]
struct WithoutQuotes {
    #[primary_key]
    id: u32,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "clients", was("customers"))]
struct WithoutEquals {
    #[primary_key]
    id: u32,
}

fn main() {}

// 9 mistakes
