//! Write transactions: the shards that they lock, and the order.
//!
//! | method | locked shards |
//! |---|---|
//! | `write_on`, `transaction_on` | the given shard; using another shard fails with [`Error::OtherShard`] |
//! | `submit_for` | the shard of the key, and others when the closure reads or writes them |
//! | `write` | all available shards, in the order of their numbers, before the method returns |
//! | `transaction` | each shard when the closure first reads or writes it |
//!
//! A lock is a write transaction of the shard's engine, which lasts until the whole transaction ends. So other
//! transactions can't change data that this transaction has read: transactions are serializable.
//!
//! **Shards are locked in the order of their numbers**, so that two transactions never wait for each other. A
//! closure that needs a shard with a smaller number than a locked shard has to run again. The transaction is
//! [doomed](Doom::Again), and all further operations fail. The second transaction first locks the shards that
//! the closure has used ([`Locks`]), and then runs the closure. If the closure has to run a third time, all
//! shards are locked first. So there is no fourth run.
//!
//! **The shard maps may change while a closure runs.** If they have changed when the closure locks a further shard, or this
//! shard was removed or detached, it runs again in the same way. The ranges of a locked shard don't change.
//!
//! A write to a reference table locks all shards in order. A read of a reference table uses a locked shard, or
//! locks the first shard.
//!
//! A nested transaction has a nested transaction in each shard that it uses. It can't lock further shards: when
//! it is rolled back, such a shard could not be unlocked, because the closure may depend on the data that it has
//! read there. So the closure runs again, with this shard locked first.

mod seam;

use std::{
    cell::{Cell, OnceCell},
    collections::BTreeSet,
    mem,
};

use super::{Engine, Tables, maps::MapsAt};
use crate::{
    engine::{self, CommitFailure, Retry},
    model::{
        error::{Error, Result},
        shard::ShardNumber,
    },
};

/// The shards that a transaction locks before its closure runs.
#[derive(Debug, Default)]
pub(crate) enum Locks {
    /// No shard: each shard is locked when it is used.
    #[default]
    None,
    /// The shards that an earlier run has used. Other shards are locked when they are used.
    These(BTreeSet<ShardNumber>),
    All,
}

/// A number that no shard has.
const NOWHERE: ShardNumber = ShardNumber::MAX;

/// The reason why a transaction can't continue.
enum Doom {
    /// The closure has to run again, after these shards have been locked.
    Again(BTreeSet<ShardNumber>),
    /// A nested transaction was committed in some shards only.
    Failed,
}

/// The shards that a transaction may use.
enum Scope<'s> {
    /// The shards that were locked when the transaction began.
    Fixed(OnceCell<Doom>),
    /// The locked shards, and shards with greater numbers, which the transaction locks when it uses them.
    Growing(OnceCell<Doom>),
    /// The shards of the outer transaction.
    Nested {
        doom: &'s OnceCell<Doom>,
        /// Whether the closure can run again with other shards.
        grows: bool,
    },
}

impl Scope<'_> {
    const fn doom(&self) -> &OnceCell<Doom> {
        match self {
            Self::Fixed(doom) | Self::Growing(doom) => doom,
            Self::Nested { doom, .. } => doom,
        }
    }

    const fn grows(&self) -> bool {
        matches!(self, Self::Growing(_) | Self::Nested { grows: true, .. })
    }
}

/// A shard with its write transaction.
struct Locked<'s> {
    /// The number of the shard. [`NOWHERE`] if the transaction can't continue, so that one comparison also detects
    /// that.
    shard: Cell<ShardNumber>,
    is_used: Cell<bool>,
    /// Whether the shard may have changes.
    is_written: bool,
    txn: engine::Txn<'s>,
}

impl<'s> Locked<'s> {
    const fn new(shard: ShardNumber, is_used: bool, txn: engine::Txn<'s>) -> Self {
        let (shard, is_used) = (Cell::new(shard), Cell::new(is_used));
        Self { shard, is_used, is_written: false, txn }
    }
}

/// The function that begins a nested transaction in a shard when the shard is used.
type Begin<'s> = Box<dyn FnOnce() -> Result<engine::Txn<'s>> + 's>;

/// A shard other than [`Writing::first`].
#[derive(Default)]
struct Other<'s> {
    locked: OnceCell<Locked<'s>>,
    begin: Cell<Option<Begin<'s>>>,
}

/// A write transaction of one shard or several.
pub(super) struct Writing<'s> {
    engine: &'s Engine,
    /// The number of the [generation](super::Maps) of its shard maps.
    generation: u64,
    scope: Scope<'s>,
    /// The first shard that was locked on use: the only shard of most transactions. It precedes the others.
    first: OnceCell<Locked<'s>>,
    /// The other shards, at the positions of their numbers.
    others: OnceCell<Box<[Other<'s>]>>,
}

impl<'s> Writing<'s> {
    const fn new(engine: &'s Engine, scope: Scope<'s>, generation: u64) -> Self {
        Self { engine, generation, scope, first: OnceCell::new(), others: OnceCell::new() }
    }

    /// Takes the current shard maps, in which the locked shards keep their ranges.
    fn with_maps(mut self) -> (Self, MapsAt) {
        let maps = self.engine.maps.capture();
        self.generation = maps.generation;
        (self, maps)
    }

    /// Starts a transaction of one shard. If it `grows`, it can lock further shards.
    pub(super) fn on(
        engine: &'s Engine,
        shard: ShardNumber,
        grows: bool,
    ) -> Result<(Self, MapsAt)> {
        let scope = if grows { Scope::Growing } else { Scope::Fixed };
        let writing = Self::new(engine, scope(OnceCell::new()), 0);
        let own = engine.shard(shard)?;
        let current = own.engine()?;
        let txn = own.unless_left(current, current.write())?;
        let txn = txn.map_or_else(|| own.engine()?.write(), Ok)?;
        let _ = writing.first.set(Locked::new(shard, true, txn));
        Ok(writing.with_maps())
    }

    /// Starts a transaction that immediately locks the available shards among the given shards.
    pub(super) fn with(engine: &'s Engine, locks: &Locks) -> Result<(Self, MapsAt)> {
        let scope = match locks {
            Locks::None => {
                return Ok(Self::new(engine, Scope::Growing(OnceCell::new()), 0).with_maps());
            }
            Locks::These(_) => Scope::Growing(OnceCell::new()),
            Locks::All => Scope::Fixed(OnceCell::new()),
        };
        let generation = engine.maps.generation();
        let (writing, mut lacks_shard) = (Self::new(engine, scope, generation), false);
        let is_chosen = |shard: &ShardNumber| match locks {
            Locks::These(these) => these.contains(shard),
            Locks::None | Locks::All => true,
        };
        for ((number, shard), other) in engine.shards().zip(writing.others()) {
            if !is_chosen(&number) {
                continue;
            }
            let write = |own: &'s engine::Engine| shard.unless_left(own, own.write());
            let txn = shard.current().map(|open| write(open)).transpose()?;
            match txn.flatten() {
                Some(txn) => drop(other.locked.set(Locked::new(number, false, txn))),
                None => lacks_shard = true,
            }
        }
        let was_attached = lacks_shard && engine.maps.generation() != generation;
        if was_attached || writing.others().len() < engine.shards.len() {
            // A shard was added or attached while the transaction waited for a lock.
            drop(writing);
            return Self::with(engine, locks);
        }
        Ok(writing.with_maps())
    }

    fn others(&self) -> &[Other<'s>] {
        let empty = || self.engine.shards.iter().map(|_| Other::default()).collect();
        self.others.get_or_init(empty)
    }

    /// Returns all locked shards in their order. In a nested transaction, returns the shards that it has used.
    fn all(&self) -> impl Iterator<Item = &Locked<'s>> {
        let others = self.others.get().map(|others| &**others).unwrap_or_default();
        self.first.get().into_iter().chain(others.iter().filter_map(|other| other.locked.get()))
    }

    /// Returns the transaction of a shard. Locks the shard if necessary.
    #[inline]
    fn begin(
        &self,
        tables: &Tables,
        shard: ShardNumber,
        primary_key: Option<&[u8]>,
    ) -> Result<&Locked<'s>> {
        match self.first.get() {
            Some(first) if first.shard.get() == shard => Ok(first),
            _ => self.begin_other(tables, shard, primary_key),
        }
    }

    fn begin_other(
        &self,
        tables: &Tables,
        shard: ShardNumber,
        primary_key: Option<&[u8]>,
    ) -> Result<&Locked<'s>> {
        let refused = || Err(self.other_shard(tables, shard, primary_key));
        match self.scope.doom().get() {
            None => {}
            Some(Doom::Again(_)) => return refused(),
            Some(Doom::Failed) => return Err(failed()),
        }
        let other = self.others.get().and_then(|others| others.get(shard as usize));
        if let Some(locked) = other.map_or(Ok(None), |other| other.begin(shard))? {
            locked.is_used.set(true);
            return Ok(locked);
        }
        let own = self.engine.shard(shard)?;
        if !self.scope.grows() {
            return match self.first.get() {
                Some(_) => refused(),
                // All available shards have been locked, so this shard is not available.
                None => Err(self.engine.without(shard)),
            };
        }
        let engine = self.open(shard)?;
        let is_nested = matches!(self.scope, Scope::Nested { .. });
        if is_nested || self.last().is_some_and(|last| last > shard) {
            self.again(Some(shard));
            return refused();
        }
        let Some(txn) = own.unless_left(engine, engine.write())? else {
            self.again(Some(shard));
            return refused();
        };
        let locked = Locked::new(shard, true, txn);
        if self.engine.maps.generation() != self.generation {
            // Rows may have moved into the shard or out of it, so the routing of this run is out of date.
            self.again(Some(shard));
            return refused();
        }
        if self.last().is_none() {
            return Ok(self.first.get_or_init(|| locked));
        }
        let other = self.others().get(shard as usize);
        let other = other.ok_or_else(|| Error::internal("a shard has no place"))?;
        Ok(other.locked.get_or_init(|| locked))
    }

    /// Returns the engine of an available shard. If the shard was removed or detached after the transaction began, dooms the
    /// transaction: another shard may have its rows.
    fn open(&self, shard: ShardNumber) -> Result<&'s engine::Engine> {
        let opened = self.engine.shard(shard)?.engine();
        if opened.is_err() && self.scope.grows() && self.engine.maps.generation() != self.generation
        {
            self.again(Some(shard));
        }
        opened
    }

    /// Returns the last locked shard.
    fn last(&self) -> Option<ShardNumber> {
        self.all().map(|locked| locked.shard.get()).last()
    }

    /// Dooms the transaction. The next run locks this shard and the used shards first.
    fn again(&self, shard: Option<ShardNumber>) {
        let used = self.all().filter(|locked| locked.is_used.get());
        let used = used.map(|locked| locked.shard.get()).chain(shard).collect();
        let _ = self.scope.doom().set(Doom::Again(used));
        self.leave_first();
    }

    /// Excludes the first shard from the fast path of [`begin`](Self::begin), so that all operations fail.
    fn leave_first(&self) {
        if let Some(first) = self.first.get() {
            first.shard.set(NOWHERE);
        }
    }

    #[cold]
    fn other_shard(
        &self,
        tables: &Tables,
        shard: ShardNumber,
        primary_key: Option<&[u8]>,
    ) -> Error {
        let own = self.all().find(|locked| locked.is_used.get());
        let own = own.map(|locked| locked.shard.get()).filter(|own| *own != NOWHERE);
        self.engine.other_shard(tables, shard, own, primary_key)
    }

    /// Commits a nested transaction to the outer transaction, in each shard.
    fn commit_nested(
        doom: &OnceCell<Doom>,
        all: impl Iterator<Item = Locked<'s>>,
        committed: &mut dyn FnMut(),
    ) -> Result<(), CommitFailure> {
        for (at, Locked { txn, .. }) in all.enumerate() {
            let outcome = txn.commit(|| ());
            if outcome.is_err() && at > 0 {
                let _ = doom.set(Doom::Failed);
            }
            outcome?;
        }
        committed();
        Ok(())
    }
}

/// Begins a nested transaction in a shard.
fn nested<'t>(shard: ShardNumber, locked: &'t mut Locked<'_>) -> Result<Locked<'t>> {
    // The outer transaction gets the changes.
    locked.is_written = true;
    locked.is_used.set(true);
    let nested = locked.txn.nested();
    let nested = nested.ok_or_else(|| Error::internal("a nested transaction of a reader"))??;
    Ok(Locked { is_written: true, ..Locked::new(shard, true, nested) })
}

fn failed() -> Error {
    let reason = "a nested transaction could not be committed in all of its shards".to_owned();
    Error::TransactionFailed { reason }
}

pub(super) fn foreign(tables: &Tables) -> Error {
    Error::WrongStore { table: tables.routing.schema().name }
}

impl<'s> Other<'s> {
    /// Returns the transaction of the shard, or `None` if the shard is not locked. Begins a nested transaction if
    /// necessary.
    fn begin(&self, shard: ShardNumber) -> Result<Option<&Locked<'s>>> {
        if let Some(begin) = self.begin.take() {
            let _ = self.locked.set(Locked::new(shard, true, begin()?));
        }
        Ok(self.locked.get())
    }

    /// Returns the function that starts a nested transaction in the shard, if it is locked.
    fn nested(&mut self, shard: ShardNumber) -> Option<Begin<'_>> {
        if self.locked.get().is_none() && self.begin.get_mut().is_none() {
            return None;
        }
        Some(Box::new(move || {
            self.begin(shard)?;
            let not_locked =
                || Error::internal("a nested transaction in a shard that is not locked");
            Ok(nested(shard, self.locked.get_mut().ok_or_else(not_locked)?)?.txn)
        }))
    }
}

/// Adds the shard to a reason to run a closure again.
const fn of_shard(retry: Retry, shard: ShardNumber) -> Retry {
    match retry {
        Retry::Map { map_size } => Retry::ShardMap { shard, map_size },
        other => other,
    }
}

impl Locks {
    /// Sets the locks for the next run of a closure that has used these shards.
    pub(crate) fn next(&mut self, used: BTreeSet<ShardNumber>) {
        *self = match mem::take(self) {
            Self::None => Self::These(used),
            Self::These(_) | Self::All => Self::All,
        };
    }
}
