//! Measures how the entries of a normalized index could be laid out in LMDB, for primary keys of
//! a fixed length. `docs/LAYOUT.md` has the figures and what was chosen.
//!
//! ```text
//! cargo run --release -p index-table-bench --bin layouts -- [ROWS] [ROUNDS]
//! ```
//!
//! The candidates, on index keys of 12 bytes and primary keys of 8:
//!
//! - **A**: index key and primary key → nothing;
//! - **B**: index key → primary keys, as duplicates (`DUPSORT` and `DUPFIXED`);
//! - **C1**: blocks of primary keys, up to so many bytes in each, written through the cursor that
//!   found the block: what `index-table-runtime/src/lmdb/blocks.rs` does;
//! - **C2**: the same blocks, found with one call and written with another.
//!
//! All rows are inserted in one transaction, then all rows of each key are scanned and counted in
//! another, then a random fifth is deleted in a third. The times are those of the calls: without
//! the commit, and nothing is synced. Space is the pages by which the file has grown. Each figure
//! is the median of the rounds; in each round every candidate has its turn. What they answer is
//! compared with a sorted list of the rows, after the inserts and after the deletes.

use std::{env, error::Error, fs, hint::black_box, ops::Bound, path::Path, process, time::Instant};

use heed::{
    AnyTls, CommitOrAbort, DatabaseFlags, EnvFlags, EnvOpenOptions, PutFlags, RoTxn, RwRevRange,
    RwTxn, types::Bytes,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Composite,
    Duplicates,
    /// Bytes of primary keys in a block.
    OneCursor(usize),
    TwoSteps(usize),
}

const VARIANTS: [(&str, Layout); 10] = [
    ("A", Layout::Composite),
    ("B", Layout::Duplicates),
    ("C1 128", Layout::OneCursor(128)),
    ("C1 256", Layout::OneCursor(256)),
    ("C1 512", Layout::OneCursor(512)),
    ("C1 1024", Layout::OneCursor(1024)),
    ("C2 128", Layout::TwoSteps(128)),
    ("C2 256", Layout::TwoSteps(256)),
    ("C2 512", Layout::TwoSteps(512)),
    ("C2 1024", Layout::TwoSteps(1024)),
];
const [A, B, CHOSEN]: [usize; 3] = [0, 1, 4];

const MEASURES: [&str; 5] = [
    "Insert, ns a row",
    "Space, bytes a row",
    "Scan, ns a row",
    "Count, ns a row",
    "Delete, ns a deleted row",
];
type Figures = [f64; MEASURES.len()];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let rows: u32 = arguments.next().map_or(Ok(500_000), |rows| rows.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(3), |rounds| rounds.parse())?;
    if rows == 0 || rounds == 0 {
        return Err("there is nothing to measure".into());
    }

    let directory = env::temp_dir().join(format!("index-table-layouts-{}", process::id()));
    let mut results = Vec::new();
    for sequential in [false, true] {
        for keys in [1, 1_000, 100_000, rows] {
            let workload = Workload::new(rows, keys.min(rows), sequential);
            eprintln!("{}", workload.name);
            let mut measured: [Vec<Figures>; VARIANTS.len()] = Default::default();
            for round in 0..rounds {
                for turn in 0..VARIANTS.len() {
                    // Not always in the same order.
                    let variant = (turn + round * 3) % VARIANTS.len();
                    measured[variant].push(measure(VARIANTS[variant].1, &workload, &directory)?);
                }
            }
            results.push((workload.name, measured));
        }
    }
    for (measure, title) in MEASURES.iter().enumerate() {
        print(title, results.iter().map(|(workload, measured)| {
            (workload.as_str(), measured.each_ref().map(|rounds| median(rounds, measure)))
        }));
    }
    Ok(())
}

fn median(rounds: &[Figures], measure: usize) -> f64 {
    let mut figures: Vec<f64> = rounds.iter().map(|figures| figures[measure]).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn print<'a>(title: &str, results: impl Iterator<Item = (&'a str, [f64; VARIANTS.len()])>) {
    let names = VARIANTS.map(|(name, _)| name).join(" | ");
    let chosen = VARIANTS[CHOSEN].0;
    println!("\n### {title}\n");
    println!("| keys, primary keys | {names} | {chosen} : B | {chosen} : best of A, B |");
    println!("|---|{}", "--:|".repeat(VARIANTS.len() + 2));
    for (workload, figures) in results {
        let cells = figures.map(|figure| match figure {
            ..10.0 => format!("{figure:.2}"),
            ..100.0 => format!("{figure:.1}"),
            _ => format!("{figure:.0}"),
        });
        let [to_b, to_best] = [figures[B], figures[A].min(figures[B])].map(|f| figures[CHOSEN] / f);
        println!("| {workload} | {} | {to_b:.2} | {to_best:.2} |", cells.join(" | "));
    }
}

type Key = [u8; 12];

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    /// The number of its index key.
    key: u32,
    primary_key: [u8; 8],
}

struct Workload {
    name: String,
    keys: Vec<Key>,
    /// In the order in which they are inserted.
    rows: Vec<Row>,
    deleted: Vec<Row>,
    /// All rows and those that are left in the end, in the order of a scan.
    before: Vec<Row>,
    after: Vec<Row>,
}

impl Workload {
    fn new(rows: u32, keys: u32, sequential: bool) -> Self {
        let mut random = Random(u64::from(keys) * 2 + u64::from(sequential));
        let mut numbers: Vec<u32> = if keys == rows {
            (0..keys).collect()
        } else {
            (0..rows).map(|_| random.below(keys)).collect()
        };
        random.shuffle(&mut numbers);
        let row = |(primary_key, key)| {
            let primary_key = if sequential { primary_key } else { random.next() };
            Row { key, primary_key: primary_key.to_be_bytes() }
        };
        let rows: Vec<Row> = (0..).zip(numbers).map(row).collect();

        let mut before = rows.clone();
        random.shuffle(&mut before);
        let mut deleted = before.clone();
        let mut after = deleted.split_off(rows.len() / 5);
        before.sort_unstable();
        after.sort_unstable();
        let order = if sequential { "sequential" } else { "random" };
        let keys: Vec<Key> = (0..keys).map(index_key).collect();
        Self { name: format!("{}, {order}", keys.len()), keys, rows, deleted, before, after }
    }

    fn key(&self, row: &Row) -> &Key {
        &self.keys[row.key as usize]
    }
}

/// Eleven digits, not in the order of the numbers, and a terminator: no key starts another.
fn index_key(number: u32) -> Key {
    let scattered = u64::from(number + 1).wrapping_mul(0x9E37_79B9_7F5) & ((1 << 44) - 1);
    let mut key = Key::default();
    key[..11].copy_from_slice(format!("{scattered:011x}").as_bytes());
    key
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u32) -> u32 {
        (((self.next() >> 32) * u64::from(end)) >> 32) as u32
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u32 + 1) as usize);
        }
    }
}

fn measure(
    layout: Layout,
    workload: &Workload,
    directory: &Path,
) -> Result<Figures, Box<dyn Error>> {
    fs::create_dir(directory)?;
    let mut options = EnvOpenOptions::new();
    options.map_size(8 << 30).max_dbs(1);
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: the directory is new and this process's own; no one else touches the file.
    let env = unsafe { options.flags(EnvFlags::NO_SYNC).open(directory)? };
    let created = env.create_databases_and_commit(env.write_txn()?, |opener, txn| {
        let mut options = opener.database_options().types::<Bytes, Bytes>();
        options.name("index");
        if layout == Layout::Duplicates {
            options.flags(DatabaseFlags::DUP_SORT | DatabaseFlags::DUP_FIXED);
        }
        options.create(txn).map(CommitOrAbort::<_, ()>::Commit)
    })?;
    let mut index = Index {
        layout,
        database: created.unwrap_commit(),
        // The optimizer is not to know: an index has primary keys of any one length.
        primary_key: black_box(8),
        scratch: Scratch::default(),
    };
    let pages = env.info().last_page_number;

    let mut txn = env.write_txn()?;
    let insert = Instant::now();
    for row in &workload.rows {
        index.insert(&mut txn, workload.key(row), &row.primary_key)?;
    }
    let insert = insert.elapsed();
    let page_size = index.database.stat(&txn)?.page_size;
    txn.commit()?;
    // Nothing has been freed yet, so this counts the trees of duplicates and nothing twice.
    let space = u32::try_from(env.info().last_page_number - pages)?;

    let txn = env.read_txn()?;
    let scan = Instant::now();
    let mut sum = 0_u64;
    for key in &workload.keys {
        index.scan(&txn, key, |primary_key| sum = sum.wrapping_add(number(primary_key)))?;
    }
    let scan = scan.elapsed();
    let all = workload.rows.iter().map(|row| number(&row.primary_key));
    assert_eq!(sum, all.fold(0, u64::wrapping_add));
    let count = Instant::now();
    let counted: heed::Result<usize> =
        workload.keys.iter().map(|key| index.count(&txn, key)).sum();
    let count = count.elapsed();
    assert_eq!(counted?, workload.rows.len());
    index.check(&txn, &workload.keys, &workload.before)?;
    drop(txn);

    let mut txn = env.write_txn()?;
    let delete = Instant::now();
    for row in &workload.deleted {
        assert!(index.remove(&mut txn, workload.key(row), &row.primary_key)?);
    }
    let delete = delete.elapsed();
    index.check(&txn, &workload.keys, &workload.after)?;
    drop(txn);
    env.prepare_for_closing().wait();
    fs::remove_dir_all(directory)?;

    let rows = f64::from(u32::try_from(workload.rows.len())?);
    let deleted = f64::from(u32::try_from(workload.deleted.len())?);
    let [insert, scan, count, delete] =
        [insert, scan, count, delete].map(|time| time.as_secs_f64() * 1e9);
    let space = f64::from(space) * f64::from(page_size);
    Ok([insert / rows, space / rows, scan / rows, count / rows, delete / deleted])
}

fn number(primary_key: &[u8]) -> u64 {
    primary_key.try_into().map_or(0, u64::from_be_bytes)
}

type Database = heed::Database<'static, Bytes, Bytes>;

struct Index {
    layout: Layout,
    database: Database,
    primary_key: usize,
    /// The index key and the primary key; the physical key of the block found; its primary keys.
    scratch: [Vec<u8>; 3],
}

impl Index {
    #[inline(never)]
    fn insert(&mut self, txn: &mut RwTxn<'_>, key: &[u8], primary_key: &[u8]) -> heed::Result<()> {
        let Self { layout, database, scratch: [at, found, packed], .. } = self;
        refill(at, &[key, primary_key]);
        let (limit, two_steps) = match *layout {
            Layout::Composite => return database.put(txn, at, &[]),
            Layout::Duplicates => return database.put(txn, key, primary_key),
            Layout::OneCursor(limit) => (limit, false),
            Layout::TwoSteps(limit) => (limit, true),
        };
        let mut writer = Writer::find(two_steps, *database, txn, at, found, packed)?;
        if !found.starts_with(key) {
            // The first block of the key.
            return writer.add(key, primary_key);
        }
        let Err(offset) = place(packed, primary_key) else { return Ok(()) };
        if packed.len() == limit && offset == limit {
            return writer.add(at, primary_key);
        }
        packed.splice(offset..offset, primary_key.iter().copied());
        if packed.len() <= limit {
            return writer.replace(found, packed);
        }
        let (low, high) =
            packed.split_at(packed.len() / primary_key.len() / 2 * primary_key.len());
        writer.replace(found, low)?;
        refill(at, &[key, &high[..primary_key.len()]]);
        writer.add(at, high)
    }

    #[inline(never)]
    fn remove(
        &mut self,
        txn: &mut RwTxn<'_>,
        key: &[u8],
        primary_key: &[u8],
    ) -> heed::Result<bool> {
        let Self { layout, database, scratch: [at, found, packed], .. } = self;
        refill(at, &[key, primary_key]);
        let two_steps = match *layout {
            Layout::Composite => return database.delete(txn, at),
            Layout::Duplicates => return database.delete_one_duplicate(txn, key, primary_key),
            Layout::OneCursor(_) => false,
            Layout::TwoSteps(_) => true,
        };
        let mut writer = Writer::find(two_steps, *database, txn, at, found, packed)?;
        match place(packed, primary_key) {
            Ok(offset) if found.starts_with(key) => {
                packed.drain(offset..offset + primary_key.len());
                if packed.is_empty() { writer.remove(found) } else { writer.replace(found, packed) }
                    .map(|()| true)
            }
            _ => Ok(false),
        }
    }

    #[inline(never)]
    fn scan(
        &self,
        txn: &RoTxn<'_, AnyTls>,
        key: &[u8],
        mut each: impl FnMut(&[u8]),
    ) -> heed::Result<()> {
        match self.layout {
            Layout::Composite => {
                for entry in self.database.prefix_iter(txn, key)? {
                    each(&entry?.0[key.len()..]);
                }
            }
            Layout::Duplicates => {
                for entry in self.database.get_duplicates(txn, key)?.into_iter().flatten() {
                    each(entry?.1);
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
    fn count(&self, txn: &RoTxn<'_, AnyTls>, key: &[u8]) -> heed::Result<usize> {
        let packed = |block: &[u8]| block.len() / self.primary_key;
        let Self { layout, database, .. } = self;
        match layout {
            Layout::Composite => database.prefix_iter(txn, key)?.map(|entry| entry.map(|_| 1)).sum(),
            Layout::Duplicates => {
                let entries = database.get_duplicates(txn, key)?.into_iter().flatten();
                entries.map(|entry| entry.map(|_| 1)).sum()
            }
            Layout::OneCursor(_) | Layout::TwoSteps(_) => database
                .prefix_iter(txn, key)?
                .map(|entry| entry.map(|(_, block)| packed(block)))
                .sum(),
        }
    }

    /// Asserts that these are the rows.
    fn check(&self, txn: &RoTxn<'_, AnyTls>, keys: &[Key], rows: &[Row]) -> heed::Result<()> {
        let mut rows = rows.iter();
        for (number, key) in (0..).zip(keys) {
            let mut scanned = 0;
            self.scan(txn, key, |primary_key| {
                let row = rows.next().map(|row| (row.key, &row.primary_key[..]));
                assert_eq!(row, Some((number, primary_key)));
                scanned += 1;
            })?;
            assert_eq!(self.count(txn, key)?, scanned);
        }
        assert!(rows.next().is_none());
        Ok(())
    }
}

/// Writes at, or behind, the block that was found.
enum Writer<'t, 'p> {
    OneCursor(RwRevRange<'t, Bytes, Bytes>),
    TwoSteps(Database, &'t mut RwTxn<'p>),
}

impl<'t, 'p> Writer<'t, 'p> {
    /// Copies the last entry that is not behind `at`.
    fn find(
        two_steps: bool,
        database: Database,
        txn: &'t mut RwTxn<'p>,
        at: &Vec<u8>,
        found: &mut Vec<u8>,
        packed: &mut Vec<u8>,
    ) -> heed::Result<Self> {
        let (writer, entry);
        if two_steps {
            entry = database.get_lower_than_or_equal_to(txn, at)?;
        } else {
        }
    }
}
