//! Selects the rows of a load that are written. An error changes nothing, since nothing has been written yet.
//!
//! Rows that exclude each other share a key, so they are neighbours in the order of that key. With
//! [`OnDuplicate::Skip`], the first of these rows wins, unless it is left out because of another key. Therefore,
//! shared keys are recorded with the rows' numbers, and processed in the order of the input.

use super::{
    OnDuplicate,
    gather::{Gathered, Gist},
};
use crate::model::KeyRange;
use crate::{
    engine::{Ascending as _, Cursor as _, Query, Read as _},
    model::{
        entry::RawEntry, error::Result, maintain::Image, row_vtable::TableRows, schema::Source,
    },
    placement::Reader,
    sort::Sorter,
    write::{maintenance::MaintenancePlan, unique},
};

/// The rows that are left out, and the state of the table.
pub(super) struct Decision {
    pub(super) left_out: Numbers,
    /// The greatest primary key in the table; `None` if it is empty.
    pub(super) greatest: Option<Vec<u8>>,
    /// Whether the table has some of the rows, so that they are replaced or equal.
    pub(super) replaces: bool,
}

impl Decision {
    /// Returns the row of the table with this primary key. Keys above the greatest primary key are not looked up.
    pub(super) fn stored<'t>(
        &self,
        reader: Reader<'t>,
        primary_key: &[u8],
    ) -> Result<Option<&'t [u8]>> {
        match &self.greatest {
            Some(greatest) if primary_key <= greatest.as_slice() => reader.fact(primary_key),
            _ => Ok(None),
        }
    }
}

/// A set of rows by their numbers.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    words: Vec<u64>,
    len: u64,
}

impl Numbers {
    fn insert(&mut self, number: u64) {
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        if let Some(word) = self.words.get_mut(word)
            && *word & bit == 0
        {
            *word |= bit;
            self.len += 1;
        }
    }

    #[inline]
    pub(super) fn contains(&self, number: u64) -> bool {
        let word = self.words.get((number / 64) as usize);
        word.is_some_and(|word| word & (1 << (number % 64)) != 0)
    }

    pub(super) const fn len(&self) -> u64 {
        self.len
    }
}

/// Selects the rows to write.
pub(super) fn decide(
    rows: &TableRows,
    reader: Reader<'_>,
    gathered: &Gathered,
    plan: Option<&MaintenancePlan>,
    old: &mut Image,
) -> Result<Decision> {
    let backwards = Query { reverse: true, ..Query::new(Source::Facts, KeyRange::ALL) };
    let mut facts = reader.cursor(backwards)?;
    let greatest = facts.advance()?.then(|| facts.entry().primary_key.to_vec());
    let decision = Decision { left_out: Numbers::default(), greatest, replaces: false };
    let notes = || Sorter::new(gathered.directory.as_ref().into(), 1 << 12);
    let mut deciding = Deciding {
        rows,
        reader,
        gathered,
        decision,
        common: Notes { sorter: notes(), memory: gathered.memory, keys: 0 },
        taken: Notes { sorter: notes(), memory: gathered.memory, keys: 0 },
    };
    deciding.facts(old)?;
    for (index, declared) in rows.schema.indexes.iter().enumerate() {
        if declared.unique && plan.is_none_or(|plan| plan.enforces_anywhere(index)) {
            deciding.unique(index)?;
        } else if let Some(plan) = plan {
            plan.refuse_emptied(rows.schema, index)?;
        }
    }
    let Deciding { mut decision, common, taken, .. } = deciding;
    skip(&mut decision, common)?;
    refuse_taken(rows, gathered, &decision, taken)?;
    Ok(decision)
}

struct Deciding<'a, 't> {
    rows: &'a TableRows,
    reader: Reader<'t>,
    gathered: &'a Gathered,
    decision: Decision,
    /// With [`OnDuplicate::Skip`]: the shared keys, as (number of the row, number of the key).
    common: Notes,
    /// With [`OnDuplicate::Replace`]: the keys of unique indexes that other rows of the table have, as
    /// (primary key of that row, empty), with the new row, the index and the key.
    taken: Notes,
}

/// Sorted records about rows.
struct Notes {
    sorter: Sorter,
    memory: usize,
    /// The number of numbered keys.
    keys: u64,
}

impl Notes {
    fn add(&mut self, key: &[u8], data: &[u8], tail: &[u8]) -> Result<()> {
        self.sorter.push(key, &[], data, tail)?;
        if self.sorter.memory() > self.memory { self.sorter.spill(1 << 12) } else { Ok(()) }
    }

    /// Records that a row has a key.
    fn add_key(&mut self, row: u64, key: u64) -> Result<()> {
        self.add(&row.to_be_bytes(), &key.to_be_bytes(), &[])
    }

    fn next_key(&mut self) -> u64 {
        self.keys += 1;
        self.keys - 1
    }
}

/// A key, and the first row with it.
#[derive(Default)]
struct First {
    /// The values of hashed fields.
    hashed: Vec<u8>,
    primary_key: Vec<u8>,
    row: u64,
    /// The number of the key, if a second row has the key.
    key: Option<u64>,
}

impl First {
    fn set_to(&mut self, row: Gist<'_>) {
        for (buffer, new) in
            [(&mut self.hashed, row.hashed), (&mut self.primary_key, row.entry.primary_key)]
        {
            buffer.clear();
            buffer.extend_from_slice(new);
        }
        (self.row, self.key) = (row.number, None);
    }

    /// Records that another row has the key too.
    fn add_row(&mut self, other: u64, notes: &mut Notes) -> Result<()> {
        let key = if let Some(key) = self.key {
            key
        } else {
            let key = notes.next_key();
            notes.add_key(self.row, key)?;
            *self.key.insert(key)
        };
        notes.add_key(other, key)
    }
}

impl Deciding<'_, '_> {
    /// Finds the rows with the same primary key.
    fn facts(&mut self, old: &mut Image) -> Result<()> {
        let Self { rows, reader, gathered, decision, common, .. } = self;
        if decision.greatest.is_none() && gathered.facts.came_ascending() {
            return Ok(());
        }
        let (mut facts, mut first, mut any) = (gathered.facts.read(), First::default(), false);
        while let Some(fact) = facts.next()? {
            let (primary_key, row) = (fact.entry.primary_key, fact.number);
            let stored = decision.stored(*reader, primary_key)?;
            let known = any && first.primary_key == primary_key;
            match gathered.on_duplicate {
                OnDuplicate::Fail if known || stored.is_some() => {
                    let error = rows.duplicate(primary_key);
                    return Err(gathered.failed(row, known.then_some(first.row), error));
                }
                OnDuplicate::Skip if stored.is_some() => decision.left_out.insert(row),
                OnDuplicate::Skip if known => first.add_row(row, common)?,
                OnDuplicate::Fail | OnDuplicate::Skip => {}
                OnDuplicate::Replace => {
                    if known {
                        decision.left_out.insert(first.row);
                    }
                    if let Some(stored) = stored {
                        decision.replaces = true;
                        if stored != fact.entry.data {
                            rows.load_stored(old, stored, primary_key)?;
                            rows.check_fields(old)?;
                        }
                    }
                }
            }
            if !known || gathered.on_duplicate == OnDuplicate::Replace {
                first.set_to(fact);
            }
            any = true;
        }
        Ok(())
    }

    /// Finds the rows with the same key in a unique index.
    fn unique(&mut self, index: usize) -> Result<()> {
        let Some(records) = self.gathered.indexes.get(index) else { return Ok(()) };
        let mut entries = records.read();
        // `firsts` has an element for each value of the hashed fields with the same key. There is rarely more
        // than one.
        let (mut key, mut firsts, mut values) = (Vec::new(), vec![First::default()], 0);
        while let Some(entry) = entries.next()? {
            if self.decision.left_out.contains(entry.number) {
                continue;
            }
            if values == 0 || key != entry.entry.key {
                values = 0;
                key.clear();
                key.extend_from_slice(entry.entry.key);
            }
            let known = firsts.iter_mut().take(values).find(|it| it.hashed == entry.hashed);
            if let Some(first) = known {
                if self.gathered.on_duplicate != OnDuplicate::Skip {
                    let (key, holder) = (entry.entry.key, &first.primary_key);
                    let error = self.rows.taken(index, key, entry.hashed, holder);
                    return Err(self.gathered.failed(entry.number, Some(first.row), error));
                }
                first.add_row(entry.number, &mut self.common)?;
                continue;
            }
            if self.decision.greatest.is_some() && self.is_held(index, entry)? {
                self.decision.left_out.insert(entry.number);
                continue;
            }
            if values == firsts.len() {
                firsts.push(First::default());
            }
            if let Some(first) = firsts.get_mut(values) {
                first.set_to(entry);
            }
            values += 1;
        }
        Ok(())
    }

    /// Returns true if the row is left out because another row in the table has its key.
    fn is_held(&mut self, index: usize, entry: Gist<'_>) -> Result<bool> {
        let Gist { entry: RawEntry { key, primary_key, .. }, hashed, number } = entry;
        let Self { rows, reader, gathered, taken, .. } = self;
        let holder = unique::holder(rows, *reader, index, key, primary_key, hashed)?;
        let Some(holder) = holder else { return Ok(false) };
        match gathered.on_duplicate {
            OnDuplicate::Fail => {
                Err(gathered.failed(number, None, rows.taken(index, key, hashed, &holder)))
            }
            OnDuplicate::Skip => Ok(true),
            OnDuplicate::Replace => {
                // The key and the hashed values are stored for the error.
                let numbers = [number, index as u64, key.len() as u64].map(u64::to_ne_bytes);
                taken.add(&holder, &numbers.concat(), &[key, hashed].concat())?;
                Ok(false)
            }
        }
    }
}

/// Processes the rows with shared keys in the order of the input: a row is left out if a written row has one
/// of its keys.
fn skip(decision: &mut Decision, common: Notes) -> Result<()> {
    let sorted = common.sorter.finish(common.memory)?;
    let mut taken = Numbers::default();
    let (mut notes, mut current, mut keys) = (sorted.read(), None, Vec::new());
    let mut settle = |row: Option<u64>, keys: &mut Vec<u64>| {
        if let Some(row) = row
            && !decision.left_out.contains(row)
        {
            if keys.iter().any(|key| taken.contains(*key)) {
                decision.left_out.insert(row);
            } else {
                for key in keys.iter() {
                    taken.insert(*key);
                }
            }
        }
        keys.clear();
    };
    while let Some(RawEntry { key: row, data: key, .. }) = notes.next()? {
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_be_bytes);
        let row = Some(number(row));
        if row != current {
            settle(current, &mut keys);
            current = row;
        }
        keys.push(number(key));
    }
    settle(current, &mut keys);
    Ok(())
}

/// Checks that the load replaces all rows of the table whose keys it uses. A replaced row no longer has the key:
/// if its new content had the key, the load would have two rows with it, which is an error already.
fn refuse_taken(
    rows: &TableRows,
    gathered: &Gathered,
    decision: &Decision,
    taken: Notes,
) -> Result<()> {
    let sorted = taken.sorter.finish(taken.memory)?;
    if sorted.len() == 0 {
        return Ok(());
    }
    let (mut notes, mut facts) = (sorted.read(), gathered.facts.read());
    let mut replaced: Option<Vec<u8>> = None;
    let mut ended = false;
    while let Some(RawEntry { key: holder, data, .. }) = notes.next()? {
        while !ended && replaced.as_deref().is_none_or(|replaced| replaced < holder) {
            match facts.next()? {
                Some(fact) if decision.left_out.contains(fact.number) => {}
                Some(fact) => {
                    let replaced = replaced.get_or_insert_default();
                    replaced.clear();
                    replaced.extend_from_slice(fact.entry.primary_key);
                }
                None => ended = true,
            }
        }
        if replaced.as_deref() != Some(holder) {
            let parts = || {
                let (number, rest) = data.split_first_chunk()?;
                let (index, rest) = rest.split_first_chunk()?;
                let (len, rest) = rest.split_first_chunk()?;
                let (key, hashed) = rest.split_at_checked(u64::from_ne_bytes(*len) as usize)?;
                let number = u64::from_ne_bytes(*number);
                Some((number, u64::from_ne_bytes(*index) as usize, key, hashed))
            };
            let (number, index, key, hashed) = parts().unwrap_or_default();
            return Err(gathered.failed(number, None, rows.taken(index, key, hashed, holder)));
        }
    }
    Ok(())
}
