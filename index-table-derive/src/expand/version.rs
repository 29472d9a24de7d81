//! `impl RowVersion`, and the older versions of a table.

use proc_macro2::{Literal, TokenStream};
use quote::quote_spanned;
use syn::spanned::Spanned as _;
use syn::{Ident, Path};

use super::{allow, at, private, requirements};
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
///         fn decode(…) -> … { … }
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
    let assertions = assertions(row, model.version, model.previous.as_ref());
    let older = older(model.previous.as_ref());
    let read = model.readable.then(|| requirements::well_formed(row.span(), &mixed!(IsRead<#row>)));
    let decode = decode();
    mixed! {
        #allow
        const _: () = {
            use #private as _index_table;
            #[allow(unused_imports)]
            use _index_table::NoRowFormat as _;
            #read
            #assertions

            #[automatically_derived]
            impl _index_table::RowVersion for #row {
                const ROW: &'static _index_table::RowSchema = &_index_table::RowSchema {
                    version: #version,
                    fields: &[#(#fields),*],
                    previous: #previous,
                    changed: &[#(#changed),*],
                };

                #decode
                #older
            }
        };
    }
}

/// Expands to:
///
/// ```text
/// #[inline]
/// fn decode(__body: _index_table::RowBody<'_>) -> _index_table::Result<Self, _index_table::DecodeError> {
///     _index_table::RowFormat::<Self>::decode(__body)
/// }
/// ```
pub(super) fn decode() -> TokenStream {
    mixed! {
        #[inline]
        fn decode(__body: _index_table::RowBody<'_>) -> _index_table::Result<Self, _index_table::DecodeError> {
            _index_table::RowFormat::<Self>::decode(__body)
        }
    }
}

/// Expands to `_index_table::FieldSchema::new::<u64>("id", "u64")`, `.stored_as("ID")` if serde writes another name,
/// `.also_read_as(&["ident"])` if it reads others, `.with_default()` if rows may lack the field, `.read_by_function()`, and
/// `.flattened()`.
pub(super) fn schema_of_field(field: &Field, krate: &TokenStream) -> TokenStream {
    let Field { name, written, stored, declared, ty, .. } = field;
    let ty = ty.tokens(krate);
    let stored_as = (name != written).then(|| mixed!(.stored_as(#written)));
    let others: Vec<_> = stored.iter().filter(|own| *own != written).collect();
    let read_as = (!others.is_empty()).then(|| mixed!(.also_read_as(&[#(#others),*])));
    let default = field.has_default.then(|| mixed!(.with_default()));
    let function = field.has_function.then(|| mixed!(.read_by_function()));
    let flat = field.is_flat.then(|| mixed!(.flattened()));
    let marks = mixed!(#stored_as #read_as #default #function #flat);
    mixed!(#krate::FieldSchema::new::<#ty>(#name, #declared) #marks)
}

/// Expands to `_index_table::VersionOf::<CustomerV1, Self>::ROW` or `None`.
pub(super) fn previous(previous: Option<&Path>) -> TokenStream {
    previous.map_or_else(
        || mixed!(::core::option::Option::None),
        |previous| mixed!(_index_table::VersionOf::<#previous, Self>::ROW),
    )
}

/// Expands to the code that reads rows of older versions, if there are any:
///
/// ```text
/// fn older(
///     __version: u32,
///     __body: _index_table::RowBody<'_>,
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
                __body: _index_table::RowBody<'_>,
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
/// const _: () = ::core::assert!(_index_table::VersionOf::<CustomerV1, Customer>::NUMBER < 2, "…");
/// ```
///
/// `NoVersion` provides the value for a type that is not a version of a row. The call of `older` in [`older`]
/// reports such a type, so there is one error.
pub(super) fn assertions(
    row: &Ident,
    version: u32,
    previous: Option<&Path>,
) -> Option<TokenStream> {
    let previous = previous?;
    let (span, version) = (at(previous.span()), Literal::u32_unsuffixed(version));
    let number = mixed!(_index_table::VersionOf::<#previous, #row>::NUMBER);
    let below = quote_spanned!(span=> ::core::assert!(#number < #version, #NOT_BELOW));
    Some(mixed! {
        #[allow(unused_imports)]
        use _index_table::NoVersion as _;
        const _: () = #below;
    })
}
