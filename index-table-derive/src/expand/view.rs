//! The view of the struct, and the code that reads it.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::LitStr;

use super::{Context, allow_on_struct, at, carried, docs, requirements, visibility_at};
use crate::model::{Reading, View, ViewField};
use crate::types;

/// Expands to:
///
/// ```text
/// #[derive(_index_table::serde::Serialize)]
/// struct CustomerView<'txn> {
///     id: u64,
///     town: &'txn str,
/// }
/// ```
///
/// In a view that borrows nothing, the type of the first field is written `<u64 as Within<'txn>>::Value`, so
/// that the view has the lifetime.
pub(super) fn declaration(cx: &Context<'_>, view: &View) -> TokenStream {
    let (v, private, txn, ident) = (&cx.table.visibility, &cx.private, &cx.txn, &view.ident);
    let doc = docs::view(cx.table);
    let allow = allow_on_struct();
    let mut types: Vec<_> =
        view.fields.iter().map(|field| field_type(cx, field, private)).collect();
    if !view.borrows()
        && let Some(first) = types.first_mut()
    {
        *first = quote!(<#first as #private::Within<#txn>>::Value);
    }
    let fields = view.fields.iter().zip(types).map(|(ViewField { field, reading, serde }, ty)| {
        let doc = docs::view_field(field, reading);
        let ident = &field.ident;
        let v = visibility_at(&field.visibility, ident.span());
        let serde = (!serde.is_empty()).then(|| quote!(#[serde(#(#serde),*)]));
        quote! {
            #doc
            #serde
            #v #ident: #ty
        }
    });
    let serde = &view.serde;
    let krate = LitStr::new(&types::text(quote!(#private::serde)), cx.table.row.span());
    mixed! {
        #doc
        #allow
        #[derive(#private::serde::Serialize)]
        #[serde(crate = #krate #(, #serde)*)]
        #v struct #ident<#txn> {
            #(#fields,)*
        }
    }
}

/// Expands to:
///
/// ```text
/// impl _index_table::Viewed for Customer {
///     type View<'txn> = CustomerView<'txn>;
///
///     fn view<'txn>(
///         __row: &mut _index_table::RowReader<'txn>,
///     ) -> _index_table::Result<CustomerView<'txn>, _index_table::DecodeError> {
///         _index_table::Ok(CustomerView {
///             id: __row.field::<u64>()?,
///             town: __row.field::<&'txn str>()?,
///         })
///     }
/// }
/// ```
pub(super) fn implementation(cx: &Context<'_>, view: &View) -> TokenStream {
    let (row, txn, ident) = (&cx.table.row, &cx.txn, &view.ident);
    let fields = view.fields.iter().map(|field| {
        let (ident, value) = (&field.field.ident, read(cx, field));
        mixed!(#ident: #value)
    });
    let conditions = requirements::conditions(cx, &cx.short);
    let lifetime = mixed!(<#txn>);
    let names: Vec<_> = view.fields.iter().map(|field| &field.field.ident).collect();
    let carried = carried::of_view(view);
    let traits = carried::traits(cx, ident, Some(&lifetime), &names, &carried, false);
    mixed! {
        #traits

        #[automatically_derived]
        impl _index_table::Viewed for #row #conditions {
            type View<#txn> = #ident<#txn>;

            fn view<#txn>(
                __row: &mut _index_table::RowReader<#txn>,
            ) -> _index_table::Result<#ident<#txn>, _index_table::DecodeError> {
                _index_table::Ok(#ident { #(#fields),* })
            }
        }
    }
}

/// Expands to `__row.field::<&'txn str>(&["name"])?`, or a similar call.
fn read(cx: &Context<'_>, field: &ViewField) -> TokenStream {
    let (ty, span) = (field_type(cx, field, &cx.short), at(field.field.ty.span()));
    let names = super::stored_names(&field.field);
    match &field.reading {
        Reading::Carried | Reading::Owned => {
            let field = super::field_method(&field.field);
            quote_spanned!(span=> __row.#field::<#ty>(#names)?)
        }
        Reading::With(function) => {
            quote_spanned!(span=> __row.field_with::<#ty>(#names, |__from| #function(__from))?)
        }
        Reading::Made(Some(function)) => quote!(#function()),
        Reading::Made(None) => quote_spanned!(span=> <#ty as ::core::default::Default>::default()),
    }
}

fn field_type(cx: &Context<'_>, field: &ViewField, krate: &TokenStream) -> TokenStream {
    let ty = &field.field.ty;
    match field.reading {
        Reading::Carried => ty.carried(krate, &cx.txn),
        Reading::Owned | Reading::With(_) | Reading::Made(_) => ty.tokens(krate),
    }
}

/// Expands to:
///
/// ```text
/// fn get_view<'txn>(
///     &'txn self,
///     txn: &'txn _index_table::ReadTxn<'_>,
///     id: u64,
/// ) -> _index_table::Result<::core::option::Option<CustomerView<'txn>>> {
///     __table(self).get_view(txn, id)
/// }
/// ```
pub(super) fn method(cx: &Context<'_>, view: &View) -> TokenStream {
    let (v, txn, ident) = (&cx.table.visibility, &cx.txn, &view.ident);
    let doc = docs::fixed::get_view(cx.table);
    let (parameters, key) = super::primary_key(cx);
    mixed! {
        #doc
        #v fn get_view<#txn>(
            &#txn self,
            txn: &#txn _index_table::ReadTxn<'_>,
            #(#parameters,)*
        ) -> _index_table::Result<::core::option::Option<#ident<#txn>>> {
            __table(self).get_view(txn, #key)
        }
    }
}
