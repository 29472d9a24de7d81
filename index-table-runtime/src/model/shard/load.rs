//! The requests of the shard keys of a map, in bounded memory.
//!
//! Some requests are sampled, and each sample stands for all requests since the previous sample. A sketch
//! ("space-saving") counts the requests by shard key, with at most [`COUNTERS`] counters. If all counters are in use, a
//! new key replaces the key of the least counter and keeps its count. This count is the greatest possible error of the
//! new key. So the sum of all counters is the number of requests, and every key with more than one request in
//! `COUNTERS` has a counter.

use std::collections::HashMap;

/// The maximum number of counters.
const COUNTERS: usize = 512;

/// The number of requests at which all counts are halved, so that old requests have less weight than new requests.
const AGED: u64 = 1 << 24;

/// The requests of a shard key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyRequests {
    /// The encoded shard key.
    pub(crate) key: Vec<u8>,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    /// The requests that may belong to other keys.
    pub(crate) error: u64,
}

impl KeyRequests {
    /// Returns the greatest possible number of requests.
    pub(crate) const fn total(&self) -> u64 {
        self.reads + self.writes
    }

    /// Returns the number of requests that are certainly of this key.
    pub(crate) const fn certain(&self) -> u64 {
        self.total().saturating_sub(self.error)
    }
}

/// The counters of the keys with the most requests.
#[derive(Debug, Default)]
pub(crate) struct Sketch {
    counters: Vec<KeyRequests>,
    /// The position of each key.
    positions: HashMap<Vec<u8>, usize>,
    total: u64,
}

impl Sketch {
    /// Adds requests of a key.
    pub(crate) fn add(&mut self, key: &[u8], is_write: bool, requests: u64) {
        self.total += requests;
        let at = match self.positions.get(key) {
            Some(at) => *at,
            None => self.place(key),
        };
        if let Some(counter) = self.counters.get_mut(at) {
            *(if is_write { &mut counter.writes } else { &mut counter.reads }) += requests;
        }
        if self.total >= AGED {
            self.age();
        }
    }

    /// Returns the position of a counter for a new key.
    fn place(&mut self, key: &[u8]) -> usize {
        let new = |reads, writes, error| KeyRequests { key: key.to_vec(), reads, writes, error };
        let least = self.counters.iter().enumerate().min_by_key(|(_, counter)| counter.total());
        let at = match least {
            Some((at, least)) if self.counters.len() >= COUNTERS => {
                self.positions.remove(&least.key);
                let taken = new(least.reads, least.writes, least.total());
                if let Some(counter) = self.counters.get_mut(at) {
                    *counter = taken;
                }
                at
            }
            _ => {
                self.counters.push(new(0, 0, 0));
                self.counters.len() - 1
            }
        };
        self.positions.insert(key.to_vec(), at);
        at
    }

    /// Halves all counts.
    fn age(&mut self) {
        self.total = 0;
        for counter in &mut self.counters {
            counter.reads /= 2;
            counter.writes /= 2;
            counter.error /= 2;
            self.total += counter.total();
        }
    }

    /// Returns all counters in descending order of their certain requests.
    pub(crate) fn keys(&self) -> Vec<KeyRequests> {
        let mut keys = self.counters.clone();
        keys.sort_by(|a, b| (b.certain(), &a.key).cmp(&(a.certain(), &b.key)));
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_keys_have_counters_and_the_sum_is_exact() {
        let (mut sketch, mut random) = (Sketch::default(), 3_u64);
        let mut hot = 0;
        for request in 0..200_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = if request % 10 == 0 { 7 } else { 1000 + (random >> 33) % 50_000 };
            hot += u64::from(key == 7);
            sketch.add(&key.to_be_bytes(), request % 3 == 0, 1);
        }
        let keys = sketch.keys();
        assert_eq!(keys.len(), COUNTERS);
        assert_eq!(keys.iter().map(KeyRequests::total).sum::<u64>(), 200_000);
        assert_eq!(keys[0].key, 7_u64.to_be_bytes());
        assert!(keys[0].certain() <= hot && hot <= keys[0].total());
        assert!(keys[0].certain() > hot * 9 / 10, "{:?}", keys[0]);
        assert!(keys[1].certain() < 1000, "{:?}", keys[1]);
    }

    #[test]
    fn old_requests_have_less_weight_than_new_requests() {
        let mut sketch = Sketch::default();
        sketch.add(b"old", false, AGED - 1);
        sketch.add(b"new", true, AGED / 2);
        sketch.add(b"new", true, AGED / 2);
        let keys = sketch.keys();
        assert_eq!((keys[0].key.as_slice(), keys[0].reads), (b"new".as_slice(), 0));
        assert!(keys.iter().map(KeyRequests::total).sum::<u64>() < AGED);
    }
}
