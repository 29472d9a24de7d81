//! Adds the entries of many rows to indexes, and their totals to aggregates.

use std::{env, slice};

use crate::model::KeyRange;
use crate::{
    engine::{Ascending, Cursor as _, Query, Read, Write},
    model::{
        entry::{Position, RawEntry, ShortKey},
        error::{Error, Result},
        index_state::LISTED,
        maintain::{Change, Image, Sink},
        row,
        row_vtable::TableRows,
        schema::{IndexSchema, Source},
    },
    placement::Writer,
    sort::{Merge, Sorters},
    write::{aggregates::Gathered, references, rows::load_both, unique},
};

/// A range of rows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Range<'a> {
    /// The range starts after this primary key; `None` for the first row.
    pub(super) after: Option<&'a [u8]>,
    /// The last primary key of the range, inclusive; `None` for the last row.
    pub(super) until: Option<&'a [u8]>,
    /// The maximum number of bytes. The first row is always included.
    pub(super) bytes: Option<usize>,
}

/// The progress of one call of [`add`].
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) rows: u64,
    /// The primary key of the last row that was read; `None` if the range has no more rows.
    pub(super) last_read: Option<Vec<u8>>,
    /// Whether a row has to be written again first, which this transaction can't do. Then the entries are not complete.
    pub(super) is_refused: bool,
}

/// A duplicate: a row whose key in a unique index another row has.
pub(super) struct Met<'a> {
    pub(super) image: &'a Image,
    pub(super) index: usize,
    pub(super) key: &'a [u8],
    /// The primary key of the other row.
    pub(super) holder: &'a [u8],
    /// The number of duplicates that this value represents.
    pub(super) count: u64,
}

type OnDuplicate<'a> = dyn FnMut(Met<'_>) -> Result<()> + 'a;

/// Writes a row as it is, in the current version and with the current lists.
pub(super) type WriteAgain<'a> =
    &'a mut dyn FnMut(&mut Writer<'_, '_>, &Image, &Image) -> Result<()>;

/// Rows that were written with older lists. A field that they lack has the default of their type, which can be another each time,
/// or in another release. So the rows are written again before they get entries.
pub(super) struct Renewal<'a> {
    /// The indexes that don't have the entries of all rows.
    pub(super) incomplete: &'a [usize],
    /// `None` in one shard, if other shards have copies of its rows, or data of their entries.
    pub(super) write: Option<WriteAgain<'a>>,
}

/// The maximum number of bytes of rows that are kept to be written again.
const RENEWED: usize = 1 << 20;

/// The rows that are to be written again.
#[derive(Default)]
struct Renewed {
    /// The primary key, the stored bytes and the new bytes of each row.
    rows: Vec<[Vec<u8>; 3]>,
    bytes: usize,
}

impl Renewed {
    fn push(&mut self, row: [&[u8]; 3]) {
        self.bytes += row.map(<[u8]>::len).iter().sum::<usize>();
        self.rows.push(row.map(<[u8]>::to_vec));
    }

    fn is_full(&self) -> bool {
        self.bytes >= RENEWED
    }

    fn write(
        &mut self,
        rows: &TableRows,
        writer: &mut Writer<'_, '_>,
        renewal: &mut Renewal<'_>,
    ) -> Result<()> {
        let Some(write) = &mut renewal.write else { return Ok(()) };
        let (mut old, mut new) = (Image::default(), Image::default());
        for [primary_key, stored, renewed] in &self.rows {
            let bytes = [stored.as_slice(), renewed];
            load_both(rows, [&mut old, &mut new], primary_key, bytes, renewal.incomplete)?;
            write(writer, &old, &new)?;
        }
        *self = Self::default();
        Ok(())
    }
}

/// Adds the entries of the rows in the range to these indexes, and the rows to these aggregates, whose positions follow
/// those of the indexes. Entries may already exist. `on_duplicate` is
/// called for each row whose key in a unique index another row has.
///
/// The entries are sorted before they are written. Then consecutive entries are likely to share a page, and
/// entries that are appended to an index fill its pages.
pub(super) fn add(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    indexes: &[usize],
    range: Range<'_>,
    memory: usize,
    renewal: &mut Renewal<'_>,
    on_duplicate: &mut OnDuplicate<'_>,
) -> Result<Done> {
    let first_aggregate = rows.schema.indexes.len();
    let (indexes, aggregates): (Vec<usize>, Vec<usize>) =
        indexes.iter().partition(|position| **position < first_aggregate);
    let mut sorters = Sorters::new(indexes.len(), &env::temp_dir(), memory);
    let done = gather(rows, writer, (&indexes, &aggregates), range, (&mut sorters, renewal))?;
    if done.is_refused {
        return Ok(done);
    }
    for (&index, sorted) in indexes.iter().zip(sorters.finish()?) {
        let source = Source::Index(index);
        let Some(declared) = rows.schema.index(source) else { continue };
        if !declared.unique {
            writer.append(source, &mut sorted.read())?;
        } else if declared.has_one_entry_per_key() && writer.reader().stored(source)? == Some(0) {
            let mut duplicates = Vec::new();
            let mut entries = FirstOfEach::new(sorted.read(), &mut duplicates);
            writer.append(source, &mut entries)?;
            for Duplicate { key, holder, primary_key, count } in &duplicates {
                let (image, count) = (&image(rows, writer, primary_key)?, *count);
                on_duplicate(Met { image, index, key, holder, count })?;
            }
            if !duplicates.is_empty() {
                add_further(writer, index, sorted.read())?;
            }
        } else {
            let mut entries = sorted.read();
            while let Some(entry) = entries.next()? {
                if declared.has_one_entry_per_key() {
                    add_shared(rows, writer, index, entry, on_duplicate)?;
                } else {
                    add_hashed(rows, writer, index, entry, on_duplicate)?;
                }
            }
        }
    }
    Ok(done)
}

/// Reads the rows in the range and adds their entries to the sorters.
fn gather(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    (indexes, aggregates): (&[usize], &[usize]),
    range: Range<'_>,
    (sorters, renewal): (&mut Sorters, &mut Renewal<'_>),
) -> Result<Done> {
    let (first_aggregate, mut totals) = (rows.schema.indexes.len(), Gathered::default());
    let (mut image, mut done, mut bytes) = (Image::default(), Done::default(), 0);
    let (mut older, mut row) = (Renewed::default(), Vec::new());
    let mut after = range.after.map(<[u8]>::to_vec);
    loop {
        let position = after.map(|primary_key| Position { key: Vec::new(), primary_key });
        let query = Query { position, ..Query::new(Source::Facts, KeyRange::ALL) };
        let mut facts = writer.reader().cursor(query)?;
        let is_done = loop {
            if !facts.advance()? {
                break true;
            }
            let fact = facts.entry();
            if range.until.is_some_and(|until| fact.primary_key > until) {
                break true;
            }
            if range.bytes.is_some_and(|most| done.rows > 0 && bytes + fact.data.len() > most) {
                done.last_read = Some(image.primary_key().to_vec());
                break true;
            }
            let differs = rows.load_renewed(&mut image, fact.data, fact.primary_key, &mut row)?;
            if differs && renewal.write.is_none() {
                // The elements of a set inside of the row can have another order each time.
                if !row::has_same_list(rows.schema.version, fact.data, &row) {
                    done.is_refused = true;
                    return Ok(done);
                }
                rows.load_stored(&mut image, fact.data, fact.primary_key)?;
            } else if differs {
                // A default can be another reference than when the reference was declared.
                let orphaned = references::orphaned(rows, writer.reader(), &image, true)?;
                orphaned.into_iter().next().map_or(Ok(()), Err)?;
                older.push([fact.primary_key, fact.data, &row]);
            }
            image.check_lengths(rows.schema)?;
            for (sorter, &index) in indexes.iter().enumerate() {
                let Some(declared) = rows.schema.indexes.get(index) else { continue };
                let data = image.data(index, declared);
                for key in image.keys(index) {
                    sorters.push(sorter, key, fact.primary_key, data, &[])?;
                }
            }
            for position in aggregates {
                let aggregate = position - first_aggregate;
                if let Some(declared) = rows.aggregates.get(aggregate) {
                    image.check_groups(rows.schema, slice::from_ref(declared))?;
                }
                totals.add_to(rows, aggregate, &image);
            }
            done.rows += 1;
            bytes += fact.data.len();
            if totals.is_full() || older.is_full() {
                break false;
            }
        };
        drop(facts);
        totals.write(rows, writer)?;
        older.write(rows, writer, renewal)?;
        if is_done {
            return Ok(done);
        }
        after = Some(image.primary_key().to_vec());
    }
}

/// Writes all readable rows with older lists again.
pub(super) fn renew(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    renewal: &mut Renewal<'_>,
) -> Result<()> {
    let (mut image, mut row, mut position) = (Image::default(), Vec::new(), None);
    loop {
        let mut older = Renewed::default();
        let query = Query { position, ..Query::new(Source::Facts, KeyRange::ALL) };
        let mut facts = writer.reader().cursor(query)?;
        while !older.is_full() && facts.advance()? {
            let fact = facts.entry();
            if matches!(
                rows.load_renewed(&mut image, fact.data, fact.primary_key, &mut row),
                Ok(true)
            ) {
                older.push([fact.primary_key, fact.data, &row]);
            }
        }
        drop(facts);
        let Some([primary_key, ..]) = older.rows.last() else { return Ok(()) };
        position = Some(Position { key: Vec::new(), primary_key: primary_key.clone() });
        older.write(rows, writer, renewal)?;
    }
}

/// Writes all entries of an index again, into the empty index. Entries in damaged pieces are lost.
pub(crate) fn rewrite(rows: &TableRows, writer: &mut Writer<'_, '_>, index: usize) -> Result<()> {
    let source = Source::Index(index);
    let mut sorters = Sorters::new(1, &env::temp_dir(), super::MEMORY);
    let mut entries = writer.reader().cursor(Query::new(source, KeyRange::ALL))?;
    loop {
        match entries.advance().map_err(Error::from) {
            Ok(false) => break,
            Ok(true) => {
                let RawEntry { key, primary_key, data } = entries.entry();
                sorters.push(0, key, primary_key, data, &[])?;
            }
            Err(Error::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    drop(entries);
    writer.clear(index)?;
    let is_unique = rows.schema.index(source).is_some_and(IndexSchema::has_one_entry_per_key);
    for sorted in sorters.finish()? {
        let mut entries = sorted.read();
        if !is_unique {
            writer.append(source, &mut entries)?;
            continue;
        }
        // In a violated index, a key can have several entries.
        while let Some(RawEntry { key, primary_key, data }) = entries.next()? {
            writer.put_shared(index, key, primary_key, data)?;
        }
    }
    Ok(())
}

/// Adds all entries except the first of each key, which the index already has.
fn add_further(writer: &mut Writer<'_, '_>, index: usize, mut entries: Merge) -> Result<()> {
    let mut last: Option<Vec<u8>> = None;
    while let Some(RawEntry { key, primary_key, data }) = entries.next()? {
        if last.as_deref() == Some(key) {
            writer.put_shared(index, key, primary_key, data)?;
        } else {
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
        }
    }
    Ok(())
}

/// Adds an entry to a unique index, and keeps the entries of other rows with its key.
fn add_shared(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    index: usize,
    entry: RawEntry<'_>,
    on_duplicate: &mut OnDuplicate<'_>,
) -> Result<()> {
    let RawEntry { key, primary_key, data } = entry;
    writer.put_shared(index, key, primary_key, data)?;
    let first = writer.reader().unique(index, key)?;
    let holder = first.map(|first| first.primary_key).filter(|holder| !holder.is(primary_key));
    match holder.map(ShortKey::to_vec) {
        Some(holder) => {
            let image = &image(rows, writer, primary_key)?;
            on_duplicate(Met { image, index, key, holder: &holder, count: 1 })
        }
        None => Ok(()),
    }
}

/// Adds an entry to a unique index with hashed fields, in which rows with the same key may have different
/// values.
fn add_hashed(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    index: usize,
    entry: RawEntry<'_>,
    on_duplicate: &mut OnDuplicate<'_>,
) -> Result<()> {
    let RawEntry { key, primary_key, data } = entry;
    let others = Query::new(Source::Index(index), KeyRange::beginning_with(key));
    let is_shared = writer.reader().scan(others)?.any(|other| {
        // The search for the holder returns this error.
        other.map_or(true, |other| other.key == key && !other.primary_key.is(primary_key))
    });
    if is_shared {
        let image = image(rows, writer, primary_key)?;
        let hashed = image.hashed(index);
        let holder = unique::holder(rows, writer.reader(), index, key, primary_key, hashed)?;
        if let Some(holder) = holder {
            on_duplicate(Met { image: &image, index, key, holder: &holder, count: 1 })?;
        }
    }
    writer.change(Change::PutEntry { index, key, primary_key, data })
}

/// Returns the image of the row with this primary key.
fn image(rows: &TableRows, writer: &Writer<'_, '_>, primary_key: &[u8]) -> Result<Image> {
    let mut image = Image::default();
    if let Some(fact) = writer.reader().fact(primary_key)? {
        rows.load_stored(&mut image, fact, primary_key)?;
    }
    Ok(image)
}

/// An iterator over the first entry of each key, from sorted entries.
struct FirstOfEach<'a> {
    entries: Merge,
    duplicates: &'a mut Vec<Duplicate>,
    key: Vec<u8>,
    primary_key: Vec<u8>,
    data: Vec<u8>,
    started: bool,
}

/// A row whose key an earlier row, the holder, has.
struct Duplicate {
    key: Vec<u8>,
    holder: Vec<u8>,
    primary_key: Vec<u8>,
    /// The number of duplicates that this value represents. The last listed duplicate represents all further
    /// duplicates, so that memory is limited.
    count: u64,
}

impl<'a> FirstOfEach<'a> {
    fn new(entries: Merge, duplicates: &'a mut Vec<Duplicate>) -> Self {
        let (key, primary_key, data) = (Vec::new(), Vec::new(), Vec::new());
        Self { entries, duplicates, key, primary_key, data, started: false }
    }
}

impl Ascending for FirstOfEach<'_> {
    fn next(&mut self) -> Result<Option<RawEntry<'_>>> {
        loop {
            let Some(RawEntry { key, primary_key, data }) = self.entries.next()? else {
                return Ok(None);
            };
            if self.started && self.key == key {
                let listed = self.duplicates.len();
                match self.duplicates.last_mut() {
                    Some(last) if listed == LISTED => last.count += 1,
                    _ => self.duplicates.push(Duplicate {
                        key: key.to_vec(),
                        holder: self.primary_key.clone(),
                        primary_key: primary_key.to_vec(),
                        count: 1,
                    }),
                }
                continue;
            }
            self.started = true;
            for (buffer, bytes) in
                [(&mut self.key, key), (&mut self.primary_key, primary_key), (&mut self.data, data)]
            {
                buffer.clear();
                buffer.extend_from_slice(bytes);
            }
            break;
        }
        let Self { key, primary_key, data, .. } = self;
        Ok(Some(RawEntry { key, primary_key, data }))
    }
}
