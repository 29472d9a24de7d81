//! Opening a store that exists: a plain or a sharded store in a directory, or a store on a PostgreSQL server.

use std::path::Path;

use index_table::{
    __private::admin::{RecordedTables, UntypedTable},
    Error, Options, Store,
    report::Catalog,
};

use crate::{
    cli::Written,
    crash,
    failure::{Code, Failure, joined, unavailable},
    names::{self, unknown},
    output::Output,
    server::{Server, shown},
};

/// The file of each store in a directory.
pub(crate) const DATA: &str = "data.mdb";

/// Files of a store that has a journal, and of one that has shards.
const JOURNALS: [&str; 2] = ["journal.0", "writer.lock"];

/// The access of a command to a store.
#[derive(Clone, Copy)]
enum Access<'a> {
    Read,
    Write(&'a Written),
}

impl Access<'_> {
    fn of(self, options: Options) -> Options {
        match self {
            Self::Read => options.read_only(true),
            Self::Write(store) => store.options(options),
        }
    }
}

/// Whether a directory is that of a follower.
pub(crate) fn is_follower(place: &Path) -> bool {
    place.join("follower").is_file()
}

/// Returns the failure of opening a store. The copy of a killed follower is incomplete, and its archive has everything.
fn of_follower(place: &Path, error: Error) -> Failure {
    if !is_follower(place)
        || !matches!(error, Error::RecoveryNeeded { .. } | Error::DamagedFile { .. })
    {
        return error.into();
    }
    let is_damaged = matches!(error, Error::DamagedFile { .. });
    let advice = format!(
        "start that process again, which copies the archive again, or make it a store with `promote {}`",
        place.display()
    );
    let failure = Failure::from(error);
    // A copy that is being made has incomplete pages, and a disk can damage the copy.
    if is_damaged {
        let message =
            format!("{}; if the process of the follower was killed, {advice}", failure.message);
        return Failure::new(failure.code, message);
    }
    Failure::new(
        Code::Unavailable,
        format!(
            "`{}` is the directory of a follower whose process was killed: {advice}",
            place.display()
        ),
    )
}

impl Written {
    pub(crate) fn options(&self, options: Options) -> Options {
        match self {
            Self { archive: Some(archive), .. } => options.archive(archive),
            Self { without_archive: true, .. } => options.without_archive(),
            Self { .. } => options,
        }
    }

    /// Fails with `--dry-run`.
    pub(crate) fn refuse_dry_run(&self) -> Result<(), Failure> {
        if self.dry_run {
            return Err(Failure::arguments(
                "this command can't tell what it would change; omit `--dry-run`",
            ));
        }
        Ok(())
    }

    /// Fails if an archive is given for a store on a server.
    fn refuse_on_server(&self) -> Result<(), Failure> {
        if self.archive.is_none() && !self.without_archive {
            return Ok(());
        }
        Err(Failure::arguments(
            "a store on a server has no archive; omit `--archive` and `--without-archive`",
        ))
    }
}

/// An open store.
pub(crate) struct Opened {
    pub(crate) store: Store,
}

impl Opened {
    /// Opens a store for reading.
    pub(crate) fn to_read(out: &Output, place: &Path) -> Result<Self, Failure> {
        Self::open(out, place, Access::Read)
    }

    /// Opens a store for writing. Fails with `--dry-run`: a command that offers it does not open the store for writing then.
    pub(crate) fn to_write(out: &Output, store: &Written) -> Result<Self, Failure> {
        store.refuse_dry_run()?;
        let opened = Self::open(out, &store.dir, Access::Write(store))?;
        if let Some(error) = opened.store.archive_lag().and_then(|lag| lag.error) {
            out.note(&format!("the archive gets the commits of this command later: {error}"));
        }
        Ok(opened)
    }

    /// Opens a store for writing, or creates it.
    pub(crate) fn to_create(out: &Output, store: &Written) -> Result<Self, Failure> {
        store.refuse_dry_run()?;
        let place = &store.dir;
        if let Some(server) = Server::of(place)? {
            store.refuse_on_server()?;
            return Ok(Self { store: server.connect(false, true)? });
        }
        if place.join(DATA).exists() {
            return Self::to_write(out, store);
        }
        if place.to_string_lossy().contains("://") {
            return Err(Failure::arguments(format!(
                "`{}` is neither the URL of a database of PostgreSQL nor the directory of a store; such a URL begins with \
                 `postgresql://`",
                shown(place)
            )));
        }
        if let Some(store) = store_around(place, None) {
            return Err(Failure::other(format!("`{}` is in {store}", place.display())));
        }
        Ok(Self { store: Access::Write(store).of(Store::options()).open(place)? })
    }

    fn open(out: &Output, place: &Path, access: Access<'_>) -> Result<Self, Failure> {
        let read_only = matches!(access, Access::Read);
        if let Some(server) = Server::of(place)? {
            if let Access::Write(store) = access {
                store.refuse_on_server()?;
            }
            return Ok(Self { store: server.connect(read_only, false)? });
        }
        if !place.join(DATA).exists() {
            return Err(names::no_store(place));
        }
        refuse_empty(place)?;
        crash::report(out, place);
        // Opening it for writing would write marks into the file of another program. Such a file has no journal.
        if !read_only
            && JOURNALS.iter().all(|name| !place.join(name).exists())
            && let Ok(store) = Access::Read.of(Store::options()).open(place)
        {
            refuse_foreign(place, &store)?;
        }
        let opened = access.of(Store::options().create(false)).open(place);
        let own = Self { store: opened.map_err(|error| of_follower(place, error))? };
        refuse_foreign(place, &own.store)?;
        if own.store.has_shards() {
            crash::report_shards(out, place);
            if read_only {
                own.catalog()?;
            }
        }
        Ok(own)
    }

    /// Returns the store, if it has shards.
    pub(crate) fn sharded(&self) -> Option<&Store> {
        self.store.has_shards().then_some(&self.store)
    }

    /// Returns the store. It is an error if it has no shards.
    pub(crate) fn shards(&self) -> Result<&Store, Failure> {
        self.sharded().ok_or_else(|| {
            Failure::not_found("the store has no shards; `sizes` and `tables` show its contents")
        })
    }

    /// Returns the catalog. It is an error if no shard with it is available.
    pub(crate) fn catalog(&self) -> Result<Catalog, Failure> {
        let (catalog, missing) = (self.store.catalog()?, self.missing_shards());
        if catalog.tables.is_empty() && !missing.is_empty() {
            return Err(Failure::new(Code::Unavailable, joined(&missing)));
        }
        Ok(catalog)
    }

    /// Opens the recorded tables, and writes a note for each table that can't be opened.
    pub(crate) fn recorded(&self, out: &Output) -> Result<RecordedTables, Failure> {
        let tables = self.store.open_recorded()?;
        for (table, reason) in &tables.skipped {
            out.note(&format!("table `{table}` can't be opened: {reason}"));
        }
        Ok(tables)
    }

    /// Returns the shards that are not available, each with the reason.
    pub(crate) fn missing_shards(&self) -> Vec<String> {
        let missing = self.store.unavailable_shards().into_iter();
        missing.map(|(shard, reason)| unavailable(shard.name(), &reason)).collect()
    }
}

/// Fails if the data file is one of LMDB that another program has written.
fn refuse_foreign(place: &Path, store: &Store) -> Result<(), Failure> {
    if !store.is_foreign()? {
        return Ok(());
    }
    Err(Failure::not_found(format!(
        "another program has written the LMDB file `{}`, which is no store of index-table; check the path",
        place.join(DATA).display()
    )))
}

/// Fails if the data file has no bytes, as after a copy that ran out of space.
fn refuse_empty(place: &Path) -> Result<(), Failure> {
    let file = place.join(DATA);
    if file.metadata().map_or(true, |file| file.len() > 0) {
        return Ok(());
    }
    Err(Failure::damage(format!(
        "`{}` is empty, so it has no store: put the file back, or restore the store from a copy; to create a new store, remove \
         all files of the directory",
        file.display()
    )))
}

/// Describes the store whose directory contains a path that does not exist, with the way out. Like a store, the
/// directory `other` must not contain it.
pub(crate) fn store_around(path: &Path, other: Option<&Path>) -> Option<String> {
    let other = other.and_then(|other| other.canonicalize().ok());
    let parents = path.ancestors().skip(1);
    let inner = parents.map(|parent| {
        // The parent of a name.
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        parent.canonicalize()
    });
    let inner = inner.flatten().next()?;
    let is_store = |path: &&Path| other.as_deref() == Some(*path) || path.join(DATA).is_file();
    let store = inner.ancestors().find(is_store)?;
    Some(format!("the directory `{}` of a store; give a path outside of it", store.display()))
}

/// Returns the table with this name.
pub(crate) fn table<'t>(
    tables: &'t RecordedTables,
    name: &str,
) -> Result<&'t UntypedTable, Failure> {
    if let Some(table) = tables.tables.iter().find(|table| table.name() == name) {
        return Ok(table);
    }
    if let Some((_, reason)) = tables.skipped.iter().find(|(skipped, _)| skipped == name) {
        return Err(Failure::not_found(format!("table `{name}` can't be opened: {reason}")));
    }
    let names = tables.tables.iter().map(UntypedTable::name);
    Err(unknown("table", name, names))
}
