//! The revision of rows.

use proc_macro2::TokenStream;

use super::Context;

/// Expands to, for a table with a revision:
///
/// ```text
/// const REVISION: ::core::option::Option<_index_table::Revision> =
///     ::core::option::Option::Some(_index_table::Revision::of::<Self>());
/// ```
pub(super) fn constant(cx: &Context<'_>) -> Option<TokenStream> {
    cx.table.revision.as_ref()?;
    Some(mixed! {
        const REVISION: ::core::option::Option<_index_table::Revision> =
            ::core::option::Option::Some(_index_table::Revision::of::<Self>());
    })
}

/// Expands to, for a table with a revision:
///
/// ```text
/// impl _index_table::Revised for Invoice {
///     type Number = u64;
///     fn revision(&self) -> &u64 { &self.revision }
///     fn revision_mut(&mut self) -> &mut u64 { &mut self.revision }
/// }
/// ```
pub(super) fn implementation(cx: &Context<'_>) -> Option<TokenStream> {
    let field = cx.table.revision.as_ref()?;
    let (row, ident, ty) = (&cx.table.row, &field.ident, field.ty.tokens(&cx.short));
    let (get, get_mut) = if cx.table.storable {
        (mixed!(&self.#ident), mixed!(&mut self.#ident))
    } else {
        (mixed!(loop {}), mixed!(loop {}))
    };
    Some(mixed! {
        #[automatically_derived]
        impl _index_table::Revised for #row {
            type Number = #ty;

            fn revision(&self) -> &#ty {
                #get
            }

            fn revision_mut(&mut self) -> &mut #ty {
                #get_mut
            }
        }
    })
}
