//! What is required of types that are known by their name only.
//!
//! Such a type has a key encoding or hasn't: the compiler knows, the macro doesn't. So that a type
//! without one gives one error, which names the field, it is asserted once, and everything else is
//! generated under the condition that it holds. A bound on a type without parameters would be
//! checked where it is written; a `for<'any>` in front postpones that to where the item is used.

use proc_macro2::{TokenStream, TokenTree};
use quote::{format_ident, quote_spanned};
use syn::Ident;

use super::{Context, at};
use crate::model::{Field, KeyPart, Table};
use crate::types::{DataType, Requirement};

/// A field, and what its type has to be.
struct Required<'a> {
    field: &'a Field,
    ty: &'a DataType,
    requirement: Requirement,
}

fn of(table: &Table) -> Vec<Required<'_>> {
    let primary_key = table.primary_key.iter().map(|field| (&**field, &field.ty));
    let parts = table.indexes.iter().flat_map(|index| &index.parts);
    let parts = parts.map(|part| match part {
        KeyPart::Plain(field) => (&**field, &field.ty),
        KeyPart::Each(field, element) => (&**field, &**element),
    });
    let mut required: Vec<Required<'_>> = Vec::new();
    for (field, ty) in primary_key.chain(parts) {
        if let Some(requirement) = ty.requirement()
            && !required
                .iter()
                .any(|other| other.field.ident == field.ident && other.requirement == requirement)
        {
            required.push(Required { field, ty, requirement });
        }
    }
    required
}

/// Expands to `where for<'any> Kind: _index_table::Key`, or to nothing.
pub(super) fn conditions(cx: &Context<'_>, private: &TokenStream) -> TokenStream {
    let conditions = of(cx.table).into_iter().map(|Required { ty, requirement, .. }| {
        let (written, span) = (ty.written(), at(ty.span()));
        match requirement {
            Requirement::Key => quote_spanned!(span=> for<'any> #written: #private::Key),
            Requirement::Each => quote_spanned!(span=> for<'any> #written: #private::Each),
        }
    });
    let conditions: Vec<_> = conditions.collect();
    if conditions.is_empty() { TokenStream::new() } else { mixed!(where #(#conditions),*) }
}

/// Expands to one assertion for each field:
///
/// ```text
/// const _: () = {
///     struct kind;
///     _index_table::assert_key::<Kind, kind>()
/// };
/// ```
pub(super) fn assertions(cx: &Context<'_>) -> TokenStream {
    of(cx.table)
        .into_iter()
        .map(|Required { field, ty, requirement }| {
            let (written, span) = (ty.written(), at(ty.span()));
            let assert = match requirement {
                Requirement::Key => quote_spanned!(span=> _index_table::assert_key),
                Requirement::Each => quote_spanned!(span=> _index_table::assert_each),
            };
            let marker = marker(&field.ident, written.clone());
            mixed! {
                const _: () = {
                    struct #marker;
                    #assert::<#written, #marker>()
                };
            }
        })
        .collect()
}

/// A name for the type that stands for a field in a message: the field's, unless that is a name
/// in its type too.
pub(super) fn marker(field: &Ident, ty: TokenStream) -> Ident {
    fn names(tokens: TokenStream, name: &Ident) -> bool {
        tokens.into_iter().any(|token| match token {
            TokenTree::Ident(ident) => ident == *name,
            TokenTree::Group(group) => names(group.stream(), name),
            TokenTree::Punct(_) | TokenTree::Literal(_) => false,
        })
    }
    if names(ty, field) { format_ident!("{field}_") } else { field.clone() }
}
