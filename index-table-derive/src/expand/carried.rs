//! The traits of entries and views that contain the user's types.
//!
//! A derive of `Clone` would cause an error for each missing trait of such a type, in each entry, without the
//! name of the index. Instead, each type is asserted once, and the traits are implemented under the condition
//! that the type has them.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Ident, Type};

use super::{Context, at, requirements};
use crate::model::{Index, Source, View};
use crate::names;
use crate::types::{self, DataType};

/// Returns the types in the fields of an entry that may lack a trait.
pub(super) fn of_entry(index: &Index) -> Vec<&Type> {
    let carried = index.entry.fields().filter_map(|(_, source)| match source {
        Source::Included(field) | Source::Row(field) => Some(&field.ty),
        Source::Key(_) | Source::PrimaryKey(_) => None,
    });
    distinct(carried.flat_map(DataType::own_types))
}

/// Returns the types in the fields of a view that may lack a trait.
pub(super) fn of_view(view: &View) -> Vec<&Type> {
    distinct(view.fields.iter().flat_map(|field| field.field.ty.own_types()))
}

fn distinct<'a>(types: impl Iterator<Item = &'a Type>) -> Vec<&'a Type> {
    let mut distinct: Vec<&Type> = Vec::new();
    for ty in types {
        if !is_in(&distinct, ty) {
            distinct.push(ty);
        }
    }
    distinct
}

fn is_in(types: &[&Type], ty: &Type) -> bool {
    let text = types::text(ty);
    types.iter().any(|other| types::text(other) == text)
}

/// Expands to the derives of the traits, if no type can lack a trait.
pub(super) fn derives(carried: &[&Type]) -> Option<TokenStream> {
    carried.is_empty().then(|| {
        mixed! {
            #[derive(::core::fmt::Debug, ::core::clone::Clone, ::core::cmp::PartialEq)]
        }
    })
}

/// Expands to the traits, if a type can lack a trait:
///
/// ```text
/// impl<'txn> ::core::clone::Clone for CustomerByTown<'txn>
/// where
///     for<'any> Address: _index_table::Carried,
/// {
///     fn clone(&self) -> Self {
///         Self { town: ::core::clone::Clone::clone(&self.town), … }
///     }
/// }
/// impl<'txn> ::core::fmt::Debug for CustomerByTown<'txn> where … { … }
/// impl<'txn> ::core::cmp::PartialEq for CustomerByTown<'txn> where … { … }
/// ```
pub(super) fn traits(
    cx: &Context<'_>,
    ident: &Ident,
    lifetime: Option<&TokenStream>,
    fields: &[&Ident],
    carried: &[&Type],
) -> Option<TokenStream> {
    if carried.is_empty() {
        return None;
    }
    let conditions = carried
        .iter()
        .map(|ty| quote_spanned!(at(ty.span())=> for<'any> #ty: _index_table::Carried));
    let conditions = requirements::conditions_and(cx, &cx.short, conditions.collect());
    let name = names::plain(ident);
    let fields: Vec<Ident> = fields
        .iter()
        .map(|field| {
            let mut field = (*field).clone();
            field.set_span(Span::mixed_site());
            field
        })
        .collect();
    let names = fields.iter().map(names::plain);
    Some(mixed! {
        #[automatically_derived]
        impl #lifetime ::core::clone::Clone for #ident #lifetime #conditions {
            fn clone(&self) -> Self {
                Self { #(#fields: ::core::clone::Clone::clone(&self.#fields)),* }
            }
        }

        #[automatically_derived]
        impl #lifetime ::core::fmt::Debug for #ident #lifetime #conditions {
            fn fmt(&self, __f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Formatter::debug_struct(__f, #name)
                    #(.field(#names, &self.#fields))*
                    .finish()
            }
        }

        #[automatically_derived]
        impl #lifetime ::core::cmp::PartialEq for #ident #lifetime #conditions {
            fn eq(&self, __other: &Self) -> bool {
                #(::core::cmp::PartialEq::eq(&self.#fields, &__other.#fields))&&*
            }
        }
    })
}

/// Expands to one assertion for each type that may lack a trait, with the type's span, for the first index
/// that carries the type or for the view.
///
/// ```text
/// const _: () = {
///     fn carried<town>() {
///         _index_table::assert_carried::<Address, town>();
///     }
/// };
/// const _: () = _index_table::assert_viewed::<Photo>();
/// ```
pub(super) fn assertions(cx: &Context<'_>) -> TokenStream {
    let mut asserted: Vec<&Type> = Vec::new();
    let mut assertions = TokenStream::new();
    for index in &cx.table.indexes {
        let types = of_entry(index).into_iter().filter(|ty| !is_in(&asserted, ty));
        let types: Vec<&Type> = types.collect();
        // A keyword can be the name of an index.
        let name: Ident = syn::parse_str(&index.name).unwrap_or_else(|_| index.entry.ident.clone());
        let mut name = requirements::marker(&name, types.iter().map(|ty| quote!(#ty)).collect());
        name.set_span(Span::mixed_site());
        let calls = types.iter().map(|ty| {
            let assert = quote_spanned!(at(ty.span())=> _index_table::assert_carried);
            mixed!(#assert::<#ty, #name>();)
        });
        if !types.is_empty() {
            assertions.extend(mixed!(const _: () = { fn carried<#name>() { #(#calls)* } };));
        }
        asserted.extend(types);
    }
    for ty in cx.table.view.iter().flat_map(of_view).filter(|ty| !is_in(&asserted, ty)) {
        let assert = quote_spanned!(at(ty.span())=> _index_table::assert_viewed);
        assertions.extend(mixed!(const _: () = #assert::<#ty>();));
    }
    assertions
}
