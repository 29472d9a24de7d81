//! The stages: tokens to attributes to the model to tokens.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Error};

use crate::{
    diagnostics::Diagnostics,
    expand, fallback,
    lower::{self, Lowered, key::LoweredKey},
};

/// What `#[derive(IndexKey)]` makes of a type.
pub(crate) fn derive_key(input: TokenStream) -> TokenStream {
    let input: DeriveInput = match syn::parse2(input) {
        Ok(input) => input,
        Err(error) => return error.into_compile_error(),
    };
    let errors = Diagnostics::new();
    let generated = match lower::key::lower(&input, &errors) {
        LoweredKey::Key(key) => expand::key::expand(&key),
        LoweredKey::Inert(krate) => fallback::inert_key(&input, &krate),
    };
    let errors = errors.finish().map(Error::into_compile_error);
    quote!(#errors #generated)
}

/// What `#[derive(IndexTable)]` makes of a struct.
pub(crate) fn derive(input: TokenStream) -> TokenStream {
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

/// What `#[derive(RowVersion)]` makes of a struct.
pub(crate) fn derive_version(input: TokenStream) -> TokenStream {
    let input: DeriveInput = match syn::parse2(input) {
        Ok(input) => input,
        Err(error) => return error.into_compile_error(),
    };
    let errors = Diagnostics::new();
    let generated = if input.generics.params.is_empty() {
        expand::version::expand(&lower::version::lower(&input, &errors))
    } else {
        // Nothing that could be generated would be sound.
        drop(lower::version::lower(&input, &errors));
        TokenStream::new()
    };
    let errors = errors.finish().map(Error::into_compile_error);
    quote!(#errors #generated)
}
