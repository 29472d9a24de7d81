//! The conversion of the model to tokens. It has no rules: code can be generated for every model.
//!
//! Generated identifiers have the span `mixed_site`, so that a field called `txn` doesn't collide with the
//! transaction. A user's constant or unit struct can still collide with a variable in a pattern, so the
//! variables of trait implementations start with `__`. The parameters of the repository's methods don't start
//! with `__`, because they appear in its documentation. Items that a user may look up have the span of the
//! corresponding user's token.

/// Like [`quote!`](quote::quote), with local names that can't collide with a field's name.
macro_rules! mixed {
    ($($tokens:tt)*) => {
        ::quote::quote_spanned! { ::proc_macro2::Span::mixed_site()=> $($tokens)* }
    };
}

mod aggregate;
mod calls;
mod carried;
mod changes;
mod collections;
mod distinct;
mod docs;
mod entity;
mod entry;
mod expiry;
mod hashed;
pub(crate) mod key;
mod lints;
mod methods;
mod queries;
mod reference;
mod repository;
mod requirements;
mod revision;
mod submit;
pub(crate) mod version;
mod view;

use std::rc::Rc;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens as _;
use syn::{Lifetime, Path, Visibility};

use crate::model::{Field, KeyPart, Table};

/// The table, and tokens that all generated items share.
struct Context<'a> {
    table: &'a Table,
    /// The path of the runtime in the module of the struct.
    private: TokenStream,
    /// The path of the runtime in the block of the implementations.
    short: TokenStream,
    /// `'txn`, the lifetime of the transaction and of borrowed values.
    txn: Lifetime,
    /// `'a`, the lifetime of the bounds of a range.
    bounds: Lifetime,
    /// `'_`
    elided: Lifetime,
}

impl<'a> Context<'a> {
    fn of(table: &'a Table) -> Self {
        Self {
            table,
            private: private(&table.krate),
            short: mixed!(_index_table),
            txn: Lifetime::new("'txn", Span::mixed_site()),
            bounds: Lifetime::new("'a", Span::mixed_site()),
            elided: Lifetime::new("'_", Span::mixed_site()),
        }
    }
}

/// Expands to the repository, the view and the entries, then to a block with all the implementations:
///
/// ```text
/// struct CustomerRepository { … }
/// struct CustomerByTown<'txn> { … }
/// const _: () = {
///     use ::index_table::__private as _index_table;
///     use _index_table::NoRowFormat as _;
///     impl _index_table::Entity for Customer { … }
///     impl<'txn> _index_table::IndexEntry<'txn> for CustomerByTown<'txn> { … }
///     impl CustomerRepository { … }
/// };
/// ```
pub(crate) fn expand(table: &Table) -> TokenStream {
    let cx = Context::of(table);
    let private = &cx.private;
    let repository = repository::declaration(&cx);
    let entries = table.indexes.iter().map(|index| entry::declaration(&cx, index));
    let totals = table.aggregates.iter().map(|it| aggregate::declaration(&cx, it));
    let total_readers = table.aggregates.iter().enumerate();
    let total_readers = total_readers.map(|(at, it)| aggregate::implementation(&cx, at, it));
    let entity = entity::implementation(&cx);
    let traits = entity::traits(&cx);
    let readers = table.indexes.iter().map(|index| entry::implementation(&cx, index));
    let view = table.view.as_ref().map(|view| view::declaration(&cx, view));
    let view_reader = table.view.as_ref().map(|view| view::implementation(&cx, view));
    let methods = repository::implementation(&cx);
    let mut assertions = requirements::assertions(&cx);
    assertions.extend(reference::assertions(&cx));
    let carried = carried::assertions(&cx);
    let previous = version::assertions(&table.row, table.version, table.previous.as_ref());
    let lints = lints::warnings(table);
    let allow = allow();
    mixed! {
        #repository
        #view
        #(#entries)*
        #(#totals)*
        #lints

        #allow
        const _: () = {
            use #private as _index_table;
            #[allow(unused_imports)]
            use _index_table::NoRowFormat as _;
            #assertions
            #carried
            #previous
            #entity
            #traits
            #view_reader
            #(#readers)*
            #(#total_readers)*
            #methods
        };
    }
}

/// Expands to the implementation of `Entity` alone, for a declaration with a mistake. Other tables may refer to the
/// row.
pub(crate) fn expand_entity(table: Table) -> TokenStream {
    // The primary key is enough.
    let table = Table {
        indexes: Vec::new(),
        expiry: None,
        changes: None,
        revision: None,
        aggregates: Vec::new(),
        references: Vec::new(),
        sharding: None,
        ..table
    };
    let cx = Context::of(&table);
    let private = &cx.private;
    let required = requirements::required_types(&cx);
    let entity = entity::implementation(&cx);
    let allow = allow();
    mixed! {
        #allow
        const _: () = {
            use #private as _index_table;
            #[allow(unused_imports)]
            use _index_table::NoRowFormat as _;
            #required
            #entity
        };
    }
}

/// Expands to the path of the only module that generated code uses.
pub(crate) fn private(krate: &Path) -> TokenStream {
    mixed!(#krate::__private)
}

/// Returns a span at a location in the user's code, with the names of this crate. Requirements on a field's
/// type have such a span, so that errors are reported at the type.
fn at(place: Span) -> Span {
    Span::mixed_site().located_at(place)
}

/// Expands to a visibility with the span `place`, for a field of a generated struct that
/// corresponds to the user's field at `place`. The span of a field in messages starts at its visibility.
fn visibility_at(visibility: &Visibility, place: Span) -> TokenStream {
    let tokens = visibility.to_token_stream();
    tokens
        .into_iter()
        .map(|mut token| {
            token.set_span(token.span().located_at(place));
            token
        })
        .collect()
}

/// Expands to the name of the method that reads the field from a row.
fn field_method(field: &Field) -> TokenStream {
    if field.skipped { mixed!(field_or_default) } else { mixed!(field) }
}

/// Expands to `&["name"]`: the names by which serde reads the field in a row.
fn stored_names(field: &Field) -> TokenStream {
    let names = &field.stored;
    mixed!(&[#(#names),*])
}

/// Expands to the type that encodes and decodes a part of a key: `String`, or `_index_table::Desc<String>`.
fn key_type(cx: &Context<'_>, part: &KeyPart) -> TokenStream {
    let ty = part.key_type().tokens(&cx.short);
    if part.is_desc() { mixed!(_index_table::Desc<#ty>) } else { ty }
}

/// Expands to a parameter for each field of the primary key, and to the expression of the key: `id`, or
/// `(genre, title)`.
fn primary_key(cx: &Context<'_>) -> (Vec<TokenStream>, TokenStream) {
    let parameter = |field: &Rc<Field>| {
        let (ident, ty) = (&field.ident, field.ty.argument(&cx.short, &cx.elided));
        mixed!(#ident: #ty)
    };
    let parameters = cx.table.primary_key.iter().map(parameter).collect();
    let names: Vec<_> = cx.table.primary_key.iter().map(|field| &field.ident).collect();
    let key = match names.as_slice() {
        [one] => mixed!(#one),
        several => mixed!((#(#several),*)),
    };
    (parameters, key)
}

/// Expands to the allowed lints in the block of the implementations.
pub(crate) fn allow() -> TokenStream {
    mixed! {
        #[allow(
            // Generated code follows the style of the generator, not of the user.
            clippy::all,
            clippy::pedantic,
            clippy::nursery,
            // A program uses some of the methods.
            dead_code,
            // Names and types are repeated from the fields, and lints about them apply there.
            deprecated,
            nonstandard_style,
            private_interfaces,
            unreachable_pub,
            // Chained calls build a key.
            unused_results,
            // The same path is used in every crate.
            unused_qualifications,
            // A lifetime may have a name without being used.
            single_use_lifetimes
        )]
    }
}

/// Expands to the allowed lints on a struct.
pub(crate) fn allow_on_struct() -> TokenStream {
    mixed! {
        #[allow(
            clippy::all,
            clippy::pedantic,
            clippy::nursery,
            // A program uses some of the fields.
            dead_code,
            deprecated,
            nonstandard_style,
            private_interfaces,
            unreachable_pub,
            // Whether an entry can be copied depends on the types of its fields.
            missing_copy_implementations,
            unused_qualifications
        )]
    }
}
