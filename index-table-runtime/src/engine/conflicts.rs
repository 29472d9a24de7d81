//! Running a closure again after conflicts with other clients.

use std::{
    hash::{BuildHasher as _, RandomState},
    thread,
    time::{Duration, Instant},
};

use crate::model::error::{Error, Result};

/// The longest wait between two attempts.
const LONGEST: Duration = Duration::from_millis(200);

/// The attempts of one closure that ended with a conflict.
#[derive(Debug, Default)]
pub(crate) struct Conflicts {
    first: Option<Instant>,
    attempts: u32,
}

impl Conflicts {
    /// Waits a random time before the next attempt. The time grows with each conflict.
    ///
    /// # Errors
    ///
    /// [`Error::RetriesExhausted`] if `budget` has passed since the first conflict.
    pub(crate) fn back_off(&mut self, budget: Duration) -> Result<()> {
        let first = *self.first.get_or_insert_with(Instant::now);
        self.attempts = self.attempts.saturating_add(1);
        let wait = self.next_wait(RandomState::new().hash_one(self.attempts));
        if first.elapsed().saturating_add(wait) >= budget {
            return Err(Error::RetriesExhausted { attempts: self.attempts });
        }
        thread::sleep(wait);
        Ok(())
    }

    /// Returns up to 1 ms after the first conflict, and up to twice as much after each further conflict.
    fn next_wait(&self, random: u64) -> Duration {
        let most = Duration::from_millis(1 << self.attempts.saturating_sub(1).min(10)).min(LONGEST);
        let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(random % nanos.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_budget_the_first_conflict_is_the_last() {
        let outcome = Conflicts::default().back_off(Duration::ZERO);
        assert!(matches!(outcome, Err(Error::RetriesExhausted { attempts: 1 })), "{outcome:?}");
    }

    #[test]
    fn waits_grow_up_to_a_limit() {
        let longest = |attempts| Conflicts { first: None, attempts }.next_wait(u64::MAX);
        assert!(longest(1) < Duration::from_millis(1));
        for attempts in 1..100 {
            assert!(longest(attempts) <= LONGEST);
        }
        let most = |attempts| {
            (0..64)
                .map(|bits| 1 << bits)
                .map(|random| Conflicts { first: None, attempts }.next_wait(random))
                .max()
        };
        assert!(most(8) > most(2));
    }

    #[test]
    fn the_error_has_the_number_of_attempts() -> Result<()> {
        let mut conflicts = Conflicts::default();
        for _ in 0..3 {
            conflicts.back_off(Duration::from_mins(1))?;
        }
        let outcome = conflicts.back_off(Duration::ZERO);
        assert!(matches!(outcome, Err(Error::RetriesExhausted { attempts: 4 })), "{outcome:?}");
        Ok(())
    }
}
