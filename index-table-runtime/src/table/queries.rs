//! Running a query that borrows no transaction.

use crate::{
    model::{entity::Entity, error::Result},
    query::{DetachedQuery, Ledger},
    store::WriteTxn,
    upkeep::cascade,
};

/// The maximum number of entries, and of bytes of primary keys, that are read before their rows are deleted.
const BATCH: (usize, usize) = (1000, 1 << 16);

impl<R: Entity> DetachedQuery<R> {
    /// Deletes all rows that the scan finds, up to its limit, and returns their number. The scan sees the writes of
    /// the transaction.
    ///
    /// Memory is bounded: the primary keys of 1,000 entries are read at a time. An `each` index can have
    /// several entries of a row; entries of deleted rows do not count against the limit.
    ///
    /// Cost: one step for each entry, and a `delete` for each row.
    ///
    /// # Errors
    ///
    /// [`Error::WrongStore`](crate::Error::WrongStore) for a transaction of another store, or if no repository of
    /// the table is left; [`Error::NotCombinable`](crate::Error::NotCombinable),
    /// [`Error::IndexNotReadable`](crate::Error::IndexNotReadable), [`Error::InvalidCursor`](crate::Error::InvalidCursor),
    /// and the [errors of writing](crate::Error#common-errors). After an error, no row is deleted.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[index(town)]
    /// struct Person {
    ///     #[primary_key]
    ///     id: u32,
    ///     town: String,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// let people = PersonRepository::open(&store)?;
    /// store.transaction(|txn| {
    ///     (0..10).try_for_each(|id| people.insert(txn, &Person { id, town: "Oslo".into() }))
    /// })?;
    /// let deleted = store.transaction(|txn| {
    ///     people.find_by_town(txn, "Oslo").limit(8).query().delete(txn)
    /// })?;
    /// assert_eq!(deleted, 8);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete(self, txn: &mut WriteTxn<'_>) -> Result<u64> {
        let (mut query, usage) = self.into_parts()?;
        let table = txn.table_of(&usage)?;
        txn.nested(|txn| {
            let (mut deleted, mut keys, mut lengths) = (0, Vec::new(), Vec::new());
            loop {
                keys.clear();
                lengths.clear();
                let (reader, _) = txn.reader_to_scan(&table, query.source())?;
                let ledger = Ledger::new(&txn.session, &table.shared.usage, &table.rows.lists);
                query.next_keys(reader, ledger, BATCH, &mut keys, &mut lengths)?;
                if lengths.is_empty() {
                    return Ok(deleted);
                }
                let mut rest = keys.as_slice();
                for len in &lengths {
                    let Some((key, following)) = rest.split_at_checked(*len) else { break };
                    rest = following;
                    deleted += u64::from(cascade::delete_in(txn, &table, key)?);
                }
            }
        })
    }
}
