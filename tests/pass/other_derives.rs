//! Types that the derive does not know, and attributes that may belong to another derive.
#![allow(missing_docs, unreachable_pub, dead_code, clippy::all, clippy::pedantic)]
#![deny(warnings)]

use index_table::{IndexKey, IndexTable};
use serde::{Deserialize, Serialize};

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IndexKey,
)]
enum Kind {
    New,
    Old,
}

/// An optional field is a key, and its value another one. A field has the name of a type.
#[derive(Serialize, Deserialize, IndexTable)]
#[index(bool)]
#[index(nick)]
#[index(each(nick), name = "nicks")]
#[index(computed(found: Option<Kind>), name = "found")]
#[index(each(computed(found: Option<Kind>)), name = "finds")]
struct Row {
    #[primary_key]
    id: u64,
    bool: Kind,
    nick: Option<Kind>,
}

impl Row {
    fn found(&self) -> Option<Kind> {
        self.nick
    }
}

/// A table is a key, too.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    IndexTable,
    IndexKey,
)]
#[index(second)]
struct Pair {
    #[primary_key]
    first: Kind,
    second: Kind,
}

/// The words of other derives, beside the attributes that they could stand for.
#[derive(Serialize, Deserialize, IndexTable)]
#[index(email, unique)]
#[index(town)]
#[index(row)]
#[unique(email)]
#[indexed(town)]
struct Words {
    #[primary_key]
    #[pk]
    number: u64,
    #[id]
    #[primary]
    other: u64,
    #[unique]
    email: String,
    #[indexed]
    town: String,
    #[references(Row)]
    #[foreign_key("rows.id")]
    row: u64,
}

fn main() {}
