//! Pseudorandom numbers, which are the same in every run.

/// The generator splitmix64, with its state.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// Returns the generator of these values.
    #[must_use]
    pub fn new(values: &[u64]) -> Self {
        let mut random = Self(0);
        for value in values {
            random.0 = random.draw() ^ value;
        }
        random
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw().checked_rem(end).unwrap_or_default()
    }

    /// Returns true once in so many calls on average.
    pub fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    /// Returns one of these values, or `None` if there are none.
    pub fn pick<T: Clone>(&mut self, of: impl IntoIterator<Item = T>) -> Option<T> {
        let all: Vec<T> = of.into_iter().collect();
        let at = self.below(all.len() as u64) as usize;
        all.get(at).cloned()
    }
}
