//! The own records of shards: reading and writing them in transactions, and detecting in a reader that another process
//! has changed them.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    Engine, Identity, Maps, MoveRecord, Moving, Observed, OpenTables, OwnRanges, Tables, Txn,
    manager::{
        ALONE, HIDDEN, MOVES, OWN, SHARD, decode_hidden, decode_identity, decode_moves,
        encode_hidden, encode_identity, encode_moves, own_records,
    },
};
use crate::{
    engine::{self, Read as _},
    model::{
        error::{Error, Result},
        maintain::{Change, Sink as _},
        schema::Parts,
        shard::{Routing, ShardNumber},
    },
};

/// The own records of a shard, as they were when this reader opened the store.
pub(crate) struct Seen {
    identity: Identity,
    /// The bytes of its moves.
    moves: Option<Vec<u8>>,
    /// The global indexes with hidden entries, by the names of their shard maps.
    hidden: BTreeSet<String>,
    /// Whether the shard is a copy of a single shard, and belongs to no store.
    is_alone: bool,
}

impl Seen {
    /// Reads the records of a shard; `None` if it has none.
    pub(crate) fn read(engine: &engine::Engine) -> Result<Option<Self>> {
        let (mut identity, mut moves, mut hidden) = (None, None, BTreeSet::new());
        let mut is_alone = false;
        for (key, bytes) in own_records(engine)? {
            match key.as_slice() {
                OWN => identity = Some(decode_identity(&bytes)?),
                MOVES => moves = Some(bytes),
                HIDDEN => hidden = decode_hidden(&bytes)?,
                ALONE => is_alone = true,
                _ => {}
            }
        }
        Ok(identity.map(|identity| Self { identity, moves, hidden, is_alone }))
    }

    /// Whether the directory of the shard is a plain store: the shard was removed or detached, or it is a copy of a single
    /// shard.
    pub(crate) fn is_plain(&self) -> bool {
        self.is_alone || self.identity.removed.contains(&self.identity.number)
    }

    /// Whether the shard is a copy of a single shard, to which others may have written.
    pub(crate) const fn is_alone(&self) -> bool {
        self.is_alone
    }

    pub(crate) const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the unfinished moves of the shard.
    pub(crate) fn moves(&self) -> Result<Vec<MoveRecord>> {
        self.moves.as_deref().map_or(Ok(Vec::new()), decode_moves)
    }

    /// Returns the global indexes with hidden entries, by the names of their shard maps.
    pub(crate) const fn hidden(&self) -> &BTreeSet<String> {
        &self.hidden
    }

    /// Whether these records give the shard the same ranges, and have the same moves and removed shards, and no further hidden
    /// entries. `used` are the maps that this process uses. Some of them may have been recorded since this process opened the store.
    fn is_same(
        &self,
        used: &Maps,
        identity: Option<&[u8]>,
        moves: Option<&[u8]>,
        hidden: Option<&[u8]>,
    ) -> Result<bool> {
        if let Some(hidden) = hidden
            && !decode_hidden(hidden)?.is_subset(&self.hidden)
        {
            return Ok(false);
        }
        let has_moves = |moves: Option<&[u8]>| moves.map_or(Ok(Vec::new()), decode_moves);
        if self.moves.as_deref() != moves && self.moves()? != has_moves(moves)? {
            return Ok(false);
        }
        let Some(identity) = identity.map(decode_identity).transpose()? else { return Ok(false) };
        // The ranges of the other shards stay the same when a shard is detached or attached. A table without a shard key gets its
        // map with its first move.
        let mut placed = identity.placed_maps().map(|own| &own.map);
        let is_new = |map: &str| self.identity.maps.iter().all(|own| own.map != map);
        if placed.any(|map| is_new(map)) {
            return Ok(false);
        }
        let is_other = |own: &OwnRanges| {
            let used = used.get(&own.map).map(|used| used.own_ranges(&own.map, identity.number));
            used.is_some_and(|used| used != *own)
        };
        if identity.maps.iter().any(|own| is_new(&own.map) && is_other(own)) {
            return Ok(false);
        }
        Ok(!self.identity.contradicts(&identity) && self.identity.removed == identity.removed)
    }
}

/// Opens the table of the own records of a shard.
fn open_own(engine: &engine::Engine) -> Result<OpenTables> {
    let opened = engine.open_table(&SHARD, Parts::default(), false, &mut |_| Ok(()));
    let tables = Arc::new(opened.map_err(|(error, _)| error)?);
    Ok(OpenTables { tables, record: Arc::default() })
}

impl Engine {
    /// Adds a shard to the tables of the shards' records.
    pub(super) fn add_own(
        &self,
        number: ShardNumber,
        name: &Arc<str>,
        engine: &engine::Engine,
    ) -> Result<()> {
        if let Some(own) = self.own.get() {
            own.add(number, name, open_own(engine)?);
        }
        Ok(())
    }

    /// Writes the ranges of these shards, their moves, and the indexes with hidden entries.
    pub(super) fn write_own(
        &self,
        txn: &mut Txn<'_>,
        own: &Tables,
        shards: &[ShardNumber],
        maps: &Maps,
    ) -> Result<()> {
        let removed = (0..self.next_number()).filter(|number| !maps.shards().contains(number));
        let removed: Vec<_> = removed.collect();
        // Most steps of a move don't change the ranges, of which there can be thousands.
        let has_changed = !maps.have_same_ranges(&self.maps.now());
        for &shard in shards {
            let missing = || Error::internal("a shard without its own record");
            let mut changed = None;
            if has_changed {
                let bytes = txn.reader(own).of_shard(shard)?.fact(OWN)?;
                let mut identity = decode_identity(bytes.ok_or_else(missing)?)?;
                identity.removed.clone_from(&removed);
                for ranges in &mut identity.maps {
                    if let Some(map) = maps.get(&ranges.map) {
                        *ranges = map.own_ranges(&ranges.map, shard);
                    }
                }
                for (_, name, map) in maps.placed_maps() {
                    if identity.maps.iter().all(|own| own.map != name) {
                        identity.maps.push(map.own_ranges(name, shard));
                        identity.maps.sort_by(|one, other| one.map.cmp(&other.map));
                    }
                }
                changed = Some(encode_identity(&identity)?);
            }
            let of_shard =
                |moving: &&Arc<Moving>| [moving.record.from, moving.record.to].contains(&shard);
            let moves: Vec<_> = maps.moves().iter().filter(of_shard).map(|it| &it.record).collect();
            let moves = encode_moves(&moves)?;
            let (hidden, had) =
                (maps.hidden().maps(), txn.reader(own).of_shard(shard)?.fact(HIDDEN)?);
            let (hidden, had) =
                ((!hidden.is_empty()).then(|| encode_hidden(hidden)), had.is_some());
            let hidden = hidden.transpose()?;
            let mut writer = txn.writer(own).ok_or_else(missing)?;
            writer.beside(shard, &mut |writer| {
                if let Some(row) = &changed {
                    writer.change(Change::PutFact { primary_key: OWN, row })?;
                }
                writer.change(Change::PutFact { primary_key: MOVES, row: &moves })?;
                match &hidden {
                    Some(row) => writer.change(Change::PutFact { primary_key: HIDDEN, row }),
                    None if had => writer.change(Change::DeleteFact { primary_key: HIDDEN }),
                    None => Ok(()),
                }
            })?;
        }
        Ok(())
    }

    /// Writes the ranges that a removed or detached shard keeps: the ranges that no other shard gets.
    pub(super) fn write_left(
        txn: &mut Txn<'_>,
        own: &Tables,
        shard: ShardNumber,
        maps: &Maps,
    ) -> Result<()> {
        let missing = || Error::internal("a shard without its own record");
        let bytes = txn.reader(own).of_shard(shard)?.fact(OWN)?;
        let mut identity = decode_identity(bytes.ok_or_else(missing)?)?;
        for OwnRanges { map, ranges, .. } in &mut identity.maps {
            let is_kept = |(start, end): &(Vec<u8>, Option<Vec<u8>>)| {
                let now = maps.get(map).map(|map| &map.boundaries);
                now.is_some_and(|now| now.shards_within(start, end.as_deref()).is_empty())
            };
            ranges.retain(is_kept);
        }
        // So its directory is known as a plain store, without the manager.
        identity.removed.push(shard);
        let identity = encode_identity(&identity)?;
        let mut writer = txn.writer(own).ok_or_else(missing)?;
        writer.beside(shard, &mut |writer| {
            writer.change(Change::PutFact { primary_key: OWN, row: &identity })
        })
    }

    /// Writes the tables of a shard from elsewhere whose rows were checked.
    pub(crate) fn write_checked(
        &self,
        txn: &mut Txn<'_>,
        shard: ShardNumber,
        tables: Vec<String>,
    ) -> Result<()> {
        let Some(own) = self.own_tables()? else { return Ok(()) };
        let missing = || Error::internal("a shard without its own record");
        let bytes = txn.reader(own).of_shard(shard)?.fact(OWN)?;
        let identity = decode_identity(bytes.ok_or_else(missing)?)?;
        let identity = encode_identity(&Identity { checked: Some(tables), ..identity })?;
        let mut writer = txn.writer(own).ok_or_else(missing)?;
        writer.beside(shard, &mut |writer| {
            writer.change(Change::PutFact { primary_key: OWN, row: &identity })
        })
    }

    /// Returns the tables of the shards' records; `None` for a store in memory.
    pub(super) fn own_tables(&self) -> Result<Option<&Tables>> {
        if self.manager.is_none() {
            return Ok(None);
        }
        if let Some(own) = self.own.get() {
            return Ok(Some(own));
        }
        let mut shards: Vec<Option<OpenTables>> = Vec::new();
        for shard in self.shards.iter() {
            shards.push(shard.current().map(|open| open_own(open)).transpose()?);
        }
        let routing = Routing::reference(&SHARD, self.maps.now().shards());
        let own = Tables::new(routing, self, shards);
        Ok(Some(self.own.get_or_init(|| own)))
    }

    /// Fails if another process has begun or ended a move, or has detached or attached a shard, since this process opened the
    /// store. Then the shard maps of
    /// this process may not match the rows in its snapshots.
    ///
    /// # Errors
    ///
    /// [`Error::ReopenNeeded`]
    pub(super) fn check_seen(&self, shard: ShardNumber, txn: &engine::Txn<'_>) -> Result<()> {
        let Some(Some((seen, tables))) = self.seen.get(shard as usize) else { return Ok(()) };
        let missing = || Error::internal("records of another engine");
        let reader = txn.reader(tables).ok_or_else(missing)?;
        let used = self.maps.now();
        if seen.is_same(&used, reader.fact(OWN)?, reader.fact(MOVES)?, reader.fact(HIDDEN)?)? {
            return Ok(());
        }
        let reason = "another process is moving rows between the shards, or has detached or attached a shard";
        Err(Error::ReopenNeeded { path: self.directory(), reason })
    }

    /// Fails in a reader if another process has changed the manager since this process opened the store. A shard that was
    /// detached and attached again has the same own record as before.
    ///
    /// # Errors
    ///
    /// [`Error::ReopenNeeded`]
    pub(crate) fn check_version(&self) -> Result<()> {
        let (Some(seen), Some(manager)) = (self.seen_version, &self.manager) else { return Ok(()) };
        if manager.read()?.is_some_and(|records| records.own.version == seen) {
            return Ok(());
        }
        let reason = "another process has changed its shards or its shard maps";
        Err(Error::ReopenNeeded { path: self.directory(), reason })
    }

    /// Sets the version of the manager, the commits that another process announces, and the records that this reader has
    /// found in its shards.
    pub(crate) fn with_seen(
        self,
        (version, observed): (u64, Observed),
        seen: Vec<Option<Seen>>,
    ) -> Result<Self> {
        let mut all = Vec::new();
        for (shard, seen) in self.shards.iter().zip(seen) {
            let tables = match shard.current() {
                Some(open) => open.find_table(&SHARD, Parts::default())?,
                None => None,
            };
            all.push(seen.zip(tables));
        }
        Ok(Self { seen_version: Some(version), seen: all, observed: Some(observed), ..self })
    }
}
