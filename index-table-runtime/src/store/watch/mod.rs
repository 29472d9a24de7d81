//! Watching a table: subscriptions to committed changes.
//!
//! A subscription ([`Watch`]) becomes a subscriber of the table (see [`write::watch`](crate::write::watch)).
//! A [`Watcher`] takes events from the subscriber's buffer.

mod event;
mod watcher;

use std::{fmt, marker::PhantomData, sync::Arc};

pub use self::{
    event::{Change, ChangeKind, ChangedRow, Event},
    watcher::{Events, Watcher},
};
use crate::{
    model::{
        entity::{Entity, IndexEntry},
        error::{Error, Result},
    },
    query::{EventualScan, Scan},
    store::{OpenTable, Store},
    write::watch::{Filter, Limits},
};

/// A subscription to the changes of a table. From the `watch` of a repository; it does nothing until
/// [`start`](Watch::start).
///
/// # Examples
///
/// ```
/// use index_table::{Event, IndexTable, Store};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
/// #[index(town)]
/// struct Person {
///     #[primary_key]
///     id: u32,
///     town: String,
/// }
///
/// # fn main() -> index_table::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let store = Store::open(dir.path())?;
/// let people = PersonRepository::open(&store)?;
///
/// // All changes, and the changes of one key of an index.
/// let all = people.watch(&store).start()?;
/// let in_redmond = {
///     let txn = store.read()?;
///     people.watch(&store).only(people.find_by_town(&txn, "Redmond")).start()?
/// };
///
/// store.transaction(|txn| people.insert(txn, &Person { id: 1, town: "Seattle".into() }))?;
/// store.transaction(|txn| people.update(txn, 1, |person| person.town = "Redmond".into()))?;
/// drop(store); // ends both watchers
///
/// assert_eq!(all.iter().count(), 2);
/// let Some(Event::Change(change)) = in_redmond.recv() else { panic!("somebody came") };
/// assert!(change.before().is_none(), "and had not been there");
/// assert_eq!(change.after().map(|row| row.key()).transpose()?, Some(1));
/// assert!(in_redmond.recv().is_none());
/// # Ok(())
/// # }
/// ```
#[must_use = "a subscription does nothing until `start`"]
pub struct Watch<'a, R> {
    store: &'a Store,
    table: &'a Arc<OpenTable>,
    filters: Result<Vec<Filter>>,
    limits: Limits,
    row: PhantomData<fn() -> R>,
}

impl<'a, R: Entity> Watch<'a, R> {
    pub(crate) const fn new(store: &'a Store, table: &'a Arc<OpenTable>) -> Self {
        let limits = Limits { changes: 1024, bytes: 16 << 20 };
        Self { store, table, filters: Ok(Vec::new()), limits, row: PhantomData }
    }

    /// Watches only the rows that this scan finds. A row that the scan newly finds is
    /// [inserted](ChangeKind::Inserted), and a row that it no longer finds is [deleted](ChangeKind::Deleted),
    /// even if the table has the row. After several calls, the rows that any of the scans finds are watched.
    ///
    /// The index (or the primary key) and the bounds of the scan determine the watched rows. A `limit`, a
    /// direction and a cursor are ignored. A scan with a [`filter`](Scan::filter) is refused. The scan isn't
    /// run, and its transaction may end before [`start`](Watch::start).
    ///
    /// For an eventual index, the keys of the rows are compared, not the entries.
    pub fn only(mut self, scan: impl Into<FoundRows<R>>) -> Self {
        match (&mut self.filters, scan.into().filter) {
            (Ok(filters), Ok(filter)) => filters.push(filter),
            (Ok(_), Err(error)) => self.filters = Err(error),
            (Err(_), _) => {}
        }
        self
    }

    /// Sets the maximum number of buffered changes, at least one. Default: 1024. If a commit does not fit,
    /// all buffered changes are dropped and replaced by an [`Event::Lagged`].
    pub const fn buffer(mut self, changes: usize) -> Self {
        self.limits.changes = if changes == 0 { 1 } else { changes };
        self
    }

    /// Sets the maximum number of buffered bytes of rows, like [`buffer`](Watch::buffer). Default: 16 MiB. A
    /// single larger change is still buffered if the buffer is empty.
    pub const fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.limits.bytes = bytes;
        self
    }

    /// Subscribes to all later commits, including the commit of a transaction that is writing now. This
    /// method does not wait.
    ///
    /// Cost, until the [`Watcher`] is dropped: each change is compared with the watched scans. If a scan
    /// includes it, it is copied, once for all watchers. The buffer never exceeds the limit of
    /// [`buffer`](Watch::buffer), for transactions of any size. Writers never wait for watchers.
    ///
    /// # Errors
    ///
    /// [`Error::WrongStore`] for the repository of another store,
    /// [`Error::IndexNotReadable`] for a scan of an index under construction, [`Error::NotCombinable`] for a scan that
    /// can't be watched, [`Error::NotOffered`] for a store on a server, [`Error::Forked`].
    pub fn start(self) -> Result<Watcher<R>> {
        let Self { store, table, filters, limits, .. } = self;
        store.inner.engines.refuse_forked()?;
        if store.inner.engines.has_other_writers() {
            let what = "watching, because the commits of other clients have no order that this process sees; \
                        use the server's `LISTEN` and `NOTIFY`, or logical replication";
            return Err(Error::NotOffered { what });
        }
        if table.store != store.inner.id {
            return Err(Error::WrongStore { table: table.schema.name });
        }
        Ok(Watcher::new(table.shared.watchers.subscribe(filters?, limits), table))
    }

    /// Only for its error.
    #[doc(hidden)]
    #[must_use]
    pub fn recv(&self) -> Option<Event<R>>
    where
        Self: Started,
    {
        None
    }
}

/// A subscription that was started. No type implements it.
#[diagnostic::on_unimplemented(
    message = "a subscription has no events until `start`",
    label = "was not started",
    note = "`watch(…).start()?` returns a `Watcher`: its `recv` waits for the next event, and its `iter` returns them in a loop"
)]
pub trait Started {}

/// The rows that a [`Scan`] or an [`EventualScan`] finds, for [`Watch::only`].
pub struct FoundRows<R> {
    /// The filter; an error if the index is not readable.
    filter: Result<Filter>,
    row: PhantomData<fn() -> R>,
}

impl<'t, E: IndexEntry<'t>> From<Scan<'t, E>> for FoundRows<E::Row> {
    fn from(scan: Scan<'t, E>) -> Self {
        let lists = Arc::clone(scan.request.ledger.lists);
        let filter = scan.into_bounds().map(|(source, bounds)| Filter { source, bounds, lists });
        Self { filter, row: PhantomData }
    }
}

impl<'t, E: IndexEntry<'t>> From<EventualScan<'t, E>> for FoundRows<E::Row> {
    fn from(scan: EventualScan<'t, E>) -> Self {
        scan.into_scan().into()
    }
}

impl<R> fmt::Debug for FoundRows<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FoundRows").finish_non_exhaustive()
    }
}

impl<R> fmt::Debug for Watch<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, limits: Limits { changes, bytes }, .. } = self;
        f.debug_struct("Watch")
            .field("table", &table.schema.name)
            .field("buffer", changes)
            .field("buffer_bytes", bytes)
            .finish_non_exhaustive()
    }
}
