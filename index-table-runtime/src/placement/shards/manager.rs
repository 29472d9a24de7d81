//! The shard map manager, and the identities of shards.
//!
//! The manager is an environment with the records of the shards, the shard maps and the places of tables. Each shard
//! has a record of its identity. With it, a foreign shard is recognized, and a lost manager can be rebuilt.
//!
//! Both are small tables of records, which are read and written through the seam. `docs/FORMAT.md` specifies their
//! bytes: a byte with the version, and the postcard encoding of the struct.

use std::{
    collections::{BTreeMap, BTreeSet, hash_map::RandomState},
    fs::File,
    hash::BuildHasher as _,
    path::{Path, PathBuf},
    process,
    sync::{Arc, OnceLock},
    time::SystemTime,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    MoveRecord,
    lists::{replace, use_copies, write_copies},
    outside::Announced,
};
use crate::{
    engine::{
        Engine, Options, Query, Read as _, Reader, Writer, latest::Latest, lmdb::ManagerArchive,
    },
    locks::Unshared,
    model::{
        KeyRange,
        error::{Error, Result},
        key::DecodeError,
        maintain::{Change, Sink as _},
        schema::{KeyField, Parts, Source, TableSchema},
        shard::{Boundaries, Declared, Distribution, MapKind, ShardKey, ShardNumber, placed_table},
    },
};

/// The version of all records.
const VERSION: u8 = 1;

/// The table of the manager. The dot distinguishes its name from the names of declared tables.
pub(super) static MANAGER: TableSchema = TableSchema::of_records(".shards", KEY);

/// The table of a shard.
pub(super) static SHARD: TableSchema = TableSchema::of_records(".shard", KEY);

const KEY: &[KeyField] = &[KeyField::new::<String>("record")];

/// The key of the manager's own record, and of a shard's identity.
pub(super) const OWN: &[u8] = b"own";
/// The key of the unfinished moves of a shard.
pub(super) const MOVES: &[u8] = b"moves";
/// The key of the global indexes with hidden entries, in each shard.
pub(super) const HIDDEN: &[u8] = b"hidden";
/// The key of the record by which a copy of a single shard belongs to no store.
pub(super) const ALONE: &[u8] = b"alone";
const SHARDS: &[u8] = b"shard.";
const MAPS: &[u8] = b"map.";
const PLACES: &[u8] = b"place.";
const TABLES: &[u8] = b"table.";

/// The option in the record of a shard until the commit is confirmed that removes, detaches or attaches the shard. Other releases
/// ignore it.
const UNCONFIRMED: &str = "unconfirmed";

/// The option in the record of a shard that was restored while the store was open: the number that its last commit then got.
const RESTORED: &str = "restored";

/// Encoded records, with their keys.
pub(super) type Encoded = Vec<(Vec<u8>, Vec<u8>)>;

/// The unique number of a manager. Its shards record it.
pub(crate) type ManagerId = [u8; 16];

/// The environment of the manager. It stays open as long as the store.
pub(crate) struct Manager {
    engine: Engine,
    /// The archive of the store, which gets the records after each change.
    archive: Latest<ManagerArchive>,
    /// The options of the store, with which the journal of all shards is started.
    options: OnceLock<Options>,
    /// The lock of the process that writes the store, with the numbers in its file; `None` in a reader.
    announced: Option<Arc<Announced>>,
}

/// A file that this process has locked: for writing a sharded store, or for making the copy of a follower.
pub(crate) struct WriterLock {
    unshared: Unshared,
    file: File,
}

impl WriterLock {
    /// `unshared` is from before the file was locked.
    pub(crate) const fn new(unshared: Unshared, file: File) -> Self {
        Self { unshared, file }
    }

    pub(super) const fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for WriterLock {
    fn drop(&mut self) {
        if !self.unshared.is_inherited() {
            // A process that another thread is starting has the file open too, so closing it does not release the lock.
            let _ = self.file.unlock();
        }
    }
}

/// All records of a manager.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ManagerRecords {
    pub(crate) own: ManagerRecord,
    /// The shards, in the order of their numbers.
    pub(crate) shards: Vec<ShardRecord>,
    pub(crate) maps: BTreeMap<String, Declared>,
    pub(crate) places: BTreeMap<String, ShardNumber>,
    /// The locations of the rows of all tables that have ever been opened.
    pub(crate) tables: BTreeMap<String, TableRecord>,
}

/// The location of the rows of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TableRecord {
    /// All rows are in this shard.
    Whole(ShardNumber),
    /// A shard key of this number of fields determines the shard of a row.
    ByKey { fields: u32, hashed: bool, map: String },
    /// Every shard has a copy of all rows.
    Reference,
    /// All rows are in this shard, as parts of the rows of table `main`, which can be in other shards. `repository` is
    /// the name of the repository of the parts.
    Part { shard: ShardNumber, main: String, repository: String },
}

impl TableRecord {
    /// Returns the record of a distribution; `None` if all rows are in one shard.
    pub(super) fn of(distribution: Distribution) -> Option<Self> {
        match distribution {
            Distribution::Whole => None,
            Distribution::ByKey(ShardKey { fields, hashed, map, .. }) => Some(Self::ByKey {
                fields: u32::try_from(fields).unwrap_or(u32::MAX),
                hashed,
                map: map.to_owned(),
            }),
            Distribution::Reference => Some(Self::Reference),
        }
    }

    /// Returns the shard of all rows, if they are in one shard.
    pub(crate) const fn place(&self) -> Option<ShardNumber> {
        match self {
            Self::Whole(shard) | Self::Part { shard, .. } => Some(*shard),
            Self::ByKey { .. } | Self::Reference => None,
        }
    }
}

/// The manager's own record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ManagerRecord {
    pub(crate) id: ManagerId,
    /// The number of times that opening the store has changed the records.
    pub(crate) version: u64,
}

/// A shard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ShardRecord {
    pub(crate) name: String,
    /// The directory of the shard. A relative path starts in the directory of the manager.
    pub(crate) place: String,
    pub(crate) state: ShardState,
    /// The names and values of the options that differ from the defaults.
    pub(crate) options: Vec<(String, u64)>,
}

/// The state of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ShardState {
    /// The shard has no identity yet, and its directory may not exist.
    New,
    /// The shard is a plain store that has no identity yet. Only earlier builds gave this state.
    Adopted,
    /// The shard has an identity.
    Open,
    /// The shard has an identity, and the manager was rebuilt from it.
    Rebuilt,
    /// The shard was removed. No shard gets its number again.
    Removed,
}

impl ShardRecord {
    pub(crate) fn is_removed(&self) -> bool {
        self.state == ShardState::Removed
    }

    /// Whether the commit may not have been made that gives the shard its state.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.options.iter().any(|(name, _)| name == UNCONFIRMED)
    }

    /// Sets the state of the shard before a commit that gives it this state.
    pub(super) fn will_be(&mut self, state: ShardState) {
        self.confirm();
        self.state = state;
        self.options.push((UNCONFIRMED.to_owned(), 1));
    }

    /// Returns the number that the last commit of the shard got when the shard was last restored while the store was open.
    pub(crate) fn restored(&self) -> Option<u64> {
        let own = self.options.iter().find(|(name, _)| name == RESTORED);
        own.map(|(_, number)| *number)
    }

    /// Notes the number that the last commit of a restored shard gets.
    pub(crate) fn set_restored(&mut self, number: u64) {
        self.options.retain(|(name, _)| name != RESTORED);
        self.options.push((RESTORED.to_owned(), number));
    }

    /// Notes that the commit was made, or was not made and the state is the earlier one.
    pub(crate) fn confirm(&mut self) {
        self.options.retain(|(name, _)| name != UNCONFIRMED);
    }
}

/// A shard map.
#[derive(Serialize, Deserialize)]
struct MapRecord {
    kind: MapKind,
    key_type: String,
    boundaries: Boundaries,
}

/// The own record of a shard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) manager: ManagerId,
    pub(crate) number: ShardNumber,
    pub(crate) name: String,
    /// The directory of the manager when both were last opened.
    pub(crate) manager_directory: String,
    /// The directory of the shard when both were last opened.
    pub(crate) directory: String,
    /// The shard's ranges in each shard map.
    pub(crate) maps: Vec<OwnRanges>,
    /// The tables that are placed in the shard.
    pub(crate) places: Vec<String>,
    /// For a shard whose files come from elsewhere, or whose manager was rebuilt: the tables whose rows were all checked to
    /// belong to the shard. `None` for other shards.
    pub(crate) checked: Option<Vec<String>>,
    /// The number of shards of the store, with those that were removed.
    pub(crate) shards: u32,
    /// The numbers of the shards that were removed.
    pub(crate) removed: Vec<ShardNumber>,
}

/// The ranges of a shard in a shard map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OwnRanges {
    pub(crate) map: String,
    pub(crate) kind: MapKind,
    pub(crate) key_type: String,
    pub(crate) ranges: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Manager {
    pub(crate) fn new(engine: Engine, lock: Option<WriterLock>) -> Self {
        let announced = lock.map(|lock| Arc::new(Announced::new(lock)));
        Self { engine, archive: Latest::new(), options: OnceLock::new(), announced }
    }

    /// Returns the commits of several shards that this process announces to readers; `None` in a reader.
    pub(crate) const fn announced(&self) -> Option<&Arc<Announced>> {
        self.announced.as_ref()
    }

    /// Sets the archive that gets the records after each change.
    pub(crate) fn set_archive(&self, archive: ManagerArchive) {
        self.archive.set(archive);
    }

    /// Keeps the options of the store.
    pub(crate) fn set_options(&self, options: &Options) {
        let _ = self.options.set(options.clone());
    }

    /// Returns the options of the store, or the default ones.
    pub(crate) fn options(&self) -> Options {
        self.options.get().cloned().unwrap_or_default()
    }

    /// Changes the records in one transaction, so that no change of another thread is lost.
    pub(super) fn update(&self, change: &dyn Fn(&mut Encoded) -> Result<()>) -> Result<()> {
        let records = update(&self.engine, &MANAGER, change)?;
        if let Some(archive) = self.archive.get() {
            archive.set(&records);
        }
        Ok(())
    }

    pub(crate) const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the records, or `None` if there are none yet.
    pub(crate) fn read(&self) -> Result<Option<ManagerRecords>> {
        ManagerRecords::decode(&read(&self.engine, &MANAGER)?)
    }

    /// Replaces all records, in one transaction.
    pub(crate) fn write(&self, records: &ManagerRecords) -> Result<()> {
        let records = encoded(records)?;
        self.update(&|all| {
            replace(all, &records);
            Ok(())
        })
    }

    /// Changes the record of a shard.
    pub(crate) fn change_shard(
        &self,
        number: ShardNumber,
        change: &dyn Fn(&mut ShardRecord),
    ) -> Result<()> {
        let own = [SHARDS, &number.to_be_bytes()].concat();
        self.update(&|all| {
            if let Some((key, record)) = all.iter_mut().find(|(key, _)| *key == own) {
                let mut shard: ShardRecord = decode(&MANAGER, key, record)?;
                change(&mut shard);
                *record = encode(&MANAGER, &shard)?;
            }
            Ok(())
        })
    }

    /// Notes that the commit was made that gives a shard its state. If this fails, the next opening of the store does it.
    pub(super) fn confirm(&self, number: ShardNumber) {
        let _ = self.change_shard(number, &ShardRecord::confirm);
    }

    /// Adds the record of a table.
    pub(crate) fn write_table(&self, table: &str, record: &TableRecord) -> Result<()> {
        let record = ([TABLES, table.as_bytes()].concat(), encode(&MANAGER, record)?);
        self.update(&|all| {
            all.retain(|(own, _)| *own != record.0);
            all.push(record.clone());
            Ok(())
        })
    }

    /// Writes the map of a table without a shard key, and the shard of its rows. Earlier releases only read the shard.
    pub(crate) fn write_placed(
        &self,
        (table, name): (&str, &str),
        map: Declared,
        shard: ShardNumber,
    ) -> Result<()> {
        let (key, record) = map_record(name, map)?;
        let place = [PLACES, table.as_bytes()].concat();
        let location = [TABLES, table.as_bytes()].concat();
        self.update(&|all| {
            all.retain(|(own, _)| *own != key);
            all.push((key.clone(), record.clone()));
            for (own, record) in &mut *all {
                if *own == place {
                    *record = encode(&MANAGER, &shard)?;
                } else if *own == location {
                    *record = encode(&MANAGER, &TableRecord::Whole(shard))?;
                }
            }
            Ok(())
        })
    }
}

impl Manager {
    /// Adds or replaces a shard map.
    pub(crate) fn write_map(&self, name: &str, map: Declared) -> Result<()> {
        let (key, record) = map_record(name, map)?;
        self.update(&|all| {
            all.retain(|(own, _)| *own != key);
            all.push((key.clone(), record.clone()));
            Ok(())
        })
    }
}

fn map_record(name: &str, map: Declared) -> Result<(Vec<u8>, Vec<u8>)> {
    let Declared { kind, key_type, boundaries } = map;
    let record = MapRecord { kind, key_type, boundaries };
    Ok(([MAPS, name.as_bytes()].concat(), encode(&MANAGER, &record)?))
}

/// Returns the records of a manager, with their keys.
pub(crate) fn encoded(records: &ManagerRecords) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let ManagerRecords { own, shards, maps, places, tables } = records;
    let mut all = vec![(OWN.to_vec(), encode(&MANAGER, own)?)];
    for (number, shard) in shards.iter().enumerate() {
        let number = ShardNumber::try_from(number).unwrap_or(ShardNumber::MAX);
        all.push(([SHARDS, &number.to_be_bytes()].concat(), encode(&MANAGER, shard)?));
    }
    for (name, map) in maps {
        all.push(map_record(name, map.clone())?);
    }
    for (table, shard) in places {
        all.push(([PLACES, table.as_bytes()].concat(), encode(&MANAGER, shard)?));
    }
    for (table, record) in tables {
        all.push(([TABLES, table.as_bytes()].concat(), encode(&MANAGER, record)?));
    }
    Ok(all)
}

/// Returns the own records of a shard.
pub(super) fn own_records(engine: &Engine) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    read(engine, &SHARD)
}

/// Returns the encoding of the moves of a shard.
pub(super) fn encode_moves(moves: &[&MoveRecord]) -> Result<Vec<u8>> {
    encode(&SHARD, &moves)
}

/// Returns the encoding of the names of the shard maps of global indexes with hidden entries.
pub(super) fn encode_hidden(maps: &BTreeSet<String>) -> Result<Vec<u8>> {
    encode(&SHARD, maps)
}

pub(super) fn decode_hidden(bytes: &[u8]) -> Result<BTreeSet<String>> {
    decode(&SHARD, HIDDEN, bytes)
}

/// Replaces the moves in the records of a shard.
pub(crate) fn write_moves(engine: &Engine, moves: &[&MoveRecord]) -> Result<()> {
    update(engine, &SHARD, &|records| {
        records.retain(|(key, _)| key != MOVES);
        if !moves.is_empty() {
            records.push((MOVES.to_vec(), encode_moves(moves)?));
        }
        Ok(())
    })
    .map(drop)
}

pub(super) fn decode_moves(bytes: &[u8]) -> Result<Vec<MoveRecord>> {
    decode(&SHARD, MOVES, bytes)
}

pub(super) fn decode_identity(bytes: &[u8]) -> Result<Identity> {
    decode(&SHARD, OWN, bytes)
}

/// Returns the encoding of a shard's identity.
pub(super) fn encode_identity(identity: &Identity) -> Result<Vec<u8>> {
    encode(&SHARD, identity)
}

impl ManagerRecords {
    /// Adds the maps of tables without a shard key from the own record of a shard. The manager has such a map after the first
    /// move of the table.
    pub(crate) fn add_placed(&mut self, identity: &Identity) {
        for own in identity.placed_maps() {
            let map = self.maps.entry(own.map.clone()).or_insert_with(Declared::placed);
            for (start, end) in &own.ranges {
                if map.boundaries.shards_within(start, end.as_deref()).is_empty() {
                    map.boundaries.assign(start, end.as_deref(), Some(identity.number));
                }
            }
        }
    }

    /// Decodes the records of a manager; `None` if there are none.
    pub(crate) fn decode(records: &[(Vec<u8>, Vec<u8>)]) -> Result<Option<Self>> {
        let Some((_, own)) = records.iter().find(|(key, _)| key == OWN) else { return Ok(None) };
        let mut found = Self {
            own: decode(&MANAGER, OWN, own)?,
            shards: Vec::new(),
            maps: BTreeMap::new(),
            places: BTreeMap::new(),
            tables: BTreeMap::new(),
        };
        for (key, bytes) in records {
            let name = |prefix| {
                let name = key.strip_prefix(prefix)?;
                Some(String::from_utf8_lossy(name).into_owned())
            };
            if key.starts_with(SHARDS) {
                found.shards.push(decode(&MANAGER, key, bytes)?);
            } else if let Some(name) = name(MAPS) {
                let MapRecord { kind, key_type, boundaries } = decode(&MANAGER, key, bytes)?;
                if !boundaries.is_sound() {
                    return Err(damaged(&MANAGER, key));
                }
                found.maps.insert(name, Declared { kind, key_type, boundaries });
            } else if let Some(name) = name(PLACES) {
                found.places.insert(name, decode(&MANAGER, key, bytes)?);
            } else if let Some(name) = name(TABLES) {
                found.tables.insert(name, decode(&MANAGER, key, bytes)?);
            }
        }
        Ok(Some(found))
    }

    /// Returns the records of a new manager.
    pub(crate) fn new() -> Self {
        let own = ManagerRecord { id: new_id(), version: 0 };
        let (maps, places, tables) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { own, shards: Vec::new(), maps, places, tables }
    }

    /// Returns the number of the shard with this name.
    pub(crate) fn number(&self, name: &str) -> Option<ShardNumber> {
        let is_own = |shard: &ShardRecord| shard.name == name && !shard.is_removed();
        let at = self.shards.iter().position(is_own)?;
        ShardNumber::try_from(at).ok()
    }

    /// Returns the number of the last shard with this name that was removed or detached.
    pub(crate) fn removed_number(&self, name: &str) -> Option<ShardNumber> {
        let at = self.shards.iter().rposition(|shard| shard.name == name && shard.is_removed())?;
        ShardNumber::try_from(at).ok()
    }

    /// Returns the numbers of the shards that were removed.
    pub(crate) fn removed(&self) -> Vec<ShardNumber> {
        let removed = (0..).zip(&self.shards).filter(|(_, shard)| shard.is_removed());
        removed.map(|(number, _)| number).collect()
    }

    /// Whether a shard map assigns keys to a shard, or a table is placed in it.
    pub(crate) fn has_keys(&self, number: ShardNumber) -> bool {
        self.maps.values().any(|map| !map.boundaries.of_shard(number).is_empty())
            || self.places.values().any(|shard| *shard == number)
    }

    /// Removes the last shards that are new, have no keys, and that `is_unused` accepts: their addition was incomplete.
    pub(crate) fn remove_unused(&mut self, is_unused: impl Fn(ShardNumber, &ShardRecord) -> bool) {
        while let Some(last) = self.shards.last()
            && last.state == ShardState::New
        {
            let number = ShardNumber::try_from(self.shards.len() - 1).unwrap_or(ShardNumber::MAX);
            if self.has_keys(number) || !is_unused(number, last) {
                return;
            }
            self.shards.pop();
        }
    }

    /// Returns the identity of a shard.
    pub(crate) fn identity(
        &self,
        number: ShardNumber,
        name: &str,
        manager_directory: &Path,
        directory: &Path,
        checked: Option<Vec<String>>,
    ) -> Identity {
        let maps = self.maps.iter().map(|(map, declared)| OwnRanges::of(map, declared, number));
        let places = self.places.iter().filter(|(_, shard)| **shard == number);
        let text = |path: &Path| path.to_string_lossy().into_owned();
        Identity {
            manager: self.own.id,
            number,
            name: name.to_owned(),
            manager_directory: text(manager_directory),
            directory: text(directory),
            maps: maps.collect(),
            places: places.map(|(table, _)| table.clone()).collect(),
            checked,
            shards: u32::try_from(self.shards.len()).unwrap_or(u32::MAX),
            removed: self.removed(),
        }
    }
}

impl OwnRanges {
    /// Returns the shard's part of a shard map.
    pub(super) fn of(map: &str, declared: &Declared, number: ShardNumber) -> Self {
        Self {
            map: map.to_owned(),
            kind: declared.kind,
            key_type: declared.key_type.clone(),
            ranges: declared.boundaries.of_shard(number),
        }
    }
}

impl Identity {
    /// Whether these two give the shard different ranges of a shard map, or only `other` gives it a table without a shard key: this
    /// record is older than the first move of the table.
    pub(crate) fn contradicts(&self, other: &Self) -> bool {
        let is_missing = |it: &OwnRanges| self.maps.iter().all(|own| own.map != it.map);
        let mut ranges = self.maps.iter();
        ranges.any(|own| other.maps.iter().any(|it| it.map == own.map && it != own))
            || other.placed_maps().any(|it| !it.ranges.is_empty() && is_missing(it))
    }

    /// Returns the shard's parts of the maps of tables without a shard key.
    pub(crate) fn placed_maps(&self) -> impl Iterator<Item = &OwnRanges> {
        self.maps.iter().filter(|own| placed_table(&own.map).is_some())
    }

    /// Reads the identity of a shard. Returns `None` if the store is not a shard yet.
    pub(crate) fn read(engine: &Engine) -> Result<Option<Self>> {
        let records = own_records(engine)?;
        let own = records.iter().find(|(key, _)| key == OWN);
        own.map(|(_, bytes)| decode_identity(bytes)).transpose()
    }

    /// Writes the identity of a shard, which belongs to its store from now on.
    pub(crate) fn write(&self, engine: &Engine) -> Result<()> {
        update(engine, &SHARD, &|records| {
            records.retain(|(key, _)| key != OWN && key != ALONE);
            records.push((OWN.to_vec(), encode_identity(self)?));
            Ok(())
        })
        .map(drop)
    }

    /// Changes the identity of a shard. Records that others change meanwhile are kept. `change` can be called more than once, and
    /// nothing is written if it changes nothing.
    pub(crate) fn change(engine: &Engine, change: &dyn Fn(&mut Self)) -> Result<()> {
        let changed = |own: Self| {
            let mut new = own.clone();
            change(&mut new);
            (new != own).then_some(new)
        };
        if Self::read(engine)?.and_then(changed).is_none() {
            return Ok(());
        }
        update(engine, &SHARD, &|records| {
            let Some((_, bytes)) = records.iter_mut().find(|(key, _)| key == OWN) else {
                return Ok(());
            };
            if let Some(new) = changed(decode_identity(bytes)?) {
                *bytes = encode_identity(&new)?;
            }
            Ok(())
        })
        .map(drop)
    }

    /// Adds a table to the [checked ones](Self::checked) of a shard that comes from elsewhere.
    pub(crate) fn write_checked(engine: &Engine, table: &str) -> Result<()> {
        Self::change(engine, &|own| {
            if let Some(tables) = own.checked.as_mut().filter(|it| it.iter().all(|it| it != table))
            {
                tables.push(table.to_owned());
            }
        })
    }
}

/// Records in a copy of a single shard that it belongs to no store.
pub(crate) fn write_alone(engine: &Engine) -> Result<()> {
    update(engine, &SHARD, &|records| {
        records.retain(|(key, _)| key != ALONE);
        records.push((ALONE.to_vec(), encode(&SHARD, &())?));
        Ok(())
    })
    .map(drop)
}

/// Returns a random number for a new manager.
fn new_id() -> ManagerId {
    let mut hasher = blake3::Hasher::new();
    // The hasher has random keys.
    let random = RandomState::new();
    for salt in 0..4_u8 {
        hasher.update(&random.hash_one(salt).to_be_bytes());
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    hasher.update(&now.as_nanos().to_be_bytes()).update(&process::id().to_be_bytes());
    let mut id = ManagerId::default();
    hasher.finalize_xof().fill(&mut id);
    id
}

fn encode(schema: &TableSchema, record: &impl Serialize) -> Result<Vec<u8>> {
    let bytes = postcard::to_extend(record, vec![VERSION]);
    bytes.map_err(|error| Error::Codec { table: schema.name, reason: error.to_string() })
}

fn decode<T: DeserializeOwned>(
    schema: &'static TableSchema,
    key: &[u8],
    bytes: &[u8],
) -> Result<T> {
    let record = bytes.strip_prefix(&[VERSION]).and_then(|bytes| postcard::from_bytes(bytes).ok());
    record.ok_or_else(|| damaged(schema, key))
}

fn damaged(schema: &'static TableSchema, key: &[u8]) -> Error {
    schema.corrupt(Source::Facts, key, DecodeError::Value("no record that this release can read"))
}

/// Returns all records of a table, with the intact copies of lists.
pub(super) fn read(engine: &Engine, schema: &'static TableSchema) -> Result<Encoded> {
    facts(engine, schema, &use_copies_in)
}

/// Returns all records of a table, which `complete` has changed.
pub(super) fn facts(
    engine: &Engine,
    schema: &'static TableSchema,
    complete: &dyn Fn(Reader<'_>, &mut Encoded) -> Result<()>,
) -> Result<Encoded> {
    let Some(tables) = engine.find_table(schema, Parts::default())? else { return Ok(Vec::new()) };
    let txn = engine.read()?;
    let reader = txn.reader(&tables).ok_or_else(|| Error::internal("another kind of engine"))?;
    let mut records = all(reader)?;
    complete(reader, &mut records)?;
    Ok(records)
}

/// Only the manager has records of lists. The second copies in a shard are of the shard's own tables.
fn is_manager(reader: Reader<'_>) -> bool {
    reader.table().name == MANAGER.name
}

fn use_copies_in(reader: Reader<'_>, records: &mut Encoded) -> Result<()> {
    if is_manager(reader) { use_copies(reader, records) } else { Ok(()) }
}

fn all(reader: Reader<'_>) -> Result<Encoded> {
    let records = reader.scan(Query::new(Source::Facts, KeyRange::ALL))?;
    let records = records.map(|record| {
        let record = record?;
        Ok((record.primary_key.to_vec(), record.data.to_vec()))
    });
    records.collect()
}

/// Changes the records of a table, which are read and written in one transaction. Returns them as they are then. `change` can be
/// called more than once.
fn update(
    engine: &Engine,
    schema: &'static TableSchema,
    change: &dyn Fn(&mut Encoded) -> Result<()>,
) -> Result<Encoded> {
    let mut records = Encoded::new();
    let mut write = |mut writer: Writer<'_, '_>| {
        let before = all(writer.reader())?;
        records.clone_from(&before);
        use_copies_in(writer.reader(), &mut records)?;
        change(&mut records)?;
        let removed = before.iter().filter(|(key, _)| records.iter().all(|it| it.0 != *key));
        for (primary_key, _) in removed {
            writer.change(Change::DeleteFact { primary_key })?;
        }
        for (primary_key, row) in &records {
            writer.change(Change::PutFact { primary_key, row })?;
        }
        if is_manager(writer.reader()) {
            write_copies(&mut writer, &records)?;
        }
        Ok(())
    };
    loop {
        match engine.open_table(schema, Parts::default(), false, &mut write) {
            Ok(_) => return Ok(records),
            // The map is full, for example.
            Err((_, Some(retry))) if engine.prepare(retry)? => {}
            Err((error, _)) => return Err(error),
        }
    }
}

/// Returns the directory of a shard.
pub(crate) fn place_of(manager: &Path, place: &str) -> PathBuf {
    manager.join(place)
}

/// Returns the options that differ from the defaults, for the record of a shard.
pub(crate) fn recorded(options: &Options) -> Vec<(String, u64)> {
    let default = Options::default().numbers();
    let own = options.numbers().into_iter().zip(default);
    let other = own.filter(|(own, default)| own != default);
    other.map(|((name, number), _)| (name.to_owned(), number)).collect()
}

/// Returns the options in the record of a shard. Unknown options are ignored.
pub(crate) fn options_of(recorded: &[(String, u64)]) -> Options {
    recorded
        .iter()
        .fold(Options::default(), |options, (name, number)| options.with_number(name, *number))
}
