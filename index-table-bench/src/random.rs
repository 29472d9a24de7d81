//! Pseudorandom numbers, which are the same in every run.

/// The generator splitmix64, with its state, which starts as the seed.
pub struct Random(pub u64);

impl Random {
    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.draw() % end as u64) as usize
    }

    /// Puts the items in a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        (1..items.len()).for_each(|last| items.swap(last, self.below(last + 1)));
    }
}

/// A Zipf distribution of ranks, as of towns and names: rank r, from 0, has a weight of 1 / (r + 1).
pub struct Zipf(Vec<u64>);

impl Zipf {
    /// Returns the distribution of this number of ranks.
    #[must_use]
    pub fn new(ranks: usize) -> Self {
        let weights = (1..=ranks as u64).map(|rank| (1 << 40) / rank);
        Self(
            weights
                .scan(0, |sum, weight| {
                    *sum += weight;
                    Some(*sum)
                })
                .collect(),
        )
    }

    /// Draws a rank.
    pub fn draw(&self, random: &mut Random) -> usize {
        let total = self.0.last().copied().unwrap_or(1);
        let drawn = random.draw() % total;
        self.0.partition_point(|&below| below <= drawn)
    }
}
