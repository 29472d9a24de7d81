//! The methods of `filter` and `computed`, which the derive can't see.

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::Ident;

use super::{Context, at};

/// Expands to the replacement of a method, which is called if the struct has no such method with the right
/// receiver:
///
/// ```text
/// trait __NoMethod {
///     fn is_active(&self) -> _index_table::NoMethod<Customer, bool> { loop {} }
/// }
/// impl __NoMethod for &Customer {}
/// ```
///
/// The replacement is a method of `&Customer` that takes a reference, so every method of the struct, or of a
/// trait for the struct, has precedence.
pub(super) fn missing(cx: &Context<'_>) -> Option<TokenStream> {
    let row = &cx.table.row;
    let mut names = Vec::new();
    let mut methods = Vec::new();
    let mut add = |ident: &Ident, ty: TokenStream| {
        if !names.contains(ident) {
            names.push(ident.clone());
            // Not the user's token, because in editors it would refer to this method.
            let mut ident = ident.clone();
            ident.set_span(Span::mixed_site());
            let missing = mixed!(_index_table::NoMethod<#row, #ty>);
            methods.push(mixed!(fn #ident(&self) -> #missing { loop {} }));
        }
    };
    for index in &cx.table.indexes {
        if let Some(filter) = &index.conditions.filter {
            add(filter, mixed!(bool));
        }
        for part in &index.parts {
            if let Some(method) = part.method() {
                add(&method.ident, method.ty.written());
            }
        }
    }
    if methods.is_empty() {
        return None;
    }
    Some(mixed! {
        trait __NoMethod { #(#methods)* }
        impl __NoMethod for &#row {}
    })
}

/// Expands to `self.is_active()`, with the span of the method. The name is not the user's token, because the
/// compiler would suggest corrections of the attribute.
pub(super) fn call(method: &Ident) -> TokenStream {
    let span = at(method.span());
    let mut method = method.clone();
    method.set_span(span);
    quote_spanned!(span=> self.#method())
}
