//! The methods of the repository for asynchronous code, with the feature `async`.

use proc_macro2::{Span, TokenStream};
use quote::format_ident;

use super::{Context, docs, primary_key, queries};
use crate::model::{KeyPart, Query};

/// Expands to, with the feature `async`:
///
/// ```text
/// fn get_async(
///     &self,
///     store: &_index_table::Store,
///     id: u64,
/// ) -> _index_table::Call<::core::option::Option<Customer>>
/// where
///     for<'any> Customer: ::core::marker::Send,
/// {
///     __table(self).get_async(store, id)
/// }
/// ```
///
/// `insert_async`, `put_async`, `update_async` and `delete_async` follow. The condition has a lifetime, so that a row that can't be
/// sent is an error of the calls only.
pub(super) fn methods(cx: &Context<'_>) -> Option<TokenStream> {
    if !cfg!(feature = "async") {
        return None;
    }
    let (v, row) = (&cx.table.visibility, &cx.table.row);
    let (parameters, key) = primary_key(cx);
    let get = docs::fixed::get_async(cx.table);
    let [insert, put, update, delete] = ["insert", "put", "update", "delete"]
        .map(|write| docs::fixed::write_async(cx.table, write));
    let whole = [(insert, "insert_async"), (put, "put_async")].map(|(doc, name)| {
        let name = format_ident!("{}", name, span = Span::mixed_site());
        mixed! {
            #doc
            #v fn #name(&self, store: &_index_table::Store, row: &#row) -> _index_table::Call<()>
            where
                for<'any> #row: ::core::marker::Send,
            {
                __table(self).#name(store, row)
            }
        }
    });
    Some(mixed! {
        #get
        #v fn get_async(
            &self,
            store: &_index_table::Store,
            #(#parameters,)*
        ) -> _index_table::Call<::core::option::Option<#row>>
        where
            for<'any> #row: ::core::marker::Send,
        {
            __table(self).get_async(store, #key)
        }

        #(#whole)*

        #update
        #v fn update_async(
            &self,
            store: &_index_table::Store,
            #(#parameters,)*
            change: impl ::core::ops::FnMut(&mut #row) + ::core::marker::Send + 'static,
        ) -> _index_table::Call<bool> {
            __table(self).update_async(store, #key, change)
        }

        #delete
        #v fn delete_async(
            &self,
            store: &_index_table::Store,
            #(#parameters,)*
        ) -> _index_table::Call<bool> {
            __table(self).delete_async(store, #key)
        }
    })
}

/// Expands to:
///
/// ```text
/// fn get_by_email_async(
///     &self,
///     store: &_index_table::Store,
///     email: &str,
/// ) -> _index_table::Call<::core::option::Option<Customer>>
/// where
///     for<'any> Customer: ::core::marker::Send,
/// {
///     __table(self).get_by_async(store, 0, _index_table::Bounds::new().equal::<String>(email))
/// }
/// ```
pub(super) fn get_by(cx: &Context<'_>, query: &Query, parts: &[KeyPart]) -> TokenStream {
    let (v, method, row) = (&cx.table.visibility, &query.method, &cx.table.row);
    let doc = docs::query(cx.table, &query.target, &query.form);
    let index = queries::position(&query.target);
    let (parameters, bounds) = queries::equals(cx, &query.target, parts);
    mixed! {
        #doc
        #v fn #method(
            &self,
            store: &_index_table::Store,
            #(#parameters,)*
        ) -> _index_table::Call<::core::option::Option<#row>>
        where
            for<'any> #row: ::core::marker::Send,
        {
            __table(self).get_by_async(store, #index, _index_table::Bounds::new() #(#bounds)*)
        }
    }
}
