//! Rebuilding a lost shard map manager from the identities of its shards.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io, mem,
    path::{Path, PathBuf},
};

use super::{
    Store,
    copy::close,
    grow::GROWN,
    leftovers,
    open::{OPEN, lock, manager_options, refused},
};
use crate::{
    engine::{
        self, DataFile, DeclaredShard, Durability, Marked, Options, PlaceInJournal, Records,
        files::{self, DATA_FILE},
        lmdb::{self, SharedJournal},
    },
    model::{
        error::{Error, Result},
        reference::{self, PART_OF},
        schema,
        shard::{Boundaries, Declared, MapKind, SLOTS, ShardNumber},
    },
    placement::shards::{
        HERE, Identity, Manager, ManagerRecord, ManagerRecords, OwnRanges, ShardRecord, ShardState,
        TableRecord, place_of, recorded,
    },
    store::shared,
};

impl Options {
    /// Rebuilds the shard map manager in the directory `path` from its shards, and opens the store. Use this if the
    /// shard map manager is lost or damaged, and its shards are intact.
    ///
    /// Before this call, give the name and the directory of every shard with [`shard`](Options::shard), in any
    /// order, and of each detached shard that will be attached again: it stays detached. A detached shard that is not given
    /// gets the name `removed-` with its number, since the other shards have not recorded its name. `attach_shard` attaches it
    /// by this name. Also give their own options with [`shard_with`](Options::shard_with), which only the manager had recorded. The shards
    /// have recorded the shard maps and the places of tables. When a repository is first opened, every row is
    /// compared with the rebuilt shard map. Until then, moves of keys of its shards, and the removal of these shards, are
    /// refused, because the shards have not recorded how its rows are distributed.
    ///
    /// If the store has grown from one data file, its manager is in the directory `shards.manager`. Then give the first shard as
    /// `shard("main", ".")`.
    ///
    /// Shards that were closed properly need no other files. After a crash, they need their journal, the files
    /// `shards.journal.*` in `path`. So leave the journal in place, and move away only the `data.mdb` of a damaged
    /// manager. Until the manager is rebuilt, an opening that could create the store fails with
    /// [`Error::DamagedFile`](crate::Error::DamagedFile), so that no empty manager takes its place.
    ///
    /// If the program no longer has a table, open the rebuilt store with [`place`](Options::place) for it. Then resume or cancel
    /// unfinished [moves](Store::moves), which the shards have recorded.
    ///
    /// The manager is written in a directory `.manager.partial` in `path`, and its file gets its name when it is complete. So a
    /// process that is killed leaves what was there, or the complete manager, and the next call continues. The next opening of
    /// the store for writing removes a directory that is left.
    ///
    /// Cost: opening each shard, and a scan of each table when its repository is opened.
    ///
    /// # Errors
    ///
    /// [`Error::ShardRefused`](crate::Error::ShardRefused), before anything is written:
    ///
    /// - There is a shard map manager in `path`, or in the directory that the shards have recorded.
    /// - A shard is missing, is given twice or with another name, or belongs to another store.
    /// - The shards contradict each other.
    /// - Options other than shards and their options are given.
    ///
    /// [`Error::ArchiveNotNamed`](crate::Error::ArchiveNotNamed), before anything is written: the store has an archive that
    /// is not named. Also the errors of [`Store::open`].
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, ShardMap, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(name = "customers", shard_by = tenant)]
    /// struct Customer {
    ///     #[primary_key]
    ///     tenant: u32,
    ///     #[primary_key]
    ///     id: u64,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("shop");
    /// let shards = || Store::options().shard("north", "north").shard("south", "south");
    /// let map = ShardMap::ranges().to("north", ..100u32).to("south", 100u32..);
    /// let store = shards().map("customers", map).open(&path)?;
    /// let customers = CustomerRepository::open(&store)?;
    /// store.transaction(|txn| customers.insert(txn, &Customer { tenant: 107, id: 1 }))?;
    /// drop((store, customers));
    ///
    /// std::fs::remove_file(path.join("data.mdb")).unwrap(); // the shard map manager
    /// let store = shards().rebuild(&path)?;
    /// let customers = CustomerRepository::open(&store)?;
    /// assert_eq!(customers.shard_of(&store, 107)?.name(), "south");
    /// assert_eq!(customers.find_by_tenant(&store.read()?, 107).count()?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn rebuild(&self, path: impl AsRef<Path>) -> Result<Store> {
        let path = path.as_ref();
        let what = path.display().to_string();
        if self.declared.shards.is_empty() {
            return Err(refused(
                &what,
                "no shards are given to rebuild the shard map manager from",
            ));
        }
        let has_others = !self.declared.maps.is_empty()
            || !self.declared.places.is_empty()
            || !self.declared.relocated.is_empty()
            || self.declared.only.is_some();
        if has_others || self.read_only {
            let reason = "a shard map manager is rebuilt from `shard` and `shard_with` alone";
            return Err(refused(&what, reason));
        }
        files::create_directories(path, self.directory_mode)
            .map_err(|source| Error::opening(path, source))?;
        let path = path.canonicalize().map_err(|source| Error::opening(path, source))?;
        lmdb::known::check(self, &path)?;
        rebuild(self, &path)?;
        let recorded = Self {
            archive: self.archive.clone(),
            hand_over: self.hand_over.clone(),
            without_archive: self.without_archive,
            ..Self::default()
        };
        recorded.open(path)
    }
}

fn rebuild(options: &Options, path: &Path) -> Result<()> {
    let _opening = OPEN.lock();
    let _lock = lock(path, options.file_mode)?;
    let is_here = |shard: &DeclaredShard| {
        let place = place_of(path, &shard.place.to_string_lossy());
        place.canonicalize().is_ok_and(|place| place == path)
    };
    // The first data file of a store that has grown is in the directory of the store.
    let has_grown = options.declared.shards.iter().any(is_here);
    let directory = if has_grown { path.join(GROWN) } else { path.to_owned() };
    if !DataFile(&directory).is_vacant()? {
        let reason =
            "there is a `data.mdb`: open the store, or move a damaged shard map manager away";
        return Err(refused(&directory.display().to_string(), reason));
    }
    let found = options.declared.shards.iter().map(|shard| find(options, shard, path));
    let records = records(found.collect::<Result<_>>()?)?;
    let partial = path.join(leftovers::MANAGER);
    let outcome = remove(&partial).and_then(|()| write(&records, &partial, options.file_mode));
    let outcome = outcome.and_then(|()| place(&partial, &directory));
    if outcome.is_err() {
        // The first error is returned.
        let _ = remove(&partial);
    }
    outcome
}

/// Writes the records of a manager to a new directory.
pub(super) fn write(records: &ManagerRecords, partial: &Path, file_mode: u32) -> Result<()> {
    files::create_directory(partial).map_err(|source| Error::io(partial, source))?;
    let options = Options { create: true, file_mode, ..manager_options() };
    let manager = Manager::new(engine::Engine::open(&options, partial)?, None);
    manager.write(records)?;
    close(manager, partial)
}

/// Gives a complete manager its place. A file without commits there is replaced.
fn place(partial: &Path, path: &Path) -> Result<()> {
    let placed = match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => fs::rename(partial.join(DATA_FILE), path.join(DATA_FILE)),
    };
    let placed = placed.and_then(|()| files::sync_directory(path));
    placed.map_err(|source| Error::io(path, source))?;
    // The next opening for writing removes an empty directory that remains.
    let _ = fs::remove_dir(partial);
    Ok(())
}

/// Removes a directory, which may be missing.
pub(super) fn remove(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|source| Error::io(directory, source)),
    }
}

/// One of the given shards.
struct Found {
    identity: Identity,
    /// The canonical path of its directory.
    directory: PathBuf,
    record: ShardRecord,
    /// The tables with parts of rows that can be in other shards.
    parts: Vec<(String, TableRecord)>,
}

impl Found {
    fn is_detached(&self) -> bool {
        self.record.is_removed()
    }
}

/// Returns the name of a removed shard that was not given. The other shards have only recorded its number.
pub(super) fn nameless(number: ShardNumber) -> String {
    format!("removed-{number}")
}

/// Reads the identity of a shard. A shard that was not closed properly is recovered first.
fn find(options: &Options, shard: &DeclaredShard, path: &Path) -> Result<Found> {
    let what = format!("shard `{}`", shard.name);
    let place = place_of(path, &shard.place.to_string_lossy());
    let Some(own_place) = shard.place.to_str() else {
        return Err(refused(&what, "its directory is not UTF-8"));
    };
    let existing = Options { create: false, ..Options::default() };
    let inner = match DataFile(&place).marked()? {
        Marked::Shard { manager, number } => {
            let journal = SharedJournal::open(path, manager)?;
            let own = existing.durability(Durability::Journal);
            shared::open_shard(&own, &place, Some(PlaceInJournal(&journal, number)))?
        }
        Marked::Own => shared::open_shard(&existing.durability(Durability::Journal), &place, None)?,
        Marked::Complete | Marked::CompleteShard { .. } => {
            shared::open_shard(&Options { read_only: true, ..existing }, &place, None)?
        }
    };
    let Some(identity) = Identity::read(inner.engine()?)? else {
        return Err(refused(&what, "it is no shard of a sharded store"));
    };
    let directory = inner.engines.directory();
    if identity.name != shard.name {
        let reason = format!("the directory has shard `{}`", identity.name);
        return Err(refused(&what, &reason));
    }
    let manager = Path::new(&identity.manager_directory);
    let is_in_place = Path::new(&identity.directory) == directory;
    let has_manager = || {
        let exists = files::exists(&manager.join("data.mdb"));
        exists.map_err(|source| Error::io(manager, source))
    };
    if is_in_place && manager != path && has_manager()? {
        let reason = format!("its shard map manager is in `{}`", manager.display());
        return Err(refused(&what, &reason));
    }
    let options = recorded(shard.options.as_ref().unwrap_or(options));
    let place = if directory == path { HERE } else { own_place };
    let (name, place) = (shard.name.clone(), place.to_owned());
    let is_detached = identity.removed.contains(&identity.number);
    let state = if is_detached { ShardState::Removed } else { ShardState::Rebuilt };
    let record = ShardRecord { name, place, state, options };
    let parts = placed_parts(&inner.engines.catalog()?, &identity);
    Ok(Found { identity, directory, record, parts })
}

/// Returns the tables that are placed in this shard, with parts of rows that can be in other shards. No record of the shard has
/// the names of their repositories.
fn placed_parts(catalog: &Records, identity: &Identity) -> Vec<(String, TableRecord)> {
    let mut parts = Vec::new();
    for (table, record) in catalog.iter().filter(|(table, _)| identity.places.contains(table)) {
        let references = schema::TableRecord::read(record).map(|it| it.references());
        for (name, main) in references.unwrap_or_default() {
            // The reference to a main row in the same shard is a part of the record of the main row.
            let part = format!("{main}.{}", reference::part(table, &name));
            if name == PART_OF && catalog.iter().all(|(other, _)| *other != part) {
                let (shard, repository) = (identity.number, format!("the repository of {table}"));
                parts.push((table.clone(), TableRecord::Part { shard, main, repository }));
            }
        }
    }
    parts
}

/// Returns the manager's records. Of the records of tables, the shards have only those of parts in other shards than their
/// main rows.
fn records(mut found: Vec<Found>) -> Result<ManagerRecords> {
    found.sort_by_key(|found| found.identity.number);
    let Some(first) = found.first() else { return Err(Error::internal("no shards")) };
    let id = first.identity.manager;
    if let Some(other) = found.iter().find(|found| found.identity.manager != id) {
        let reason = format!("it is of another store than shard `{}`", first.record.name);
        return Err(refused(&format!("shard `{}`", other.record.name), &reason));
    }
    for pair in found.windows(2) {
        let [one, other] = pair else { continue };
        if one.identity.number == other.identity.number {
            let reason = format!(
                "`{}` and `{}` are copies of the same shard",
                one.directory.display(),
                other.directory.display()
            );
            return Err(refused(&format!("shard `{}`", one.record.name), &reason));
        }
    }
    let shards = found.iter().map(|found| found.identity.shards).max().unwrap_or_default();
    let last = found.last().map_or(0, |found| found.identity.number);
    let expected = shards.max(last.saturating_add(1));
    // The list of a detached shard is that of its last moment in the store. Shards that it lists can be attached again.
    let present = found.iter().filter(|it| !it.is_detached());
    let removed: BTreeSet<_> = present.flat_map(|it| it.identity.removed.clone()).collect();
    let is_missing = |number: &ShardNumber| {
        found.iter().all(|found| found.identity.number != *number) && !removed.contains(number)
    };
    if let Some(missing) = (0..expected).find(is_missing) {
        let reason =
            format!("the store has {expected} shards, of which number {missing} is not given");
        return Err(refused("the store", &reason));
    }
    let (detached, mut found): (Vec<_>, Vec<_>) = found.into_iter().partition(Found::is_detached);
    if found.is_empty() {
        return Err(refused("the store", "all given shards were detached from it"));
    }
    let (mut maps, mut places) = (BTreeMap::new(), BTreeMap::new());
    for Found { identity, record, .. } in &found {
        for own in &identity.maps {
            add_ranges(&mut maps, own, identity.number, record)?;
        }
        for table in &identity.places {
            if places.insert(table.clone(), identity.number).is_some() {
                let reason = format!("table `{table}` is placed in another shard as well");
                return Err(refused(&format!("shard `{}`", record.name), &reason));
            }
        }
    }
    for (map, Declared { kind, boundaries, .. }) in &maps {
        if *kind == MapKind::Hashed
            && (0..SLOTS).any(|slot| boundaries.shard_of(&slot.to_be_bytes()).is_none())
        {
            let what = format!("shard map `{map}`");
            return Err(refused(&what, "it has slots that belong to none of the shards"));
        }
    }
    let own = ManagerRecord { id, version: 1 };
    let tables = found.iter_mut().flat_map(|found| mem::take(&mut found.parts)).collect();
    let mut given = found.into_iter().map(|found| (found.identity.number, found.record)).peekable();
    let gone = |number: ShardNumber| {
        let given = detached.iter().find(|found| found.identity.number == number);
        let nameless = || ShardRecord {
            name: nameless(number),
            place: String::new(),
            state: ShardState::Removed,
            options: Vec::new(),
        };
        given.map_or_else(nameless, |found| found.record.clone())
    };
    let record = |number| {
        let own = given.next_if(|(own, _)| *own == number);
        own.map_or_else(|| gone(number), |(_, record)| record)
    };
    let shards = (0..expected).map(record).collect();
    Ok(ManagerRecords { own, shards, maps, places, tables })
}

/// Adds a shard's ranges to the shard maps.
fn add_ranges(
    maps: &mut BTreeMap<String, Declared>,
    own: &OwnRanges,
    number: ShardNumber,
    record: &ShardRecord,
) -> Result<()> {
    let OwnRanges { map, kind, key_type, ranges } = own;
    let refused = |reason: &str| {
        let what = format!("shard `{}`", record.name);
        Err(refused(&what, &format!("{reason} shard map `{map}`")))
    };
    let declared = maps.entry(map.clone()).or_insert_with(|| Declared {
        kind: *kind,
        key_type: key_type.clone(),
        boundaries: Boundaries::all_in(None),
    });
    if (declared.kind, &declared.key_type) != (*kind, key_type) {
        return refused("another shard has another kind or type of keys of");
    }
    for (start, end) in ranges {
        if end.as_ref().is_some_and(|end| end <= start) {
            return refused("it has a damaged range of");
        }
        if !declared.boundaries.shards_within(start, end.as_deref()).is_empty() {
            return refused("another shard has keys of a range that it has of");
        }
        declared.boundaries.assign(start, end.as_deref(), Some(number));
    }
    Ok(())
}
