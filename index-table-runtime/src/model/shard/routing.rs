//! The shard of a row, and the shards of a query.

mod span;

pub(super) use self::span::Span;
use self::span::{common_shard_key, leading, range};

use std::{borrow::Cow, ops::Deref, sync::Arc};

use super::{
    Boundaries, GlobalIndex, ShardKey, ShardNumber,
    key::{len_of, show_slot, slot},
};
use crate::model::{
    KeyRange,
    key::{show_key, show_leading},
    schema::{Source, TableSchema},
};

/// The locations of the rows of one table.
#[derive(Debug, Clone)]
pub(crate) struct Routing {
    schema: &'static TableSchema,
    target: Target,
    /// The shards that can have rows, sorted and without duplicates.
    shards: Vec<ShardNumber>,
    /// The global indexes. Most tables have none.
    global: Box<[GlobalIndex]>,
    /// The shards that can have rows or entries, sorted and without duplicates.
    all: Vec<ShardNumber>,
    /// Whether rows are being moved, so that a shard can have rows of another shard.
    rows_move: bool,
    /// Whether rows, or entries of global indexes, are being moved.
    moves: bool,
    /// Whether the rows are parts of rows that can be in other shards.
    has_main_rows_elsewhere: bool,
    /// The boundaries of the shard map after the shard that is being attached, if there is one.
    coming: Option<Arc<Boundaries>>,
    /// For a table without a shard key that has a shard map.
    placed: Option<Placed>,
}

/// The shard map of a table without a shard key.
#[derive(Debug, Clone)]
struct Placed {
    map: Arc<str>,
    /// The shard of the rows before the table had the map.
    origin: ShardNumber,
}

/// The shard key of a table without a shard key. It has no bytes.
const NO_FIELDS: ShardKey = ShardKey { fields: 0, hashed: false, map: "", global: &[] };

#[derive(Debug, Clone)]
enum Target {
    /// All rows are in one shard.
    Whole(ShardNumber),
    /// All rows are in every shard.
    Reference,
    ByKey {
        key: ShardKey,
        /// The length of the shard key, if it is the same for every row.
        len: Option<usize>,
        boundaries: Arc<Boundaries>,
    },
}

/// The shards of a query, each once and in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shards<'r> {
    One([ShardNumber; 1]),
    /// All shards of the table.
    All(&'r [ShardNumber]),
    Some(Vec<ShardNumber>),
}

impl Deref for Shards<'_> {
    type Target = [ShardNumber];

    #[inline]
    fn deref(&self) -> &[ShardNumber] {
        match self {
            Self::One(one) => one,
            Self::All(all) => all,
            Self::Some(some) => some,
        }
    }
}

impl Routing {
    /// Creates the routing of a table in one shard.
    pub(crate) fn whole(schema: &'static TableSchema, shard: ShardNumber) -> Self {
        let (shards, all) = (vec![shard], vec![shard]);
        let target = Target::Whole(shard);
        Self::new(schema, target, shards, all)
    }

    /// Creates the routing of a table with a copy in each of these shards.
    pub(crate) fn reference(schema: &'static TableSchema, shards: &[ShardNumber]) -> Self {
        let (shards, all) = (shards.to_vec(), shards.to_vec());
        let target = Target::Reference;
        Self::new(schema, target, shards, all)
    }

    fn new(
        schema: &'static TableSchema,
        target: Target,
        shards: Vec<ShardNumber>,
        all: Vec<ShardNumber>,
    ) -> Self {
        let (rows_move, moves, has_main_rows_elsewhere) = (false, false, false);
        let global = Box::default();
        Self {
            schema,
            target,
            shards,
            global,
            all,
            rows_move,
            moves,
            has_main_rows_elsewhere,
            coming: None,
            placed: None,
        }
    }

    /// Sets that the rows are parts of rows that can be in other shards.
    pub(crate) fn with_main_rows_elsewhere(self) -> Self {
        Self { has_main_rows_elsewhere: true, ..self }
    }

    /// Whether the rows are parts of rows that can be in other shards.
    pub(crate) const fn has_main_rows_elsewhere(&self) -> bool {
        self.has_main_rows_elsewhere
    }

    /// Whether every shard has a copy of the table.
    pub(crate) const fn is_reference(&self) -> bool {
        matches!(self.target, Target::Reference)
    }

    /// Whether the rows can be in several shards, each row in one of them: the table has a shard key, or was moved to another
    /// shard.
    pub(crate) const fn is_split(&self) -> bool {
        matches!(self.target, Target::ByKey { .. })
    }

    /// Whether the table has no shard key, but a shard map, in which one shard has all keys.
    pub(crate) const fn is_placed(&self) -> bool {
        self.placed.is_some()
    }

    /// Returns the routing of a table in one shard with its shard map; `None` if the table has another routing.
    pub(crate) fn with_placed_map(&self, map: &str, boundaries: Arc<Boundaries>) -> Option<Self> {
        let Target::Whole(origin) = self.target else { return None };
        let placed = Some(Placed { map: map.into(), origin });
        let routing = Self::by_key(self.schema, NO_FIELDS, boundaries, Vec::new());
        let has_main_rows_elsewhere = self.has_main_rows_elsewhere;
        Some(Self { has_main_rows_elsewhere, placed, ..routing })
    }

    /// Creates the routing of a table with a shard key, and with these global indexes.
    pub(crate) fn by_key(
        schema: &'static TableSchema,
        key: ShardKey,
        boundaries: Arc<Boundaries>,
        global: Vec<GlobalIndex>,
    ) -> Self {
        let len = key.of(schema.primary_key).iter().map(|field| field.shape.fixed_len()).sum();
        let shards = boundaries.shards();
        let mut all = shards.clone();
        all.extend(global.iter().flat_map(GlobalIndex::shards));
        all.sort_unstable();
        all.dedup();
        let target = Target::ByKey { key, len, boundaries };
        Self { global: global.into(), ..Self::new(schema, target, shards, all) }
    }

    /// Returns the routing with other boundaries of the shard maps, by their names. Returns `None` if the table has no shard
    /// map, or if a map has no boundaries.
    pub(crate) fn with_maps(
        &self,
        boundaries: impl Fn(&str) -> Option<Arc<Boundaries>>,
        moves: impl Fn(&str) -> bool,
    ) -> Option<Self> {
        let Target::ByKey { key, .. } = self.target else { return None };
        if let Some(Placed { map, origin }) = &self.placed {
            let whole = Self::whole(self.schema, *origin);
            let whole = Self { has_main_rows_elsewhere: self.has_main_rows_elsewhere, ..whole };
            // Maps from before the first move have no map of the table.
            let Some(boundaries) = boundaries(map) else { return Some(whole) };
            return Some(whole.with_placed_map(map, boundaries)?.with_moves(moves));
        }
        let of_index = |global: &GlobalIndex| Some(global.with(boundaries(global.map())?));
        let global = self.global.iter().map(of_index).collect::<Option<Vec<_>>>()?;
        let routing = Self::by_key(self.schema, key, boundaries(key.map)?, global);
        Some(routing.with_moves(moves))
    }

    /// Sets whether rows of the table and entries of its global indexes are being moved, by the names of their shard maps.
    pub(crate) fn with_moves(mut self, moves: impl Fn(&str) -> bool) -> Self {
        self.rows_move = self.is_split() && moves(self.map());
        for global in &mut self.global {
            global.moves = moves(global.map());
        }
        self.moves = self.rows_move || self.global.iter().any(GlobalIndex::moves);
        self
    }

    /// Sets which global indexes can have entries of rows that belong to no shard, by the names of their shard maps, and the
    /// boundaries of the table's shard map after the shard that is being attached.
    pub(crate) fn with_hidden(
        mut self,
        hides: impl Fn(&str) -> bool,
        coming: Option<&Arc<Boundaries>>,
    ) -> Self {
        for global in &mut self.global {
            global.hides = hides(global.map());
        }
        self.coming = coming.cloned();
        self
    }

    /// Whether queries of `source` leave out some entries: copies that are being moved, or entries of rows that belong to no
    /// shard.
    #[inline]
    pub(crate) fn omits(&self, source: Source) -> bool {
        self.moves_in(source) || self.hides_in(source)
    }

    /// Whether queries leave out an entry of `source` in this shard.
    pub(crate) fn is_omitted(
        &self,
        source: Source,
        (key, primary_key): (&[u8], &[u8]),
        shard: ShardNumber,
    ) -> bool {
        self.is_copy(source, (key, primary_key), shard) || self.is_hidden(source, primary_key)
    }

    fn hides_in(&self, source: Source) -> bool {
        matches!(source, Source::Index(index) if self.global(index).is_some_and(GlobalIndex::hides))
    }

    /// Whether an entry of `source` is of a row that belongs to no shard.
    pub(crate) fn is_hidden(&self, source: Source, primary_key: &[u8]) -> bool {
        self.hides_in(source) && self.shard_of(primary_key).is_none()
    }

    /// Whether the row with this primary key is in the shard that is being attached. Its unique keys are taken.
    pub(crate) fn is_coming(&self, primary_key: &[u8]) -> bool {
        let Some(coming) = &self.coming else { return false };
        let key = self.map_key(primary_key).filter(|_| self.shard_of(primary_key).is_none());
        key.is_some_and(|key| coming.shard_of(&key).is_some())
    }

    /// Whether rows of the table, or entries of its global indexes, are being moved. Then a shard can have rows that belong
    /// to another shard, with their entries in local indexes, or entries of global indexes that belong to another shard.
    /// Queries leave them out.
    #[inline]
    pub(crate) const fn moves(&self) -> bool {
        self.moves
    }

    /// Whether a shard can have copies of entries of `source` that are being moved.
    #[inline]
    pub(crate) fn moves_in(&self, source: Source) -> bool {
        self.moves
            && match source {
                Source::Index(index) => self.global(index).map_or(self.rows_move, |it| it.moves),
                Source::Facts => self.rows_move,
            }
    }

    /// Whether an entry of `source` in this shard is a copy that is being moved, which queries leave out.
    pub(crate) fn is_copy(
        &self,
        source: Source,
        (key, primary_key): (&[u8], &[u8]),
        shard: ShardNumber,
    ) -> bool {
        let global = match source {
            Source::Index(index) => self.global(index),
            Source::Facts => None,
        };
        match global {
            Some(global) => global.moves && global.shard_of(key) != Some(shard),
            None => self.rows_move && self.shard_of(primary_key) != Some(shard),
        }
    }

    /// Returns the key in the boundaries of the shard map for the row with this primary key: its shard key, or its slot.
    /// `None` if the table has no shard key.
    pub(crate) fn map_key<'k>(&self, primary_key: &'k [u8]) -> Option<Cow<'k, [u8]>> {
        let Target::ByKey { key, len, .. } = &self.target else { return None };
        let shard_key = self.shard_key(*key, *len, primary_key);
        let slot = || Cow::Owned(slot(shard_key).to_vec());
        Some(if key.hashed { slot() } else { Cow::Borrowed(shard_key) })
    }

    /// Returns the shard key in a primary key; `None` if the table has none.
    pub(crate) fn shard_key_in<'k>(&self, primary_key: &'k [u8]) -> Option<&'k [u8]> {
        let Target::ByKey { key, len, .. } = &self.target else { return None };
        Some(self.shard_key(*key, *len, primary_key))
    }

    /// Returns the shard key of a query of rows or of a local index, if the query gives it at the start of its keys.
    pub(crate) fn shard_key_of<'q>(
        &self,
        source: Source,
        bounds: &'q KeyRange,
    ) -> Option<&'q [u8]> {
        let Target::ByKey { key, .. } = &self.target else { return None };
        let fields = self.schema.index(source).map_or(self.schema.primary_key, |index| index.key);
        leading(fields, key.of(self.schema.primary_key), &Span::of(bounds))
    }

    /// Returns a shard key as text.
    pub(crate) fn show_shard_key(&self, shard_key: &[u8]) -> String {
        let Target::ByKey { key, .. } = &self.target else { return String::new() };
        let fields = key.of(self.schema.primary_key);
        show_key(fields.iter().map(|field| &field.shape), shard_key)
    }

    /// Returns the key in the boundaries of the shard map for a shard key, or for leading fields of the primary key that
    /// begin with it.
    pub(crate) fn map_key_of<'k>(&self, shard_key: &'k [u8]) -> Cow<'k, [u8]> {
        if self.is_hashed() { Cow::Owned(slot(shard_key).to_vec()) } else { shard_key.into() }
    }

    /// Whether a hash of the shard key determines the shard.
    pub(crate) const fn is_hashed(&self) -> bool {
        matches!(&self.target, Target::ByKey { key, .. } if key.hashed)
    }

    /// Returns the schema of the table.
    pub(crate) const fn schema(&self) -> &'static TableSchema {
        self.schema
    }

    /// Returns the shards that can have rows, sorted and without duplicates.
    pub(crate) fn shards(&self) -> &[ShardNumber] {
        &self.shards
    }

    /// Returns the shards that can have rows or entries, sorted and without duplicates. They have the databases of the
    /// table.
    pub(crate) fn all_shards(&self) -> &[ShardNumber] {
        &self.all
    }

    /// Returns the global indexes.
    pub(crate) const fn global_indexes(&self) -> &[GlobalIndex] {
        &self.global
    }

    /// Returns the global index at this position; `None` if the entries of this index are in the shards of their rows.
    #[inline]
    pub(crate) fn global(&self, index: usize) -> Option<&GlobalIndex> {
        self.global.iter().find(|global| global.index == index)
    }

    /// Returns the shards that can have entries of `source`.
    pub(crate) fn shards_with(&self, source: Source) -> &[ShardNumber] {
        match source {
            Source::Index(index) => self.global(index).map_or(&self.shards, GlobalIndex::shards),
            Source::Facts => &self.shards,
        }
    }

    /// Returns the shard of the row with this primary key; `None` if no shard or every shard has it.
    #[inline]
    pub(crate) fn shard_of(&self, primary_key: &[u8]) -> Option<ShardNumber> {
        match &self.target {
            Target::Whole(shard) => Some(*shard),
            Target::Reference => None,
            Target::ByKey { key, len, boundaries } => {
                let shard_key = self.shard_key(*key, *len, primary_key);
                if key.hashed {
                    boundaries.shard_of(&slot(shard_key))
                } else {
                    boundaries.shard_of(shard_key)
                }
            }
        }
    }

    /// Returns the bytes of the shard key in a primary key. Bytes that are not a primary key select some shard, in which
    /// no row has this primary key.
    #[inline]
    fn shard_key<'k>(&self, key: ShardKey, len: Option<usize>, primary_key: &'k [u8]) -> &'k [u8] {
        let len = len.or_else(|| {
            len_of(key.of(self.schema.primary_key).iter().map(|it| &it.shape), primary_key)
        });
        len.and_then(|len| primary_key.get(..len)).unwrap_or(primary_key)
    }

    /// Returns the position, in the shard map, of the segment that contains this primary key; `None` if the table has
    /// no shard key.
    pub(crate) fn segment_of(&self, primary_key: &[u8]) -> Option<usize> {
        let Target::ByKey { key, len, boundaries } = &self.target else { return None };
        let shard_key = self.shard_key(*key, *len, primary_key);
        if key.hashed {
            boundaries.segment_of(&slot(shard_key))
        } else {
            boundaries.segment_of(shard_key)
        }
    }

    /// Returns a boundary of the shard map as text: the values of the shard key, or the number of a slot.
    pub(crate) fn show_boundary(&self, boundary: &[u8]) -> String {
        match &self.target {
            Target::ByKey { key, .. } if key.hashed => show_slot(boundary),
            Target::ByKey { key, .. } => {
                let fields = key.of(self.schema.primary_key);
                show_leading(fields.iter().map(|field| &field.shape), boundary)
            }
            Target::Whole(_) | Target::Reference => String::new(),
        }
    }

    /// Returns a boundary of this shard map as text; `None` if neither the rows nor a global index have this map.
    pub(crate) fn show_boundary_of(&self, map: &str, boundary: &[u8]) -> Option<String> {
        if self.is_split() && self.map() == map {
            return Some(self.show_boundary(boundary));
        }
        self.global_with(map).map(|global| global.show_boundary(boundary))
    }

    /// Returns the facts, or the global index, with this shard map; `None` if the table has neither.
    pub(crate) fn source_with(&self, map: &str) -> Option<Source> {
        if self.is_split() && self.map() == map {
            return Some(Source::Facts);
        }
        self.global_with(map).map(|global| Source::Index(global.index()))
    }

    /// Returns the global index with this shard map.
    pub(crate) fn global_with(&self, map: &str) -> Option<&GlobalIndex> {
        self.global.iter().find(|global| global.map() == map)
    }

    /// Returns the name of the shard map.
    pub(crate) fn map(&self) -> &str {
        if let Some(placed) = &self.placed {
            return &placed.map;
        }
        match &self.target {
            Target::Whole(_) | Target::Reference => "",
            Target::ByKey { key, .. } => key.map,
        }
    }

    /// Returns the shard with this shard key, whose fields are encoded one after another; `None` if no shard
    /// has it.
    pub(crate) fn shard_of_shard_key(&self, shard_key: &[u8]) -> Option<ShardNumber> {
        match &self.target {
            Target::Whole(shard) => Some(*shard),
            Target::Reference => None,
            Target::ByKey { key, boundaries, .. } if key.hashed => {
                boundaries.shard_of(&slot(shard_key))
            }
            Target::ByKey { boundaries, .. } => boundaries.shard_of(shard_key),
        }
    }

    /// Returns the shards that can have entries of `source` within `bounds`, sorted and without duplicates.
    ///
    /// # Errors
    ///
    /// The shard key of all these entries, if no shard has it.
    pub(crate) fn shards_of(
        &self,
        source: Source,
        bounds: &KeyRange,
    ) -> Result<Shards<'_>, Vec<u8>> {
        let Target::ByKey { key, boundaries, .. } = &self.target else {
            return Ok(Shards::All(&self.shards));
        };
        if let Source::Index(index) = source
            && let Some(global) = self.global(index)
        {
            return Ok(global.shards_of(bounds));
        }
        if self.shards.len() <= 1 && boundaries.are_in_one_shard() {
            return Ok(Shards::All(&self.shards));
        }
        let fields = self.schema.index(source).map_or(self.schema.primary_key, |index| index.key);
        let shard_fields = key.of(self.schema.primary_key);
        let span = Span::of(bounds);
        if let Some(shard_key) = leading(fields, shard_fields, &span) {
            let shard = self.shard_of_shard_key(shard_key);
            return shard.map(|shard| Shards::One([shard])).ok_or_else(|| shard_key.to_vec());
        }
        if let Some(shard_key) = common_shard_key(fields, shard_fields, &span) {
            let shard = self.shard_of_shard_key(&shard_key);
            return shard.map(|shard| Shards::One([shard])).ok_or(shard_key);
        }
        Ok(match range(fields, shard_fields, &span) {
            Some((start, end)) if !key.hashed => {
                Shards::Some(boundaries.shards_within(start, end.as_deref()))
            }
            _ => Shards::All(&self.shards),
        })
    }
}
