//! `Clone`, `Debug` and `PartialEq` of entries and views.
//!
//! A derive of `Clone` would give an error for each missing trait of a user's type, in each entry, and none
//! would name the index. So each type is asserted once, and the traits are implemented under the condition
//! that it has them.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Ident, Type};

use super::{Context, at, requirements};
use crate::model::{Aggregate, Index, Source, View};
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

/// Returns the types in the fields of a group that may lack a trait. Only a type that is not a key lacks one.
pub(super) fn of_group(aggregate: &Aggregate) -> Vec<&Type> {
    distinct(aggregate.group.iter().flat_map(|field| field.ty.own_types()))
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

/// Expands to the traits of an entry or a view. They are written here and not derived: the compiler copies the
/// attributes of a struct to each derived implementation, and clones field by field.
///
/// ```text
/// impl<'txn> ::core::clone::Clone for CustomerByTown<'txn> {
///     fn clone(&self) -> Self {
///         Self { ..*self }
///     }
/// }
/// impl<'txn> ::core::fmt::Debug for CustomerByTown<'txn> {
///     fn fmt(&self, __f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
///         _index_table::debug(__f, "CustomerByTown", &[("town", &self.town), ("id", &self.id)])
///     }
/// }
/// impl<'txn> ::core::cmp::PartialEq for CustomerByTown<'txn> {
///     fn eq(&self, __other: &Self) -> bool {
///         self.town == __other.town && self.id == __other.id
///     }
/// }
/// ```
///
/// If a type can lack one, with the condition `where for<'any> Address: _index_table::Carried`. If a field may
/// not be `Copy`, `clone` is `Self { town: ::core::clone::Clone::clone(&self.town), … }`.
pub(super) fn traits(
    cx: &Context<'_>,
    ident: &Ident,
    lifetime: Option<&TokenStream>,
    fields: &[&Ident],
    carried: &[&Type],
    copied: bool,
) -> TokenStream {
    let conditions = carried
        .iter()
        .map(|ty| quote_spanned!(at(ty.span())=> for<'any> #ty: _index_table::Carried));
    let conditions = requirements::conditions_and(cx, &cx.short, conditions.collect());
    let name = names::plain(ident);
    let fields: Vec<Ident> =
        fields.iter().map(|field| names::with_span(field, Span::mixed_site())).collect();
    let names = fields.iter().map(names::plain);
    let clone = if copied {
        mixed!(Self { ..*self })
    } else {
        mixed!(Self { #(#fields: ::core::clone::Clone::clone(&self.#fields)),* })
    };
    mixed! {
        #[automatically_derived]
        impl #lifetime ::core::clone::Clone for #ident #lifetime #conditions {
            fn clone(&self) -> Self {
                #clone
            }
        }

        #[automatically_derived]
        impl #lifetime ::core::fmt::Debug for #ident #lifetime #conditions {
            fn fmt(&self, __f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                _index_table::debug(__f, #name, &[#((#names, &self.#fields)),*])
            }
        }

        #[automatically_derived]
        impl #lifetime ::core::cmp::PartialEq for #ident #lifetime #conditions {
            fn eq(&self, __other: &Self) -> bool {
                #(self.#fields == __other.#fields)&&*
            }
        }
    }
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
        let name = requirements::marker(&name, types.iter().map(|ty| quote!(#ty)).collect());
        let name = names::with_span(&name, Span::mixed_site());
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
