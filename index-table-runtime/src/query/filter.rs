//! Filters: tests of rows without an index.

use super::{
    Scan,
    conditions::{Conditions, row_test},
};
use crate::model::entity::IndexEntry;

impl<'txn, E: IndexEntry<'txn>> Scan<'txn, E> {
    /// Keeps only the rows for which `test` returns `true`. With several filters, all of them must return
    /// `true`.
    ///
    /// Every method that runs the scan returns only these rows, in their order: [`limit`](Scan::limit),
    /// [`page`](Scan::page) and [`count`](Scan::count) apply to rows that pass the test, whether they are
    /// called before or after `filter`. A cursor does not depend on the filter.
    ///
    /// Cost: the row of each entry is decoded for the test, and decoded again if it is returned. On a
    /// normalized or partial index, each row is looked up in the fact table once, even for
    /// [`entries`](Scan::entries), [`keys`](Scan::keys) and [`count`](Scan::count), which otherwise read no
    /// rows. If few rows pass the test, the scan reads many rows for each row it returns. A filtered index,
    /// or an index on the tested field, finds these rows without reading others.
    /// [`examine_at_most`](Scan::examine_at_most) bounds the cost of a page.
    ///
    /// A watcher or a [deletion](crate::DetachedQuery::delete) of a scan with a filter fails with
    /// [`Error::NotCombinable`](crate::Error::NotCombinable).
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
    ///     phone: String,
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = Store::open(dir.path())?;
    /// let people = PersonRepository::open(&store)?;
    /// store.transaction(|txn| {
    ///     (0..100).try_for_each(|id| {
    ///         people.insert(txn, &Person { id, town: "Oslo".into(), phone: format!("555-{id}") })
    ///     })
    /// })?;
    ///
    /// let txn = store.read()?;
    /// let scan = || people.find_by_town(&txn, "Oslo").filter(|row| row.phone.ends_with('7'));
    /// assert_eq!(scan().count()?, 10);
    /// let page = scan().page(3)?;
    /// assert_eq!(page.items.iter().map(|row| row.id).collect::<Vec<_>>(), [7, 17, 27]);
    /// let cursor = page.next.ok_or("there are seven more")?;
    /// assert_eq!(scan().after(&cursor).page(3)?.items[0].id, 37);
    /// assert_eq!(scan().rev().limit(2).keys().collect::<Result<Vec<_>, _>>()?, [97, 87]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn filter(mut self, test: impl Fn(&E::Row) -> bool + 'txn) -> Self {
        Conditions::add(&mut self.request.conditions, &[row_test(test)]);
        self
    }
}
