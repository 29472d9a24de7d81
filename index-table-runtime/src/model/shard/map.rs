//! Declarations of shard maps.

use std::ops::{Bound, RangeBounds};

use super::{Boundaries, HASHED, SLOTS, ShardNumber};
use crate::model::key::{Key, KeyBuf, KeyShape, show_key, successor};

/// The assignment of keys to shards, for [`Options::map`](crate::Options::map).
///
/// There are three kinds: [`ranges`](ShardMap::ranges) keeps neighbouring keys together,
/// [`list`](ShardMap::list) lists each key, and [`hashed`](ShardMap::hashed) distributes keys evenly, for
/// tables declared with `shard_by = hash(…)`.
///
/// # Examples
///
/// ```
/// use index_table::ShardMap;
///
/// let by_tenant: ShardMap = ShardMap::ranges().to("north", ..100u32).to("south", 100u32..).into();
/// let by_name: ShardMap = ShardMap::ranges().to("north", .."M").to("south", "M"..).into();
/// let by_country: ShardMap = ShardMap::list().to("north", ["NO", "SE"]).otherwise("south").into();
/// let by_hash = ShardMap::hashed(["north", "south"]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a map does nothing until a store is opened with it"]
pub struct ShardMap {
    kind: MapKind,
    /// The name of the key type, and its shape; `None` before the first key.
    key: Option<(String, KeyShape)>,
    /// The first key, the first key after it, and the shard of each part.
    parts: Vec<(Vec<u8>, Option<Vec<u8>>, String)>,
    otherwise: Option<String>,
    /// The reason why the map is invalid.
    fault: Option<String>,
}

/// The three kinds of map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum MapKind {
    Ranges,
    List,
    Hashed,
}

/// A [`ShardMap`] of ranges; from [`ShardMap::ranges`].
#[derive(Debug, Clone)]
#[must_use = "a map does nothing until a store is opened with it"]
pub struct RangeMap(ShardMap);

/// A [`ShardMap`] of single keys; from [`ShardMap::list`].
#[derive(Debug, Clone)]
#[must_use = "a map does nothing until a store is opened with it"]
pub struct ListMap(ShardMap);

/// A shard key in a shard map: any key type, or `&str` for strings. A shard key of several fields is a tuple.
pub trait ShardKeyValue {
    /// The shape of the encoding.
    #[doc(hidden)]
    const SHAPE: KeyShape;

    /// Appends the encoding.
    #[doc(hidden)]
    fn encode(&self, out: &mut KeyBuf);
}

impl<T: Key> ShardKeyValue for T {
    const SHAPE: KeyShape = T::SHAPE;

    fn encode(&self, out: &mut KeyBuf) {
        T::encode(self.arg(), out);
    }
}

impl ShardKeyValue for &str {
    const SHAPE: KeyShape = KeyShape::Text;

    fn encode(&self, out: &mut KeyBuf) {
        <String as Key>::encode(self, out);
    }
}

fn encoded(value: &impl ShardKeyValue) -> Vec<u8> {
    let mut key = KeyBuf::new();
    value.encode(&mut key);
    key.as_bytes().to_vec()
}

/// A range of encoded shard keys, or of slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: Vec<u8>,
    /// The first key after the range.
    pub(crate) end: Option<Vec<u8>>,
}

impl Span {
    /// Returns the span of a range of keys; `None` if it has no keys.
    pub(crate) fn of_range<K: ShardKeyValue>(range: &impl RangeBounds<K>) -> Option<Self> {
        let start = match range.start_bound() {
            Bound::Unbounded => Some(Vec::new()),
            Bound::Included(key) => Some(encoded(key)),
            Bound::Excluded(key) => after_prefix(encoded(key)),
        };
        let end = match range.end_bound() {
            Bound::Unbounded => None,
            Bound::Included(key) => after_prefix(encoded(key)),
            Bound::Excluded(key) => Some(encoded(key)),
        };
        let start = start.filter(|start| end.as_ref().is_none_or(|end| end > start))?;
        Some(Self { start, end })
    }

    /// Returns the span with the empty key as its start, if it starts with the least value of a type with values of a fixed
    /// length. There are no keys in between.
    pub(crate) fn with_first_key(mut self, shape: &KeyShape) -> Self {
        if shape.fixed_len() == Some(self.start.len()) && self.start.iter().all(|byte| *byte == 0) {
            self.start.clear();
        }
        self
    }

    /// Returns the span of a range of slots; `None` if it has no slots.
    pub(crate) fn of_slots(slots: &impl RangeBounds<u16>) -> Option<Self> {
        let start = match slots.start_bound() {
            Bound::Unbounded => 0,
            Bound::Included(slot) => *slot,
            Bound::Excluded(slot) => slot.checked_add(1)?,
        };
        let end = match slots.end_bound() {
            Bound::Unbounded => SLOTS,
            Bound::Included(slot) => slot.checked_add(1)?,
            Bound::Excluded(slot) => *slot,
        };
        let end = end.min(SLOTS);
        let bytes = |slot: u16| slot.to_be_bytes().to_vec();
        // The first slot starts with the empty key.
        let start_of = |slot: u16| if slot == 0 { Vec::new() } else { bytes(slot) };
        (start < end)
            .then(|| Self { start: start_of(start), end: (end < SLOTS).then(|| bytes(end)) })
    }

    /// Returns the span of one key.
    pub(crate) fn of_key<K: ShardKeyValue>(key: &K) -> Self {
        let start = encoded(key);
        Self { end: after_prefix(start.clone()), start }
    }
}

/// Returns the smallest bytes after all keys that begin with this key; `None` if there are none.
fn after_prefix(mut key: Vec<u8>) -> Option<Vec<u8>> {
    successor(&mut key).then_some(key)
}

impl ShardMap {
    const fn new(kind: MapKind) -> Self {
        Self { kind, key: None, parts: Vec::new(), otherwise: None, fault: None }
    }

    /// Creates a map that assigns ranges of keys to shards. Keys outside of all ranges belong to no shard. Writing a
    /// row with such a key fails with [`Error::NoShard`](crate::Error::NoShard), until
    /// [`move_range`](crate::Store::move_range) assigns it to a shard.
    pub const fn ranges() -> RangeMap {
        RangeMap(Self::new(MapKind::Ranges))
    }

    /// Creates a map of single keys, with an optional shard for all [other keys](ListMap::otherwise).
    pub const fn list() -> ListMap {
        ListMap(Self::new(MapKind::List))
    }

    /// Creates a map of 4,096 slots for tables declared with `shard_by = hash(…)`. The numbers of slots of
    /// two shards differ by at most one.
    pub fn hashed<S: Into<String>>(shards: impl IntoIterator<Item = S>) -> Self {
        let shards: Vec<String> = shards.into_iter().map(Into::into).collect();
        let mut map = Self::new(MapKind::Hashed);
        let count = shards.len();
        if count == 0 || count > usize::from(SLOTS) {
            map.fault =
                Some(format!("a hash map has from 1 to {SLOTS} shards, but this map has {count}"));
            return map;
        }
        let slot = |shard: usize| {
            let slot = shard * usize::from(SLOTS) / count;
            u16::try_from(slot).unwrap_or(SLOTS).to_be_bytes().to_vec()
        };
        let parts = shards.into_iter().enumerate();
        map.parts = parts.map(|(at, shard)| (slot(at), Some(slot(at + 1)), shard)).collect();
        map
    }

    fn expect<K: ShardKeyValue>(&mut self) {
        let name = K::SHAPE.to_string();
        match &self.key {
            Some((other, _)) if *other != name => {
                self.fault = Some(format!("it has keys of type `{other}` and of type `{name}`"));
            }
            _ => self.key = Some((name, K::SHAPE)),
        }
    }

    fn add(&mut self, start: Vec<u8>, end: Option<Vec<u8>>, shard: String) {
        let overlaps = self.parts.iter().find(|(other, other_end, _)| {
            end.as_ref().is_none_or(|end| other < end)
                && other_end.as_ref().is_none_or(|other_end| *other_end > start)
        });
        if let Some((other, ..)) = overlaps {
            let key = self.show(start.as_slice().max(other));
            self.fault.get_or_insert(format!("it has the key {key} twice"));
        }
        self.parts.push((start, end, shard));
    }

    fn show(&self, key: &[u8]) -> String {
        match &self.key {
            Some((_, shape)) => show_key(std::iter::once(shape), key),
            None => format!("{key:?}"),
        }
    }

    /// Returns the stored form of the map. `number` returns the number of a shard.
    ///
    /// # Errors
    ///
    /// The reason why the map is invalid.
    pub(crate) fn declare(
        &self,
        number: impl Fn(&str) -> Option<ShardNumber>,
    ) -> Result<Declared, String> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        let number = |shard: &str| number(shard).ok_or(format!("there is no shard `{shard}`"));
        let otherwise = self.otherwise.as_deref().map(number).transpose()?;
        let mut boundaries = Boundaries::all_in(otherwise);
        for (start, end, shard) in &self.parts {
            boundaries.assign(start, end.as_deref(), Some(number(shard)?));
        }
        let key_type = match (self.kind, &self.key) {
            (MapKind::Hashed, _) => HASHED.to_owned(),
            (_, Some((name, _))) => name.clone(),
            (_, None) => return Err("it has no keys".to_owned()),
        };
        Ok(Declared { kind: self.kind, key_type, boundaries })
    }
}

/// The stored form of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Declared {
    pub(crate) kind: MapKind,
    /// The name of the key type.
    pub(crate) key_type: String,
    pub(crate) boundaries: Boundaries,
}

impl RangeMap {
    /// Assigns a range of keys to a shard. A shard can have several ranges.
    pub fn to<K: ShardKeyValue>(
        mut self,
        shard: impl Into<String>,
        range: impl RangeBounds<K>,
    ) -> Self {
        self.0.expect::<K>();
        if let Some(Span { start, end }) = Span::of_range(&range) {
            self.0.add(start, end, shard.into());
        } else {
            let shard = shard.into();
            self.0.fault.get_or_insert(format!("a range of shard `{shard}` has no keys"));
        }
        self
    }
}

impl ListMap {
    /// Assigns keys to a shard.
    pub fn to<K: ShardKeyValue>(
        mut self,
        shard: impl Into<String>,
        keys: impl IntoIterator<Item = K>,
    ) -> Self {
        self.0.expect::<K>();
        let shard = shard.into();
        for key in keys {
            let key = encoded(&key);
            self.0.add(key.clone(), after_prefix(key), shard.clone());
        }
        self
    }

    /// Assigns all other keys to a shard. Without this call, they belong to no shard, and writing a row with
    /// such a key fails with [`Error::NoShard`](crate::Error::NoShard), until
    /// [`move_keys`](crate::Store::move_keys) assigns it to a shard.
    pub fn otherwise(mut self, shard: impl Into<String>) -> Self {
        self.0.otherwise = Some(shard.into());
        self
    }
}

impl From<RangeMap> for ShardMap {
    fn from(map: RangeMap) -> Self {
        map.0
    }
}

impl From<ListMap> for ShardMap {
    fn from(map: ListMap) -> Self {
        map.0
    }
}
