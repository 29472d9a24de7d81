//! References to rows of other structs.

use proc_macro2::{Literal, TokenStream};
use quote::{ToTokens, quote_spanned};
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
///         to: <Customer as _index_table::Entity>::TABLE,
///         distribution: <Customer as _index_table::Entity>::DISTRIBUTION,
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
        let Reference { name, to, fields, inner, index, cascade } = reference;
        let (fields, optional) = (Literal::usize_unsuffixed(fields.len()), inner.is_some());
        let is_part = index.is_none() && cx.table.part_of.is_some() && name == "part_of";
        let index = option(index.map(Literal::usize_unsuffixed));
        let cascade = option(cascade.then(|| names::plain(&cx.table.repository)));
        let main = option(is_part.then(|| mixed!(_index_table::MainTable::of::<#to>())));
        let to = quote_spanned!(at(to.span())=> <#to as _index_table::Entity>);
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
/// impl _index_table::PartOf<Invoice> for InvoiceScan {}
/// ```
pub(super) fn implementation(cx: &Context<'_>) -> Option<TokenStream> {
    let main = cx.table.part_of.as_ref()?;
    let row = &cx.table.row;
    let conditions = requirements::conditions(cx, &cx.short);
    Some(mixed! {
        #[automatically_derived]
        impl _index_table::PartOf<#main> for #row #conditions {}
    })
}

/// Expands to `Some(value)` or `None`.
fn option(value: Option<impl ToTokens>) -> TokenStream {
    value.map_or_else(
        || mixed!(::core::option::Option::None),
        |value| mixed!(::core::option::Option::Some(#value)),
    )
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
        requirements::well_formed(to.span(), &mixed!(ReferenceTo<#to, #key>))
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
