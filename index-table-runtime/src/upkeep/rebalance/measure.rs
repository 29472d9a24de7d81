//! The weights of the shard keys of a map.
//!
//! If there are few rows, all are read once. Otherwise, the rows in a sample of the leaves are read, so that the cost does
//! not grow with the rows: LMDB maintains the number of rows in each shard, and the sample divides it among the keys. At
//! most [`MOST`] cells of neighbouring keys are kept in memory. If there are more, each cell is joined with the next cell,
//! so a cell has at most a small part of all keys.

use std::{collections::BTreeMap, ops::Bound};

use super::{Cell, Unit};
use crate::{
    engine::{Cursor as _, Query, Read as _, Sampled},
    model::{
        KeyRange,
        error::{Error, Result},
        schema::Source,
        shard::{Boundaries, KeyRequests, MapKind, Routing, slot},
    },
    placement::{Reader, shards::Part},
    store::{Shards, Store},
};

/// The maximum number of cells while rows are read.
const MOST: usize = 1 << 16;

/// The maximum number of rows of all tables that are read completely.
const ALL: u64 = 1 << 16;

/// The number of leaves in the samples of a table, if it has few shards.
const LEAVES: usize = 1024;

/// The minimum number of leaves in the sample of a shard.
const LEAVES_OF_SHARD: usize = 64;

/// A function that returns a key of the boundaries as text.
type Show = Box<dyn Fn(&[u8]) -> String>;

/// The cells of a map, with the functions and types to show them.
pub(super) struct Measured {
    pub(super) cells: Vec<Cell>,
    pub(super) show: Show,
    pub(super) key_type: String,
    /// The number of rows that were read, if the weights are estimates.
    pub(super) sampled: Option<u64>,
}

/// The rows of neighbouring keys.
#[derive(Clone, Copy, Default)]
struct Weight {
    rows: u64,
    bytes: u64,
    has_several: bool,
}

/// The weights by the first key of each cell.
#[derive(Default)]
struct Weights {
    cells: BTreeMap<Vec<u8>, Weight>,
    is_joined: bool,
    rows: u64,
}

impl Weights {
    fn add(&mut self, key: &[u8], [rows, bytes]: [u64; 2], boundaries: &Boundaries) {
        self.rows += rows;
        // Before cells are joined, each key has a cell of its own. Afterwards, a cell gets keys until it has its part.
        let part = if self.is_joined { self.rows / (MOST as u64 / 2) } else { 0 };
        let up_to_key = (Bound::Unbounded, Bound::Included(key));
        let before = self.cells.range_mut::<[u8], _>(up_to_key).next_back();
        let same = before.filter(|(start, weight)| {
            start.as_slice() == key
                || (weight.rows < part
                    && boundaries.segment_of(start) == boundaries.segment_of(key))
        });
        if let Some((start, weight)) = same {
            weight.rows += rows;
            weight.bytes += bytes;
            weight.has_several |= start.as_slice() != key;
            return;
        }
        self.cells.insert(key.to_vec(), Weight { rows, bytes, has_several: false });
        if self.cells.len() > MOST {
            self.join(boundaries);
        }
    }

    /// Joins each cell with the next cell, if both have the same shard.
    fn join(&mut self, boundaries: &Boundaries) {
        let mut joined: BTreeMap<Vec<u8>, Weight> = BTreeMap::new();
        let mut open: Option<(Vec<u8>, Weight)> = None;
        for (key, weight) in std::mem::take(&mut self.cells) {
            match open.take() {
                Some((start, own))
                    if boundaries.segment_of(&start) == boundaries.segment_of(&key) =>
                {
                    let (rows, bytes) = (own.rows + weight.rows, own.bytes + weight.bytes);
                    joined.insert(start, Weight { rows, bytes, has_several: true });
                }
                Some((start, own)) => {
                    joined.insert(start, own);
                    open = Some((key, weight));
                }
                None => open = Some((key, weight)),
            }
        }
        joined.extend(open);
        (self.cells, self.is_joined) = (joined, true);
    }
}

/// Weighs the keys of a map by the rows of its tables.
pub(super) fn cells(
    store: &Store,
    engine: &Shards,
    map: &str,
    (unit, exact): (Unit, bool),
    refused: &dyn Fn(String) -> Error,
) -> Result<Measured> {
    let Some(found) = engine.map(map) else { return Err(refused(engine.no_map()?)) };
    let in_use = store.inner.tables_in_use();
    let is_closed = |name: &String| in_use.iter().all(|table| table.schema.name != name);
    if let Some(name) = engine.tables_with_map(map).into_iter().find(is_closed) {
        return Err(refused(format!("open the repository of table `{name}` first")));
    }
    let mut weights = Weights::default();
    let mut show: Option<Show> = None;
    let txn = store.read()?;
    let mut sources = Vec::new();
    let mut stored = Some(0);
    for table in &in_use {
        let Some(tables) = table.tables.several() else { continue };
        let Some(source) = tables.routing().source_with(map) else { continue };
        let reader = txn.reader_of(table, source)?;
        // A record of an index can have several entries. An index usually has an entry for each row.
        let rows = if source == Source::Facts { None } else { reader.stored(Source::Facts)? };
        let own = reader.stored(source)?.map(|own| own.max(rows.unwrap_or_default()));
        stored = stored.zip(own).map(|(all, own)| all + own);
        sources.push((tables.routing(), source, reader));
    }
    // While rows move, the shards also have copies.
    let is_sampled = !exact && stored.is_some_and(|stored| stored > ALL);
    let mut sampled = 0;
    for (routing, source, reader) in sources {
        let whole = Whole { routing: &routing, source, boundaries: &found.boundaries };
        match reader.parts().filter(|_| is_sampled) {
            Some(parts) => sampled += whole.sample(&mut weights, parts?)?,
            None => _ = whole.read(&mut weights, reader)?,
        }
        let (own, map) = (routing.clone(), map.to_owned());
        let shown = move |key: &[u8]| own.show_boundary_of(&map, key).unwrap_or_default();
        show.get_or_insert_with(|| Box::new(shown));
    }
    drop(txn);
    let show = show.ok_or_else(|| refused("no table with this map is in use".to_owned()))?;
    let mut cells = Vec::new();
    for (start, end, shard) in found.boundaries.segments() {
        let Some(shard) = shard else { continue };
        let inside = weights.cells.range::<[u8], _>((Bound::Included(start), Bound::Unbounded));
        let inside = inside.take_while(|(key, _)| end.is_none_or(|end| key.as_slice() < end));
        let first = cells.len();
        for (key, weight) in inside {
            // The first cell begins where the segment begins.
            let start = if cells.len() == first { start } else { key.as_slice() };
            cells.push(Cell { key: key.clone(), ..cell(start, shard as usize, *weight) });
        }
        if cells.len() == first {
            let none = Weight { has_several: true, ..Weight::default() };
            cells.push(cell(start, shard as usize, none));
        }
        let starts: Vec<_> =
            cells.iter().skip(first + 1).map(|cell: &Cell| cell.start.clone()).collect();
        let ends = starts.into_iter().map(Some).chain([end.map(<[u8]>::to_vec)]);
        for (cell, end) in cells.iter_mut().skip(first).zip(ends) {
            cell.end = end;
        }
    }
    add_requests(&mut cells, engine, map, found.kind == MapKind::Hashed);
    weigh(&mut cells, engine, unit)?;
    let is_hashed = found.kind == MapKind::Hashed;
    for cell in cells.iter_mut().filter(|_| is_hashed) {
        // A slot has many keys, and is the smallest part that moves.
        cell.is_single = false;
    }
    let sampled = is_sampled.then_some(sampled);
    Ok(Measured { cells, show, key_type: found.key_type, sampled })
}

/// A table with the map, or a global index.
struct Whole<'t> {
    routing: &'t Routing,
    source: Source,
    boundaries: &'t Boundaries,
}

impl Whole<'_> {
    /// Returns the key of the boundaries of a row or an entry.
    fn key(&self, key: &[u8], primary_key: &[u8]) -> Option<Vec<u8>> {
        match self.source {
            Source::Facts => self.routing.map_key(primary_key).map(|key| key.to_vec()),
            Source::Index(index) => self.routing.global(index).map(|it| it.map_key(key).to_vec()),
        }
    }

    /// Adds all rows. Returns their number.
    fn read(&self, weights: &mut Weights, reader: Reader<'_>) -> Result<u64> {
        let mut rows = reader.cursor(Query::new(self.source, KeyRange::ALL))?;
        let mut count = 0;
        while rows.advance()? {
            let entry = rows.entry();
            let Some(key) = self.key(entry.key, entry.primary_key) else { continue };
            let bytes = entry.key.len() + entry.primary_key.len() + entry.data.len();
            weights.add(&key, [1, bytes as u64], self.boundaries);
            count += 1;
        }
        Ok(count)
    }

    /// Adds the rows of samples, with the number of rows that each represents. Returns the number of read rows.
    fn sample(&self, weights: &mut Weights, parts: Vec<Part<'_>>) -> Result<u64> {
        let mut with_rows = Vec::new();
        for Part { reader, .. } in parts {
            if reader.stored(self.source)? != Some(0) {
                with_rows.push(reader);
            }
        }
        let leaves = (LEAVES / with_rows.len().max(1)).max(LEAVES_OF_SHARD);
        let mut count = 0;
        for reader in with_rows {
            let mut totals = [Total::default(); 2];
            let mut each = |sampled: Sampled<'_>| {
                let [rows, bytes] = &mut totals;
                let Some(key) = self.key(sampled.key, sampled.primary_key) else { return };
                let added = [rows.add(sampled.entries), bytes.add(sampled.bytes)];
                weights.add(&key, added, self.boundaries);
            };
            count += match reader.sample(self.source, leaves, &mut each)? {
                Some(read) => read,
                None => self.read(weights, reader)?,
            };
        }
        Ok(count)
    }
}

/// A sum of fractions, of which the integers are added to keys without an error that grows with their number.
#[derive(Clone, Copy, Default)]
struct Total {
    exact: f64,
    added: u64,
}

impl Total {
    /// Returns the integer to add.
    fn add(&mut self, part: f64) -> u64 {
        self.exact += part;
        #[expect(clippy::cast_sign_loss, reason = "it is limited to the range of the integer")]
        let rounded = self.exact.round() as u64;
        let added = rounded.saturating_sub(self.added);
        self.added += added;
        added
    }
}

fn cell(start: &[u8], owner: usize, weight: Weight) -> Cell {
    let Weight { rows, bytes, has_several } = weight;
    let (start, is_single, requests) = (start.to_vec(), !has_several, [0; 2]);
    let key = start.clone();
    Cell {
        start,
        key,
        end: None,
        owner,
        weight: 0,
        rows,
        bytes,
        requests,
        is_single,
        is_pinned: false,
    }
}

/// Adds the sampled requests of the shard keys to their cells. The cells are in the order of their keys.
fn add_requests(cells: &mut [Cell], engine: &Shards, map: &str, is_hashed: bool) {
    for KeyRequests { key, reads, writes, .. } in engine.load_of(map).keys() {
        let key = if is_hashed { slot(&key).to_vec() } else { key };
        let after = cells.partition_point(|cell| cell.start <= key);
        let cell = after.checked_sub(1).and_then(|at| cells.get_mut(at));
        if let Some(cell) = cell.filter(|cell| cell.end.as_ref().is_none_or(|end| *end > key)) {
            cell.requests = [cell.requests[0] + reads, cell.requests[1] + writes];
        }
    }
}

/// Sets the weights of cells.
fn weigh(cells: &mut [Cell], engine: &Shards, unit: Unit) -> Result<()> {
    let has_requests = cells.iter().any(|cell| cell.requests != [0; 2]);
    let mut rows: BTreeMap<usize, u64> = BTreeMap::new();
    for cell in cells.iter() {
        *rows.entry(cell.owner).or_default() += cell.rows;
    }
    for cell in cells {
        cell.weight = match unit {
            Unit::Rows => cell.rows,
            Unit::Bytes => cell.bytes,
            Unit::Requests if has_requests => cell.requests.iter().sum(),
            // A global index: its requests are not sampled.
            Unit::Requests => {
                let number = u32::try_from(cell.owner).unwrap_or(u32::MAX);
                let (reads, writes) = engine.shard(number)?.requests();
                let of_shard = u128::from(rows.get(&cell.owner).copied().unwrap_or_default());
                let share = u128::from(reads + writes) * u128::from(cell.rows);
                u64::try_from(share.checked_div(of_shard).unwrap_or_default()).unwrap_or(u64::MAX)
            }
        };
    }
    Ok(())
}
