//! Warnings, in the only form available to a derive: the use of a deprecated item, with the reason as its
//! note. Its span is the span of a field of the index, or of a type in the primary key.
//!
//! The compiler does not report deprecated items inside a derive's expansion, so these tokens have the span
//! of the user's tokens. They are outside of the block that allows `deprecated`, and are generated only for a
//! warning.

use proc_macro2::TokenStream;
use quote::quote_spanned;

use crate::attr::keys::Lint;
use crate::model::{Finding, Table};

/// Expands to one block for each finding:
///
/// ```text
/// const _: () = {
///     #[deprecated(note = "…")]
///     const FEW_VALUES: () = ();
///     FEW_VALUES
/// };
/// ```
pub(super) fn warnings(table: &Table) -> TokenStream {
    let of_indexes = table.indexes.iter().flat_map(|index| &index.findings);
    table.findings.iter().chain(of_indexes).map(warning).collect()
}

fn warning(Finding { span, lint, text }: &Finding) -> TokenStream {
    // The compiler shows the name.
    let name = match lint {
        Lint::FewValues => quote_spanned!(*span=> FEW_VALUES),
        Lint::Redundant => quote_spanned!(*span=> REDUNDANT),
        Lint::DoubledFull => quote_spanned!(*span=> DOUBLED_FULL),
        Lint::OptionalKey => quote_spanned!(*span=> OPTIONAL_KEY),
    };
    quote_spanned! {*span=>
        const _: () = {
            #[deprecated(note = #text)]
            const #name: () = ();
            #name
        };
    }
}
