//! The repository, and its methods that take the primary key. A repository dereferences to `Table`, which has
//! the other methods, except for `insert`, `put` and `all`. If these were methods of `Table` only, a user's
//! trait with the same names, implemented by calling them, would call itself.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote_spanned};
use syn::Ident;

use crate::{model::Sharding, names, types::Numbers};

use super::{
    Context, aggregate, allow_on_struct, at, calls, docs, primary_key, queries, requirements,
    submit, view, visibility_at,
};

/// Expands to:
///
/// ```text
/// struct CustomerRepository { table: ::index_table::__private::KeyedTable<Customer> }
/// ```
pub(super) fn declaration(cx: &Context<'_>) -> TokenStream {
    let (table, private) = (cx.table, &cx.private);
    let (repository, row) = (&table.repository, &table.row);
    // If another type has this name, the compiler shows the row or the option, and not the whole derive.
    let visibility = visibility_at(&table.visibility, repository.span());
    let keyword = quote_spanned!(at(repository.span())=> struct);
    let doc = docs::repository(table);
    let allow = allow_on_struct();
    mixed! {
        #doc
        #allow
        #visibility #keyword #repository {
            table: #private::KeyedTable<#row>,
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
    let (traits, opening, fixed) = (traits(cx), opening(cx), fixed(cx));
    let (shard_of, submit_for) = (shard_of(cx), submit::methods(cx));
    let (insert_with, calls) = (insert_with(cx), calls::methods(cx));
    let get_view = cx.table.view.as_ref().map(|view| view::method(cx, view));
    let queries = cx.table.queries.iter().map(|query| queries::method(cx, query));
    let aggregates = cx.table.aggregates.iter().map(|it| aggregate::methods(cx, it));
    let conditions = requirements::conditions(cx, &cx.short);
    let field = field(cx);
    mixed! {
        #field

        #traits

        #[automatically_derived]
        impl #repository #conditions {
            #opening
            #fixed
            #shard_of
            #submit_for
            #insert_with
            #calls
            #get_view
            #(#queries)*
            #(#aggregates)*
        }
    }
}

/// Expands to the only uses of the repository's field:
///
/// ```text
/// type __Repository = <CustomerRepository as _index_table::Named<
///     { _index_table::is_repository::<CustomerRepository, Customer>("…") },
/// >>::Repository;
///
/// #[inline]
/// fn __table(repository: &__Repository) -> &_index_table::KeyedTable<Customer> {
///     &repository.table
/// }
/// ```
///
/// If another type has the name of the repository, the constant fails with advice, which the compiler's own
/// error lacks. A type with a failed constant causes no further errors, such as about the field.
fn field(cx: &Context<'_>) -> TokenStream {
    let (repository, row) = (&cx.table.repository, &cx.table.row);
    let message = format!(
        "`{repository}` is the name of another type too; rename the repository with \
         `#[table(repository = …)]`"
    );
    let is_repository = quote_spanned! {at(repository.span())=>
        _index_table::is_repository::<#repository, #row>(#message)
    };
    mixed! {
        type __Repository = <#repository as _index_table::Named<{ #is_repository }>>::Repository;

        #[inline]
        fn __table(repository: &__Repository) -> &_index_table::KeyedTable<#row> {
            &repository.table
        }
    }
}

/// Expands to:
///
/// ```text
/// impl ::core::ops::Deref for CustomerRepository {
///     type Target = _index_table::Table<Customer>;
///     fn deref(&self) -> &Self::Target { __table(self) }
/// }
/// impl ::core::clone::Clone for CustomerRepository { … }
/// impl ::core::fmt::Debug for CustomerRepository { … }
/// ```
fn traits(cx: &Context<'_>) -> TokenStream {
    let (repository, row) = (&cx.table.repository, &cx.table.row);
    let name = names::plain(repository);
    mixed! {
        #[automatically_derived]
        impl ::core::ops::Deref for #repository {
            type Target = _index_table::Table<#row>;
            fn deref(&self) -> &Self::Target {
                __table(self)
            }
        }

        #[automatically_derived]
        impl ::core::clone::Clone for #repository {
            fn clone(&self) -> Self {
                __Repository { table: ::core::clone::Clone::clone(__table(self)) }
            }
        }

        #[automatically_derived]
        impl ::core::fmt::Debug for #repository {
            fn fmt(&self, __f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                _index_table::debug(__f, #name, &[("table", __table(self))])
            }
        }
    }
}

/// Expands to the methods that open the table.
fn opening(cx: &Context<'_>) -> TokenStream {
    let (table, v) = (cx.table, &cx.table.visibility);
    let [open, open_online] = [docs::fixed::open, docs::fixed::open_online].map(|doc| doc(table));
    mixed! {
        #open
        #v fn open(store: &_index_table::Store) -> _index_table::Result<Self> {
            _index_table::Ok(__Repository { table: _index_table::KeyedTable::open(store)? })
        }

        #open_online
        #v fn open_online(store: &_index_table::Store) -> _index_table::Result<Self> {
            _index_table::Ok(__Repository { table: _index_table::KeyedTable::open_online(store)? })
        }
    }
}

/// Expands to the methods that are generated for every repository.
fn fixed(cx: &Context<'_>) -> TokenStream {
    let (v, row, txn) = (&cx.table.visibility, &cx.table.row, &cx.txn);
    let (parameters, key) = primary_key(cx);
    let [insert, put, update, try_update, delete, remove, get, all] = [
        docs::fixed::insert,
        docs::fixed::put,
        docs::fixed::update,
        docs::fixed::try_update,
        docs::fixed::delete,
        docs::fixed::remove,
        docs::fixed::get,
        docs::fixed::all,
    ]
    .map(|doc| doc(cx.table));
    let get_live = cx.table.expiry.as_ref().map(|_| {
        let doc = docs::fixed::get_live(cx.table);
        mixed! {
            #doc
            #v fn get_live(
                &self,
                txn: &_index_table::ReadTxn<'_>,
                #(#parameters,)*
            ) -> _index_table::Result<::core::option::Option<#row>> {
                _index_table::live(__table(self).get(txn, #key))
            }
        }
    });
    let types = mixed!(#row #(#parameters)*);
    let [value, error] = ["T", "E"].map(|name| type_parameter(name, &types));
    mixed! {
        #insert
        #v fn insert(
            &self,
            txn: &mut _index_table::WriteTxn<'_>,
            row: &#row,
        ) -> _index_table::Result<()> {
            __table(self).insert(txn, row)
        }

        #put
        #v fn put(
            &self,
            txn: &mut _index_table::WriteTxn<'_>,
            row: &#row,
        ) -> _index_table::Result<()> {
            __table(self).put(txn, row)
        }

        #update
        #v fn update(
            &self,
            txn: &mut _index_table::WriteTxn<'_>,
            #(#parameters,)*
            change: impl ::core::ops::FnOnce(&mut #row),
        ) -> _index_table::Result<bool> {
            __table(self).update(txn, #key, change)
        }

        #try_update
        #v fn try_update<#value, #error: ::core::convert::From<_index_table::Error>>(
            &self,
            txn: &mut _index_table::WriteTxn<'_>,
            #(#parameters,)*
            change: impl ::core::ops::FnOnce(&mut #row) -> _index_table::Result<#value, #error>,
        ) -> _index_table::Result<::core::option::Option<#value>, #error> {
            __table(self).try_update(txn, #key, change)
        }

        #delete
        #v fn delete(
            &self,
            txn: &mut _index_table::WriteTxn<'_>,
            #(#parameters,)*
        ) -> _index_table::Result<bool> {
            __table(self).delete(txn, #key)
        }

        #remove
        #v fn remove(
            &self,
            txn: &mut _index_table::WriteTxn<'_>,
            #(#parameters,)*
        ) -> _index_table::Result<::core::option::Option<#row>> {
            __table(self).remove(txn, #key)
        }

        #get
        #v fn get(
            &self,
            txn: &_index_table::ReadTxn<'_>,
            #(#parameters,)*
        ) -> _index_table::Result<::core::option::Option<#row>> {
            __table(self).get(txn, #key)
        }

        #get_live

        #all
        #v fn all<#txn>(
            &#txn self,
            txn: &#txn _index_table::ReadTxn<'_>,
        ) -> _index_table::Scan<#txn, #row> {
            __table(self).all(txn)
        }
    }
}

/// Expands to, for a table with a shard key:
///
/// ```text
/// fn shard_of(&self, store: &_index_table::Store, tenant: u32) -> _index_table::Result<_index_table::ShardId> {
///     __table(self).shard_of(store, &_index_table::Bounds::new().equal::<u32>(tenant))
/// }
/// ```
fn shard_of(cx: &Context<'_>) -> Option<TokenStream> {
    let Sharding { fields, .. } = cx.table.sharding.as_ref()?;
    let v = &cx.table.visibility;
    let fields = || cx.table.primary_key.iter().take(*fields);
    let parameters = fields().map(|field| {
        let (ident, ty) = (&field.ident, field.ty.argument(&cx.short, &cx.elided));
        mixed!(#ident: #ty)
    });
    let key = fields().map(|field| {
        let (ident, ty) = (&field.ident, field.ty.tokens(&cx.short));
        mixed!(.equal::<#ty>(#ident))
    });
    let doc = docs::fixed::shard_of(cx.table);
    Some(mixed! {
        #doc
        #v fn shard_of(
            &self,
            store: &_index_table::Store,
            #(#parameters,)*
        ) -> _index_table::Result<_index_table::ShardId> {
            __table(self).shard_of(store, &_index_table::Bounds::new() #(#key)*)
        }
    })
}

/// Expands to, for a table whose primary key is the shard key and then one number:
///
/// ```text
/// fn insert_with(
///     &self,
///     txn: &mut _index_table::WriteTxn<'_>,
///     tenant: u32,
///     row: impl FnOnce(u64) -> Order,
/// ) -> _index_table::Result<u64> {
///     __table(self).insert_within(txn, _index_table::Bounds::new().equal::<u32>(tenant), row)
/// }
/// ```
///
/// For another table with a shard key, the method can't be called.
fn insert_with(cx: &Context<'_>) -> Option<TokenStream> {
    let Sharding { fields, .. } = cx.table.sharding.as_ref()?;
    let (v, row) = (&cx.table.visibility, &cx.table.row);
    let leading = || cx.table.primary_key.iter().take(*fields);
    let number = match cx.table.primary_key.get(*fields..) {
        Some([number]) if !matches!(number.ty.numbers(), Numbers::No) => number,
        _ => {
            return Some(mixed! {
                #[doc(hidden)]
                #v fn insert_with<T: _index_table::Unnumbered>(
                    &self,
                    _: &mut _index_table::WriteTxn<'_>,
                    _: T,
                ) -> _index_table::Result<T::Number> {
                    loop {}
                }
            });
        }
    };
    let parameters = leading().map(|field| {
        let (ident, ty) = (&field.ident, field.ty.argument(&cx.short, &cx.elided));
        mixed!(#ident: #ty)
    });
    let key = leading().map(|field| {
        let (ident, ty) = (&field.ident, field.ty.tokens(&cx.short));
        mixed!(.equal::<#ty>(#ident))
    });
    let ty = number.ty.tokens(&cx.short);
    let bound = match number.ty.numbers() {
        Numbers::ByTrait => mixed!(where for<'any> #ty: _index_table::Sequence),
        Numbers::Yes | Numbers::No => TokenStream::new(),
    };
    let doc = docs::fixed::insert_with(cx.table, number);
    Some(mixed! {
        #doc
        #v fn insert_with(
            &self,
            txn: &mut _index_table::WriteTxn<'_>,
            #(#parameters,)*
            row: impl ::core::ops::FnOnce(#ty) -> #row,
        ) -> _index_table::Result<#ty>
        #bound
        {
            __table(self).insert_within(txn, _index_table::Bounds::new() #(#key)*, row)
        }
    })
}

/// Returns a name for a type parameter that is not the name of a user's type.
fn type_parameter(name: &str, types: &TokenStream) -> Ident {
    let mut name = Ident::new(name, Span::mixed_site());
    while requirements::names(types.clone(), &name) {
        name = format_ident!("{name}_");
    }
    name
}
