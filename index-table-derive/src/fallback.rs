//! The replacement of a repository or a key that can't be generated because of errors.
//!
//! A program with such errors still calls the repository's methods. The replacements avoid a further error
//! for each call.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Path};

use crate::expand;
use crate::lower::Inert;

/// Expands to a repository whose methods take any key and never return.
///
/// ```text
/// struct ShapeRepository;
/// const _: () = {
///     impl ShapeRepository {
///         fn open(_: &_index_table::Store) -> _index_table::Result<Self> { loop {} }
///         fn get(&self, _: &_index_table::ReadTxn<'_>, _: impl Sized) -> … { loop {} }
///         …
///     }
/// };
/// ```
pub(crate) fn inert(input: &DeriveInput, inert: &Inert) -> TokenStream {
    let (visibility, row) = (&input.vis, &input.ident);
    let Inert { krate, repository, view } = inert;
    let private = expand::private(krate);
    let (allow, allow_on_struct) = (expand::allow(), expand::allow_on_struct());
    let (impl_generics, ty_generics, where_clause) = input.generics.split_for_impl();
    // The methods that take or return a row have the struct's generic parameters, so that the repository has
    // none.
    let row = quote!(#row #ty_generics);
    let read = quote!(&_index_table::ReadTxn<'_>);
    let write = quote!(&mut _index_table::WriteTxn<'_>);
    let method = |name: &str, parameters: TokenStream, found: TokenStream| {
        let name = format_ident!("{name}");
        quote! {
            #[doc(hidden)]
            #visibility fn #name #impl_generics(
                &self,
                #parameters
            ) -> _index_table::Result<#found> #where_clause {
                loop {}
            }
        }
    };
    let methods = [
        method("insert", quote!(_: #write, _: &#row), quote!(())),
        method(
            "insert_with",
            quote!(_: #write, _: impl ::core::ops::FnOnce(u64) -> #row),
            quote!(u64),
        ),
        method("put", quote!(_: #write, _: &#row), quote!(())),
        method(
            "update",
            quote!(_: #write, _: impl ::core::marker::Sized, _: impl ::core::ops::FnOnce(&mut #row)),
            quote!(bool),
        ),
        method(
            "get",
            quote!(_: #read, _: impl ::core::marker::Sized),
            quote!(::core::option::Option<#row>),
        ),
    ];
    // The view has no fields, because a program can name the view without using its fields.
    let view_type = view.iter().map(|view| {
        quote! {
            #[doc(hidden)]
            #allow_on_struct
            #[derive(::core::fmt::Debug, ::core::clone::Clone)]
            #visibility struct #view<'txn>(::core::marker::PhantomData<&'txn ()>);
        }
    });
    let get_view = view.iter().map(|view| {
        quote! {
            #[doc(hidden)]
            #visibility fn get_view<'txn>(
                &'txn self,
                _: &'txn _index_table::ReadTxn<'_>,
                _: impl ::core::marker::Sized,
            ) -> _index_table::Result<::core::option::Option<#view<'txn>>> {
                loop {}
            }
        }
    });
    quote! {
        #[doc(hidden)]
        #allow_on_struct
        #[derive(::core::fmt::Debug, ::core::clone::Clone)]
        #visibility struct #repository;

        #(#view_type)*

        #allow
        const _: () = {
            use #private as _index_table;

            #[automatically_derived]
            impl #repository {
                #[doc(hidden)]
                #visibility fn open(_: &_index_table::Store) -> _index_table::Result<Self> {
                    loop {}
                }

                #[doc(hidden)]
                #visibility fn delete(
                    &self,
                    _: #write,
                    _: impl ::core::marker::Sized,
                ) -> _index_table::Result<bool> {
                    loop {}
                }

                #(#methods)*
                #(#get_view)*
            }
        };
    }
}

/// Expands to a key that is never read or written.
///
/// ```text
/// impl _index_table::Key for Shape where for<'any> Shape: _index_table::KeyValue {
///     type Arg<'a> = &'a Self;
///     …
///     fn arg(&self) -> &Self { loop {} }
///     fn decode_owned(_: &mut _index_table::KeyReader<'_>) -> … { loop {} }
/// }
/// ```
pub(crate) fn inert_key(input: &DeriveInput, krate: &Path) -> TokenStream {
    let ident = &input.ident;
    let (private, allow) = (expand::private(krate), expand::allow());
    let (impl_generics, ty_generics, where_clause) = input.generics.split_for_impl();
    let conditions = where_clause.map(|clause| &clause.predicates).into_iter().flatten();
    // An enum is passed by value, as for valid keys.
    let (arg, value) = match &input.data {
        Data::Enum(data) if data.variants.iter().all(|variant| variant.fields.is_empty()) => {
            (quote!(Self), quote!(EnumValue))
        }
        // A lifetime parameter may be shorter than `'any`.
        _ if !input.generics.params.is_empty() => (quote!(()), quote!(KeyValue)),
        _ => (quote!(&'any Self), quote!(KeyValue)),
    };
    quote! {
        #allow
        const _: () = {
            use #private as _index_table;

            #[automatically_derived]
            impl #impl_generics _index_table::Key for #ident #ty_generics
            where
                for<'any> #ident #ty_generics: _index_table::#value,
                #(#conditions,)*
            {
                type Arg<'any> = #arg;
                type Present<'any> = #arg;
                type Ref<'any> = Self;

                // This shape is valid in a sparse index.
                const SHAPE: _index_table::KeyShape =
                    _index_table::KeyShape::Option(&_index_table::KeyShape::Bool);

                fn arg(&self) -> Self::Arg<'_> {
                    loop {}
                }

                fn encode(_: Self::Arg<'_>, _: &mut _index_table::KeyBuf) {}

                fn decode(
                    _: &mut _index_table::KeyReader<'_>,
                ) -> _index_table::Result<Self, _index_table::DecodeError> {
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
