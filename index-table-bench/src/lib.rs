//! What the measurements of `index-table` share. Each of them is a binary in `src/bin/`.

/// An index key.
pub type Key = [u8; 12];
/// Index key and primary key.
pub type Row = (Key, [u8; 8]);

/// Rows for an index, the same in every run.
pub struct Workload {
    /// How many index keys, and the order of the primary keys.
    pub name: String,
    /// The index keys, in random order.
    pub keys: Vec<Key>,
    /// In the order of the inserts.
    pub rows: Vec<Row>,
    /// A random fifth of the rows.
    pub deleted: Vec<Row>,
    /// All rows, sorted.
    pub before: Vec<Row>,
    /// The others, sorted.
    pub after: Vec<Row>,
}

impl Workload {
    /// Rows with distinct primary keys, each under one of the index keys; under its own one if
    /// there are as many.
    #[must_use]
    pub fn new(rows: usize, keys: usize, sequential: bool) -> Self {
        let order = if sequential { "sequential" } else { "random" };
        let name = format!("{keys}, {order}");
        let mut random = Random(keys as u64);
        let mut keys: Vec<Key> = (1..=keys as u64).map(index_key).collect();
        random.shuffle(&mut keys);
        let row = |number: usize| {
            let key = if keys.len() == rows { number } else { random.below(keys.len()) };
            let primary_key = if sequential { number as u64 } else { random.next() };
            (keys[key], primary_key.to_be_bytes())
        };
        let rows: Vec<Row> = (0..rows).map(row).collect();
        random.shuffle(&mut keys);
        let mut deleted = rows.clone();
        random.shuffle(&mut deleted);
        let mut after = deleted.split_off(rows.len() / 5);
        after.sort_unstable();
        let mut before = rows.clone();
        before.sort_unstable();
        Self { name, keys, rows, deleted, before, after }
    }
}

/// Eleven digits, scattered, and a terminator: no key starts another.
fn index_key(number: u64) -> Key {
    let digits = format!("{:011x}\0", number.wrapping_mul(0x09E3_779B_97F5) & ((1 << 44) - 1));
    std::array::from_fn(|at| digits.as_bytes()[at])
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

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        (1..items.len()).for_each(|last| items.swap(last, self.below(last + 1)));
    }
}

/// The figure in the middle; of an even number of them, the higher one.
///
/// # Panics
///
/// If there is none.
#[must_use]
pub fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
