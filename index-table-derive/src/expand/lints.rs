//! Warnings, as far as a derive can have some: the use of something deprecated, at a field of the
//! index or the type in the primary key, whose note is the reason.
//!
//! The compiler says nothing of what is deprecated inside of a derive's expansion, so these tokens
//! have the span of the user's own. They stand outside of the block that allows `deprecated`, and
//! are only there if there is something to say.

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
