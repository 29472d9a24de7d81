//! The expiry of rows.

use proc_macro2::{Literal, TokenStream};

use super::{Context, entity};
use crate::model::Expiry;

/// Expands to, for a table whose rows expire:
///
/// ```text
/// const EXPIRY: ::core::option::Option<_index_table::Expiry> =
///     ::core::option::Option::Some(_index_table::Expiry::of::<Self>());
/// ```
pub(super) fn constant(cx: &Context<'_>) -> Option<TokenStream> {
    cx.table.expiry.as_ref()?;
    Some(mixed! {
        const EXPIRY: ::core::option::Option<_index_table::Expiry> =
            ::core::option::Option::Some(_index_table::Expiry::of::<Self>());
    })
}

/// Expands to, for a table whose rows expire:
///
/// ```text
/// impl _index_table::Expires for Session {
///     type Time = Option<SystemTime>;
///     const INDEX: usize = 0;
///     fn with_time<__T>(&self, __read: impl ::core::ops::FnOnce(&Option<SystemTime>) -> __T) -> __T {
///         __read(&self.ends)
///     }
/// }
/// ```
pub(super) fn implementation(cx: &Context<'_>) -> Option<TokenStream> {
    let Expiry { time, index } = cx.table.expiry.as_ref()?;
    let row = &cx.table.row;
    let index = Literal::usize_unsuffixed(*index);
    let ty = if let Some(time) = time {
        time.key_type().tokens(&cx.short)
    } else {
        mixed!(::std::time::SystemTime)
    };
    let (read, body) = match time.as_ref().filter(|_| cx.table.storable) {
        Some(time) => {
            let (computed, value) = (entity::computed(time, 0), entity::part_value(time, 0));
            (mixed!(__read), mixed!(#computed __read(#value)))
        }
        None => (mixed!(_), mixed!(loop {})),
    };
    Some(mixed! {
        #[automatically_derived]
        impl _index_table::Expires for #row {
            type Time = #ty;

            const INDEX: usize = #index;

            fn with_time<__T>(
                &self,
                #read: impl ::core::ops::FnOnce(&#ty) -> __T,
            ) -> __T {
                #body
            }
        }
    })
}
