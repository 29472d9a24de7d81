//! The methods of `filter` and `computed` can be methods of a trait that the struct or every type implements.
#![allow(missing_docs, unreachable_pub, dead_code, clippy::all, clippy::pedantic)]

use std::fmt::Debug;

use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize, IndexTable)]
#[index(title, filter = is_shown, name = "shown")]
#[index(computed(text: String), name = "text")]
#[index(computed(letters: u64), filter = is_shown, name = "letters")]
struct Film {
    #[primary_key]
    id: u64,
    title: String,
}

trait Shown {
    fn is_shown(&self) -> bool;
    fn letters(self) -> u64;
}

impl Shown for Film {
    fn is_shown(&self) -> bool {
        self.id > 0
    }

    fn letters(self) -> u64 {
        unreachable!("the method for references goes before it")
    }
}

impl Shown for &Film {
    fn is_shown(&self) -> bool {
        unreachable!("the method for the struct goes before it")
    }

    fn letters(self) -> u64 {
        self.title.len() as u64
    }
}

trait Text {
    fn text(&self) -> String;
}

impl<T: Debug> Text for T {
    fn text(&self) -> String {
        format!("{self:?}")
    }
}

fn main() {}
