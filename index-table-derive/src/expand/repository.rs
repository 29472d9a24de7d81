//! The repository and the methods that every one has.

use proc_macro2::TokenStream;

use super::{Context, allow, docs, get_many, queries, requirements};

/// Expands to:
///
/// ```text
/// struct CustomerRepository { table: ::index_table::__private::Table<Customer> }
/// ```
pub(super) fn declaration(cx: &Context<'_>) -> TokenStream {
    let (table, private) = (cx.table, &cx.private);
    let (visibility, repository, row) = (&table.visibility, &table.repository, &table.row);
    let doc = docs::repository(table);
    let allow = allow();
    mixed! {
        #doc
        #allow
        #[derive(::core::fmt::Debug, ::core::clone::Clone)]
        #visibility struct #repository {
            table: #private::Table<#row>,
        }
    }
}

/// Expands to:
///
/// ```text
/// impl CustomerRepository {
///     fn open(store: &_index_table::Store) -> _index_table::Result<Self> { … }
///     …
///     fn find_by_town<'txn>(…) -> _index_table::Scan<'txn, CustomerByTown<'txn>> { … }
/// }
/// ```
pub(super) fn implementation(cx: &Context<'_>) -> TokenStream {
    let repository = &cx.table.repository;
    let fixed = fixed(cx);
    let get_many = get_many::method(cx);
    let queries = cx.table.queries.iter().map(|query| queries::method(cx, query));
    let conditions = requirements::conditions(cx, &cx.short);
    mixed! {
        #[automatically_derived]
        impl #repository #conditions {
            #fixed
            #get_many
            #(#queries)*
        }
    }
}

/// Expands to the methods that depend on nothing but the row and its primary key.
fn fixed(cx: &Context<'_>) -> TokenStream {
    let (table, txn) = (cx.table, &cx.txn);
    let (v, row) = (&table.visibility, &table.row);
    let parameters: Vec<_> = table
        .primary_key
        .iter()
        .map(|field| {
            let (ident, ty) = (&field.ident, field.ty.argument(&cx.short, &cx.elided));
            mixed!(#ident: #ty)
        })
        .collect();
    let names: Vec<_> = table.primary_key.iter().map(|field| &field.ident).collect();
    let key = match names.as_slice() {
        [one] => mixed!(#one),
        several => mixed!((#(#several),*)),
    };
    let [open, insert, put, update, delete, get, all] = [
        docs::fixed::open,
        docs::fixed::insert,
        docs::fixed::put,
        docs::fixed::update,
        docs::fixed::delete,
        docs::fixed::get,
        docs::fixed::all,
    ]
    .map(|doc| doc(table));
    mixed! {
        #open
        #v fn open(store: &_index_table::Store) -> _index_table::Result<Self> {
            _index_table::Ok(Self { table: _index_table::Table::open(store)? })
        }

        #insert
        #v fn insert(
            &self,
            txn: &mut _index_table::WriteTxn<'_>,
            row: &#row,
        ) -> _index_table::Result<()> {
            self.table.insert(txn, row)
        }

        #put
        #v fn put(
            &self,
            txn: &mut _index_table::WriteTxn<'_>,
            row: &#row,
        ) -> _index_table::Result<()> {
            self.table.put(txn, row)
        }

        #update
        #v fn update(
            &self,
            txn: &mut _index_table::WriteTxn<'_>,
            #(#parameters,)*
            change: impl ::core::ops::FnOnce(&mut #row),
        ) -> _index_table::Result<bool> {
            self.table.update(txn, #key, change)
        }

        #delete
        #v fn delete(
            &self,
            txn: &mut _index_table::WriteTxn<'_>,
            #(#parameters,)*
        ) -> _index_table::Result<bool> {
            self.table.delete(txn, #key)
        }

        #get
        #v fn get(
            &self,
            txn: &_index_table::ReadTxn<'_>,
            #(#parameters,)*
        ) -> _index_table::Result<::core::option::Option<#row>> {
            self.table.get(txn, #key)
        }

        #all
        #v fn all<#txn>(
            &#txn self,
            txn: &#txn _index_table::ReadTxn<'_>,
        ) -> _index_table::Scan<#txn, #row> {
            self.table.scan(txn, _index_table::Bounds::new())
        }
    }
}
