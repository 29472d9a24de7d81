//! The repository and the methods that every one has.

use proc_macro2::TokenStream;
use quote::quote_spanned;

use super::{
    Context, allow_on_struct, at, bulk_load, docs, get_many, primary_key, queries, requirements,
    view,
};
use crate::types::Numbers;

/// Expands to:
///
/// ```text
/// struct CustomerRepository { table: ::index_table::__private::Table<Customer> }
/// ```
pub(super) fn declaration(cx: &Context<'_>) -> TokenStream {
    let (table, private) = (cx.table, &cx.private);
    let (visibility, repository, row) = (&table.visibility, &table.repository, &table.row);
    let doc = docs::repository(table);
    let allow = allow_on_struct();
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
    let (opening, fixed) = (opening(cx), fixed(cx));
    let get_view = cx.table.view.as_ref().map(|view| view::method(cx, view));
    let eventual = eventual(cx);
    let get_many = get_many::method(cx);
    let bulk_load = bulk_load::methods(cx);
    let queries = cx.table.queries.iter().map(|query| queries::method(cx, query));
    let conditions = requirements::conditions(cx, &cx.short);
    let taken = taken(cx);
    mixed! {
        #taken

        #[automatically_derived]
        impl #repository #conditions {
            #opening
            #fixed
            #get_view
            #get_many
            #bulk_load
            #eventual
            #(#queries)*
        }
    }
}

/// Expands to what fails if the name is that of another type, which the compiler reports without the way
/// out:
///
/// ```text
/// const _: () = _index_table::assert_repository::<CustomerRepository, Customer>("…");
/// ```
fn taken(cx: &Context<'_>) -> TokenStream {
    let (repository, row) = (&cx.table.repository, &cx.table.row);
    let message = format!(
        "`{repository}` is the name of another type too; choose another one for the repository with \
         `#[table(repository = …)]`"
    );
    quote_spanned! {at(repository.span())=>
        const _: () = _index_table::assert_repository::<#repository, #row>(#message);
    }
}

/// Expands to the methods that open the table and build its indexes.
fn opening(cx: &Context<'_>) -> TokenStream {
    let (table, v) = (cx.table, &cx.table.visibility);
    let [open, open_online, build] =
        [docs::fixed::open, docs::fixed::open_online, docs::fixed::build].map(|doc| doc(table));
    mixed! {
        #open
        #v fn open(store: &_index_table::Store) -> _index_table::Result<Self> {
            _index_table::Ok(Self { table: _index_table::Table::open(store)? })
        }

        #open_online
        #v fn open_online(store: &_index_table::Store) -> _index_table::Result<Self> {
            _index_table::Ok(Self { table: _index_table::Table::open_online(store)? })
        }

        #build
        #v fn build<'build>(
            &'build self,
            store: &'build _index_table::Store,
        ) -> _index_table::Build<'build> {
            self.table.build(store)
        }
    }
}

/// Expands to the methods that depend on nothing but the row and its primary key.
fn fixed(cx: &Context<'_>) -> TokenStream {
    let (table, txn) = (cx.table, &cx.txn);
    let (v, row) = (&table.visibility, &table.row);
    let (parameters, key) = primary_key(cx);
    let (insert_with, upgrade) = (insert_with(cx), upgrade(cx));
    let [insert, put, update, delete, get, all, watch, usage, verify, repair] = [
        docs::fixed::insert,
        docs::fixed::put,
        docs::fixed::update,
        docs::fixed::delete,
        docs::fixed::get,
        docs::fixed::all,
        docs::fixed::watch,
        docs::fixed::usage,
        docs::fixed::verify,
        docs::fixed::repair,
    ]
    .map(|doc| doc(table));
    mixed! {
        #insert
        #v fn insert(
            &self,
            txn: &mut _index_table::WriteTxn<'_>,
            row: &#row,
        ) -> _index_table::Result<()> {
            self.table.insert(txn, row)
        }

        #insert_with

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

        #watch
        #v fn watch<'watch>(
            &'watch self,
            store: &'watch _index_table::Store,
        ) -> _index_table::Watch<'watch, #row> {
            self.table.watch(store)
        }

        #usage
        #v fn usage(&self) -> _index_table::Usage {
            self.table.usage()
        }

        #verify
        #v fn verify<#txn>(
            &#txn self,
            txn: &#txn _index_table::ReadTxn<'_>,
        ) -> _index_table::Verify<#txn, #row> {
            self.table.verify(txn)
        }

        #repair
        #v fn repair<#txn, 'store>(
            &#txn self,
            txn: &#txn mut _index_table::WriteTxn<'store>,
        ) -> _index_table::Repair<#txn, 'store, #row> {
            self.table.repair(txn)
        }

        #upgrade
    }
}

/// Expands to the methods about indexes that follow the rows, if there is one.
fn eventual(cx: &Context<'_>) -> Option<TokenStream> {
    let (table, v) = (cx.table, &cx.table.visibility);
    if !table.indexes.iter().any(|index| index.eventual) {
        return None;
    }
    let [drain, wait_for, lag, dead_letters, retry_dead_letters] = [
        docs::fixed::drain,
        docs::fixed::wait_for,
        docs::fixed::lag,
        docs::fixed::dead_letters,
        docs::fixed::retry_dead_letters,
    ]
    .map(|doc| doc(table));
    Some(mixed! {
        #drain
        #v fn drain(
            &self,
            store: &_index_table::Store,
            messages: u64,
        ) -> _index_table::Result<_index_table::Drained> {
            self.table.drain(store, messages)
        }

        #wait_for
        #v fn wait_for(
            &self,
            store: &_index_table::Store,
            token: &_index_table::IndexToken,
            timeout: ::core::time::Duration,
        ) -> _index_table::Result<bool> {
            self.table.wait_for(store, token, timeout)
        }

        #lag
        #v fn lag(
            &self,
            txn: &_index_table::ReadTxn<'_>,
        ) -> _index_table::Result<_index_table::Lag> {
            self.table.lag(txn)
        }

        #dead_letters
        #v fn dead_letters(
            &self,
            txn: &_index_table::ReadTxn<'_>,
        ) -> _index_table::Result<_index_table::DeadLetters> {
            self.table.dead_letters(txn)
        }

        #retry_dead_letters
        #v fn retry_dead_letters(
            &self,
            store: &_index_table::Store,
        ) -> _index_table::Result<_index_table::Drained> {
            self.table.retry_dead_letters(store)
        }
    })
}

/// Expands to the method that numbers rows, if the primary key is one number:
///
/// ```text
/// fn insert_with(
///     &self,
///     txn: &mut _index_table::WriteTxn<'_>,
///     row: impl ::core::ops::FnOnce(u64) -> Customer,
/// ) -> _index_table::Result<u64> {
///     self.table.insert_with(txn, row)
/// }
/// ```
fn insert_with(cx: &Context<'_>) -> TokenStream {
    let [field] = cx.table.primary_key.as_slice() else { return TokenStream::new() };
    let (v, row, key) = (&cx.table.visibility, &cx.table.row, field.ty.tokens(&cx.short));
    let conditions = match field.ty.numbers() {
        Numbers::Yes => TokenStream::new(),
        Numbers::ByTrait => {
            quote_spanned!(at(field.ty.span())=> where for<'any> #key: _index_table::Sequence)
        }
        Numbers::No => return TokenStream::new(),
    };
    let doc = docs::fixed::insert_with(cx.table);
    mixed! {
        #doc
        #v fn insert_with(
            &self,
            txn: &mut _index_table::WriteTxn<'_>,
            row: impl ::core::ops::FnOnce(#key) -> #row,
        ) -> _index_table::Result<#key>
        #conditions
        {
            self.table.insert_with(txn, row)
        }
    }
}

/// Expands to the method that writes rows of older versions anew, if there can be some:
///
/// ```text
/// fn upgrade<'a>(
///     &'a self,
///     store: &'a _index_table::Store,
/// ) -> _index_table::Upgrade<'a, Customer> {
///     self.table.upgrade(store)
/// }
/// ```
fn upgrade(cx: &Context<'_>) -> Option<TokenStream> {
    cx.table.previous.as_ref()?;
    let (v, row, a) = (&cx.table.visibility, &cx.table.row, &cx.bounds);
    let doc = docs::fixed::upgrade(cx.table);
    Some(mixed! {
        #doc
        #v fn upgrade<#a>(
            &#a self,
            store: &#a _index_table::Store,
        ) -> _index_table::Upgrade<#a, #row> {
            self.table.upgrade(store)
        }
    })
}
