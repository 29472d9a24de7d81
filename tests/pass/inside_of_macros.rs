//! The struct comes from a macro, with its types and names in invisible groups, and from inside of
//! a function.
#![allow(missing_docs, unreachable_pub, dead_code, clippy::all, clippy::pedantic)]
#![deny(warnings)]

use index_table::IndexTable;
use serde::{Deserialize, Serialize};

macro_rules! table {
    ($name:ident, $table:literal, $byte:ty, $key:ty, $text:ty, $field:ident, $made:expr) => {
        #[derive(Serialize, Deserialize, IndexTable)]
        #[table(name = $table, view)]
        #[index($field, include = [photo])]
        #[index(desc($field), computed(photos: $key), filter = is_shown, name = "shown")]
        #[index(computed(nick: Option<$text>), sparse)]
        pub struct $name {
            #[primary_key]
            id: $key,
            $field: $text,
            photo: Vec<$byte>,
        }

        #[derive(Serialize, Deserialize, IndexTable)]
        #[table(view = Twin)]
        struct Made {
            #[primary_key]
            $field: $text,
            #[serde(skip, default = $made)]
            made: Vec<$byte>,
        }

        impl $name {
            fn photos(&self) -> $key {
                self.id
            }

            fn nick(&self) -> Option<$text> {
                None
            }

            fn is_shown(&self) -> bool {
                true
            }
        }
    };
}

macro_rules! typed {
    ($byte:ty) => {
        table!(Customer, "customers", $byte, u64, String, town, "Vec::new");
    };
}

typed!(u8);

fn main() {
    #[derive(Serialize, Deserialize, IndexTable)]
    #[index(n)]
    struct Local {
        #[primary_key]
        id: u64,
        n: i32,
    }

    let _ = |customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>| {
        customers.find_by_town(txn, "Redmond").count().is_ok()
    };
    let _ = LocalRepository::find_by_n;
    let _ = |made: &MadeRepository, txn: &index_table::ReadTxn<'_>| {
        matches!(made.get_view(txn, "a"), Ok(Some(Twin { town: "a", made: _ })))
    };
}
