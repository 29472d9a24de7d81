//! The stages of an expansion: tokens to attributes, attributes to the model, and the model to tokens.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Error};

use crate::{
    diagnostics::Diagnostics,
    expand, fallback,
    lower::{self, Lowered, key::LoweredKey},
};

/// Expands `#[derive(IndexKey)]`.
pub(crate) fn derive_key(input: TokenStream) -> TokenStream {
    generate(input, |input, errors| match lower::key::lower(input, errors) {
        LoweredKey::Key(key) => expand::key::expand(&key),
        LoweredKey::Inert(krate) => fallback::inert_key(input, &krate),
    })
}

/// Expands `#[derive(IndexTable)]`.
pub(crate) fn derive(input: TokenStream) -> TokenStream {
    generate(input, |input, errors| match lower::lower(input, errors) {
        Lowered::Table(table) => expand::expand(&table),
        Lowered::Inert(inert) => fallback::inert(input, &inert),
    })
}

/// Expands `#[derive(RowVersion)]`.
pub(crate) fn derive_version(input: TokenStream) -> TokenStream {
    generate(input, |input, errors| {
        let version = lower::version::lower(input, errors);
        if input.generics.params.is_empty() {
            expand::version::expand(&version)
        } else {
            // Nothing useful can be generated.
            TokenStream::new()
        }
    })
}

/// Returns the errors of `stages`, followed by their output.
fn generate(
    input: TokenStream,
    stages: impl FnOnce(&DeriveInput, &Diagnostics) -> TokenStream,
) -> TokenStream {
    let input: DeriveInput = match syn::parse2(input) {
        Ok(input) => input,
        Err(error) => return error.into_compile_error(),
    };
    let errors = Diagnostics::new();
    let generated = stages(&input, &errors);
    let errors = errors.finish().map(Error::into_compile_error);
    quote!(#errors #generated)
}
