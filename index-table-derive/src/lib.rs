//! The derive macro of `index-table`.

// A mistake in a program that uses the macro is a message, never a panic of the compiler.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod attr;
mod diagnostics;
mod expand;
mod fallback;
mod lower;
mod model;
mod names;
#[cfg(test)]
mod tests;
mod types;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Error};

use crate::diagnostics::Diagnostics;
use crate::lower::Lowered;

/// Makes a struct a table with secondary indexes.
///
/// The struct `Customer` gets a `CustomerRepository` with methods to store rows and to ask for
/// them, and for each index the struct of its entries, such as `CustomerByTown`. The struct has
/// named fields, no generic parameters, and implements serde's `Serialize` and `Deserialize`.
///
/// ```text
/// #[derive(Serialize, Deserialize, IndexTable)]
/// #[table(name = "customers")]
/// #[index(town)]
/// #[index(town, last_name, include = [phone])]
/// #[index(last_name, strategy = "full")]
/// #[index(email, unique)]
/// struct Customer {
///     #[primary_key]
///     id: u64,
///     first_name: String,
///     last_name: String,
///     town: String,
///     phone: String,
///     email: String,
/// }
/// ```
///
/// # `#[primary_key]`, on a field
///
/// The field that identifies a row. On several fields: a composite key, in the order in which the
/// fields are declared, at most 12 of them. It takes no arguments.
///
/// # `#[table(…)]`, on the struct
///
/// All of it is optional.
///
/// | option | meaning | default |
/// |---|---|---|
/// | `name = "…"` | the name on disk: ASCII letters, digits, `_` and `-`, at most 100 of them | the struct's name in snake case |
/// | `version = N` | the version of the struct, from 1 on | 1 |
/// | `repository = Ident` | the name of the repository | the struct's name and `Repository` |
/// | `crate = path` | where the crate `index-table` is found | `::index_table` |
///
/// # `#[index(fields, options)]`, on the struct
///
/// One index; the attribute can be repeated. The fields come first, in the order in which the
/// index is sorted.
///
/// | field | meaning |
/// |---|---|
/// | `field` | the value of the field |
/// | `each(field)` | one entry for each distinct element of a collection; at most one in an index |
///
/// | option | meaning |
/// |---|---|
/// | `strategy = "normalized"` | an entry refers to its row by the primary key; the default |
/// | `strategy = "partial"` | an entry also carries the fields of `include` |
/// | `strategy = "full"` | an entry carries the whole row |
/// | `include = [field]` | the fields that a partial index carries; it implies the strategy |
/// | `unique` | at most one row for each key |
/// | `name = "ident"` | the name on disk and in the names of the methods, for that of the fields |
///
/// A field that is called `unique` or `sparse` is written `r#unique` here. Names drop an `r#`:
/// the index over `r#type` is called `type`.
///
/// # What is generated
///
/// For the repository: `open`, `insert`, `put`, `update`, `delete`, `get` and `all`. For an index
/// over `a` and `b`:
///
/// | method | answers with |
/// |---|---|
/// | `by_a_b` | the whole index, in its order |
/// | `find_by_a`, `find_by_a_b` | the entries with these values |
/// | `find_by_a_range`, `find_by_a_b_range` | the entries with the last field in a range |
/// | `find_by_a_starting_with`, `find_by_a_b_starting_with` | the entries with the last field starting with a text, if it is a `String` |
/// | `get_by_a_b` | the one row with these values, if the index is `unique` |
///
/// The primary key has the `find_by_…` methods too. Where several keys begin with the same fields,
/// the methods for these ask the one that has no further fields, then the one declared first, the
/// primary key before all indexes. An index with a name has methods by this name for all of its
/// fields, and by the fields for the first ones.
///
/// An entry has the fields of its key, those of the primary key, and what it carries. Texts and
/// bytes are borrowed from the store. An `each(cast)` is one element called `cast`; if the
/// collection is carried too, that one is called `all_cast`. Entries are `Debug`, `Clone`,
/// `PartialEq` and `Serialize`, so the types of the carried fields have to be.
///
/// Everything generated has the visibility of the struct.
///
/// Clippy may take a field of two indexes for a repeated attribute. That is
/// `clippy::duplicated_attributes`, which can be allowed on the struct.
///
/// # Errors
///
/// All mistakes are reported at once, each at the word that is wrong. A row is stored in a format
/// that does not name its fields, so these serde attributes are mistakes as well:
///
/// | attribute | where |
/// |---|---|
/// | `flatten`, `skip_serializing_if`; `skip_serializing` or `skip_deserializing` alone | on any field |
/// | `skip` | on a field of a key or of an `include`, and on any field if an index is full |
/// | `with`, `serialize_with`, `deserialize_with` | on a field of a key or of an `include`, and on any field if an index is full |
/// | `tag`, `content`, `untagged` | on the struct |
/// | `from`, `try_from`, `into`, `remote` | on the struct, if an index is full |
#[proc_macro_derive(IndexTable, attributes(table, primary_key, index))]
pub fn derive_index_table(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derive(input.into()).into()
}

/// The stages: tokens to attributes to the model to tokens.
fn derive(input: TokenStream) -> TokenStream {
    let input: DeriveInput = match syn::parse2(input) {
        Ok(input) => input,
        Err(error) => return error.into_compile_error(),
    };
    let errors = Diagnostics::new();
    let generated = match lower::lower(&input, &errors) {
        Lowered::Table(table) => expand::expand(&table),
        Lowered::Inert(inert) => fallback::inert(&input, &inert),
    };
    let errors = errors.finish().map(Error::into_compile_error);
    quote!(#errors #generated)
}
