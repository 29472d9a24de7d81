//! The methods that submit closures for the rows with one shard key to a group writer.

use proc_macro2::{Span, TokenStream};
use quote::format_ident;

use super::{Context, docs};
use crate::model::Sharding;

/// Expands to, for a table with a shard key:
///
/// ```text
/// fn submit_for<__T, __E, __F>(
///     &self,
///     writer: &_index_table::GroupWriter,
///     tenant: u32,
///     body: __F,
/// ) -> _index_table::Submitted<__T, __E>
/// where … {
///     __table(self).submit_for(writer, &_index_table::Bounds::new().equal::<u32>(tenant), body)
/// }
/// ```
///
/// `try_submit_for` and `submit_for_async` follow.
pub(super) fn methods(cx: &Context<'_>) -> Option<TokenStream> {
    let Sharding { fields, .. } = cx.table.sharding.as_ref()?;
    let v = &cx.table.visibility;
    let fields = || cx.table.primary_key.iter().take(*fields);
    let parameters: TokenStream = fields()
        .map(|field| {
            let (ident, ty) = (&field.ident, field.ty.argument(&cx.short, &cx.elided));
            mixed!(#ident: #ty,)
        })
        .collect();
    let key: TokenStream = fields()
        .map(|field| {
            let (ident, ty) = (&field.ident, field.ty.tokens(&cx.short));
            mixed!(.equal::<#ty>(#ident))
        })
        .collect();
    let forms = [
        (
            "submit_for",
            docs::fixed::submit_for(cx.table),
            mixed!(_index_table::Submitted<__T, __E>),
        ),
        (
            "try_submit_for",
            docs::fixed::try_submit_for(),
            mixed!(
                _index_table::Result<
                    _index_table::Submitted<__T, __E>,
                    _index_table::QueueFull<__F>,
                >
            ),
        ),
        (
            "submit_for_async",
            docs::fixed::submit_for_async(),
            mixed!(_index_table::Submission<__T, __E, __F>),
        ),
    ];
    let method = |(name, doc, output): (&str, TokenStream, TokenStream)| {
        let name = format_ident!("{}", name, span = Span::mixed_site());
        mixed! {
            #doc
            #v fn #name<__T, __E, __F>(
                &self,
                writer: &_index_table::GroupWriter,
                #parameters
                body: __F,
            ) -> #output
            where
                __T: ::core::marker::Send + 'static,
                __E: ::core::convert::From<_index_table::Error> + ::core::marker::Send + 'static,
                __F: ::core::ops::FnMut(
                        &mut _index_table::WriteTxn<'_>,
                    ) -> _index_table::Result<__T, __E>
                    + ::core::marker::Send
                    + 'static,
            {
                __table(self).#name(writer, &_index_table::Bounds::new() #key, body)
            }
        }
    };
    Some(forms.into_iter().map(method).collect())
}
