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

/// Placeholder.
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
