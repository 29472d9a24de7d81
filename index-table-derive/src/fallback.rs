//! The replacements of items that can't be generated because of errors.
//!
//! A program with such errors still uses the repository, the view and the entries. The replacements avoid a further
//! error for each use.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Ident, Path, Visibility};

use crate::expand;
use crate::lower::Inert;
use crate::model::Table;

/// Expands to the types of a declaration with the mistake `error`, which is a call of `compile_error`:
///
/// ```text
/// type CustomerRepository =
///     <() as ::index_table::__private::Named<{ ::core::compile_error! { "…" } }>>::Repository;
/// type CustomerByTown<'txn> = <(CustomerRepository, &'txn ()) as ::core::iter::Iterator>::Item;
/// ```
///
/// The constant has an error, so the compiler reports nothing else about a type that depends on it: not about its
/// methods, and not about their results.
pub(crate) fn types_of(table: &Table, error: &TokenStream) -> TokenStream {
    let Table { krate, visibility, indexes, aggregates, view, .. } = table;
    let repository = self::repository(krate, visibility, &table.repository, error);
    let entries = indexes.iter().map(|index| (&index.entry.ident, index.entry.borrows()));
    let view = view.iter().map(|view| (&view.ident, true));
    let totals = aggregates.iter().map(|aggregate| (&aggregate.ident, false));
    let others = entries.chain(view).chain(totals);
    let others =
        others.map(|(ident, borrows)| dependent(visibility, &table.repository, ident, borrows));
    quote!(#repository #(#others)*)
}

/// Like [`types_of`], for a type that can't be a table.
pub(crate) fn types(visibility: &Visibility, inert: &Inert, error: &TokenStream) -> TokenStream {
    let Inert { krate, repository, view } = inert;
    let mut types = self::repository(krate, visibility, repository, error);
    types.extend(view.iter().map(|view| dependent(visibility, repository, view, true)));
    types
}

fn repository(
    krate: &Path,
    visibility: &Visibility,
    repository: &Ident,
    error: &TokenStream,
) -> TokenStream {
    let (private, allow) = (expand::private(krate), expand::allow_on_struct());
    quote! {
        #[doc(hidden)]
        #allow
        #visibility type #repository = <() as #private::Named<{ #error }>>::Repository;
    }
}

fn dependent(
    visibility: &Visibility,
    repository: &Ident,
    ident: &Ident,
    borrows: bool,
) -> TokenStream {
    let allow = expand::allow_on_struct();
    let reference = borrows.then(|| quote!(&'txn ()));
    let parameters = borrows.then(|| quote!(<'txn>));
    quote! {
        #[doc(hidden)]
        #allow
        #visibility type #ident #parameters =
            <(#repository, #reference) as ::core::iter::Iterator>::Item;
    }
}
/// Expands to an implementation of `Key`, for a type with the mistake `error`:
///
/// ```text
/// type __Checked = <() as _index_table::Checked<{ ::core::compile_error! { "…" } }>>::Checked;
/// impl _index_table::Key for Kind {
///     type Arg<'any> = __Checked;
///     …
///     fn arg(&self) -> Self::Arg<'_> { loop {} }
/// }
/// ```
pub(crate) fn inert_key(input: &DeriveInput, krate: &Path, error: &TokenStream) -> TokenStream {
    let ident = &input.ident;
    let (private, allow) = (expand::private(krate), expand::allow());
    let (impl_generics, ty_generics, where_clause) = input.generics.split_for_impl();
    quote! {
        #allow
        const _: () = {
            use #private as _index_table;

            type __Checked = <() as _index_table::Checked<{ #error }>>::Checked;

            #[automatically_derived]
            impl #impl_generics _index_table::Key for #ident #ty_generics #where_clause {
                type Arg<'any> = __Checked;
                type Present<'any> = __Checked;
                type Ref<'any> = __Checked;

                // This shape is valid in a sparse index.
                const SHAPE: _index_table::KeyShape =
                    _index_table::KeyShape::Option(&_index_table::KeyShape::Bool);

                fn arg(&self) -> __Checked {
                    loop {}
                }

                fn encode(_: __Checked, _: &mut _index_table::KeyBuf) {}

                fn decode(
                    _: &mut _index_table::KeyReader<'_>,
                ) -> _index_table::Result<__Checked, _index_table::DecodeError> {
                    loop {}
                }

                fn decode_owned(
                    _: &mut _index_table::KeyReader<'_>,
                ) -> _index_table::Result<Self, _index_table::DecodeError> {
                    loop {}
                }
            }
        };
    }
}
