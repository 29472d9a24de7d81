//! Sampling the requests of shard keys.

use std::{
    cell::Cell,
    hash::{BuildHasher as _, RandomState},
};

use crate::{
    locks::{Mutex, Origin},
    model::shard::{KeyRequests, Sketch},
};

/// The maximum distance between two sampled requests of a thread. The average distance is half as long.
const DISTANCE: u32 = 31;

/// The next sample of a thread.
#[derive(Clone, Copy)]
struct Next {
    /// The number of requests up to the sample.
    left: u32,
    /// The number of requests for which the sample stands.
    weight: u32,
    /// The state of the generator of distances.
    random: u32,
}

thread_local! {
    /// The first request of a thread is a sample.
    static NEXT: Cell<Next> = const { Cell::new(Next { left: 1, weight: 1, random: 0 }) };
}

/// Counts a request of this thread. If the request is a sample, returns the number of requests for which it stands.
#[inline]
fn sample() -> Option<u64> {
    let next = NEXT.get();
    if next.left > 1 {
        NEXT.set(Next { left: next.left - 1, ..next });
        return None;
    }
    Some(next_sample(next))
}

#[cold]
fn next_sample(Next { weight, random, .. }: Next) -> u64 {
    let mut random = if random == 0 { RandomState::new().hash_one(0) as u32 | 1 } else { random };
    random ^= random << 13;
    random ^= random >> 17;
    random ^= random << 5;
    let distance = 1 + random % DISTANCE;
    NEXT.set(Next { left: distance, weight: distance, random });
    weight.into()
}

/// The requests of the shard keys of a map.
pub(crate) struct Load {
    sketch: Mutex<Sketch>,
    origin: Origin,
}

impl Default for Load {
    fn default() -> Self {
        Self { sketch: Mutex::default(), origin: Origin::here() }
    }
}

impl Load {
    /// Counts a request. If the request is a sample, calls `key` for its shard key.
    #[inline]
    pub(super) fn count<'k>(&self, is_write: bool, key: impl FnOnce() -> Option<&'k [u8]>) {
        if let Some(requests) = sample() {
            self.add(is_write, requests, key());
        }
    }

    #[cold]
    fn add(&self, is_write: bool, requests: u64, key: Option<&[u8]>) {
        // A forked process can read an inherited snapshot, and a thread of its parent may have held the lock.
        if let Some(key) = key.filter(|_| !self.origin.is_inherited()) {
            let mut sketch = self.sketch.lock();
            sketch.add(key, is_write, requests);
        }
    }

    /// Returns the counted keys in descending order of requests.
    pub(crate) fn keys(&self) -> Vec<KeyRequests> {
        self.sketch.lock().keys()
    }
}
