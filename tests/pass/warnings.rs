//! Advice against an index is only a warning: the program compiles in every scope.
#![allow(deprecated, missing_docs, unreachable_pub, dead_code, clippy::all, clippy::pedantic)]
#![no_implicit_prelude]
#![forbid(unsafe_code, missing_docs)]
#![deny(unused, nonstandard_style, future_incompatible, let_underscore_drop, unreachable_pub)]
#![deny(unused_qualifications, unused_results, single_use_lifetimes)]

/// A customer, with names that a warning has too.
#[derive(::serde::Serialize, ::serde::Deserialize, ::index_table::IndexTable)]
#[index(active)]
#[index(town)]
#[index(town, active, strategy = "full")]
#[index(town, REDUNDANT)]
#[index(deprecated, strategy = "full")]
#[allow(non_snake_case)]
pub struct Customer {
    #[primary_key]
    id: u64,
    active: bool,
    town: ::std::string::String,
    REDUNDANT: u8,
    deprecated: u8,
}

/// In a scope that has the names.
pub mod module {
    #![allow(dead_code, non_camel_case_types)]

    struct FEW_VALUES;
    const REDUNDANT: u8 = 0;

    /// Deprecated itself, as its fields are.
    #[deprecated]
    #[derive(::serde::Serialize, ::serde::Deserialize, ::index_table::IndexTable)]
    #[index(active)]
    pub struct Old {
        #[primary_key]
        id: u64,
        #[deprecated]
        active: bool,
    }
}

/// Declared by a macro.
mod declared {
    macro_rules! table {
        ($name:ident, $field:ident) => {
            #[derive(::serde::Serialize, ::serde::Deserialize, ::index_table::IndexTable)]
            #[index($field)]
            #[index(other)]
            struct $name {
                #[primary_key]
                id: u64,
                $field: bool,
                other: bool,
            }
        };
    }
    table!(Customer, active);
}

fn main() {
    // In a function, and without warnings.
    #[allow(deprecated)]
    #[deny(warnings)]
    mod quiet {
        #[derive(::serde::Serialize, ::serde::Deserialize, ::index_table::IndexTable)]
        #[index(active)]
        pub(super) struct Customer {
            #[primary_key]
            id: u64,
            active: bool,
        }
    }
    #[derive(::serde::Serialize, ::serde::Deserialize, ::index_table::IndexTable)]
    #[index(active)]
    struct Local {
        #[primary_key]
        id: u64,
        active: bool,
    }
}
