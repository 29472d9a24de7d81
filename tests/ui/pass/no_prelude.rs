//! Neither the prelude nor anything in scope is needed, and everything public is documented.
#![no_implicit_prelude]
#![deny(warnings, missing_docs, unreachable_pub, single_use_lifetimes, unused_qualifications)]
#![deny(missing_copy_implementations, unused_results, unused_lifetimes, let_underscore_drop)]
#![deny(elided_lifetimes_in_paths, explicit_outlives_requirements, trivial_casts)]

/// A film.
#[derive(::serde::Serialize, ::serde::Deserialize, ::index_table::IndexTable)]
#[index(year, each(cast))]
#[index(year, include = [cast, length])]
#[index(year, genre, strategy = "full", unique)]
pub struct Film {
    #[primary_key]
    genre: ::std::string::String,
    #[primary_key]
    title: ::std::string::String,
    year: u16,
    cast: ::std::vec::Vec<::std::string::String>,
    length: ::core::option::Option<u32>,
}

/// Inside of a module, seen from outside of it.
pub mod module {
    /// Without an index.
    #[derive(::serde::Serialize, ::serde::Deserialize, ::index_table::IndexTable)]
    pub(super) struct Note {
        #[primary_key]
        id: [u8; 16],
    }
}

fn main() {}
