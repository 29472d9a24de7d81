//! The stages of an expansion: tokens to attributes, attributes to the model, and the model to tokens.

use proc_macro2::TokenStream;
use quote::quote;
use syn::DeriveInput;

use crate::{
    diagnostics::{Diagnostics, Reported},
    expand, fallback,
    lower::{self, Lowered, key::LoweredKey},
};

/// Expands `#[derive(IndexKey)]`.
pub(crate) fn derive_key(input: TokenStream) -> TokenStream {
    generate(input, lower::key::lower, |input, key, errors| match key {
        LoweredKey::Key(key) => expand::key::expand(&key),
        LoweredKey::Inert(krate) => errors
            .take_first()
            .map(|error| fallback::inert_key(input, &krate, &error))
            .unwrap_or_default(),
    })
}

/// Expands `#[derive(IndexTable)]`.
pub(crate) fn derive(input: TokenStream) -> TokenStream {
    generate(input, lower::lower, |input, lowered, errors| match (lowered, errors.take_first()) {
        (Lowered::Table(table), None) => expand::expand(&table),
        (Lowered::Table(table), Some(error)) => {
            let types = fallback::types_of(&table, &error);
            let entity = expand::expand_entity(*table);
            quote!(#types #entity)
        }
        (Lowered::Inert(inert), Some(error)) => fallback::types(&input.vis, &inert, &error),
        // Nothing has been reported, which does not occur.
        (Lowered::Inert(_), None) => TokenStream::new(),
    })
}

/// Expands `#[derive(RowVersion)]`.
pub(crate) fn derive_version(input: TokenStream) -> TokenStream {
    generate(input, lower::version::lower, |input, version, _| {
        if input.generics.params.is_empty() {
            expand::version::expand(&version)
        } else {
            // Nothing useful can be generated.
            TokenStream::new()
        }
    })
}

/// Returns the errors of `lower` that `expand` has not taken, and the output of `expand`.
fn generate<L>(
    input: TokenStream,
    lower: impl FnOnce(&DeriveInput, &Diagnostics) -> L,
    expand: impl FnOnce(&DeriveInput, L, &mut Reported) -> TokenStream,
) -> TokenStream {
    let input: DeriveInput = match syn::parse2(input) {
        Ok(input) => input,
        Err(error) => return error.into_compile_error(),
    };
    let errors = Diagnostics::new();
    let lowered = lower(&input, &errors);
    let mut errors = errors.finish();
    let generated = expand(&input, lowered, &mut errors);
    quote!(#generated #errors)
}
