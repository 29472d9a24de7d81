//! Transactions that commit each operation as a transaction of its own.

use super::{WriteGuard, WriteTxn};
use crate::model::error::{Error, Result};

impl WriteTxn<'_> {
    /// Runs an operation in a transaction of its own, which may run again.
    #[cold]
    pub(super) fn each<T>(
        &mut self,
        mut operation: impl FnMut(&mut WriteTxn<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut outcome = None;
        self.run_each(true, &mut |txn| {
            outcome = Some(operation(txn)?);
            Ok(())
        })?;
        outcome.ok_or_else(|| Error::internal("an operation did not run"))
    }

    /// Runs an operation, which can be called once, in a transaction of its own.
    #[cold]
    pub(super) fn each_once<T, E: From<Error>>(
        &mut self,
        operation: impl FnOnce(&mut WriteTxn<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let (mut operation, mut outcome) = (Some(operation), None);
        let ran = self.run_each(false, &mut |txn| {
            let reason = "it has to run again, for example because the map was enlarged, and its closure can be called \
                          once: repeat the call";
            let Some(operation) = operation.take() else {
                outcome = None;
                return Err(Error::TransactionFailed { reason: reason.to_owned() });
            };
            let result = operation(txn);
            let ended = if result.is_ok() { Ok(()) } else { Err(Error::internal("an error")) };
            outcome = Some(result);
            ended
        });
        match (ran, outcome) {
            (Ok(()), Some(outcome)) | (Err(_), Some(outcome @ Err(_))) => outcome,
            (Err(error), _) => Err(error.into()),
            (Ok(()), None) => Err(Error::internal("an operation did not run").into()),
        }
    }

    /// It is not generic, because every table calls it. `can_repeat`: the first run may assume that new keys are free.
    fn run_each(
        &mut self,
        can_repeat: bool,
        operation: &mut dyn FnMut(&mut WriteTxn<'_>) -> Result<()>,
    ) -> Result<()> {
        let WriteGuard::Each(store, _) = &self.guard else {
            return Err(Error::internal("an operation of another transaction"));
        };
        let (store, mut assumes_new) = (*store, can_repeat);
        let total = self.read.session.total.get();
        // The map can't be enlarged while the snapshot is open.
        self.read.engine = store.inner.engines.without_snapshot()?;
        let ran = store.transaction(|txn| {
            if std::mem::take(&mut assumes_new) {
                txn.read.engine.assume_new();
            }
            operation(txn)
        });
        self.read = store.read_later()?;
        self.read.session.total.add(total);
        ran
    }
}
