//! Hidden entries: entries of global indexes whose rows belong to no shard.
//!
//! When a shard is detached, the entries of its rows stay in the other shards until they have been removed. When a shard is
//! attached, the entries of its rows are added before it belongs to the store. Both can be millions of entries, which no
//! single transaction changes. So queries leave out these entries: the shard map gives their rows to no shard. The commit
//! that changes the shard map hides them, or shows them, together with the rows.
//!
//! | step of `detach_shard` | entries of the rows of the shard |
//! |---|---|
//! | entries in the shard move to other shards | visible |
//! | one commit of all shards: the shard leaves, the index is recorded as one with hidden entries | hidden |
//! | batches remove the hidden entries | hidden |
//! | one commit of all shards: the record is removed | none |
//!
//! | step of `attach_shard` | entries of the rows of the shard |
//! |---|---|
//! | the keys are compared | none |
//! | one commit of all shards: the index is recorded | none |
//! | batches add the entries | hidden; unique keys are taken |
//! | one commit of all shards: the shard belongs to the store, the record is removed | visible |
//!
//! The record is in the `.shard` table of each shard (`docs/FORMAT.md`), and the [maps](super::maps) of a transaction have
//! it. If the process ends before the last commit, the entries stay hidden. They are removed when the repository of the
//! table is opened, and before their rows can belong to a shard again.
//!
//! A writer replaces a hidden entry with a key that it needs, unless the row [is coming](Routing::is_coming): it is in the
//! shard that is being attached.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use super::{Engine, Maps, Writer};
use crate::{
    engine::{Cursor as _, Query, Read as _, Retry},
    model::{
        KeyRange,
        error::{Error, Result},
        maintain::{Change, Sink as _},
        schema::Source,
        shard::{Boundaries, GlobalIndex, Routing, ShardNumber},
    },
    placement::Reader,
};

/// The global indexes that can have hidden entries.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hidden {
    /// The names of their shard maps.
    maps: BTreeSet<String>,
    coming: Option<Arc<Coming>>,
}

/// A shard that is being attached.
#[derive(Debug, Default)]
pub(crate) struct Coming {
    /// The boundaries of the shard maps afterwards.
    boundaries: BTreeMap<String, Arc<Boundaries>>,
    /// Whether its entries may have been removed, because an index was emptied.
    is_lost: AtomicBool,
}

impl Coming {
    pub(crate) fn new(boundaries: impl IntoIterator<Item = (String, Boundaries)>) -> Self {
        let boundaries = boundaries.into_iter().map(|(map, it)| (map, Arc::new(it))).collect();
        Self { boundaries, is_lost: AtomicBool::new(false) }
    }

    /// Whether the entries may have been removed.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(SeqCst)
    }
}

impl Hidden {
    pub(crate) const fn of(maps: BTreeSet<String>) -> Self {
        Self { maps, coming: None }
    }

    /// Returns the names of the shard maps.
    pub(crate) const fn maps(&self) -> &BTreeSet<String> {
        &self.maps
    }

    /// Sets the hidden entries in a routing.
    pub(super) fn in_routing(&self, routing: Routing) -> Routing {
        if self.maps.is_empty() {
            return routing;
        }
        let coming = self.coming.as_ref();
        let coming = coming.and_then(|coming| coming.boundaries.get(routing.map()));
        routing.with_hidden(|map| self.maps.contains(map), coming)
    }
}

impl Engine {
    /// Records, in one commit of all shards, that these global indexes can have hidden entries, by the names of their shard
    /// maps. The caller has the lock of opening tables. A shard that is not available gets the record when it is opened.
    ///
    /// # Errors
    ///
    /// If the error comes with a [`Retry`], the call can be repeated after
    /// [`prepare`](Engine::prepare).
    pub(crate) fn hide(
        &self,
        maps: &BTreeSet<String>,
        coming: Option<&Arc<Coming>>,
    ) -> Result<(), (Error, Option<Retry>)> {
        let hidden = Hidden { maps: maps.clone(), coming: coming.cloned() };
        let shards = self.available(self.maps.now().shards());
        self.change_maps(&shards, &|now| now.with_hidden(hidden.clone()), &mut |_| Ok(()))
    }

    /// Returns the global indexes that can have hidden entries, by the names of their shard maps.
    pub(crate) fn hidden(&self) -> BTreeSet<String> {
        self.maps.now().hidden().maps().clone()
    }

    /// Sets the hidden entries that an earlier process has left.
    pub(crate) fn with_hidden(self, maps: BTreeSet<String>) -> Self {
        if !maps.is_empty() {
            let now: Arc<Maps> = self.maps.now();
            self.maps.install(Arc::new(now.with_hidden(Hidden::of(maps))));
        }
        self
    }

    /// Returns the available shards among these.
    pub(super) fn available(&self, shards: &[ShardNumber]) -> Vec<ShardNumber> {
        let is_available =
            |shard: &ShardNumber| self.shard(*shard).is_ok_and(|it| it.opened().is_ok());
        shards.iter().copied().filter(is_available).collect()
    }

    /// Notes that an index may have been emptied.
    pub(super) fn lose_coming(&self) {
        if let Some(coming) = &self.maps.now().hidden().coming {
            coming.is_lost.store(true, SeqCst);
        }
    }
}

impl Writer<'_> {
    /// Whether a global index of the table can have hidden entries.
    pub(super) fn hides(&self) -> bool {
        self.tables.routing.global_indexes().iter().any(GlobalIndex::hides)
    }

    /// Fails if a row of the shard that is being attached has this key in a unique index.
    ///
    /// # Errors
    ///
    /// [`Error::UniqueViolation`]
    #[cold]
    pub(super) fn refuse_coming(
        &self,
        global: &GlobalIndex,
        key: &[u8],
        primary_key: &[u8],
    ) -> Result<()> {
        let (index, routing) = (global.index(), &self.tables.routing);
        let schema = routing.schema();
        let source = Source::Index(index);
        let Some(declared) = schema.index(source).filter(|declared| declared.unique) else {
            return Ok(());
        };
        let shard = self.tables.shard_of_global(global, index, key)?;
        let reader = self.txn.reader(self.tables, shard, Some(primary_key))?;
        let is_other = |holder: &[u8]| holder != primary_key && routing.is_coming(holder);
        let holder = first_holder(Reader::One(reader), (index, key), &is_other)?;
        let Some(holder) = holder else { return Ok(()) };
        Err(Error::UniqueViolation {
            table: schema.name,
            index: declared.name,
            key: schema.show_key(source, key),
            holder: schema.show_primary_key(&holder),
        })
    }

    /// Replaces the only entry of a key if it is hidden, and returns whether it was.
    #[cold]
    pub(super) fn replace_hidden(
        &mut self,
        global: &GlobalIndex,
        (key, primary_key, data): (&[u8], &[u8], &[u8]),
    ) -> Result<bool> {
        let (index, tables) = (global.index(), self.tables);
        let shard = tables.shard_of_global(global, index, key)?;
        let reader = self.txn.reader(tables, shard, Some(primary_key))?;
        let holder = reader.unique(index, key)?.map(|entry| entry.primary_key.to_vec());
        let is_hidden =
            holder.is_some_and(|holder| tables.routing.is_hidden(Source::Index(index), &holder));
        if is_hidden {
            self.txn.write(tables, shard, Some(primary_key), &mut |writer| {
                writer.change(Change::PutEntry { index, key, primary_key, data })
            })?;
        }
        Ok(is_hidden)
    }
}

/// Returns the primary key of the first entry with this key in one shard that is one of these.
pub(crate) fn first_holder(
    reader: Reader<'_>,
    (index, key): (usize, &[u8]),
    is_it: &dyn Fn(&[u8]) -> bool,
) -> Result<Option<Vec<u8>>> {
    let query = Query::new(Source::Index(index), KeyRange::beginning_with(key));
    let mut entries = reader.cursor(query)?;
    while entries.advance()? {
        let entry = entries.entry();
        if entry.key == key && is_it(entry.primary_key) {
            return Ok(Some(entry.primary_key.to_vec()));
        }
    }
    Ok(None)
}
