//! Measures candidate layouts of a normalized index in LMDB for primary keys of a fixed length.
//! `docs/LAYOUT.md` has the figures and the choice.
//!
//! ```text
//! cargo run --release -p index-table-bench --bin layouts -- [ROWS] [ROUNDS]
//! ```
//!
//! The candidates, on index keys of 12 bytes and primary keys of 8:
//!
//! - **A**: index key and primary key → nothing;
//! - **B**: index key → primary keys, as duplicates (`DUPSORT` and `DUPFIXED`);
//! - **C1**: blocks of primary keys with a maximum size in bytes, as in
//!   `index-table-runtime/src/engine/lmdb/blocks.rs`: a block is written through the cursor that found it, or
//!   without a search if a new key is likely;
//! - **C2**: the same blocks, always found with one call and written with another.
//!
//! One transaction inserts all rows, another scans and counts the rows of each key, and a third deletes a
//! random fifth of the rows. The times include the calls only, without commits, and nothing is synced. The
//! space is the number of pages by which the file grows. Each round measures every candidate, and the figures
//! are medians of the rounds. After the inserts and after the deletes, the entries of the index are compared
//! with a sorted list of the rows.

use std::{
    cmp::Ordering, env, error::Error, fs, hint::black_box, ops::Bound, path::Path, process,
    time::Instant,
};

use heed::{
    AnyTls, CommitOrAbort, DatabaseFlags, EnvFlags, EnvOpenOptions, PutFlags, Result, RoTxn,
    RwRevRange, RwTxn, types::Bytes,
};
use index_table_bench::{
    layouts::{Key, Row, Workload},
    median,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Composite,
    Duplicates,
    /// The argument is the maximum size of a block, in bytes.
    OneCursor(usize),
    TwoSteps(usize),
}

const VARIANTS: [(&str, Layout); 7] = [
    ("A", Layout::Composite),
    ("B", Layout::Duplicates),
    ("C1 128", Layout::OneCursor(128)),
    ("C1 256", Layout::OneCursor(256)),
    ("C1 512", Layout::OneCursor(512)),
    ("C1 1024", Layout::OneCursor(1024)),
    ("C2 512", Layout::TwoSteps(512)),
];
const CHOSEN: usize = 4;

const MEASURES: [&str; 5] = ["Insert, ns", "Space, bytes", "Scan, ns", "Count, ns", "Delete, ns"];
type Figures = [f64; MEASURES.len()];

type Outcome<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut arguments = env::args().skip(1);
    let rows: usize = arguments.next().map_or(Ok(500_000), |rows| rows.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(3), |rounds| rounds.parse())?;
    if rows < 5 || rounds == 0 {
        return Err("at least five rows and one round".into());
    }
    let directory = env::temp_dir().join(format!("index-table-layouts-{}", process::id()));
    let mut results = Vec::new();
    for sequential in [false, true] {
        for keys in [1, 1_000.min(rows), rows / 5, rows / 2, rows] {
            let workload = Workload::new(rows, keys, sequential);
            eprintln!("{}", workload.name);
            let mut figures: [Vec<Figures>; VARIANTS.len()] = Default::default();
            for turn in 0..rounds * VARIANTS.len() {
                // The order of the candidates changes between rounds.
                let variant = (turn + turn / VARIANTS.len() * 3) % VARIANTS.len();
                figures[variant].push(measure(VARIANTS[variant].1, &workload, &directory)?);
            }
            results.push((workload.name, figures));
        }
    }
    let (names, chosen) = (VARIANTS.map(|(name, _)| name).join(" | "), VARIANTS[CHOSEN].0);
    for (measure, title) in MEASURES.iter().enumerate() {
        println!("\n### {title} a row\n");
        println!("| keys, primary keys | {names} | {chosen} : B | {chosen} : best of A, B |");
        println!("|---|{}", "--:|".repeat(VARIANTS.len() + 2));
        for (workload, figures) in &results {
            let figures = figures.each_ref().map(|rounds| rounds.iter().map(|it| it[measure]));
            print_line(workload, figures.map(median));
        }
    }
    Ok(())
}

fn print_line(workload: &str, figures: [f64; VARIANTS.len()]) {
    let cells = figures.map(|figure| match figure {
        ..10.0 => format!("{figure:.2}"),
        ..100.0 => format!("{figure:.1}"),
        _ => format!("{figure:.0}"),
    });
    let [composite, duplicates, ..] = figures;
    let [to_b, to_best] = [duplicates, composite.min(duplicates)].map(|it| figures[CHOSEN] / it);
    println!("| {workload} | {} | {to_b:.2} | {to_best:.2} |", cells.join(" | "));
}

fn measure(layout: Layout, workload: &Workload, directory: &Path) -> Outcome<Figures> {
    let Workload { keys, rows, deleted, before, after, .. } = workload;
    fs::create_dir(directory)?;
    let mut options = EnvOpenOptions::new();
    options.map_size(1 << 30).max_dbs(1);
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: the directory is new, and no other process uses it.
    let env = unsafe { options.flags(EnvFlags::NO_SYNC).open(directory)? };
    let database = env.create_databases_and_commit(env.write_txn()?, |opener, txn| {
        let mut options = opener.database_options().types::<Bytes, Bytes>();
        if layout == Layout::Duplicates {
            options.flags(DatabaseFlags::DUP_SORT | DatabaseFlags::DUP_FIXED);
        }
        options.name("index").create(txn).map(CommitOrAbort::<_, ()>::Commit)
    })?;
    // The optimizer must not treat the length as a constant, because it differs between indexes.
    let (database, primary_key) = (database.unwrap_commit(), black_box(8));
    let [at, found, packed] = Default::default();
    let mut index = Index { layout, database, primary_key, new_key: false, at, found, packed };
    let pages = env.info().last_page_number;

    let mut txn = env.write_txn()?;
    let mut insert = |(key, primary_key): &Row| index.insert(&mut txn, key, primary_key);
    let insert = time(rows.len(), || rows.iter().try_for_each(&mut insert))?;
    let page_size = f64::from(index.database.stat(&txn)?.page_size);
    txn.commit()?;
    // No page has been freed, so these are all pages, including the pages of trees of duplicates.
    let space = f64::from(u32::try_from(env.info().last_page_number - pages)?) * page_size;

    let txn = env.read_txn()?;
    let mut sum = 0_u64;
    let add = |sum: u64, key: &[u8]| sum.wrapping_add(key.try_into().map_or(0, u64::from_be_bytes));
    let mut scan = |key: &Key| index.scan(&txn, key, |primary_key| sum = add(sum, primary_key));
    let scan = time(rows.len(), || keys.iter().try_for_each(&mut scan))?;
    assert_eq!(sum, rows.iter().fold(0, |sum, (_, primary_key)| add(sum, primary_key)));
    let mut counted = 0;
    let mut count = |key: &Key| index.count(&txn, key).map(|rows| counted += rows);
    let count = time(rows.len(), || keys.iter().try_for_each(&mut count))?;
    assert_eq!(counted, rows.len());
    index.check(&txn, keys, before)?;
    drop(txn);

    let mut txn = env.write_txn()?;
    let mut delete = |(key, primary_key): &Row| {
        index.remove(&mut txn, key, primary_key).map(|removed| assert!(removed))
    };
    let delete = time(deleted.len(), || deleted.iter().try_for_each(&mut delete))?;
    index.check(&txn, keys, after)?;
    drop(txn);
    env.prepare_for_closing().wait();
    fs::remove_dir_all(directory)?;
    Ok([insert, space / f64::from(u32::try_from(rows.len())?), scan, count, delete])
}

/// Returns the time of `work` in nanoseconds for a row.
fn time(rows: usize, work: impl FnOnce() -> Result<()>) -> Outcome<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(u32::try_from(rows)?))
}

type Txn<'t> = RoTxn<'t, AnyTls>;
type Database = heed::Database<'static, Bytes, Bytes>;

struct Index {
    layout: Layout,
    database: Database,
    /// The length of a primary key.
    primary_key: usize,
    /// Whether the last insert had a new index key.
    new_key: bool,
    /// A buffer for the index key and the primary key.
    at: Vec<u8>,
    /// Buffers for the key and the contents of the block in which the primary key belongs; empty if the index
    /// key has no block.
    found: Vec<u8>,
    packed: Vec<u8>,
}

impl Index {
    #[inline(never)]
    fn insert(&mut self, txn: &mut RwTxn<'_>, key: &[u8], primary_key: &[u8]) -> Result<()> {
        let limit = match self.layout {
            Layout::Composite => {
                refill(&mut self.at, key, primary_key);
                return self.database.put(txn, &self.at, &[]);
            }
            Layout::Duplicates => return self.database.put(txn, key, primary_key),
            Layout::OneCursor(limit) => {
                if self.new_key && self.database.get_or_put(txn, key, primary_key)?.is_none() {
                    return Ok(());
                }
                limit
            }
            Layout::TwoSteps(limit) => limit,
        };
        let mut writer = self.find(txn, key, primary_key)?;
        let Self { new_key, at, found, packed, .. } = self;
        *new_key = found.is_empty();
        if *new_key {
            return writer.add(key, primary_key);
        }
        let Err(offset) = offset_of(packed, primary_key) else { return Ok(()) };
        let full = packed.len() + primary_key.len() > limit;
        if full && offset == packed.len() {
            return writer.add(at, primary_key);
        }
        packed.splice(offset..offset, primary_key.iter().copied());
        if !full {
            return writer.replace(found, packed);
        }
        let half = packed.len() / primary_key.len() / 2 * primary_key.len();
        let (low, high) = packed.split_at(half);
        writer.replace(found, low)?;
        refill(at, key, &high[..primary_key.len()]);
        writer.add(at, high)
    }

    #[inline(never)]
    fn remove(&mut self, txn: &mut RwTxn<'_>, key: &[u8], primary_key: &[u8]) -> Result<bool> {
        match self.layout {
            Layout::Composite => {
                refill(&mut self.at, key, primary_key);
                return self.database.delete(txn, &self.at);
            }
            Layout::Duplicates => return self.database.delete_one_duplicate(txn, key, primary_key),
            Layout::OneCursor(_) => {
                if self.new_key && self.remove_single(txn, key, primary_key)? {
                    return Ok(true);
                }
                self.new_key = false;
            }
            Layout::TwoSteps(_) => {}
        }
        let mut writer = self.find(txn, key, primary_key)?;
        let Self { database, found, packed, .. } = self;
        let Ok(offset) = offset_of(packed, primary_key) else { return Ok(false) };
        packed.drain(offset..offset + primary_key.len());
        writer.replace(found, packed)?;
        drop(writer);
        if packed.is_empty() && found.len() == key.len() {
            // The first block is removed, so the second block becomes the first.
            let second = database.get_greater_than(txn, key)?;
            if let Some((physical, block)) = second.filter(|it| it.0.starts_with(key)) {
                refill(found, physical, &[]);
                refill(packed, block, &[]);
                database.delete(txn, found)?;
                database.put(txn, key, packed)?;
            }
        }
        Ok(true)
    }

    /// Removes the first block of a key if it has no other primary key. A cursor then steps to the second
    /// block, which becomes the first.
    fn remove_single(
        &mut self,
        txn: &mut RwTxn<'_>,
        key: &[u8],
        primary_key: &[u8],
    ) -> Result<bool> {
        let Self { database, found, packed, .. } = self;
        let mut range = database.range_mut(txn, &(Bound::Included(key), Bound::Unbounded))?;
        match range.next().transpose()? {
            Some((physical, block)) if physical == key && block == primary_key => {}
            _ => return Ok(false),
        }
        #[expect(unsafe_code, reason = "heed's cursors don't track what borrows from the page")]
        // SAFETY: nothing borrowed from the database is alive.
        unsafe {
            range.del_current()?;
        }
        match range.next().transpose()? {
            Some((physical, block)) if physical.starts_with(key) => {
                refill(found, physical, &[]);
                refill(packed, block, &[]);
            }
            _ => return Ok(true),
        }
        drop(range);
        database.delete(txn, found)?;
        database.put(txn, key, packed)?;
        Ok(true)
    }

    fn find<'t, 'p>(
        &mut self,
        txn: &'t mut RwTxn<'p>,
        key: &[u8],
        primary_key: &[u8],
    ) -> Result<Writer<'t, 'p>> {
        let Self { layout, database, at, found, packed, .. } = self;
        refill(at, key, primary_key);
        let mut copy = |entry: Option<(&[u8], &[u8])>| {
            let block_of_key = entry.filter(|(physical, _)| physical.starts_with(key));
            let (physical, block) = block_of_key.unwrap_or_default();
            refill(found, physical, &[]);
            refill(packed, block, &[]);
        };
        if let Layout::OneCursor(_) = layout {
            let bounds = (Bound::Unbounded, Bound::Included(at.as_slice()));
            let mut cursor = database.rev_range_mut(txn, &bounds)?;
            copy(cursor.next().transpose()?);
            Ok(Writer::OneCursor(cursor))
        } else {
            copy(database.get_lower_than_or_equal_to(txn, at)?);
            Ok(Writer::TwoSteps(*database, txn))
        }
    }

    #[inline(never)]
    fn scan(&self, txn: &Txn<'_>, key: &[u8], mut each: impl FnMut(&[u8])) -> Result<()> {
        match self.layout {
            Layout::Composite => {
                for entry in self.database.prefix_iter(txn, key)? {
                    each(&entry?.0[key.len()..]);
                }
            }
            Layout::Duplicates => {
                if let Some(entries) = self.database.get_duplicates(txn, key)? {
                    for entry in entries {
                        each(entry?.1);
                    }
                }
            }
            Layout::OneCursor(_) | Layout::TwoSteps(_) => {
                for entry in self.database.prefix_iter(txn, key)? {
                    entry?.1.chunks_exact(self.primary_key).for_each(&mut each);
                }
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn count(&self, txn: &Txn<'_>, key: &[u8]) -> Result<usize> {
        let mut rows = 0;
        if let Layout::OneCursor(_) | Layout::TwoSteps(_) = self.layout {
            for entry in self.database.prefix_iter(txn, key)? {
                rows += entry?.1.len() / self.primary_key;
            }
        } else {
            self.scan(txn, key, |_| rows += 1)?;
        }
        Ok(rows)
    }

    /// Asserts that the index has exactly these rows, which are sorted.
    fn check(&self, txn: &Txn<'_>, keys: &[Key], rows: &[Row]) -> Result<()> {
        for rows in rows.chunk_by(|one, other| one.0 == other.0) {
            let mut expected = rows.iter().map(|(_, primary_key)| primary_key.as_slice());
            self.scan(txn, &rows[0].0, |found| assert_eq!(expected.next(), Some(found)))?;
            assert_eq!(self.count(txn, &rows[0].0)?, rows.len());
            let alone = self.database.get(txn, &rows[0].0)?;
            assert_eq!(alone.is_some(), self.layout != Layout::Composite);
        }
        let counted: Result<usize> = keys.iter().map(|key| self.count(txn, key)).sum();
        assert_eq!(counted?, rows.len());
        Ok(())
    }
}

enum Writer<'t, 'p> {
    OneCursor(RwRevRange<'t, Bytes, Bytes>),
    TwoSteps(Database, &'t mut RwTxn<'p>),
}

impl Writer<'_, '_> {
    fn add(&mut self, at: &[u8], packed: &[u8]) -> Result<()> {
        match self {
            Self::TwoSteps(database, txn) => database.put(txn, at, packed),
            #[expect(unsafe_code, reason = "heed's cursors don't track what borrows from the page")]
            // SAFETY: nothing borrowed from the database is alive: `Index::find` copies.
            Self::OneCursor(cursor) => unsafe {
                cursor.put_current_with_options::<Bytes>(PutFlags::empty(), at, packed)
            },
        }
    }

    /// Overwrites the found block, or removes it if it is empty.
    fn replace(&mut self, found: &[u8], packed: &[u8]) -> Result<()> {
        let empty = packed.is_empty();
        let done = match self {
            Self::TwoSteps(database, txn) if empty => database.delete(txn, found)?,
            Self::TwoSteps(database, txn) => return database.put(txn, found, packed),
            #[expect(unsafe_code, reason = "heed's cursors don't track what borrows from the page")]
            // SAFETY: as above, and `found` is the key at the cursor.
            Self::OneCursor(cursor) => unsafe {
                if empty { cursor.del_current()? } else { cursor.put_current(found, packed)? }
            },
        };
        assert!(done);
        Ok(())
    }
}

/// Returns the offset in bytes of a primary key in a block (`Ok`), or the offset at which it belongs (`Err`).
fn offset_of(packed: &[u8], primary_key: &[u8]) -> std::result::Result<usize, usize> {
    let len = primary_key.len();
    let (mut low, mut high) = (0, packed.len() / len);
    while low < high {
        let middle = low.midpoint(high);
        match packed[middle * len..][..len].cmp(primary_key) {
            Ordering::Less => low = middle + 1,
            Ordering::Equal => return Ok(middle * len),
            Ordering::Greater => high = middle,
        }
    }
    Err(low * len)
}

fn refill(buffer: &mut Vec<u8>, one: &[u8], other: &[u8]) {
    buffer.clear();
    buffer.extend_from_slice(one);
    buffer.extend_from_slice(other);
}
