//! `impl Entity`: the schema, and what a row looks like in keys and entries.

use proc_macro2::{Literal, TokenStream};
use quote::quote_spanned;
use syn::Ident;

use super::{Context, at, requirements};
use crate::model::{Field, Index, KeyPart, Strategy};

/// Expands to:
///
/// ```text
/// impl _index_table::Entity for Customer {
///     type Key = u64;
///     const TABLE: &'static _index_table::TableSchema = &_index_table::TableSchema { … };
///     fn primary_key(&self, __key: &mut _index_table::KeyBuf) { … }
///     fn entries(&self, __index: usize, __entries: &mut _index_table::EntryBuffer) -> … { … }
/// }
/// ```
pub(super) fn implementation(cx: &Context<'_>) -> TokenStream {
    let row = &cx.table.row;
    let key = key_type(cx);
    let schema = schema(cx);
    let primary_key = cx.table.primary_key.iter().map(|field| {
        let value = value(field);
        mixed!(.push(#value))
    });
    let entries = entries(cx);
    let conditions = requirements::conditions(cx, &cx.short);
    mixed! {
        #[automatically_derived]
        impl _index_table::Entity for #row #conditions {
            type Key = #key;

            const TABLE: &'static _index_table::TableSchema = &#schema;

            fn primary_key(&self, __key: &mut _index_table::KeyBuf) {
                __key #(#primary_key)*;
            }

            #entries
        }
    }
}

/// Expands to the type of the only field, or to the tuple of all of them: `(String, u32)`.
fn key_type(cx: &Context<'_>) -> TokenStream {
    let types: Vec<_> =
        cx.table.primary_key.iter().map(|field| field.ty.tokens(&cx.short)).collect();
    match types.as_slice() {
        [one] => one.clone(),
        several => mixed!((#(#several),*)),
    }
}

/// Expands to:
///
/// ```text
/// _index_table::TableSchema {
///     name: "customers",
///     version: 1,
///     fields: &[_index_table::FieldSchema { name: "id", declared: "u64" }],
///     primary_key: &[_index_table::KeyField::new::<u64>("id")],
///     indexes: &[…],
/// }
/// ```
fn schema(cx: &Context<'_>) -> TokenStream {
    let table = cx.table;
    let (name, version) = (&table.name, Literal::u32_unsuffixed(table.version));
    let fields = table.fields.iter().map(|field| {
        let Field { name, declared, .. } = &**field;
        mixed!(_index_table::FieldSchema { name: #name, declared: #declared })
    });
    let primary_key = table.primary_key.iter().map(|field| plain_key_field(cx, field));
    let indexes = table.indexes.iter().map(|index| index_schema(cx, index));
    mixed! {
        _index_table::TableSchema {
            name: #name,
            version: #version,
            fields: &[#(#fields),*],
            primary_key: &[#(#primary_key),*],
            indexes: &[#(#indexes),*],
        }
    }
}

/// Expands to:
///
/// ```text
/// _index_table::IndexSchema {
///     name: "town",
///     key: &[_index_table::KeyField::new::<String>("town")],
///     strategy: _index_table::Strategy::Partial(&["phone"]),
///     unique: false,
/// }
/// ```
fn index_schema(cx: &Context<'_>, index: &Index) -> TokenStream {
    let (name, unique) = (&index.name, index.unique);
    let key = index.parts.iter().map(|part| match part {
        KeyPart::Plain(field) => plain_key_field(cx, field),
        KeyPart::Each(field, _) => {
            let (ty, name) = (field.ty.tokens(&cx.short), &field.name);
            mixed!(_index_table::KeyField::each::<#ty>(#name))
        }
    });
    let strategy = match &index.strategy {
        Strategy::Normalized => mixed!(Normalized),
        Strategy::Partial(included) => {
            let names = included.iter().map(|field| &field.name);
            mixed!(Partial(&[#(#names),*]))
        }
        Strategy::Full => mixed!(Full),
    };
    mixed! {
        _index_table::IndexSchema {
            name: #name,
            key: &[#(#key),*],
            strategy: _index_table::Strategy::#strategy,
            unique: #unique,
        }
    }
}

fn plain_key_field(cx: &Context<'_>, field: &Field) -> TokenStream {
    let (ty, name) = (field.ty.tokens(&cx.short), &field.name);
    mixed!(_index_table::KeyField::new::<#ty>(#name))
}

/// Expands to:
///
/// ```text
/// fn entries(&self, __index: usize, __entries: &mut _index_table::EntryBuffer) -> … {
///     match __index {
///         0 => {
///             __entries.include(&self.phone)?;
///             __entries.key().push(&self.town);
///         }
///         1 => for __element in _index_table::Each::elements(&self.cast) {
///             __entries.key().push(__element);
///         },
///         _ => {}
///     }
///     _index_table::Ok(())
/// }
/// ```
fn entries(cx: &Context<'_>) -> TokenStream {
    let arms = cx.table.indexes.iter().map(|index| entries_of(index));
    // An argument without a use has no name.
    let (index, entries, choice) = if cx.table.indexes.is_empty() {
        (mixed!(_), mixed!(_), TokenStream::new())
    } else {
        let choice = mixed!(match __index { #(#arms)* _ => {} });
        (mixed!(__index), mixed!(__entries), choice)
    };
    mixed! {
        fn entries(
            &self,
            #index: usize,
            #entries: &mut _index_table::EntryBuffer,
        ) -> _index_table::Result<(), _index_table::EncodeError> {
            #choice
            _index_table::Ok(())
        }
    }
}

fn entries_of(index: &Index) -> TokenStream {
    let position = Literal::usize_unsuffixed(index.position);
    let included = match &index.strategy {
        Strategy::Partial(included) => included.as_slice(),
        Strategy::Normalized | Strategy::Full => &[],
    };
    let included = included.iter().map(|field| value(field));
    let pushes = index.parts.iter().map(|part| match part {
        KeyPart::Plain(field) => {
            let value = value(field);
            mixed!(.push(#value))
        }
        KeyPart::Each(field, _) => {
            let element = Ident::new("__element", at(field.ty.span()));
            mixed!(.push(#element))
        }
    });
    let key = mixed!(__entries.key() #(#pushes)*;);
    let keys = match index.parts.iter().find(|part| part.is_each()) {
        Some(part) => {
            let collection = value(part.field());
            mixed!(for __element in _index_table::Each::elements(#collection) { #key })
        }
        None => key,
    };
    mixed! {
        #position => {
            #(__entries.include(#included)?;)*
            #keys
        }
    }
}

/// Expands to `&self.town`, at the place of the field's type: a trait that it lacks is reported
/// there.
fn value(field: &Field) -> TokenStream {
    let mut ident = field.ident.clone();
    ident.set_span(ident.span().located_at(field.ty.span()));
    quote_spanned!(at(field.ty.span())=> &self.#ident)
}
