//! The method that asks for many rows by their primary keys.

use proc_macro2::{Span, TokenStream};
use quote::format_ident;
use syn::Ident;

use super::{Context, docs, entity, requirements};

/// Expands to:
///
/// ```text
/// fn get_many<'txn, Keys>(
///     &'txn self,
///     txn: &'txn _index_table::ReadTxn<'_>,
///     keys: Keys,
/// ) -> _index_table::GetMany<'txn, Customer, <Keys as ::core::iter::IntoIterator>::IntoIter>
/// where
///     Keys: ::core::iter::IntoIterator,
///     <Keys as ::core::iter::IntoIterator>::Item: ::core::borrow::Borrow<u64>,
/// {
///     self.table.get_many(txn, keys)
/// }
/// ```
pub(super) fn method(cx: &Context<'_>) -> TokenStream {
    let (v, row, txn) = (&cx.table.visibility, &cx.table.row, &cx.txn);
    let doc = docs::fixed::get_many(cx.table);
    let key = entity::key_type(cx);
    let keys = type_parameter("Keys", &mixed!(#row #key));
    mixed! {
        #doc
        #v fn get_many<#txn, #keys>(
            &#txn self,
            txn: &#txn _index_table::ReadTxn<'_>,
            keys: #keys,
        ) -> _index_table::GetMany<#txn, #row, <#keys as ::core::iter::IntoIterator>::IntoIter>
        where
            #keys: ::core::iter::IntoIterator,
            <#keys as ::core::iter::IntoIterator>::Item: ::core::borrow::Borrow<#key>,
        {
            self.table.get_many(txn, keys)
        }
    }
}

/// A name for a parameter that is not one of the user's types.
pub(super) fn type_parameter(name: &str, types: &TokenStream) -> Ident {
    let mut name = Ident::new(name, Span::mixed_site());
    while requirements::names(types.clone(), &name) {
        name = format_ident!("{name}_");
    }
    name
}
