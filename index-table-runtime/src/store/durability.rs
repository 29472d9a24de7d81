//! The durability of an open store.

use super::{Store, engines::Current};
use crate::engine::{Durability, DurabilityReason, Engine};

impl Store {
    /// Returns the durability of the commits of this store.
    ///
    /// For a store that was opened with [`read_only`](super::Options::read_only), it is [`Durability::Journal`] if the data
    /// file has a journal, and otherwise the durability in the options of this process, because other processes write. For a
    /// store with shards, it is the weakest durability of the available shards. A store in memory has
    /// [`Durability::None`], and a store on a server [`Durability::Full`].
    ///
    /// Cost: a read of the data file if the store is read-only; otherwise none.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{Durability, Store};
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = Store::open(dir.path())?;
    /// assert_eq!(store.durability(), Durability::Journal);
    /// assert_eq!(store.durability_reason(), None);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.durability_with_reason().0
    }

    /// Returns why the [durability](Store::durability) is not [`Durability::Journal`]; `None` if it is.
    ///
    /// A program that needs the journal names it in its options: where it is not possible, opening is then an error.
    ///
    /// Cost: that of [`durability`](Store::durability).
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{Durability, DurabilityReason, Store};
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = Store::options().durability(Durability::Full).open(dir.path())?;
    /// if let Some(reason) = store.durability_reason() {
    ///     println!("{:?}: {reason}", store.durability());
    /// }
    /// assert_eq!(store.durability_reason(), Some(DurabilityReason::Chosen));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn durability_reason(&self) -> Option<DurabilityReason> {
        self.durability_with_reason().1
    }

    fn durability_with_reason(&self) -> (Durability, Option<DurabilityReason>) {
        match self.inner.engines.current() {
            Current::One(engine) => engine.durability(),
            Current::Several(shards) => {
                let each = shards.engines().map(Engine::durability);
                let weakest = each.min_by_key(|(own, _)| strength(*own));
                // All shards have the same default.
                weakest.unwrap_or((Durability::Journal, None))
            }
        }
    }
}

const fn strength(durability: Durability) -> u8 {
    match durability {
        Durability::None => 0,
        Durability::Relaxed => 1,
        Durability::Full => 2,
        Durability::Journal => 3,
    }
}
