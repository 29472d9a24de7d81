//! Numbers that are the same in every run.

/// splitmix64, from a seed.
pub struct Random(pub u64);

impl Random {
    /// Any number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.draw() % end as u64) as usize
    }

    /// Puts the items in a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        (1..items.len()).for_each(|last| items.swap(last, self.below(last + 1)));
    }
}

/// Draws ranks from 0 on, the first most often: rank r with a weight of 1 / (r + 1), as in the laws
/// of Zipf about towns and names.
pub struct Zipf(Vec<u64>);

impl Zipf {
    /// Of so many ranks.
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

    /// A rank.
    pub fn draw(&self, random: &mut Random) -> usize {
        let total = self.0.last().copied().unwrap_or(1);
        let drawn = random.draw() % total;
        self.0.partition_point(|&below| below <= drawn)
    }
}
