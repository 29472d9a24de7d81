//! References to rows of other structs.

use proc_macro2::{Literal, TokenStream};
use quote::quote_spanned;
use syn::spanned::Spanned as _;

use super::{Context, at, entity};
use crate::model::Reference;

/// Expands to, for a table with references:
///
/// ```text
/// const REFERENCES: &'static [_index_table::ReferenceSchema] = &[
///     _index_table::ReferenceSchema {
///         name: "customer",
///         fields: 1,
///         to: <Customer as _index_table::Entity>::TABLE,
///         index: 0,
///         optional: false,
///     },
/// ];
/// ```
pub(super) fn constant(cx: &Context<'_>) -> Option<TokenStream> {
    if cx.table.references.is_empty() {
        return None;
    }
    let references = cx.table.references.iter().map(|reference| {
        let Reference { name, to, fields, inner, index } = reference;
        let (fields, optional) = (Literal::usize_unsuffixed(fields.len()), inner.is_some());
        let index = Literal::usize_unsuffixed(*index);
        let to = quote_spanned!(at(to.span())=> <#to as _index_table::Entity>::TABLE);
        mixed! {
            _index_table::ReferenceSchema {
                name: #name,
                fields: #fields,
                to: #to,
                index: #index,
                optional: #optional,
            }
        }
    });
    Some(mixed! {
        const REFERENCES: &'static [_index_table::ReferenceSchema] = &[#(#references),*];
    })
}

/// Expands to an assertion that the fields have the type of the primary key:
///
/// ```text
/// const _: ::core::marker::PhantomData<_index_table::ReferenceTo<Customer, u64>> = …;
/// ```
pub(super) fn assertions(cx: &Context<'_>) -> TokenStream {
    let assertions = cx.table.references.iter().map(|reference| {
        let to = &reference.to;
        let key = match &reference.inner {
            Some(inner) => mixed!(#inner),
            None => entity::tuple(reference.fields.iter().map(|it| it.ty.tokens(&cx.short))),
        };
        super::requirements::well_formed(to.span(), &mixed!(ReferenceTo<#to, #key>))
    });
    assertions.collect()
}

/// Expands to the arm of `entries` for a reference: `3 => { __entries.key().push(&self.customer); }`.
pub(super) fn arm(position: usize, reference: &Reference) -> TokenStream {
    let position = Literal::usize_unsuffixed(position);
    let values = reference.fields.iter().map(|field| entity::value(field));
    if reference.inner.is_some() {
        return mixed! {
            #position => {
                if let ::core::option::Option::Some(__referred) = #(#values)* {
                    __entries.key().push(__referred);
                }
            }
        };
    }
    mixed!(#position => { __entries.key() #(.push(#values))*; })
}
