//! Tables with the types of their rows.

use std::{cell::Cell, fmt, io::BufRead, marker::PhantomData, time::SystemTime};

use index_table::{
    __private::{
        Entity, KeyedTable,
        admin::{UntypedEntry, UntypedTable},
    },
    Error, OnDuplicate, Progress, ReadTxn, Store, VerifyReport, WriteTxn, json,
    report::{BuildReport, Expired},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    failure::Failure,
    lines::{Lines, LoadError, lines_of},
};

/// The types of rows that [`main`](crate::main) works with: a tuple of structs with `#[derive(IndexTable)]`, of up to 64.
pub trait Tables: sealed::Tables {}

/// A struct with `#[derive(IndexTable)]`.
pub trait Row: Entity + Serialize + DeserializeOwned {}

impl<R: Entity + Serialize + DeserializeOwned> Row for R {}

mod sealed {
    /// The implementation of [`Tables`](super::Tables).
    pub trait Tables {
        /// Returns the declarations, in the order of the tuple.
        fn declared() -> Vec<super::Declared>;
    }
}

pub(crate) fn declared<T: Tables>() -> Vec<Declared> {
    T::declared()
}

/// Implements the traits for tuples of all of these, of all except the first, and so on.
macro_rules! tuples {
    () => {};
    ($first:ident $($row:ident)*) => {
        impl<$first: Row, $($row: Row),*> Tables for ($first, $($row,)*) {}

        impl<$first: Row, $($row: Row),*> sealed::Tables for ($first, $($row,)*) {
            fn declared() -> Vec<Declared> {
                vec![Declared::of::<$first>(), $(Declared::of::<$row>()),*]
            }
        }

        tuples! { $($row)* }
    };
}

tuples! {
    A1 A2 A3 A4 A5 A6 A7 A8 B1 B2 B3 B4 B5 B6 B7 B8 C1 C2 C3 C4 C5 C6 C7 C8 D1 D2 D3 D4 D5 D6 D7 D8
    E1 E2 E3 E4 E5 E6 E7 E8 F1 F2 F3 F4 F5 F6 F7 F8 G1 G2 G3 G4 G5 G6 G7 G8 H1 H2 H3 H4 H5 H6 H7 H8
}

/// A declared table that is not open.
#[derive(Clone, Copy)]
pub struct Declared {
    pub(crate) name: &'static str,
    /// Its former names.
    pub(crate) was: &'static [&'static str],
    open: fn(&Store) -> index_table::Result<Box<dyn Typed>>,
    open_online: fn(&Store) -> index_table::Result<Box<dyn Typed>>,
    show: fn(&UntypedTable, &UntypedEntry<'_>) -> Result<Option<String>, Failure>,
}

impl fmt::Debug for Declared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Declared").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Declared {
    fn of<R: Row>() -> Self {
        Self {
            name: R::TABLE.name,
            was: R::TABLE.was,
            open: |store| {
                Ok(Box::new(Opened { table: KeyedTable::<R>::open(store)?, row: PhantomData }))
            },
            open_online: |store| {
                Ok(Box::new(Opened {
                    table: KeyedTable::<R>::open_online(store)?,
                    row: PhantomData,
                }))
            },
            show: |table, row| table.decoded::<R>(row)?.map(|row| show(&row)).transpose(),
        }
    }

    /// Whether this is the name of the table, or a former name.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        name == self.name || self.was.contains(&name)
    }

    /// Opens the table with all indexes built; in a read-only store, compares it with its declaration.
    pub(crate) fn open(&self, store: &Store) -> Result<Box<dyn Typed>, Failure> {
        (self.open)(store).map_err(|error| self.explained(store, error))
    }

    /// Returns a row of an open table as JSON; `None` if it is open with another type.
    pub(crate) fn show(
        &self,
        table: &UntypedTable,
        row: &UntypedEntry<'_>,
    ) -> Result<Option<String>, Failure> {
        (self.show)(table, row)
    }

    /// Opens the table; its indexes may not be readable.
    pub(crate) fn open_online(&self, store: &Store) -> Result<Box<dyn Typed>, Failure> {
        (self.open_online)(store).map_err(|error| self.explained(store, error))
    }

    /// Returns the error of opening a table in the words of the tool.
    fn explained(&self, store: &Store, error: Error) -> Failure {
        let Error::SchemaMismatch { table, difference, .. } = &error else { return error.into() };
        let catalog = store.catalog().ok();
        let names = || catalog.iter().flat_map(|all| all.tables.iter().map(|it| it.name.as_str()));
        if catalog.is_some() && !names().any(|name| self.is_named(name)) {
            let known: Vec<_> = names().map(|name| format!("`{name}`")).collect();
            return Failure::not_found(format!(
                "the store has no table `{}`; it has {}",
                self.name,
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            ));
        }
        let way_out = if store.is_read_only() {
            "; use the program of the release that writes the store, or change the store to this declaration with `build`"
        } else {
            ""
        };
        Failure::other(format!(
            "table `{table}` differs from its declaration in this program: {difference}{way_out}"
        ))
    }
}

/// The options of a load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct How {
    pub(crate) on_duplicate: OnDuplicate,
    /// Whether the rows are added to the change stream.
    pub(crate) notes_changes: bool,
}

/// The result of a load.
#[derive(Debug, Serialize)]
pub(crate) struct Loaded {
    pub(crate) table: &'static str,
    pub(crate) read: u64,
    pub(crate) written: u64,
    pub(crate) skipped: u64,
    pub(crate) replaced: u64,
}

/// The result of an upgrade.
#[derive(Debug, Serialize)]
pub(crate) struct UpgradedTable {
    pub(crate) table: &'static str,
    pub(crate) rows: u64,
    pub(crate) upgraded: u64,
    pub(crate) bytes_before: u64,
    pub(crate) bytes_after: u64,
}

impl fmt::Display for UpgradedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, rows, upgraded, bytes_before, bytes_after } = self;
        write!(
            f,
            "table `{table}`: {upgraded} of {rows} rows upgraded, {bytes_before} bytes before and {bytes_after} after"
        )
    }
}

/// What long work on a table calls.
pub(crate) struct Calls<'c> {
    pub(crate) progress: &'c mut dyn FnMut(Progress),
    /// Returns true when the work was asked to stop.
    pub(crate) stop: &'c (dyn Fn() -> bool + Sync),
}

/// An open table.
pub(crate) trait Typed: Send + Sync {
    fn untyped(&self) -> UntypedTable;

    /// Returns a row as JSON in one line.
    fn show(&self, row: &UntypedEntry<'_>) -> Result<String, Failure>;

    fn load(
        &self,
        store: &Store,
        lines: &mut dyn BufRead,
        how: How,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Loaded, Failure>;

    /// A report of a verification that was asked to stop has the position to continue from.
    fn verify(&self, txn: &ReadTxn<'_>, calls: Calls<'_>) -> Result<VerifyReport, Failure>;

    /// With `delete_unreadable`, deletes the rows that can't be decoded. Fails when it was asked to stop: drop the transaction.
    fn repair(
        &self,
        txn: &mut WriteTxn<'_>,
        delete_unreadable: bool,
        calls: Calls<'_>,
    ) -> index_table::Result<VerifyReport>;

    /// With `refuse`, clients of earlier releases can't write the table from now on.
    fn build(&self, store: &Store, refuse: bool, calls: Calls<'_>) -> Result<BuildReport, Failure>;

    fn upgrade(&self, store: &Store, calls: Calls<'_>) -> Result<UpgradedTable, Failure>;

    /// Deletes expired rows.
    fn expire(&self, store: &Store, limit: u64) -> Result<Expired, Failure>;
}

struct Opened<R> {
    table: KeyedTable<R>,
    row: PhantomData<fn() -> R>,
}

fn show<R: Row>(row: &R) -> Result<String, Failure> {
    json::to_string(row).map_err(|error| {
        Failure::other(format!("a row of `{}` can't be written as JSON: {error}", R::TABLE.name))
    })
}

impl<R: Row> Typed for Opened<R> {
    fn untyped(&self) -> UntypedTable {
        self.table.untyped()
    }

    fn show(&self, row: &UntypedEntry<'_>) -> Result<String, Failure> {
        show(&self.table.decoded(row)?)
    }

    fn load(
        &self,
        store: &Store,
        lines: &mut dyn BufRead,
        how: How,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Loaded, Failure> {
        let (mut read, failed) = (Lines::default(), Cell::new(None));
        let rows = lines_of(lines).filter_map(|line| read.row::<R>(line));
        let load = self.table.bulk_load(store, rows).on_duplicate(how.on_duplicate);
        let load = if how.notes_changes { load } else { load.without_changes() };
        let load = load.on_failed_row(|row, earlier| failed.set(Some((row, earlier))));
        let outcome = load.progress(progress).try_run::<R, LoadError>();
        let report = outcome.map_err(|error| read.failure(error, failed.get()))?;
        Ok(Loaded {
            table: R::TABLE.name,
            read: report.read,
            written: report.written,
            skipped: report.skipped,
            replaced: report.replaced,
        })
    }

    fn verify(&self, txn: &ReadTxn<'_>, calls: Calls<'_>) -> Result<VerifyReport, Failure> {
        Ok(self.table.verified(txn, calls.progress, calls.stop)?)
    }

    fn repair(
        &self,
        txn: &mut WriteTxn<'_>,
        delete_unreadable: bool,
        calls: Calls<'_>,
    ) -> index_table::Result<VerifyReport> {
        self.table.repaired(txn, delete_unreadable, (calls.progress, calls.stop))
    }

    fn build(&self, store: &Store, refuse: bool, calls: Calls<'_>) -> Result<BuildReport, Failure> {
        let build = self.table.build(store).progress(calls.progress).stop_when(calls.stop);
        Ok(if refuse { build.refuse_earlier_releases().run()? } else { build.run()? })
    }

    fn upgrade(&self, store: &Store, calls: Calls<'_>) -> Result<UpgradedTable, Failure> {
        let upgrade = self.table.upgrade(store).progress(calls.progress).stop_when(calls.stop);
        let done = upgrade.run()?;
        Ok(UpgradedTable {
            table: R::TABLE.name,
            rows: done.rows,
            upgraded: done.upgraded,
            bytes_before: done.bytes_before,
            bytes_after: done.bytes_after,
        })
    }

    fn expire(&self, store: &Store, limit: u64) -> Result<Expired, Failure> {
        Ok(self.table.untyped().expire(store, SystemTime::now(), limit)?)
    }
}
