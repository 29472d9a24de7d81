//! `impl RowVersion`, and what a table has of its older versions.

use proc_macro2::{Literal, TokenStream};
use quote::quote_spanned;
use syn::Path;
use syn::spanned::Spanned as _;

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
///             fields: &[_index_table::FieldSchema::new::<u64>("id", "u64")],
///             previous: …,
///             changed: &["name"],
///         };
///         fn older(…) -> … { … }
///     }
/// };
/// ```
pub(crate) fn expand(model: &RowVersion) -> TokenStream {
    let (private, allow) = (private(&model.krate), allow());
    let (row, version) = (&model.row, Literal::u32_unsuffixed(model.version));
    let short = mixed!(_index_table);
    let fields = model.fields.iter().map(|field| schema_of_field(field, &short));
    let changed = &model.changed;
    let previous = previous(model.previous.as_ref());
    let assertions = assertions(model.version, model.previous.as_ref());
    let older = older(model.previous.as_ref());
    mixed! {
        #allow
        const _: () = {
            use #private as _index_table;
            #assertions

            #[automatically_derived]
            impl _index_table::RowVersion for #row {
                const ROW: &'static _index_table::RowSchema = &_index_table::RowSchema {
                    version: #version,
                    fields: &[#(#fields),*],
                    previous: #previous,
                    changed: &[#(#changed),*],
                };

                #older
            }
        };
    }
}

/// Expands to `_index_table::FieldSchema::new::<u64>("id", "u64")`.
pub(super) fn schema_of_field(field: &Field, krate: &TokenStream) -> TokenStream {
    let Field { name, declared, ty, .. } = field;
    let ty = ty.tokens(krate);
    mixed!(#krate::FieldSchema::new::<#ty>(#name, #declared))
}

/// Expands to `_index_table::VersionOf::<CustomerV1>::ROW` or `None`.
pub(super) fn previous(previous: Option<&Path>) -> TokenStream {
    previous.map_or_else(
        || mixed!(::core::option::Option::None),
        |previous| mixed!(_index_table::VersionOf::<#previous>::ROW),
    )
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
        let read = quote_spanned!(at(previous.span())=> _index_table::older::<#previous, Self>);
        mixed! {
            fn older(
                __version: u32,
                __body: &[u8],
            ) -> _index_table::Result<Self, _index_table::DecodeError> {
                #read(__version, __body)
            }
        }
    })
}

/// Expands to:
///
/// ```text
/// use _index_table::NoVersion as _;
/// const _: () = ::core::assert!(_index_table::VersionOf::<CustomerV1>::NUMBER < 2, "…");
/// ```
///
/// `NoVersion` answers for a type that is no version of a row, which has its error where the `older`
/// of [`older`] is called, so that it has only one.
pub(super) fn assertions(version: u32, previous: Option<&Path>) -> Option<TokenStream> {
    let previous = previous?;
    let (span, version) = (at(previous.span()), Literal::u32_unsuffixed(version));
    let number = mixed!(_index_table::VersionOf::<#previous>::NUMBER);
    let below = quote_spanned!(span=> ::core::assert!(#number < #version, #NOT_BELOW));
    Some(mixed! {
        #[allow(unused_imports)]
        use _index_table::NoVersion as _;
        const _: () = #below;
    })
}
