//! The methods that load many rows.

use proc_macro2::TokenStream;

use super::{Context, docs, get_many::type_parameter};

/// Expands to:
///
/// ```text
/// fn bulk_load<'txn, Rows>(
///     &'txn self,
///     store: &'txn _index_table::Store,
///     rows: Rows,
/// ) -> _index_table::BulkLoad<
///     'txn, 'txn, Customer, <Rows as ::core::iter::IntoIterator>::IntoIter,
/// >
/// where
///     Rows: ::core::iter::IntoIterator,
/// {
///     self.table.bulk_load(store, rows)
/// }
/// ```
///
/// and the same inside of a transaction.
pub(super) fn methods(cx: &Context<'_>) -> TokenStream {
    let (v, row, txn) = (&cx.table.visibility, &cx.table.row, &cx.txn);
    let [doc, doc_in] = [docs::fixed::bulk_load(cx.table), docs::fixed::bulk_load_in(cx.table)];
    let rows = type_parameter("Rows", &mixed!(#row));
    mixed! {
        #doc
        #v fn bulk_load<#txn, #rows>(
            &#txn self,
            store: &#txn _index_table::Store,
            rows: #rows,
        ) -> _index_table::BulkLoad<
            #txn,
            #txn,
            #row,
            <#rows as ::core::iter::IntoIterator>::IntoIter,
        >
        where
            #rows: ::core::iter::IntoIterator,
        {
            self.table.bulk_load(store, rows)
        }

        #doc_in
        #v fn bulk_load_in<#txn, 'store, #rows>(
            &#txn self,
            txn: &#txn mut _index_table::WriteTxn<'store>,
            rows: #rows,
        ) -> _index_table::BulkLoad<
            #txn,
            'store,
            #row,
            <#rows as ::core::iter::IntoIterator>::IntoIter,
        >
        where
            #rows: ::core::iter::IntoIterator,
        {
            self.table.bulk_load_in(txn, rows)
        }
    }
}
