//! `impl RowVersion`, and what a table has of its older versions.

use proc_macro2::{Literal, TokenStream};
use quote::quote_spanned;
use syn::spanned::Spanned as _;
use syn::{Ident, Path};

use super::{allow, at, private};
use crate::model::{Field, NOT_BELOW, RowVersion};

/// Expands to:
///
/// ```text
/// const _: () = {
///     use ::index_table::__private as _index_table;
///     impl _index_table::RowVersion for CustomerV2 {
///         const ROW: &'static _index_table::RowSchema = &_index_table::RowSchema {
///             version: 2,
///             fields: &[_index_table::FieldSchema { name: "id", declared: "u64" }],
///             previous: …,
///         };
///         fn older(…) -> … { … }
///     }
/// };
/// ```
pub(crate) fn expand(model: &RowVersion) -> TokenStream {
    let (private, allow) = (private(&model.krate), allow());
    let (row, version) = (&model.row, Literal::u32_unsuffixed(model.version));
    let fields = model.fields.iter().map(|field| schema_of_field(field));
    let previous = previous(model.previous.as_ref());
    let assertions = assertions(row, model.version, model.previous.as_ref());
    let older = older(model.previous.as_ref());
    let conditions = conditions(row, model.previous.as_ref(), &mixed!(_index_table));
    let conditions = (!conditions.is_empty()).then(|| mixed!(where #(#conditions),*));
    mixed! {
        #allow
        const _: () = {
            use #private as _index_table;
            #assertions

            #[automatically_derived]
            impl _index_table::RowVersion for #row #conditions {
                const ROW: &'static _index_table::RowSchema = &_index_table::RowSchema {
                    version: #version,
                    fields: &[#(#fields),*],
                    previous: #previous,
                };

                #older
            }
        };
    }
}

/// Expands to `_index_table::FieldSchema { name: "id", declared: "u64" }`.
pub(super) fn schema_of_field(Field { name, declared, .. }: &Field) -> TokenStream {
    mixed!(_index_table::FieldSchema { name: #name, declared: #declared })
}

/// Expands to `Some(<CustomerV1 as _index_table::RowVersion>::ROW)` or `None`.
pub(super) fn previous(previous: Option<&Path>) -> TokenStream {
    match previous {
        Some(previous) => mixed! {
            ::core::option::Option::Some(<#previous as _index_table::RowVersion>::ROW)
        },
        None => mixed!(::core::option::Option::None),
    }
}

/// Expands to what reads rows of older versions, if there are some:
///
/// ```text
/// fn older(
///     __version: u32,
///     __body: &[u8],
/// ) -> _index_table::Result<Self, _index_table::DecodeError> {
///     _index_table::older::<CustomerV1, Self>(__version, __body)
/// }
/// ```
pub(super) fn older(previous: Option<&Path>) -> Option<TokenStream> {
    previous.map(|previous| {
        mixed! {
            fn older(
                __version: u32,
                __body: &[u8],
            ) -> _index_table::Result<Self, _index_table::DecodeError> {
                _index_table::older::<#previous, Self>(__version, __body)
            }
        }
    })
}

/// Expands to `for<'any> CustomerV1: _index_table::RowVersion` and
/// `for<'any> Customer: ::core::convert::From<CustomerV1>`: what does not hold gives one error, by
/// [`assertions`].
pub(super) fn conditions(
    row: &Ident,
    previous: Option<&Path>,
    private: &TokenStream,
) -> Vec<TokenStream> {
    let Some(previous) = previous else { return Vec::new() };
    let span = at(previous.span());
    vec![
        quote_spanned!(span=> for<'any> #previous: #private::RowVersion),
        quote_spanned!(span=> for<'any> #row: ::core::convert::From<#previous>),
    ]
}

/// Expands to:
///
/// ```text
/// const _: () = _index_table::assert_version::<CustomerV1>();
/// const _: () = _index_table::assert_follows::<CustomerV1, Customer>();
/// const _: () = {
///     use _index_table::NoVersion as _;
///     ::core::assert!(_index_table::VersionOf::<CustomerV1>::NUMBER < 2, "…")
/// };
/// ```
///
/// `NoVersion` answers for a type that is no version at all, which has its error already.
pub(super) fn assertions(row: &Ident, version: u32, previous: Option<&Path>) -> TokenStream {
    let Some(previous) = previous else { return TokenStream::new() };
    let (span, version) = (at(previous.span()), Literal::u32_unsuffixed(version));
    let is_version = quote_spanned!(span=> _index_table::assert_version::<#previous>());
    let follows = quote_spanned!(span=> _index_table::assert_follows::<#previous, #row>());
    let number = mixed!(_index_table::VersionOf::<#previous>::NUMBER);
    let below = quote_spanned!(span=> ::core::assert!(#number < #version, #NOT_BELOW));
    mixed! {
        const _: () = #is_version;
        const _: () = #follows;
        const _: () = {
            #[allow(unused_imports)]
            use _index_table::NoVersion as _;
            #below
        };
    }
}
