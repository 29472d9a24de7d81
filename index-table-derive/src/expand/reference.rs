//! References to rows of other structs.

use proc_macro2::{Literal, TokenStream};
use quote::{ToTokens, format_ident, quote_spanned};
use syn::Ident;
use syn::spanned::Spanned as _;

use super::{Context, at, entity, requirements};
use crate::model::Reference;
use crate::names;

/// Expands to, for a table with references:
///
/// ```text
/// const REFERENCES: &'static [_index_table::ReferenceSchema] = &[
///     _index_table::ReferenceSchema {
///         name: "customer",
///         fields: 1,
///         to: <__To_customer as _index_table::Entity>::TABLE,
///         distribution: <__To_customer as _index_table::Entity>::DISTRIBUTION,
///         index: Some(0),
///         optional: false,
///         cascade: None,
///         main: None,
///     },
/// ];
/// ```
pub(super) fn constant(cx: &Context<'_>) -> Option<TokenStream> {
    if cx.table.references.is_empty() {
        return None;
    }
    let references = cx.table.references.iter().map(|reference| {
        let Reference { name, fields, inner, index, cascade, .. } = reference;
        let (fields, optional) = (Literal::usize_unsuffixed(fields.len()), inner.is_some());
        let is_part = part(cx).is_some_and(|part| std::ptr::eq(part, reference));
        let index = option(index.map(Literal::usize_unsuffixed));
        let cascade = option(cascade.then(|| names::plain(&cx.table.repository)));
        let to = row(reference);
        let main = option(is_part.then(|| mixed!(_index_table::MainTable::of::<#to>())));
        let to = mixed!(<#to as _index_table::Entity>);
        mixed! {
            _index_table::ReferenceSchema {
                name: #name,
                fields: #fields,
                to: #to::TABLE,
                distribution: #to::DISTRIBUTION,
                index: #index,
                optional: #optional,
                cascade: #cascade,
                main: #main,
            }
        }
    });
    Some(mixed! {
        const REFERENCES: &'static [_index_table::ReferenceSchema] = &[#(#references),*];
    })
}

/// Expands to, for a table of parts:
///
/// ```text
/// impl _index_table::PartOf<__To_part_of> for InvoiceScan {}
/// ```
pub(super) fn implementation(cx: &Context<'_>) -> Option<TokenStream> {
    let main = row(part(cx)?);
    let row = &cx.table.row;
    Some(mixed! {
        #[automatically_derived]
        impl _index_table::PartOf<#main> for #row {}
    })
}

/// Expands to `Some(value)` or `None`.
fn option(value: Option<impl ToTokens>) -> TokenStream {
    value.map_or_else(
        || mixed!(::core::option::Option::None),
        |value| mixed!(::core::option::Option::Some(#value)),
    )
}

/// Returns the reference of a part to its main row.
fn part<'a>(cx: &Context<'a>) -> Option<&'a Reference> {
    cx.table.part_of.as_ref()?;
    cx.table.references.iter().find(|it| it.index.is_none() && it.name == "part_of")
}

/// Expands to the type of the referenced rows, and to an assertion that the fields have the type of their primary key:
///
/// ```text
/// type __Named_customer = Customer;
/// type __To_customer = <__Named_customer as _index_table::Checked<{
///     _index_table::assert_table::<__Named_customer>();
///     true
/// }>>::Checked;
/// const fn __reference_customer<customer>() {
///     _index_table::assert_reference::<__To_customer, u64, customer>()
/// }
/// ```
///
/// If the type does not exist, or is no table, only the first or the second type has an error.
pub(super) fn assertions(cx: &Context<'_>) -> TokenStream {
    let assertions = cx.table.references.iter().map(|reference| {
        let to = &reference.to;
        let span = at(to.span());
        let types = reference.fields.iter().map(|it| it.ty.tokens(&cx.short));
        let types: Vec<_> = types.collect();
        let key = match (&reference.inner, types.as_slice()) {
            (Some(inner), _) => mixed!(#inner),
            (None, [one]) => one.clone(),
            (None, several) => quote_spanned!(span=> (#(#several),*)),
        };
        let named = format_ident!("__Named_{}", reference.name, span = span);
        let row = row(reference);
        let name = match reference.fields.as_slice() {
            // A part refers by its primary key.
            [field] => field.ident.clone(),
            _ => format_ident!("{}", reference.name, span = span),
        };
        let marker = requirements::marker(&name, quote_spanned!(span=> #row #key));
        let check = format_ident!("__reference_{}", reference.name, span = span);
        let key = quote_spanned!(span=> _index_table::assert_reference::<#row, #key, #marker>());
        let assert = quote_spanned!(span=> _index_table::assert_table::<#named>());
        mixed! {
            type #named = #to;
            type #row = <#named as _index_table::Checked<{ #assert; true }>>::Checked;
            const fn #check<#marker>() {
                #key
            }
        }
    });
    assertions.collect()
}

/// Returns the name of the type of the referenced rows.
fn row(reference: &Reference) -> Ident {
    format_ident!("__To_{}", reference.name, span = at(reference.to.span()))
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
