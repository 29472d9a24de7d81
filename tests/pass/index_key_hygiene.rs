//! Keys under hostile names, without a prelude, and documented.
#![allow(missing_docs, unreachable_pub, dead_code, clippy::all, clippy::pedantic)]
#![no_implicit_prelude]
#![deny(missing_docs, unused_qualifications)]

use ::index_table::IndexKey;
use ::serde::{Deserialize, Serialize};

/// A struct with the name of the standard library's `Option`.
#[allow(dead_code)]
struct Option;
#[allow(dead_code)]
struct Result;

/// Fields with the names of generated items.
#[derive(
    ::core::fmt::Debug,
    ::core::clone::Clone,
    ::core::cmp::PartialEq,
    Serialize,
    Deserialize,
    IndexKey,
)]
pub struct Names {
    value: ::std::string::String,
    out: u8,
    reader: r#type,
    r#type: Number,
}

/// A type that a field is called like.
#[derive(
    ::core::fmt::Debug,
    ::core::clone::Clone,
    ::core::marker::Copy,
    ::core::cmp::PartialEq,
    Serialize,
    Deserialize,
    IndexKey,
)]
#[allow(non_camel_case_types)]
pub enum r#type {
    /// A variant that is a keyword.
    r#fn,
    /// A variant that is called like a result.
    Ok,
}

/// A newtype.
#[derive(
    ::core::fmt::Debug,
    ::core::clone::Clone,
    ::core::cmp::PartialEq,
    Serialize,
    Deserialize,
    IndexKey,
)]
#[key(crate = ::index_table)]
pub struct Number(u64);

fn main() {}
