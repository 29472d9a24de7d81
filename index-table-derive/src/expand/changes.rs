//! The change stream of a table.

use proc_macro2::{Literal, TokenStream};

use super::Context;
use crate::model::ChangeStream;

/// Expands to, for a table with a change stream:
///
/// ```text
/// const CHANGES: ::core::option::Option<_index_table::ChangeStream> =
///     ::core::option::Option::Some(_index_table::ChangeStream {
///         keep: 604800,
///         bytes: 18446744073709551615,
///         until_consumed: false,
///     });
/// ```
pub(super) fn constant(cx: &Context<'_>) -> Option<TokenStream> {
    let ChangeStream { keep, bytes, until_consumed } = cx.table.changes.as_ref()?;
    let [keep, bytes] = [keep, bytes].map(|number| Literal::u64_unsuffixed(*number));
    Some(mixed! {
        const CHANGES: ::core::option::Option<_index_table::ChangeStream> =
            ::core::option::Option::Some(_index_table::ChangeStream {
                keep: #keep,
                bytes: #bytes,
                until_consumed: #until_consumed,
            });
    })
}

/// Expands to, for a table with a change stream:
///
/// ```text
/// impl _index_table::Streamed for Invoice {}
/// ```
pub(super) fn implementation(cx: &Context<'_>) -> Option<TokenStream> {
    cx.table.changes.as_ref()?;
    let row = &cx.table.row;
    Some(mixed! {
        #[automatically_derived]
        impl _index_table::Streamed for #row {}
    })
}
