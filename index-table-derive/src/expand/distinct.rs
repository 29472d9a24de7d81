//! The methods for the distinct values of some fields.

use proc_macro2::TokenStream;

use super::{Context, docs, entity, key_type, queries};
use crate::model::{KeyPart, Query};

/// Expands to:
///
/// ```text
/// fn distinct_last_name_by_town<'txn>(
///     &'txn self,
///     txn: &'txn _index_table::ReadTxn<'_>,
///     town: &str,
/// ) -> _index_table::Distinct<'txn, String> {
///     __table(self).distinct::<String>(
///         txn,
///         _index_table::Source::Index(1),
///         _index_table::Bounds::new().equal::<String>(town),
///     )
/// }
/// ```
pub(super) fn method(
    cx: &Context<'_>,
    query: &Query,
    leading: &[KeyPart],
    values: &[KeyPart],
) -> TokenStream {
    let (v, method, txn) = (&cx.table.visibility, &query.method, &cx.txn);
    let doc = docs::query(cx.table, &query.target, &query.form);
    let source = queries::source(&query.target);
    let value = entity::tuple(values.iter().map(|part| key_type(cx, part)));
    let (parameters, bounds) = queries::equals(cx, &query.target, leading);
    mixed! {
        #doc
        #v fn #method<#txn>(
            &#txn self,
            txn: &#txn _index_table::ReadTxn<'_>,
            #(#parameters,)*
        ) -> _index_table::Distinct<#txn, #value> {
            __table(self)
                .distinct::<#value>(txn, #source, _index_table::Bounds::new() #(#bounds)*)
        }
    }
}
