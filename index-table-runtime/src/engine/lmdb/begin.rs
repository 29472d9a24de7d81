//! Starting transactions, and creating the databases of a table in a write transaction.

use std::{hint, io, sync::atomic::Ordering};

use heed::{CommitOrAbort, DatabaseOpener, MdbError, RoTxn, RwTxn, WithoutTls};

use super::{
    env::Engine,
    gate::Kind,
    journal::{changes::Operation, recorder::Recorder},
    keep::{Kept, ListPlaces},
    named::Named,
    names::{CATALOG, Database, Env},
    pages::is_checked,
    renamed::stored,
    tables::Tables,
    turn::Turn,
    txn::Txn,
    write::Writer,
};
use crate::{
    engine::{Rename, Retry},
    model::{
        error::{Error, Result, StoreError},
        reference::{MARK, Referrer},
        schema::{Parts, TableSchema},
    },
};

/// How often the number of the file is read again.
const SPINS: u32 = 1000;

/// Begins a read transaction whose data belongs to its number.
///
/// LMDB reads the number of the last commit, and then copies the meta page of that number. If the thread is
/// paused between the two, a later commit can write this meta page again. The transaction would then have later
/// data under an earlier number, even before that commit is visible to others, and the next transaction of the
/// thread could have older data.
///
/// Two meta pages are written in turn, and the second commit begins only after the first is visible. So the data
/// belongs to the number if, after the copy, the file or a new transaction still has this number.
pub(super) fn read_txn(env: &Env) -> heed::Result<RoTxn<'_, WithoutTls>> {
    let mut txn = env.read_txn()?;
    // The file is checked first, because it is cheaper. It has the next number while a commit is synced.
    loop {
        let last = env.info().last_txn_id;
        if last == txn.id() {
            break;
        }
        // LMDB writes the file before the number of the lock file.
        if last < txn.id() && is_earlier(env, txn.id()) {
            return Err(another_file());
        }
        match env.read_txn() {
            Ok(next) if next.id() == txn.id() => break,
            Ok(next) => txn = next,
            // The transaction has the last slot of the readers.
            Err(heed::Error::Mdb(MdbError::ReadersFull)) => {
                drop(txn);
                txn = env.read_txn()?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(txn)
}

/// Whether the last transaction of the file stays earlier than this number of the lock file. On some processors,
/// another thread may see the two writes in the other order for a moment.
#[cold]
fn is_earlier(env: &Env, number: usize) -> bool {
    (0..SPINS).all(|_| {
        hint::spin_loop();
        env.info().last_txn_id < number
    })
}

/// Begins a write transaction that follows the last transaction of the file.
fn write_txn(env: &Env) -> heed::Result<RwTxn<'_>> {
    let txn = env.write_txn()?;
    // LMDB takes the number from the lock file. With this lock, no other process writes the file, unless it has another
    // lock file.
    if env.info().last_txn_id.wrapping_add(1) != txn.id() {
        return Err(another_file());
    }
    Ok(txn)
}

/// The error of a lock file whose last transaction is not the last transaction of the data file.
#[cold]
fn another_file() -> heed::Error {
    io::Error::from(io::ErrorKind::StaleNetworkFileHandle).into()
}

impl Engine {
    pub(crate) fn read(&self) -> Result<Txn<'_>> {
        let (pass, txn) = self.begin(Kind::Reader, read_txn)?.into_parts();
        self.refuse_grown(txn.id())?;
        let txn = Txn::reading(self, txn, pass);
        if is_checked() {
            txn.check_pages()?;
        }
        Ok(txn)
    }

    pub(crate) fn write(&self) -> Result<Txn<'_>> {
        let (turn, txn) = self.begin_write()?;
        // Opening a table does not enlarge the reserve, so that a file that is refused does not change.
        self.files()?.reserve.ahead(|| self.used(), &self.map_size);
        Ok(Txn::writing(self, txn, turn))
    }

    /// Begins a write transaction. Two variables with the parts are dropped in the correct order: the last one first.
    pub(super) fn begin_write(&self) -> Result<(Turn<'_>, RwTxn<'_>)> {
        // Another thread may have held the lock when the process was forked.
        self.refuse_forked()?;
        self.refuse_read_only()?;
        if self.is_joining.load(Ordering::Relaxed) {
            return Err(Error::internal("a shard is written before its journal is started"));
        }
        if let Some(journal) = self.journal.get() {
            journal.wait_for_room();
        }
        let mut writing = self.lock_writing();
        writing.scratch.forget_large();
        let lacked_room = writing.retry.take().is_some_and(Retry::lacks_room);
        if let Some(journal) = self.journal.get() {
            journal.begin();
            // Checked under the lock: a commit that fails marks the journal before another transaction begins.
            if let Some(reason) = journal.refused() {
                return Err(self.reopen_needed(reason));
            }
            if lacked_room {
                journal.begin_freeing_pages();
            }
        }
        Self::refuse_still_lost(&mut writing)?;
        let (pass, txn) = self.begin(Kind::Writer, write_txn)?.into_parts();
        writing.scratch.recorder.begin(txn.id());
        Ok((Turn { _pass: pass, writing }, txn))
    }

    /// Creates the missing databases of a table, and calls `prepare`, in one write transaction.
    pub(crate) fn open_table(
        &self,
        schema: &'static TableSchema,
        parts: Parts,
        rename: &mut Rename<'_>,
        prepare: impl FnOnce(Writer<'_, '_>) -> Result<()>,
    ) -> Result<Tables<'static>, (Error, Option<Retry>)> {
        let (mut turn, txn) = self.begin_write().map_err(|error| (error, None))?;
        let (number, mut logged, mut kept) = (txn.id(), None, Kept::default());
        let env = self.env().map_err(|error| (error, None))?;
        let opened = env.create_databases_and_commit(txn, |opener, txn| {
            let recorder = &mut turn.writing.scratch.recorder;
            self.rename((opener, txn), recorder, (schema, parts), rename)?;
            let catalog = opener.open_database(txn, Some(CATALOG));
            let catalog: Option<Database<'_>> = catalog.map_err(|error| self.error(error))?;
            let referrers = match catalog {
                Some(catalog) => referrers(schema.name, catalog, txn, |error| self.error(error))?,
                None => Vec::new(),
            };
            let tables = Tables::new(schema, parts, referrers, |name| {
                let name = match &catalog {
                    Some(catalog) => stored(catalog, txn, name),
                    None => Ok(name.into()),
                };
                let name = &*name.map_err(|error| self.error(error))?;
                open_or_create((opener, txn), recorder, name).map_err(|error| self.error(error))
            })?;
            let copies = self.open_or_create_copies((opener, txn), recorder, catalog)?;
            let main: Option<Database<'_>> =
                opener.open_database(txn, None).map_err(|error| self.error(error))?;
            let tables = tables.with_copies(copies);
            prepare(Writer::new(self, txn, &tables, &mut turn.writing))?;
            let recorder = &mut turn.writing.scratch.recorder;
            let copies = tables.copies.as_deref().copied();
            let places = ListPlaces { catalog: *tables.catalog, copies };
            kept = self.keep_lists(txn, Some(places), recorder).map_err(StoreError::into_error)?;
            logged = Some(self.log(&mut turn.writing).map_err(StoreError::into_error)?);
            Ok(CommitOrAbort::<_, ()>::Commit((tables, main)))
        });
        let opened = opened
            .map_err(|failure| self.not_committed(&mut turn.writing, logged.as_ref(), failure));
        match opened {
            Ok(CommitOrAbort::Commit((tables, main))) => {
                self.kept(kept);
                if let Some(logged) = logged {
                    self.logged(logged, number);
                }
                let _ = self.catalog.set(*tables.catalog);
                if let Some(main) = main {
                    let _ = self.main.set(main);
                }
                if let Some(copies) = &tables.copies {
                    let _ = self.copies.set(**copies);
                }
                let lost = Self::refuse_lost_meanwhile(&mut turn.writing);
                lost.map_err(|lost| (lost.into_error(), None))?;
                Ok(self.with_known(tables))
            }
            Ok(CommitOrAbort::Abort(())) => Err((Error::internal("a table was not opened"), None)),
            Err(failure) => Err(self.ended(failure, turn.writing.retry)),
        }
    }

    /// Marks the table's databases as known. Records in `tables` whether all of them were known before.
    pub(super) fn with_known<'d>(&self, tables: Tables<'d>) -> Tables<'d> {
        let mut known = self.known.lock();
        let mut were_known = true;
        for database in tables.own() {
            were_known &= !known.insert(database.name().to_owned());
        }
        for database in tables.referred() {
            were_known &= known.contains(database.name());
        }
        tables.with_known(were_known)
    }
}

/// Opens a database, and creates it if the file has none with this name.
pub(super) fn open_or_create<'e>(
    (opener, txn): (&DatabaseOpener<'e, WithoutTls>, &mut RwTxn<'e>),
    recorder: &mut Recorder,
    name: &str,
) -> heed::Result<Named<'e>> {
    let found = if recorder.is_on() { opener.open_database(txn, Some(name))? } else { None };
    if let Some(found) = found {
        return Ok(Named::new(found, name));
    }
    let created = opener.create_database(txn, Some(name))?;
    recorder.add(name, Operation::Create)?;
    Ok(Named::new(created, name))
}

/// Returns the references to a table that the catalog records.
fn referrers(
    table: &'static str,
    catalog: Database<'_>,
    txn: &RwTxn<'_>,
    failed: impl Fn(heed::Error) -> Error,
) -> Result<Vec<Referrer>> {
    let (prefix, mut found) = (format!("{table}."), Vec::new());
    let mut from = format!("{prefix}{MARK}").into_bytes();
    loop {
        let record = catalog.get_greater_than_or_equal_to(txn, &from).map_err(&failed)?;
        let Some((key, record)) = record else { return Ok(found) };
        let part = key.strip_prefix(prefix.as_bytes()).and_then(|it| str::from_utf8(it).ok());
        let Some(part) = part.filter(|part| part.starts_with(MARK)) else { return Ok(found) };
        found.extend(Referrer::decode(table, part, record)?);
        from = [key, &[0]].concat();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering::Relaxed},
        thread,
        time::{Duration, Instant},
    };

    use heed::{EnvFlags, EnvOpenOptions, types::Bytes};

    use super::*;

    const KEY: &[u8] = b"number";

    type Begin = fn(&Env) -> heed::Result<RoTxn<'_, WithoutTls>>;

    /// Writes the number of each commit into the data, beside more readers than the machine has cores. Returns
    /// whether a reader had another number than its data.
    fn is_mixed(begin: Begin, limit: Duration) -> heed::Result<bool> {
        let dir = tempfile::tempdir()?;
        let mut open = EnvOpenOptions::new().read_txn_without_tls();
        #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
        // SAFETY: the directory belongs to this test, and nothing else has the file open.
        let env = unsafe {
            let open = open.flags(EnvFlags::NO_SYNC).map_size(1 << 30).max_dbs(1);
            Env::open(open, dir.path())
        }?;
        let txn = env.write_txn()?;
        let numbers = env.create_databases_and_commit(txn, |opener, txn| {
            let numbers = opener.create_database::<Bytes, Bytes>(txn, None)?;
            numbers.put(txn, KEY, &txn.id().to_be_bytes())?;
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(numbers))
        });
        let Some(numbers) = numbers?.commit() else { return Ok(false) };
        let (is_over, is_mixed) = (AtomicBool::new(false), AtomicBool::new(false));
        let readers = 4 * thread::available_parallelism()?.get();
        let deadline = Instant::now() + limit;
        thread::scope(|scope| {
            let read = || -> heed::Result<()> {
                while !is_over.load(Relaxed) {
                    let txn = begin(&env)?;
                    if numbers.get(&txn, KEY)? != Some(&txn.id().to_be_bytes()) {
                        is_mixed.store(true, Relaxed);
                    }
                }
                Ok(())
            };
            let readers: Vec<_> = (0..readers).map(|_| scope.spawn(read)).collect();
            let write = || -> heed::Result<()> {
                while Instant::now() < deadline && !is_mixed.load(Relaxed) {
                    let mut txn = env.write_txn()?;
                    let number = txn.id().to_be_bytes();
                    numbers.put(&mut txn, KEY, &number)?;
                    txn.commit()?;
                }
                Ok(())
            };
            let written = write();
            is_over.store(true, Relaxed);
            readers
                .into_iter()
                .map(|reader| reader.join().expect("a reader"))
                .chain([written])
                .collect::<heed::Result<()>>()
        })
        .map(|()| is_mixed.load(Relaxed))
    }

    #[test]
    fn the_data_of_a_snapshot_belongs_to_its_number() {
        // LMDB alone fails, usually within a few milliseconds.
        let alone = is_mixed(|env| env.read_txn(), Duration::from_secs(20));
        assert!(alone.expect("commits"), "LMDB no longer needs this check");
        assert!(!is_mixed(read_txn, Duration::from_secs(2)).expect("commits"));
    }
}
