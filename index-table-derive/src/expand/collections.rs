//! The fields with collections that are stored in a canonical order.

use proc_macro2::TokenStream;
use quote::ToTokens;

use crate::model::{Field, Table};
use crate::types::Collection;

/// Expands to the list of these fields, if there are any:
///
/// ```text
/// const COLLECTIONS: &'static [_index_table::CollectionField] = &[_index_table::CollectionField {
///     offset: ::core::mem::offset_of!(Self, tags),
///     collection: _index_table::Collection { sorted: true, inside: &[] },
/// }];
/// ```
pub(super) fn list(table: &Table) -> Option<TokenStream> {
    let fields = collections(table).map(|(field, collection)| {
        let ident = &field.ident;
        mixed! {
            _index_table::CollectionField {
                offset: ::core::mem::offset_of!(Self, #ident),
                collection: #collection,
            }
        }
    });
    let fields: Vec<_> = fields.collect();
    (!fields.is_empty()).then(|| {
        mixed! {
            const COLLECTIONS: &'static [_index_table::CollectionField] = &[#(#fields),*];
        }
    })
}

/// Expands to `_index_table::RowFormat::<Self>::encode(self, __out)`, or to `encode_sorted` if there are
/// sorted collections.
pub(super) fn encode(table: &Table) -> TokenStream {
    let encode =
        if collections(table).next().is_some() { mixed!(encode_sorted) } else { mixed!(encode) };
    mixed!(_index_table::RowFormat::<Self>::#encode(self, __out))
}

fn collections(table: &Table) -> impl Iterator<Item = (&Field, Collection)> {
    let fields = table.fields.iter().map(|field| (&**field, field.ty.collection()));
    fields.filter(|(_, collection)| table.storable && !collection.is_plain())
}

impl ToTokens for Collection {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let Self { sorted, inside } = self;
        tokens.extend(mixed! {
            _index_table::Collection { sorted: #sorted, inside: &[#(#inside),*] }
        });
    }
}
