//! The query methods, one for each query of the model.

use proc_macro2::{Literal, Span, TokenStream};
use quote::{format_ident, quote_spanned};

use super::{Context, at, calls, distinct, docs, key_type};
use crate::model::{Form, KeyPart, Query, Target};

/// Expands to one method, as in [`scan`], [`get`], [`put`], [`delete`], [`get_view`] and
/// [`distinct::method`].
pub(super) fn method(cx: &Context<'_>, query: &Query) -> TokenStream {
    match &query.form {
        Form::Whole => scan(cx, query, &[], None),
        Form::Equal(parts) => scan(cx, query, parts, None),
        Form::Range(leading, last) => {
            scan(cx, query, leading, Some(&range(cx, &query.target, last)))
        }
        Form::In(leading, last) => scan(cx, query, leading, Some(&one_of(cx, &query.target, last))),
        Form::StartingWith(leading, last) => {
            scan(cx, query, leading, Some(&starting_with(cx, last)))
        }
        Form::Get(parts) => get(cx, query, parts, false),
        Form::GetLive(parts) => get(cx, query, parts, true),
        Form::GetAsync(parts) => calls::get_by(cx, query, parts),
        Form::PutBy(_) => put(cx, query),
        Form::DeleteBy(parts) => delete(cx, query, parts),
        Form::GetView(parts) => get_view(cx, query, parts),
        Form::Distinct { leading, values } => distinct::method(cx, query, leading, values),
    }
}

/// The condition on the last field of a query, if it is not equality.
struct Last {
    lifetime: Option<TokenStream>,
    parameter: TokenStream,
    bound: TokenStream,
}

fn range(cx: &Context<'_>, target: &Target, part: &KeyPart) -> Last {
    let (ident, ty, bounds) = (part.ident(), part.key_type(), &cx.bounds);
    let key = key_type(cx, part);
    let (argument, range) = if target.takes_present(part) {
        (ty.present(&cx.short, bounds), mixed!(range_present))
    } else {
        (ty.argument(&cx.short, bounds), mixed!(range))
    };
    Last {
        lifetime: ty.argument_borrows().then(|| mixed!(, #bounds)),
        parameter: mixed!(#ident: impl _index_table::RangeOf<#argument>),
        bound: quote_spanned!(at(ty.span())=> .#range::<#key>(#ident)),
    }
}

/// Expands to `town: impl ::core::iter::IntoIterator<Item: ::core::convert::AsRef<str>>` and
/// `.one_of(_index_table::Values::texts::<String>(town))`.
fn one_of(cx: &Context<'_>, target: &Target, part: &KeyPart) -> Last {
    let (ident, ty, bounds) = (part.ident(), part.key_type(), &cx.bounds);
    let (row, key) = (&cx.table.row, key_type(cx, part));
    let (list, constructor, borrows) = ty.list(&cx.short, bounds, target.takes_present(part));
    let constructor = format_ident!("{constructor}", span = Span::mixed_site());
    let span = at(ty.span());
    let values = quote_spanned!(span=> _index_table::Values::#constructor::<#key>(#ident));
    Last {
        lifetime: borrows.then(|| mixed!(, #bounds)),
        parameter: mixed!(#ident: impl #list),
        bound: if part.is_hash() {
            quote_spanned!(span=> .one_of_hashed::<#row>(#values))
        } else {
            quote_spanned!(span=> .one_of(#values))
        },
    }
}

fn starting_with(cx: &Context<'_>, part: &KeyPart) -> Last {
    let (ident, ty) = (part.ident(), part.key_type());
    let (argument, key) = (ty.present(&cx.short, &cx.elided), key_type(cx, part));
    Last {
        lifetime: None,
        parameter: mixed!(#ident: #argument),
        bound: quote_spanned!(at(ty.span())=> .starting_with::<#key>(#ident)),
    }
}

/// Expands to:
///
/// ```text
/// fn find_by_town_last_name_range<'txn, 'a>(
///     &'txn self,
///     txn: &'txn _index_table::ReadTxn<'_>,
///     town: &str,
///     last_name: impl _index_table::RangeOf<&'a str>,
/// ) -> _index_table::Scan<'txn, CustomerByTownLastName<'txn>> {
///     __table(self).scan(
///         txn,
///         _index_table::Bounds::new().equal::<String>(town).range::<String>(last_name),
///     )
/// }
/// ```
///
/// For an eventual index, the method returns an `EventualScan`.
fn scan(cx: &Context<'_>, query: &Query, equal: &[KeyPart], last: Option<&Last>) -> TokenStream {
    let (v, method, txn) = (&cx.table.visibility, &query.method, &cx.txn);
    let doc = docs::query(cx.table, &query.target, &query.form);
    let found = found(cx, &query.target, txn);
    let (parameters, bounds) = equals(cx, &query.target, equal);
    let lifetime = last.and_then(|last| last.lifetime.as_ref());
    let last_parameter = last.map(|last| &last.parameter).into_iter();
    let last_bound = last.map(|last| &last.bound);
    let (scan, call) = match &query.target {
        Target::Index(index) if index.eventual => (mixed!(EventualScan), mixed!(eventual_scan)),
        Target::Index(_) | Target::Rows => (mixed!(Scan), mixed!(scan)),
    };
    mixed! {
        #doc
        #v fn #method<#txn #lifetime>(
            &#txn self,
            txn: &#txn _index_table::ReadTxn<'_>,
            #(#parameters,)*
            #(#last_parameter,)*
        ) -> _index_table::#scan<#txn, #found> {
            __table(self).#call(txn, _index_table::Bounds::new() #(#bounds)* #last_bound)
        }
    }
}

/// Expands to:
///
/// ```text
/// fn get_by_email(
///     &self,
///     txn: &_index_table::ReadTxn<'_>,
///     email: &str,
/// ) -> _index_table::Result<::core::option::Option<Customer>> {
///     __table(self).get_by(
///         txn,
///         0,
///         _index_table::Bounds::new().equal::<String>(email),
///     )
/// }
/// ```
///
/// `get_by_email_live` passes the result to `_index_table::live`.
fn get(cx: &Context<'_>, query: &Query, parts: &[KeyPart], live: bool) -> TokenStream {
    let (v, method, row) = (&cx.table.visibility, &query.method, &cx.table.row);
    let doc = docs::query(cx.table, &query.target, &query.form);
    let index = position(&query.target);
    let (parameters, bounds) = equals(cx, &query.target, parts);
    let found = mixed!(__table(self).get_by(txn, #index, _index_table::Bounds::new() #(#bounds)*));
    let found = if live { mixed!(_index_table::live(#found)) } else { found };
    mixed! {
        #doc
        #v fn #method(
            &self,
            txn: &_index_table::ReadTxn<'_>,
            #(#parameters,)*
        ) -> _index_table::Result<::core::option::Option<#row>> {
            #found
        }
    }
}

/// Expands to:
///
/// ```text
/// fn put_by_email(
///     &self,
///     txn: &mut _index_table::WriteTxn<'_>,
///     row: &Customer,
/// ) -> _index_table::Result<()> {
///     __table(self).put_by(txn, 0, row)
/// }
/// ```
fn put(cx: &Context<'_>, query: &Query) -> TokenStream {
    let (v, row, method) = (&cx.table.visibility, &cx.table.row, &query.method);
    let doc = docs::query(cx.table, &query.target, &query.form);
    let index = position(&query.target);
    mixed! {
        #doc
        #v fn #method(
            &self,
            txn: &mut _index_table::WriteTxn<'_>,
            row: &#row,
        ) -> _index_table::Result<()> {
            __table(self).put_by(txn, #index, row)
        }
    }
}

/// Expands to:
///
/// ```text
/// fn delete_by_email(
///     &self,
///     txn: &mut _index_table::WriteTxn<'_>,
///     email: &str,
/// ) -> _index_table::Result<bool> {
///     __table(self).delete_by(
///         txn,
///         0,
///         _index_table::Bounds::new().equal::<String>(email),
///     )
/// }
/// ```
fn delete(cx: &Context<'_>, query: &Query, parts: &[KeyPart]) -> TokenStream {
    let (v, method) = (&cx.table.visibility, &query.method);
    let doc = docs::query(cx.table, &query.target, &query.form);
    let index = position(&query.target);
    let (parameters, bounds) = equals(cx, &query.target, parts);
    mixed! {
        #doc
        #v fn #method(
            &self,
            txn: &mut _index_table::WriteTxn<'_>,
            #(#parameters,)*
        ) -> _index_table::Result<bool> {
            __table(self).delete_by(txn, #index, _index_table::Bounds::new() #(#bounds)*)
        }
    }
}

/// Expands to:
///
/// ```text
/// fn get_view_by_email<'txn>(
///     &'txn self,
///     txn: &'txn _index_table::ReadTxn<'_>,
///     email: &str,
/// ) -> _index_table::Result<::core::option::Option<CustomerView<'txn>>> {
///     __table(self).get_view_by(
///         txn,
///         0,
///         _index_table::Bounds::new().equal::<String>(email),
///     )
/// }
/// ```
fn get_view(cx: &Context<'_>, query: &Query, parts: &[KeyPart]) -> TokenStream {
    let (v, method, txn) = (&cx.table.visibility, &query.method, &cx.txn);
    let doc = docs::query(cx.table, &query.target, &query.form);
    let index = position(&query.target);
    let view = cx.table.view.as_ref().map(|view| &view.ident);
    let (parameters, bounds) = equals(cx, &query.target, parts);
    mixed! {
        #doc
        #v fn #method<#txn>(
            &#txn self,
            txn: &#txn _index_table::ReadTxn<'_>,
            #(#parameters,)*
        ) -> _index_table::Result<::core::option::Option<#view<#txn>>> {
            __table(self).get_view_by(txn, #index, _index_table::Bounds::new() #(#bounds)*)
        }
    }
}

/// Expands to `town: &str` and `.equal::<String>(town)` for each field, or to `.hashed::<Page, String>(url)`
/// for a hashed field. For an `Option` in a sparse index, the parameter is the inner value, and the call is
/// `.equal::<Option<String>>(::core::convert::Into::into(nick))`.
pub(super) fn equals(
    cx: &Context<'_>,
    target: &Target,
    parts: &[KeyPart],
) -> (Vec<TokenStream>, Vec<TokenStream>) {
    let one = |part: &KeyPart| {
        let (ident, ty) = (part.ident(), part.key_type());
        let (row, key) = (&cx.table.row, key_type(cx, part));
        let (argument, value) = if target.takes_present(part) {
            let value = mixed!(::core::convert::Into::into(#ident));
            (ty.present(&cx.short, &cx.elided), value)
        } else {
            (ty.argument(&cx.short, &cx.elided), mixed!(#ident))
        };
        let equal = if part.is_hash() {
            quote_spanned!(at(ty.span())=> .hashed::<#row, #key>(#value))
        } else {
            quote_spanned!(at(ty.span())=> .equal::<#key>(#value))
        };
        (mixed!(#ident: #argument), equal)
    };
    parts.iter().map(one).unzip()
}

/// Expands to the type of the result: the row, or the entry of an index.
fn found(cx: &Context<'_>, target: &Target, lifetime: &syn::Lifetime) -> TokenStream {
    match target {
        Target::Rows => {
            let row = &cx.table.row;
            mixed!(#row)
        }
        Target::Index(index) => {
            let entry = &index.entry;
            let (ident, lifetime) = (&entry.ident, entry.borrows().then(|| mixed!(<#lifetime>)));
            mixed!(#ident #lifetime)
        }
    }
}

/// Expands to the position of the index.
pub(super) fn position(target: &Target) -> Option<Literal> {
    match target {
        Target::Rows => None,
        Target::Index(index) => Some(Literal::usize_unsuffixed(index.position)),
    }
}

/// Expands to `_index_table::Source::Index(0)`, or to the source of the rows.
pub(super) fn source(target: &Target) -> TokenStream {
    match position(target) {
        None => mixed!(_index_table::Source::Facts),
        Some(index) => mixed!(_index_table::Source::Index(#index)),
    }
}
