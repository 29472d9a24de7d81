//! Neither the prelude nor anything in scope is needed, and everything public is documented.
#![allow(missing_docs, unreachable_pub, dead_code, clippy::all, clippy::pedantic)]
#![no_implicit_prelude]
#![deny(warnings, missing_docs, unreachable_pub, single_use_lifetimes, unused_qualifications)]
#![deny(missing_copy_implementations, unused_results, unused_lifetimes, let_underscore_drop)]
#![deny(elided_lifetimes_in_paths, explicit_outlives_requirements, trivial_casts)]

/// A film.
#[derive(::serde::Serialize, ::serde::Deserialize, ::index_table::IndexTable)]
#[table(view)]
#[index(year, each(cast))]
#[index(year, include = [cast, length])]
#[index(year, genre, strategy = "full", unique)]
#[index(desc(length), desc(title), computed(decade: u16), sparse, filter = is_long, name = "long")]
#[index(computed(maybe: Maybe), each(cast), sparse, strategy = "full")]
#[index(computed(maybe: Maybe), sparse, unique)]
#[index(genre, year, name = "years")]
#[aggregate(year, sum = [length])]
#[aggregate(genre, min = [year], max = [year])]
#[aggregate(sum = [year])]
pub struct Film {
    #[primary_key]
    genre: ::std::string::String,
    #[primary_key]
    title: ::std::string::String,
    year: u16,
    cast: ::std::vec::Vec<::std::string::String>,
    length: ::core::option::Option<u32>,
}

/// With fields that serde treats in a way of their own.
#[derive(::serde::Serialize, ::serde::Deserialize, ::index_table::IndexTable)]
#[table(view)]
pub struct Kept {
    #[primary_key]
    id: ::std::string::String,
    #[serde(with = "self::kept")]
    kept: u8,
    #[serde(skip, default = "made")]
    made: ::std::string::String,
    #[serde(skip)]
    skipped: ::std::vec::Vec<u8>,
}

/// The first version.
#[derive(::serde::Deserialize, ::index_table::RowVersion)]
pub struct Oldest {
    id: ::std::string::String,
}

/// The second version.
#[derive(::serde::Deserialize, ::index_table::RowVersion)]
#[table(version = 2, previous = self::Oldest)]
pub struct Older {
    id: ::std::string::String,
}

/// The current version.
#[derive(::serde::Serialize, ::serde::Deserialize, ::index_table::IndexTable)]
#[table(version = 3, previous = Older, view)]
pub struct Newest {
    #[primary_key]
    id: ::std::string::String,
}

impl ::core::convert::From<Oldest> for Older {
    fn from(Oldest { id }: Oldest) -> Self {
        Self { id }
    }
}

impl ::core::convert::From<Older> for Newest {
    fn from(Older { id }: Older) -> Self {
        Self { id }
    }
}

fn made() -> ::std::string::String {
    ::std::string::String::new()
}

mod kept {
    use ::core::result::Result;
    use ::serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(kept: &u8, to: S) -> Result<S::Ok, S::Error> {
        kept.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u8, D::Error> {
        u8::deserialize(from)
    }
}

/// The compiler infers the type.
type Maybe = ::core::option::Option<u8>;

impl Film {
    fn decade(&self) -> u16 {
        self.year / 10
    }

    fn maybe(&self) -> Maybe {
        ::core::option::Option::None
    }

    fn is_long(&self) -> bool {
        self.length > ::core::option::Option::Some(180)
    }
}

/// Inside of a module, seen from outside of it.
pub mod module {
    /// Without an index, and without anything to borrow.
    #[derive(::serde::Serialize, ::serde::Deserialize, ::index_table::IndexTable)]
    #[table(view)]
    pub(super) struct Note {
        #[primary_key]
        id: [u8; 16],
    }
}

fn main() {}
