//! Calls for single rows.

use std::sync::Arc;

use super::{Call, Calls, call::Target, in_place::make_way, run::run_once};
use crate::{
    model::{
        entity::Entity,
        error::{Error, Result},
        key::KeyBuf,
        lists,
        maintain::Image,
        row,
    },
    query::{Ledger, Session},
    store::{OpenTable, ReadTxn, RowKey, Store, WriteTxn, orders::Orders},
    write::rows,
};

/// The maximum number of look-ups of one call that run in place.
const MOST_IN_PLACE: usize = 8;

/// Runs this number of look-ups of rows: in place, or in the pool.
pub(crate) fn look_up<T: Send + 'static>(
    store: &Store,
    rows: usize,
    read: impl FnOnce(&ReadTxn<'_>) -> Result<T> + Send + 'static,
) -> Call<T> {
    Call::new(store, Target::LookUps, move |store, orders| async move {
        let calls = &store.inner.calls;
        if rows <= MOST_IN_PLACE && calls.reads_in_place(&store) {
            make_way().await;
            return calls.read_in_place(&store, &orders, read);
        }
        let own = store.clone();
        let run = calls.run(&calls.reads, &store, orders, move || {
            let note = || read(&own.read()?);
            own.inner.calls.warmth.note(note)
        })?;
        run.await
    })
}

/// Looks up the row with this primary key and decodes it: on a server by one statement, beside those of other tasks on the same connection,
/// otherwise as [`look_up`].
pub(crate) fn look_up_row<T: Send + 'static>(
    store: &Store,
    table: &Arc<OpenTable>,
    key: KeyBuf,
    decode: impl Fn(&[u8], &[u8]) -> Result<Option<T>> + Send + 'static,
) -> Call<Option<T>> {
    let table = Arc::clone(table);
    let later = match (store.inner.engines.one(), table.tables.one()) {
        (Some(engine), Some(tables)) if table.store == store.inner.id => {
            engine.get_later(tables, key.as_bytes())
        }
        _ => None,
    };
    let Some(later) = later else {
        return look_up(store, 1, move |txn| match txn.fact(&table, key.as_bytes())? {
            Some(bytes) => decode(bytes, key.as_bytes()),
            None => Ok(None),
        });
    };
    Call::new(store, Target::Nowhere, move |store, orders| async move {
        // It is not counted, because it writes nothing, and its future may never be polled again.
        drop(store.inner.calls.accept(&store)?);
        let bytes = later.await?;
        store.inner.requests.read();
        let session = Session::default();
        let ledger = Ledger::new(&session, &table.shared.usage, &table.rows.lists);
        ledger.get(bytes.as_ref().map_or(0, Vec::len));
        let Some(bytes) = bytes else { return Ok(None) };
        let row = lists::read_in_place(|| run_once(&orders, || decode(&bytes, key.as_bytes())));
        if let Some(row) = row {
            return row?;
        }
        // The row has a list that this process does not know yet.
        let calls = &store.inner.calls;
        let decode = move || decode(&bytes, key.as_bytes());
        calls.run(&calls.reads, &store, orders, decode)?.await
    })
}

/// Runs a write of one row, which may run again: with others in one commit, or with autocommit on a server.
pub(crate) fn write_row<T: Send + 'static>(
    store: &Store,
    key: Option<RowKey>,
    mut write: impl FnMut(&mut WriteTxn<'_>) -> Result<T> + Send + 'static,
) -> Call<T> {
    let target = match &key {
        _ if store.inner.engines.has_other_writers() => Target::Writes,
        Some(key) if store.inner.engines.several().is_some() => Target::Group(key.shard().ok()),
        _ => Target::Group(None),
    };
    Call::new(store, target, move |store, orders| async move {
        let calls = &store.inner.calls;
        if !store.inner.engines.has_other_writers() {
            return calls.group(&store, key, orders, write)?.await;
        }
        let own = store.clone();
        let run =
            calls.run(&calls.writes, &store, orders, move || write(&mut own.autocommit()?))?;
        run.await
    })
}

/// Runs a change of one row, which may run again, and must not be divided on a server.
pub(crate) fn change_row<T: Send + 'static>(
    store: &Store,
    key: Option<RowKey>,
    write: impl FnMut(&mut WriteTxn<'_>) -> Result<T> + Send + 'static,
) -> Call<T> {
    if store.inner.engines.has_other_writers() {
        return store.transaction_async(write);
    }
    write_row(store, key, write)
}

impl Calls {
    /// Whether a look-up can run in the thread of the task. On several data files, a snapshot can wait for commits. While a map is replaced,
    /// each transaction waits.
    pub(super) fn reads_in_place(&self, store: &Store) -> bool {
        let engines = &store.inner.engines;
        let Some(file) = engines.each_lmdb().next() else { return !engines.has_other_writers() };
        engines.several().is_none() && self.warmth.is_warm() && !file.is_replacing()
    }

    fn read_in_place<T>(
        &self,
        store: &Store,
        orders: &Arc<Orders>,
        read: impl FnOnce(&ReadTxn<'_>) -> Result<T>,
    ) -> Result<T> {
        let accepted = self.accept(store)?;
        let found = self.warmth.note(|| run_once(orders, || read(&store.read()?)));
        drop(accepted);
        found?
    }
}

impl OpenTable {
    /// Returns a copy of a row, for another thread: the row that is read back from its bytes, which a write would store.
    ///
    /// # Errors
    ///
    /// Those of a write of the row before anything is written: [`Error::Codec`], [`Error::KeyTooLong`].
    pub(crate) fn copy<R: Entity>(&self, own: &R) -> Result<R> {
        let rows = self.rows.with_lists(Arc::clone(self.copied.get_or_init(Arc::default)));
        let mut new = Image::default();
        new.load_row(&rows.lists, own)?;
        let copy = row::decode::<R>(&rows.lists, new.row());
        // The keys of such a row can be others in the copy.
        if copy.is_err() || R::READS_BACK || cfg!(debug_assertions) {
            new.load_entries(&rows.lists, own)?;
            rows::try_back(&rows, &new, &mut Image::default())?;
        }
        copy.map_err(|error| Error::Codec { table: self.schema.name, reason: error.to_string() })
    }
}
