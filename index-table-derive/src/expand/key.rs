//! `impl Key` for a type with `#[derive(IndexKey)]`.

use proc_macro2::{Literal, TokenStream};
use quote::quote_spanned;
use syn::Ident;

use super::requirements::{self, marker};
use super::{allow, at, private};
use crate::model::{KeyMember, KeyType, KeyValues, KeyVariant};
use crate::types::Numbers;

/// Expands to:
///
/// ```text
/// const _: () = {
///     use ::index_table::__private as _index_table;
///     type __Checked = <Kind as _index_table::Checked<{
///         _index_table::assert_enum_value::<Kind>();
///         true
///     }>>::Checked;
///     impl _index_table::Key for Kind { … }
/// };
/// ```
///
/// If the assertion fails, the type `__Checked` causes no further errors; see [`requirements`].
pub(crate) fn expand(key: &KeyType) -> TokenStream {
    let (private, allow) = (private(&key.krate), allow());
    let implementation = match &key.values {
        KeyValues::Members(members) => structure(key, members),
        KeyValues::Variants(variants) => enumeration(key, variants),
    };
    mixed! {
        #allow
        const _: () = {
            use #private as _index_table;
            #implementation
        };
    }
}

/// Expands to:
///
/// ```text
/// impl _index_table::Key for Place {
///     type Arg<'a> = &'a __Checked;
///     type Present<'a> = &'a __Checked;
///     type Ref<'a> = __Checked;
///     const SHAPE: … = _index_table::KeyShape::Tuple(&[<String as _index_table::Key>::SHAPE, …]);
///     fn arg(&self) -> &__Checked { self }
///     fn encode(value: &__Checked, out: &mut _index_table::KeyBuf) {
///         out.push(&value.town).push(&value.zip);
///     }
///     …
/// }
/// ```
fn structure(key: &KeyType, members: &[KeyMember]) -> TokenStream {
    let ident = &key.ident;
    let short = mixed!(_index_table);
    // The compiler checks whether a type is a key, unless the spelling of the type shows it.
    let unknown: Vec<_> = members.iter().filter(|it| it.ty.requirement().is_some()).collect();
    let assertions = unknown.iter().map(|KeyMember { marker: name, ty, .. }| {
        let assert = quote_spanned!(at(name.span())=> _index_table::assert_key);
        requirements::required_type(ident, ty, &assert, &marker(name, ty.written()))
    });
    let conditions = unknown.iter().map(|KeyMember { ty, .. }| {
        let required = ty.required(&short);
        quote_spanned!(at(ty.span())=> for<'any> #required: _index_table::Key)
    });
    let conditions: Vec<_> = conditions.collect();
    let conditions = (!conditions.is_empty()).then(|| mixed!(where #(#conditions),*));
    let value = checked(ident, &mixed!(assert_key_value));
    let shapes = members.iter().map(|KeyMember { ty, .. }| {
        let ty = ty.tokens(&short);
        mixed!(<#ty as _index_table::Key>::SHAPE)
    });
    let shape = if members.len() == 1 {
        mixed!(#(#shapes)*)
    } else {
        mixed!(_index_table::KeyShape::Tuple(&[#(#shapes),*]))
    };
    let pushes = members.iter().map(|KeyMember { member, .. }| mixed!(.push(&value.#member)));
    let fields = members.iter().map(|KeyMember { member, ty, .. }| {
        let ty = ty.tokens(&short);
        mixed!(#member: <#ty as _index_table::Key>::decode_owned(reader)?)
    });
    // A newtype is absent if its inner value is absent.
    let present = match members {
        [KeyMember { member, ty, .. }] => {
            let ty = ty.tokens(&short);
            mixed! {
                fn is_present(&self) -> bool {
                    <#ty as _index_table::Key>::is_present(&self.#member)
                }
            }
        }
        _ => TokenStream::new(),
    };
    let sequence = match members {
        [one] => sequence(key, one),
        _ => TokenStream::new(),
    };
    mixed! {
        #(#assertions)*
        #value

        #[automatically_derived]
        impl _index_table::Key for #ident #conditions {
            type Arg<'a> = &'a __Checked;
            type Present<'a> = &'a __Checked;
            type Ref<'a> = __Checked;

            const SHAPE: _index_table::KeyShape = #shape;

            fn arg(&self) -> &__Checked {
                self
            }

            #present

            fn encode(value: &__Checked, out: &mut _index_table::KeyBuf) {
                out #(#pushes)*;
            }

            fn decode(
                reader: &mut _index_table::KeyReader<'_>,
            ) -> _index_table::Result<__Checked, _index_table::DecodeError> {
                <Self as _index_table::Key>::decode_owned(reader)
            }

            fn decode_owned(
                reader: &mut _index_table::KeyReader<'_>,
            ) -> _index_table::Result<Self, _index_table::DecodeError> {
                _index_table::Ok(Self { #(#fields),* })
            }
        }

        #sequence
    }
}

/// Expands to the type `__Checked`, which is the key, if `assert` compiles.
fn checked(ident: &Ident, assert: &TokenStream) -> TokenStream {
    let value = quote_spanned!(at(ident.span())=> _index_table::#assert::<#ident>());
    mixed!(type __Checked = <#ident as _index_table::Checked<{ #value; true }>>::Checked;)
}

/// Expands to the numbers of a newtype, which are the numbers of the inner type:
///
/// ```text
/// impl _index_table::Sequence for CustomerId where for<'any> u64: _index_table::Sequence { … }
/// ```
fn sequence(key: &KeyType, KeyMember { member, ty, .. }: &KeyMember) -> TokenStream {
    let (ident, inside) = (&key.ident, ty.tokens(&mixed!(_index_table)));
    let conditions = match ty.numbers() {
        Numbers::Yes => TokenStream::new(),
        Numbers::ByTrait => mixed!(for<'any> #inside: _index_table::Sequence,),
        Numbers::No => return TokenStream::new(),
    };
    mixed! {
        #[automatically_derived]
        impl _index_table::Sequence for #ident
        where
            for<'any> #ident: _index_table::Key,
            #conditions
        {
            fn from_number(number: u128) -> ::core::option::Option<Self> {
                ::core::option::Option::Some(Self {
                    #member: <#inside as _index_table::Sequence>::from_number(number)?,
                })
            }

            fn number(&self) -> u128 {
                <#inside as _index_table::Sequence>::number(&self.#member)
            }
        }
    }
}

/// Expands to:
///
/// ```text
/// impl _index_table::Key for Kind {
///     type Arg<'a> = __Checked;
///     type Present<'a> = __Checked;
///     type Ref<'a> = __Checked;
///     const SHAPE: … = _index_table::KeyShape::Enum(&[("Private", 0), ("Company", 1)]);
///     fn arg(&self) -> __Checked { *self }
///     fn encode(value: __Checked, out: &mut _index_table::KeyBuf) {
///         let number: u16 = match value { Kind::Private => 0, Kind::Company => 1 };
///         out.push(&number);
///     }
///     …
/// }
/// ```
fn enumeration(key: &KeyType, variants: &[KeyVariant]) -> TokenStream {
    let ident = &key.ident;
    let value = checked(ident, &mixed!(assert_enum_value));
    let names = variants.iter().map(|variant| &variant.name);
    let idents: Vec<_> = variants.iter().map(|variant| &variant.ident).collect();
    let numbers: Vec<_> =
        variants.iter().map(|variant| Literal::u16_unsuffixed(variant.number)).collect();
    let unknown = format!("not a variant of `{ident}`");
    mixed! {
        #value

        #[automatically_derived]
        impl _index_table::Key for #ident {
            type Arg<'a> = __Checked;
            type Present<'a> = __Checked;
            type Ref<'a> = __Checked;

            const SHAPE: _index_table::KeyShape =
                _index_table::KeyShape::Enum(&[#((#names, #numbers)),*]);

            fn arg(&self) -> __Checked {
                let value: &__Checked = self;
                *value
            }

            fn encode(value: __Checked, out: &mut _index_table::KeyBuf) {
                let number: u16 = match value {
                    #(#ident::#idents => #numbers,)*
                };
                out.push(&number);
            }

            fn decode(
                reader: &mut _index_table::KeyReader<'_>,
            ) -> _index_table::Result<__Checked, _index_table::DecodeError> {
                <Self as _index_table::Key>::decode_owned(reader)
            }

            fn decode_owned(
                reader: &mut _index_table::KeyReader<'_>,
            ) -> _index_table::Result<Self, _index_table::DecodeError> {
                match <u16 as _index_table::Key>::decode_owned(reader)? {
                    #(#numbers => _index_table::Ok(Self::#idents),)*
                    _ => ::core::result::Result::Err(_index_table::DecodeError::Value(#unknown)),
                }
            }
        }
    }
}
