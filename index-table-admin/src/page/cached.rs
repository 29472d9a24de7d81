//! Results that are kept for a time, so that reloading a page doesn't repeat long work.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, TryLockError},
    time::{Duration, Instant},
};

use crate::failure::Failure;

/// A result is kept for at least this multiple of the time of its measurement.
const TIMES: u32 = 20;

pub(super) struct Cached<T>(Mutex<BTreeMap<String, Kept<T>>>);

struct Kept<T> {
    at: Instant,
    until: Instant,
    value: Arc<T>,
}

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Cached<T> {
    /// Returns the kept result, or measures it. Other requests for a result wait for the measurement.
    pub(super) fn get(
        &self,
        key: &str,
        fresh: Duration,
        measure: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<Arc<T>, Failure> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Self::of(&mut kept, key, fresh, measure).map(|(value, _)| value)
    }

    /// Returns the kept result with its age, or measures it; `None` while another request is measuring a result.
    pub(super) fn try_get(
        &self,
        key: &str,
        fresh: Duration,
        measure: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<Option<(Arc<T>, Duration)>, Failure> {
        let mut kept = match self.0.try_lock() {
            Ok(kept) => kept,
            Err(TryLockError::Poisoned(kept)) => kept.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        Self::of(&mut kept, key, fresh, measure).map(Some)
    }

    fn of(
        kept: &mut BTreeMap<String, Kept<T>>,
        key: &str,
        fresh: Duration,
        measure: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<(Arc<T>, Duration), Failure> {
        let begun = Instant::now();
        if let Some(found) = kept.get(key)
            && begun < found.until
        {
            return Ok((Arc::clone(&found.value), begun - found.at));
        }
        let value = Arc::new(measure()?);
        let took = begun.elapsed();
        let (at, until) = (Instant::now(), Instant::now() + fresh.max(took * TIMES));
        kept.insert(key.to_owned(), Kept { at, until, value: Arc::clone(&value) });
        Ok((value, Duration::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_measured_again_after_its_time() {
        let cached = Cached::default();
        let get = |key: &str, fresh, value| *cached.get(key, fresh, || Ok(value)).expect("a value");
        let hour = Duration::from_hours(1);
        assert_eq!([get("a", hour, 1), get("a", hour, 2), get("b", hour, 3)], [1, 1, 3]);
        let slow = |value| {
            std::thread::sleep(Duration::from_millis(5));
            Ok(value)
        };
        let slow = |value| *cached.get("c", Duration::ZERO, || slow(value)).expect("a value");
        assert_eq!([slow(4), slow(5)], [4, 4], "kept for a multiple of the time that it took");
        let begun = Instant::now();
        while slow(6) == 4 {
            assert!(begun.elapsed() < Duration::from_mins(1), "kept for too long");
            std::thread::sleep(Duration::from_millis(20));
        }
        let _measuring = cached.0.lock();
        assert!(cached.try_get("a", hour, || Ok(6)).expect("no error").is_none());
    }
}
