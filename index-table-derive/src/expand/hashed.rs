//! The code that reads the values of hashed fields, of which a key has only the hashes.

use proc_macro2::{Literal, TokenStream};

use super::{Context, entity};
use crate::model::{Index, KeyPart};

/// Expands to the methods of `Entity` for a table with hashed fields:
///
/// ```text
/// fn hashed(&self, __index: usize, __values: &mut _index_table::KeyBuf) {
///     match __index {
///         0 => {
///             __values.push(&self.url);
///         }
///         _ => {}
///     }
/// }
/// ```
///
/// If there are indexes whose entries carry these fields, also expands to [`in_entry`].
pub(super) fn methods(cx: &Context<'_>) -> TokenStream {
    let hashing: Vec<&Index> = cx
        .table
        .indexes
        .iter()
        .map(AsRef::as_ref)
        .filter(|it| it.hashed().next().is_some())
        .collect();
    if hashing.is_empty() {
        return TokenStream::new();
    }
    let arms = hashing.iter().map(|index| {
        let position = Literal::usize_unsuffixed(index.position);
        let parts = || index.parts.iter().enumerate().filter(|(_, part)| part.is_hash());
        let computed = parts().filter_map(|(at, part)| entity::computed(part, at));
        let values = parts().map(|(at, part)| entity::part_value(part, at));
        mixed!(#position => { #(#computed)* __values #(.push(#values))*; })
    });
    let choice = if cx.table.storable {
        mixed!(match __index { #(#arms)* _ => {} })
    } else {
        mixed!(loop {})
    };
    let carrying = hashing.iter().copied().filter(|index| index.carries_hashed());
    let in_entry = in_entry(cx, carrying.collect());
    mixed! {
        fn hashed(&self, __index: usize, __values: &mut _index_table::KeyBuf) {
            #choice
        }

        #in_entry
    }
}

/// Expands to:
///
/// ```text
/// fn hashed_in_entry(
///     __index: usize,
///     __entry: _index_table::EntryReader<'_>,
///     __values: &mut _index_table::KeyBuf,
/// ) -> _index_table::Result<(), _index_table::DecodeError> {
///     match __index {
///         0 => {
///             let __entry: PageByUrl<'_> = _index_table::IndexEntry::decode(__entry)?;
///             __values.push_arg::<String>(__entry.url);
///         }
///         _ => {}
///     }
///     _index_table::Ok(())
/// }
/// ```
fn in_entry(cx: &Context<'_>, indexes: Vec<&Index>) -> TokenStream {
    if indexes.is_empty() {
        return TokenStream::new();
    }
    let arms = indexes.into_iter().map(|index| {
        let position = Literal::usize_unsuffixed(index.position);
        let entry = &index.entry.ident;
        let lifetime = index.entry.borrows().then(|| mixed!(<'_>));
        let values = index.hashed().filter_map(KeyPart::field).map(|field| {
            let ident = &field.ident;
            if field.ty.is_carried_as_argument() {
                let ty = field.ty.tokens(&cx.short);
                mixed!(.push_arg::<#ty>(__entry.#ident))
            } else {
                mixed!(.push(&__entry.#ident))
            }
        });
        mixed! {
            #position => {
                let __entry: #entry #lifetime = _index_table::IndexEntry::decode(__entry)?;
                __values #(#values)*;
            }
        }
    });
    mixed! {
        fn hashed_in_entry(
            __index: usize,
            __entry: _index_table::EntryReader<'_>,
            __values: &mut _index_table::KeyBuf,
        ) -> _index_table::Result<(), _index_table::DecodeError> {
            match __index { #(#arms)* _ => {} }
            _index_table::Ok(())
        }
    }
}
