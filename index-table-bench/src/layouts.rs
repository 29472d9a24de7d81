//! Rows for the measurement of layouts, `src/bin/layouts.rs`.

use crate::random::Random;

/// An index key.
pub type Key = [u8; 12];
/// Index key and primary key.
pub type Row = (Key, [u8; 8]);

/// Rows for an index, the same in every run.
pub struct Workload {
    /// The number of index keys, and the order of the primary keys.
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
    /// Returns rows with distinct primary keys. Each row has one of the index keys, or an index key of its own if there
    /// are enough.
    #[must_use]
    pub fn new(rows: usize, keys: usize, sequential: bool) -> Self {
        let order = if sequential { "sequential" } else { "random" };
        let name = format!("{keys}, {order}");
        let mut random = Random(keys as u64);
        let mut keys: Vec<Key> = (1..=keys as u64).map(index_key).collect();
        random.shuffle(&mut keys);
        let row = |number: usize| {
            let key = if keys.len() == rows { number } else { random.below(keys.len()) };
            let primary_key = if sequential { number as u64 } else { random.draw() };
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

/// Returns eleven scattered digits and a terminator, so that no key is a prefix of another.
fn index_key(number: u64) -> Key {
    let digits = format!("{:011x}\0", number.wrapping_mul(0x09E3_779B_97F5) & ((1 << 44) - 1));
    std::array::from_fn(|at| digits.as_bytes()[at])
}
