//! The way through a table: each index, first as it is stored and then entry by entry, and the
//! rows last.
//!
//! In this order a repair can remove first what should not be there and write then what is
//! missing, and each thing that is wrong is met once: entries say whether they are right, rows
//! whether their entries are there.

use std::{collections::VecDeque, marker::PhantomData, rc::Rc};

use super::{
    compare::{self, Difference},
    finding::Kind,
};
use crate::{
    engine::{Entries, Piece, Pieces, RawEntry, Read, Reader},
    entity::Entity,
    error::{Error, Result},
    maintain::Image,
    queue::Queued,
    row,
    scan::{Bounds, Cursor, Position, Query, hash_of},
    schema::{IndexSchema, Source},
};

/// What is gone through, one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// An index as the engine stores it.
    Pieces(usize),
    /// The entries of an index.
    Entries(usize),
    /// The rows.
    Facts,
}

/// Where to go on: behind this place in this stage, or at its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) stage: Stage,
    pub(super) behind: Option<Position>,
}

impl Place {
    pub(super) fn first<R: Entity>() -> Self {
        let stage = if R::TABLE.indexes.is_empty() { Stage::Facts } else { Stage::Pieces(0) };
        Self { stage, behind: None }
    }

    /// What the cursors of a stage belong to.
    fn question<R: Entity>(stage: Stage) -> u64 {
        let (kind, source) = match stage {
            Stage::Pieces(index) => ("pieces", Source::Index(index)),
            Stage::Entries(index) => ("entries", Source::Index(index)),
            Stage::Facts => ("facts", Source::Facts),
        };
        let index = R::TABLE.index_name(source).unwrap_or_default();
        let parts = ["verify", R::TABLE.name, index, kind];
        hash_of(&parts.map(str::as_bytes))
    }

    pub(super) fn cursor<R: Entity>(self) -> Cursor {
        let Self { stage, behind } = self;
        let nowhere = || Position { key: Vec::new(), primary_key: Vec::new() };
        Cursor::new(Self::question::<R>(stage), behind.unwrap_or_else(nowhere))
    }

    pub(super) fn of<R: Entity>(cursor: Cursor) -> Result<Self> {
        let (question, position) = cursor.into_parts();
        let mut stages = (0..R::TABLE.indexes.len())
            .flat_map(|index| [Stage::Pieces(index), Stage::Entries(index)])
            .chain([Stage::Facts]);
        let stage = stages.find(|stage| Self::question::<R>(*stage) == question);
        let stage = stage.ok_or(Error::InvalidCursor {
            reason: "it was not made by a verification of this table; start without a cursor",
        })?;
        let nowhere = position.key.is_empty() && position.primary_key.is_empty();
        Ok(Self { stage, behind: (!nowhere).then_some(position) })
    }
}

/// Something that is wrong, in bytes, and how it is mended.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) kind: Kind,
    pub(super) source: Source,
    /// The index key, or what a piece is stored under.
    pub(super) key: Vec<u8>,
    pub(super) primary_key: Vec<u8>,
    pub(super) reason: String,
    pub(super) fix: Fix,
}

/// How something is mended.
#[derive(Debug)]
pub(super) enum Fix {
    /// It isn't.
    None,
    /// Remove the piece of the index under this key, or all that begin with it. What is missing
    /// then is written when the rows are gone through.
    RemovePieces { all: bool },
    /// Remove the entry.
    Delete,
    /// Write the entry, with this in it.
    Put(Vec<u8>),
    /// Remove all entries of the index.
    Clear,
}

enum Running<'t> {
    Pieces(Pieces<'t>),
    Entries(Box<Entries<'t>>),
}

/// Goes through a table, a step at a time.
pub(super) struct Walk<'t, R> {
    reader: Reader<'t>,
    pub(super) stage: Stage,
    /// What is left of the stage; `None`: it has not begun.
    running: Option<Running<'t>>,
    /// Where the stage begins.
    behind: Option<Position>,
    /// The last step in this stage, and the one before it.
    last: Option<RawEntry<'t>>,
    previous: Option<RawEntry<'t>>,
    /// Steps in this stage, if it was begun at its beginning.
    counted: Option<u64>,
    over: bool,
    found: VecDeque<Found>,
    image: Image,
    /// Of another row, with the same key in a unique index.
    other: Image,
    pub(super) rows: u64,
    pub(super) entries: u64,
    /// What eventual indexes have not got yet, once it is asked for.
    queued: Option<Queued>,
    /// What they have not got yet is to be mended too.
    impatient: bool,
    /// The indexes that are not readable.
    skipped: Rc<[usize]>,
    row: PhantomData<fn() -> R>,
}

impl<'t, R: Entity> Walk<'t, R> {
    pub(super) fn new(
        reader: Reader<'t>,
        skipped: Rc<[usize]>,
        Place { stage, behind }: Place,
    ) -> Self {
        Self {
            reader,
            skipped,
            stage,
            running: None,
            behind,
            last: None,
            previous: None,
            counted: None,
            over: false,
            found: VecDeque::new(),
            image: Image::default(),
            other: Image::default(),
            rows: 0,
            entries: 0,
            queued: None,
            impatient: false,
            row: PhantomData,
        }
    }

    /// The same from another place on.
    pub(super) fn at(self, place: Place) -> Self {
        let impatient = self.impatient;
        Self { impatient, ..Self::new(self.reader, self.skipped, place) }
    }

    /// With what eventual indexes have not got yet among what is wrong.
    pub(super) fn impatient(self) -> Self {
        Self { impatient: true, ..self }
    }

    /// How many steps there are from the beginning to the end.
    pub(super) fn total(&self) -> Result<u64> {
        // The end of a stage is a step too.
        let mut total = self.reader.stored(Source::Facts)? + 1 + 2 * R::TABLE.indexes.len() as u64;
        for index in (0..R::TABLE.indexes.len()).filter(|index| !self.skipped.contains(index)) {
            let source = Source::Index(index);
            let pieces = self.reader.stored(source)?;
            let entries = match self.reader.count(Query::new(source, Bounds::new())) {
                // That it is damaged is what is to be found out.
                Err(Error::Corrupt { .. }) => pieces,
                count => count?.found,
            };
            total += pieces + entries;
        }
        Ok(total)
    }

    /// What has been found and not been taken yet.
    pub(super) fn next_found(&mut self) -> Option<Found> {
        self.found.pop_front()
    }

    /// Behind the last step of which all has been taken that was found; `None`: all is done.
    pub(super) fn place(&self) -> Option<Place> {
        if self.over && self.found.is_empty() {
            return None;
        }
        let last = if self.found.is_empty() { self.last } else { self.previous };
        let behind = last.map(|last| last.position()).or_else(|| self.behind.clone());
        Some(Place { stage: self.stage, behind })
    }

    /// Goes on by one piece, entry or row; `false`: all is done.
    pub(super) fn step(&mut self) -> Result<bool> {
        if self.over {
            return Ok(false);
        }
        if let Stage::Pieces(index) | Stage::Entries(index) = self.stage
            && self.skipped.contains(&index)
        {
            self.next_stage();
            return Ok(true);
        }
        let running = match self.running.take() {
            Some(running) => running,
            None => self.begin()?,
        };
        match running {
            Running::Pieces(mut pieces) => {
                let next = pieces.next().transpose()?;
                self.running = Some(Running::Pieces(pieces));
                match next {
                    Some(piece) => self.piece(piece),
                    None => self.end()?,
                }
            }
            Running::Entries(mut entries) => {
                let next = loop {
                    match entries.next().transpose().map_err(Error::from) {
                        // The piece that it is in has been found to be damaged.
                        Err(Error::Corrupt { .. }) => {}
                        Ok(Some(entry)) if self.is_behind(&entry) => {}
                        next => break next?,
                    }
                };
                self.running = Some(Running::Entries(entries));
                match next {
                    Some(entry) => self.entry(entry)?,
                    None => self.end()?,
                }
            }
        }
        self.leave_out_queued()?;
        Ok(true)
    }

    /// What is different because the worker has not come to it is not wrong.
    fn leave_out_queued(&mut self) -> Result<()> {
        let is_late = |found: &Found| {
            matches!(found.kind, Kind::Stale | Kind::Dangling | Kind::Missing)
                && matches!(found.source, Source::Index(index) if R::TABLE.is_eventual(index))
        };
        if self.impatient || !self.found.iter().any(is_late) {
            return Ok(());
        }
        let queued = match self.queued.take() {
            Some(queued) => queued,
            None => Queued::read(R::TABLE, self.reader)?,
        };
        self.found.retain(|found| match found.source {
            Source::Index(index) => !(is_late(found) && queued.has(index, &found.primary_key)),
            Source::Facts => true,
        });
        self.queued = Some(queued);
        Ok(())
    }

    fn begin(&mut self) -> Result<Running<'t>> {
        let behind = self.behind.clone();
        self.counted = behind.is_none().then_some(0);
        let scan = |source| {
            let query = Query { position: behind.clone(), ..Query::new(source, Bounds::new()) };
            self.reader.scan(query).map(Box::new).map(Running::Entries)
        };
        match self.stage {
            Stage::Pieces(index) => {
                let behind = behind.as_ref().map(Position::bytes);
                self.reader.pieces(index, behind.as_deref()).map(Running::Pieces)
            }
            Stage::Entries(index) => scan(Source::Index(index)),
            Stage::Facts => scan(Source::Facts),
        }
    }

    /// Compares the steps with the engine's account, and goes on to the next stage.
    fn end(&mut self) -> Result<()> {
        let source = match self.stage {
            Stage::Pieces(index) => Some(Source::Index(index)),
            Stage::Entries(_) => None,
            Stage::Facts => Some(Source::Facts),
        };
        if let (Some(source), Some(counted)) = (source, self.counted) {
            let stored = self.reader.stored(source)?;
            if stored != counted {
                let fix = if source == Source::Facts { Fix::None } else { Fix::Clear };
                let reason = format!("the file counts {stored} of them, and there are {counted}");
                self.report(Kind::WrongCount, source, RawEntry::NOWHERE, reason, fix);
            }
        }
        self.next_stage();
        Ok(())
    }

    fn next_stage(&mut self) {
        let next = match self.stage {
            Stage::Pieces(index) => Some(Stage::Entries(index)),
            Stage::Entries(index) if index + 1 < R::TABLE.indexes.len() => {
                Some(Stage::Pieces(index + 1))
            }
            Stage::Entries(_) => Some(Stage::Facts),
            Stage::Facts => None,
        };
        (self.running, self.behind, self.last, self.previous) = (None, None, None, None);
        match next {
            Some(stage) => self.stage = stage,
            None => self.over = true,
        }
    }

    /// Whether an entry is before one of its key that has been seen, and so in a block that was
    /// found to be damaged: to go on there would be to go back.
    fn is_behind(&self, entry: &RawEntry<'_>) -> bool {
        let (key, primary_key) = match (&self.last, &self.behind) {
            (Some(last), _) => (last.key, last.primary_key),
            (None, Some(behind)) => (behind.key.as_slice(), behind.primary_key.as_slice()),
            (None, None) => return false,
        };
        entry.key == key && entry.primary_key <= primary_key
    }

    fn stepped(&mut self, on: RawEntry<'t>) {
        self.previous = self.last.replace(on);
        self.counted = self.counted.map(|counted| counted + 1);
    }

    fn piece(&mut self, Piece { at, fault }: Piece<'t>) {
        self.stepped(RawEntry { key: at, ..RawEntry::NOWHERE });
        let Stage::Pieces(index) = self.stage else { return };
        if let Some(fault) = fault {
            let key = fault.key.and_then(|key| at.get(..key)).unwrap_or(at);
            let fix = Fix::RemovePieces { all: fault.key.is_some() };
            let found = RawEntry { key, ..RawEntry::NOWHERE };
            self.report(Kind::Malformed, Source::Index(index), found, fault.reason, fix);
        }
    }

    fn entry(&mut self, entry: RawEntry<'t>) -> Result<()> {
        self.stepped(entry);
        let Stage::Entries(index) = self.stage else { return self.fact(entry) };
        self.entries += 1;
        let source = Source::Index(index);
        let Some(declared) = R::TABLE.index(source) else { return Ok(()) };
        let Some(fact) = self.reader.fact(entry.primary_key)? else {
            let reason = "it refers to a row that is not in the table";
            self.surplus(Kind::Dangling, source, entry, reason);
            return Ok(());
        };
        // What a row that can't be read has in the index is not known.
        if load::<R>(&mut self.image, entry.primary_key, fact, Some(index)).is_err() {
            return Ok(());
        }
        match compare::compare(&self.image, index, declared, &entry) {
            None => {}
            Some(Difference::Key) => {
                self.surplus(Kind::Stale, source, entry, "its row has no such key");
            }
            Some(Difference::Data) => {
                let fix = Fix::Put(self.image.data(index, declared).to_vec());
                let reason = "it carries something else than its row has";
                self.report(Kind::Stale, source, entry, reason, fix);
            }
        }
        Ok(())
    }

    /// Reports an entry that should not be there.
    fn surplus(&mut self, kind: Kind, source: Source, entry: RawEntry<'t>, reason: &str) {
        if R::TABLE.can_read(source, entry.key, entry.primary_key) {
            self.report(kind, source, entry, reason, Fix::Delete);
        } else {
            self.report(Kind::Malformed, source, entry, "its key can't be decoded", Fix::Delete);
        }
    }

    fn fact(&mut self, fact: RawEntry<'t>) -> Result<()> {
        self.rows += 1;
        match load::<R>(&mut self.image, fact.primary_key, fact.data, None) {
            Ok(()) => {}
            Err((kind, reason)) => {
                self.report(kind, Source::Facts, fact, reason, Fix::None);
                return Ok(());
            }
        }
        for (index, declared) in R::TABLE.indexes.iter().enumerate() {
            if self.skipped.contains(&index) {
                continue;
            }
            for key in self.image.keys(index) {
                let own = self.reader.entry(index, key, fact.primary_key)?;
                let alone = declared.has_one_entry_per_key();
                let holder = if declared.unique && !(alone && own.is_some()) {
                    holder::<R>(self.reader, &self.image, &mut self.other, index, declared, key)?
                } else {
                    None
                };
                let mut report = |kind, reason, fix| {
                    self.found.push_back(Found {
                        kind,
                        source: Source::Index(index),
                        key: key.to_vec(),
                        primary_key: fact.primary_key.to_vec(),
                        reason,
                        fix,
                    });
                };
                if own.is_none() && !(alone && holder.is_some()) {
                    let data = self.image.data(index, declared).to_vec();
                    report(Kind::Missing, "there is no such entry".to_owned(), Fix::Put(data));
                }
                // Where a key can have several entries, all rows but the first are doubles.
                if let Some(holder) = holder
                    && (alone || *holder < *fact.primary_key)
                {
                    let holder = R::TABLE.show_primary_key(holder);
                    let reason = format!("the row {holder} has the key as well");
                    report(Kind::Duplicate, reason, Fix::None);
                }
            }
        }
        Ok(())
    }

    fn report(
        &mut self,
        kind: Kind,
        source: Source,
        at: RawEntry<'_>,
        reason: impl Into<String>,
        fix: Fix,
    ) {
        self.found.push_back(Found {
            kind,
            source,
            key: at.key.to_vec(),
            primary_key: at.primary_key.to_vec(),
            reason: reason.into(),
            fix,
        });
    }
}

/// Takes the image of a row, with its entries in one index or in all.
///
/// # Errors
///
/// What is wrong with a row that has none.
pub(super) fn load<R: Entity>(
    image: &mut Image,
    primary_key: &[u8],
    bytes: &[u8],
    index: Option<usize>,
) -> Result<(), (Kind, String)> {
    let undecodable = |reason| (Kind::UndecodableRow, reason);
    let row: R = row::decode(bytes).map_err(|error| undecodable(error.to_string()))?;
    let loaded = match index {
        Some(index) => image.load_stored_of(&row, bytes, index),
        None => image.load_stored(&row, bytes),
    };
    loaded.map_err(|error| undecodable(error.to_string()))?;
    if image.primary_key() == primary_key {
        return Ok(());
    }
    let key = R::TABLE.show_primary_key(image.primary_key());
    match row::version(bytes) {
        Ok(version) if version != R::TABLE.version => Err((
            Kind::WrongConversion,
            format!("from version {version} it is converted into one with the primary key {key}"),
        )),
        _ => Err((Kind::WrongPrimaryKey, format!("the row has the primary key {key} inside"))),
    }
}

/// The primary key of another row that has this key of a unique index too, as the index has it.
fn holder<'t, R: Entity>(
    reader: Reader<'t>,
    image: &Image,
    other: &mut Image,
    index: usize,
    declared: &IndexSchema,
    key: &[u8],
) -> Result<Option<&'t [u8]>> {
    let query = Query::new(Source::Index(index), Bounds::beginning_with(key));
    for entry in reader.scan(query)? {
        let holder = match entry.map_err(Error::from) {
            Ok(entry) if entry.key == key => entry.primary_key,
            // Damage that has been found before.
            Ok(_) | Err(Error::Corrupt { .. }) => continue,
            Err(error) => return Err(error),
        };
        if holder == image.primary_key() {
            continue;
        }
        if let Some(fact) = reader.fact(holder)?
            && load::<R>(other, holder, fact, Some(index)).is_ok()
            && compare::is_double(image, other, index, key)
        {
            return Ok(Some(holder));
        }
        if declared.has_one_entry_per_key() {
            break;
        }
    }
    Ok(None)
}
