//! Reading a row together with its parts in other tables.

use std::{borrow::Borrow, ops::Deref};

use super::{Table, encoded};
use crate::{
    model::{entity::Entity, error::Result, key::KeyBuf, reference::PartOf},
    store::ReadTxn,
};

/// The repositories of the parts of a row of type `W`: one repository, or a tuple of up to four.
///
/// Only repositories of structs with `#[table(part_of = W)]` implement it.
pub trait Parts<W> {
    /// The parts: `Option<P>` for a repository of `P`, and a tuple of these for a tuple of repositories.
    type Rows;

    /// Returns the parts with this primary key.
    #[doc(hidden)]
    fn get(self, txn: &ReadTxn<'_>, key: &EncodedKey) -> Result<Self::Rows>;
}

/// An encoded primary key.
#[doc(hidden)]
#[derive(Debug)]
pub struct EncodedKey(KeyBuf);

impl<W, P: PartOf<W>, T: Deref<Target = Table<P>>> Parts<W> for &T {
    type Rows = Option<P>;

    fn get(self, txn: &ReadTxn<'_>, key: &EncodedKey) -> Result<Self::Rows> {
        self.get_encoded(txn, &key.0)
    }
}

/// Implements the trait for a tuple of repositories.
macro_rules! tuple {
    ($($name:ident)*) => {
        impl<W, $($name: Parts<W>),*> Parts<W> for ($($name,)*) {
            type Rows = ($($name::Rows,)*);

            #[expect(non_snake_case, reason = "the names of the types")]
            fn get(self, txn: &ReadTxn<'_>, key: &EncodedKey) -> Result<Self::Rows> {
                let ($($name,)*) = self;
                Ok(($($name.get(txn, key)?,)*))
            }
        }
    };
}

tuple!(A);
tuple!(A B);
tuple!(A B C);
tuple!(A B C D);

impl<R: Entity> Table<R> {
    /// Returns the row with this primary key, in the form that [`keys`](crate::Scan::keys) yields, with its parts
    /// in other tables: `#[table(part_of = …)]` on the structs of the parts. A part that was not inserted is `None`.
    ///
    /// `parts` is a reference to the repository of the parts, or a tuple of up to four.
    ///
    /// Cost: one look-up for the row, and one for each part.
    ///
    /// # Errors
    ///
    /// The [errors of reading](crate::Error#common-errors).
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{Error, IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[index(customer)]
    /// struct Invoice {
    ///     #[primary_key]
    ///     number: u64,
    ///     customer: u64,
    /// }
    ///
    /// /// The scanned pages, which a scan of the invoices does not read.
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(part_of = Invoice)]
    /// struct InvoiceScan {
    ///     #[primary_key]
    ///     number: u64,
    ///     pdf: Vec<u8>,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// let invoices = InvoiceRepository::open(&store)?;
    /// let scans = InvoiceScanRepository::open(&store)?;
    /// store.transaction(|txn| {
    ///     let alone = scans.insert(txn, &InvoiceScan { number: 7, pdf: Vec::new() });
    ///     assert!(matches!(alone, Err(Error::MissingReference { .. })));
    ///     invoices.insert(txn, &Invoice { number: 7, customer: 1 })?;
    ///     scans.insert(txn, &InvoiceScan { number: 7, pdf: b"%PDF".to_vec() })
    /// })?;
    ///
    /// let (invoice, scan) = invoices.get_with_parts(&store.read()?, 7, &scans)?.expect("an invoice");
    /// assert_eq!((invoice.customer, scan.expect("a scan").pdf), (1, b"%PDF".to_vec()));
    ///
    /// // A part is deleted with its main row.
    /// store.transaction(|txn| invoices.delete(txn, 7).map(drop))?;
    /// assert!(scans.get(&store.read()?, 7)?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_with_parts<P: Parts<R>>(
        &self,
        txn: &ReadTxn<'_>,
        key: impl Borrow<R::Key>,
        parts: P,
    ) -> Result<Option<(R, P::Rows)>> {
        let key = encoded::<R>(key);
        let Some(row) = self.get_encoded(txn, &key)? else { return Ok(None) };
        let parts = parts.get(txn, &EncodedKey(key))?;
        Ok(Some((row, parts)))
    }
}
