//! The methods of `filter` and `computed`, which the derive can't see.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote_spanned};
use syn::Ident;

use super::{Context, at};
use crate::model::Table;
use crate::names;
use crate::types::DataType;

/// A method, with the type of a method of `computed`.
struct Called<'a> {
    ident: &'a Ident,
    computed: Option<&'a DataType>,
}

/// Returns each method once.
fn called(table: &Table) -> Vec<Called<'_>> {
    let mut called: Vec<Called<'_>> = Vec::new();
    for index in &table.indexes {
        let filter = index.conditions.filter.as_ref().map(|ident| Called { ident, computed: None });
        let computed = index.parts.iter().filter_map(|part| part.method());
        let computed = computed.map(|it| Called { ident: &it.ident, computed: Some(&it.ty) });
        for method in filter.into_iter().chain(computed) {
            if !called.iter().any(|other| other.ident == method.ident) {
                called.push(method);
            }
        }
    }
    called
}

/// Expands to the items that check each method:
///
/// ```text
/// trait HasMethod_is_active {
///     fn is_active(&self) -> _index_table::NoMethod<Customer, bool> { loop {} }
/// }
/// impl<R> HasMethod_is_active for R where bool: _index_table::FilterIn<R> {}
/// type __Row_is_active =
///     <Customer as _index_table::Checked<{ _index_table::is_filter(Customer::is_active) }>>::Checked;
/// ```
///
/// The trait has a replacement of the method. `FilterIn` holds for `&Customer`, so every method of the struct, or of a
/// trait for the struct, has precedence: in a call, the compiler tries the receivers `Customer` and then `&Customer`.
/// It does so for the path `Customer::is_active` too, but then requires the trait of `Customer`, which gives the error.
///
/// The constant fails if the method does not exist or has further arguments. Then the row, as the receiver of the call,
/// has a type that causes no further errors. The compiler names the trait in a note of that error, so its name reads as
/// a part of the message.
pub(super) fn checks(cx: &Context<'_>) -> TokenStream {
    let row = &cx.table.row;
    let checks = called(cx.table).into_iter().map(|method| {
        let missing = format_ident!("HasMethod_{}", method.ident, span = Span::mixed_site());
        // Not the user's tokens, because in editors they would refer to the replacement, and because the compiler
        // would suggest corrections of the attribute.
        let span = at(method.ident.span());
        let name = names::with_span(method.ident, Span::mixed_site());
        let value = [row, method.ident].map(|ident| names::with_span(ident, span));
        let value = quote_spanned!(span=> #(#value)::*);
        let (bound, ty, check) = if let Some(ty) = method.computed {
            let ty = ty.written();
            let check = quote_spanned!(span=> _index_table::is_computed::<#ty, _, _>(#value));
            (mixed!(ComputedIn), ty, check)
        } else {
            let check = quote_spanned!(span=> _index_table::is_filter(#value));
            (mixed!(FilterIn), mixed!(bool), check)
        };
        let checked = checked(method.ident);
        // With the spans of the user's token, because the compiler advises against the bounds of an implementation that
        // comes from a derive.
        let user = method.ident.span();
        let (implemented, row_type) = (names::with_span(&missing, user), Ident::new("R", user));
        mixed! {
            trait #missing {
                fn #name(&self) -> _index_table::NoMethod<#row, #ty> { loop {} }
            }
            impl<#row_type> #implemented for #row_type where #ty: _index_table::#bound<#row_type> {}
            type #checked = <#row as _index_table::Checked<{ #check }>>::Checked;
        }
    });
    checks.collect()
}

/// Expands to `{ let __row: &__Row_is_active = self; __row.is_active() }`, with the span of the method.
pub(super) fn call(method: &Ident) -> TokenStream {
    let span = at(method.span());
    let (checked, method) = (checked(method), names::with_span(method, span));
    quote_spanned!(span=> { let __row: &#checked = self; __row.#method() })
}

/// Returns the type of the row on which the method is called.
fn checked(method: &Ident) -> Ident {
    format_ident!("__Row_{}", method, span = Span::mixed_site())
}
