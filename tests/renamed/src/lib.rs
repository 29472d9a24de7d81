//! A crate in which `index-table` and serde have other names, with no prelude, and with other meanings of
//! names of the standard library.
#![no_implicit_prelude]
#![deny(missing_docs, unused, nonstandard_style, unreachable_pub, missing_debug_implementations)]
#![deny(clippy::all, clippy::pedantic, clippy::unwrap_used, clippy::indexing_slicing)]

/// A module that re-exports the crates that the derive needs, as a user's library may do.
pub mod reexported {
    pub use ::tables;
}

pub mod shop {
    //! A public table with every strategy.

    /// A name of the standard library with another meaning.
    #[derive(::std::fmt::Debug)]
    pub struct Option;
    /// A name of the standard library with another meaning.
    #[derive(::std::fmt::Debug)]
    pub struct Result;
    /// A name of the standard library with another meaning.
    #[derive(::std::fmt::Debug)]
    pub struct Ok;
    /// A name of the standard library with another meaning.
    #[derive(::std::fmt::Debug)]
    pub struct Box;

    /// An order in its first version.
    #[derive(::std::fmt::Debug, ::records::Deserialize, ::tables::RowVersion)]
    #[serde(crate = "::records")]
    #[table(version = 2, crate = ::tables)]
    pub struct Older {
        row: u32,
        number: ::std::string::String,
        total: f64,
    }

    impl ::std::convert::From<Older> for Order {
        fn from(Older { row, number, total }: Older) -> Self {
            let (town, labels) = (::std::string::String::new(), ::std::vec::Vec::new());
            let (note, groups) = (::std::option::Option::None, ::std::collections::HashSet::new());
            Self { row, number, total, town, txn: 0, r#type: false, note, labels, groups }
        }
    }

    /// An order.
    #[derive(
        ::std::fmt::Debug,
        ::std::clone::Clone,
        ::std::cmp::PartialEq,
        ::records::Serialize,
        ::records::Deserialize,
        ::tables::IndexTable,
    )]
    #[serde(crate = "::records")]
    #[table(name = "orders", version = 3, previous = Older, repository = Orders, crate = crate::reexported::tables)]
    #[index(town, include = [total, note, groups])]
    #[index(each(labels), strategy = "full")]
    #[index(number, unique)]
    #[index(txn, r#type, name = "odd")]
    pub struct Order {
        /// The customer's number of the order.
        #[primary_key]
        pub row: u32,
        /// Our number of the order.
        #[primary_key]
        pub number: ::std::string::String,
        /// The total.
        pub total: f64,
        /// A town.
        pub town: ::std::string::String,
        /// Fields may have the names of the generated methods' parameters.
        pub txn: u8,
        /// Fields may have the names of keywords.
        pub r#type: bool,
        /// A note.
        pub note: ::std::option::Option<::std::string::String>,
        /// Labels.
        pub labels: ::std::vec::Vec<::std::string::String>,
        /// Groups.
        pub groups: ::std::collections::HashSet<u8>,
    }
}

/// A private table. The generated items are not more visible, and unused ones give no warning.
mod inside {
    #[derive(::records::Serialize, ::records::Deserialize, ::tables::IndexTable)]
    #[serde(crate = "::records")]
    #[table(crate = ::tables)]
    #[index(store)]
    pub(crate) struct Hidden {
        #[primary_key]
        pub(crate) change: u8,
        pub(crate) store: ::std::vec::Vec<u8>,
    }
}

/// Uses the private table.
///
/// # Errors
///
/// The errors of the store.
pub fn count(store: &::tables::Store) -> ::tables::Result<u64> {
    let hidden = inside::HiddenRepository::open(store)?;
    let row = inside::Hidden { change: 1, store: ::std::vec![1, 0] };
    store.transaction(|txn| hidden.put(txn, &row))?;
    hidden.find_by_store(&store.read()?, &[1, 0]).count()
}

pub mod keys {
    //! Key types, and a table with numbered rows.

    use super::shop::{Box, Ok, Option, Result};

    /// A newtype.
    #[derive(
        ::std::fmt::Debug,
        ::std::clone::Clone,
        ::std::cmp::PartialEq,
        ::records::Serialize,
        ::records::Deserialize,
        ::tables::IndexKey,
    )]
    #[serde(crate = "::records")]
    #[key(crate = crate::reexported::tables)]
    pub struct Number(pub u32);

    /// An enum with the variants' names of `Result`.
    #[derive(
        ::std::fmt::Debug,
        ::std::clone::Clone,
        ::std::marker::Copy,
        ::std::cmp::PartialEq,
        ::records::Serialize,
        ::records::Deserialize,
        ::tables::IndexKey,
    )]
    #[serde(crate = "::records")]
    #[key(crate = ::tables)]
    pub enum State {
        /// A name of the standard library with another meaning.
        Ok,
        /// A name of the standard library with another meaning.
        Err,
    }

    /// A struct of keys, with fields named like generated variables.
    #[derive(
        ::std::fmt::Debug,
        ::std::clone::Clone,
        ::std::cmp::PartialEq,
        ::records::Serialize,
        ::records::Deserialize,
        ::tables::IndexKey,
    )]
    #[serde(crate = "::records")]
    #[key(crate = ::tables)]
    pub struct Place {
        /// A number.
        pub value: Number,
        /// A state.
        pub reader: State,
        /// A name.
        pub out: ::std::string::String,
    }

    /// A row with a place as its primary key.
    #[derive(
        ::std::fmt::Debug,
        ::std::clone::Clone,
        ::std::cmp::PartialEq,
        ::records::Serialize,
        ::records::Deserialize,
        ::tables::IndexTable,
    )]
    #[serde(crate = "::records")]
    #[table(crate = ::tables)]
    #[index(place, state)]
    pub struct Thing {
        /// A number.
        #[primary_key]
        pub number: Number,
        /// A place.
        pub place: Place,
        /// A state.
        pub state: State,
    }

    /// Ensures that these names do not refer to the standard library.
    pub type Others = (Option, Result, Ok, Box);
}
