//! Neither `index-table` nor serde has its own name here, nor is anything else at hand: no
//! prelude, and names of the standard library that mean something else.
#![no_implicit_prelude]
#![deny(missing_docs, unused, nonstandard_style, unreachable_pub, missing_debug_implementations)]
#![deny(clippy::all, clippy::pedantic, clippy::unwrap_used, clippy::indexing_slicing)]

/// A module that re-exports what the derive needs, as a library of one's own would.
pub mod reexported {
    pub use ::tables;
}

pub mod shop {
    //! An entity with every strategy, seen from outside.

    /// Not `std`'s.
    #[derive(::std::fmt::Debug)]
    pub struct Option;
    /// Not `std`'s.
    #[derive(::std::fmt::Debug)]
    pub struct Result;
    /// Not `std`'s.
    #[derive(::std::fmt::Debug)]
    pub struct Ok;
    /// Not `std`'s.
    #[derive(::std::fmt::Debug)]
    pub struct Box;

    /// An order as it was.
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
        /// Its number at the customer's.
        #[primary_key]
        pub row: u32,
        /// Its number here.
        #[primary_key]
        pub number: ::std::string::String,
        /// The total.
        pub total: f64,
        /// A town.
        pub town: ::std::string::String,
        /// Fields may have the names of the generated methods' parameters.
        pub txn: u8,
        /// And those of keywords.
        pub r#type: bool,
        /// A note.
        pub note: ::std::option::Option<::std::string::String>,
        /// Labels.
        pub labels: ::std::vec::Vec<::std::string::String>,
        /// Groups.
        pub groups: ::std::collections::HashSet<u8>,
    }
}

/// An entity of this crate alone: nothing that is generated for it is more visible, and what is
/// not used gives no warning.
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

/// Uses the private entity.
///
/// # Errors
///
/// The results of the store.
pub fn count(store: &::tables::Store) -> ::tables::Result<u64> {
    let hidden = inside::HiddenRepository::open(store)?;
    let row = inside::Hidden { change: 1, store: ::std::vec![1, 0] };
    store.transaction(|txn| hidden.put(txn, &row))?;
    hidden.find_by_store(&store.read()?, &[1, 0]).count()
}

pub mod keys {
    //! Keys, and an entity that is numbered.

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

    /// An enum, with a variant that is called like a result.
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
        /// Not `std`'s.
        Ok,
        /// Not `std`'s.
        Err,
    }

    /// A struct of keys, with fields that are called like what is generated.
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
        /// Its number.
        pub value: Number,
        /// Its state.
        pub reader: State,
        /// Its name.
        pub out: ::std::string::String,
    }

    /// What is at a place.
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
        /// Its number.
        #[primary_key]
        pub number: Number,
        /// Its place.
        pub place: Place,
        /// Its state.
        pub state: State,
    }

    /// So that none of these names is the standard library's.
    pub type Others = (Option, Result, Ok, Box);
}
