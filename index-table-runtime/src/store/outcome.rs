//! The result of the closure of a transaction.
//!
//! A method with the parameter `impl FnMut(…) -> Result<T>` would compile too. But if a closure returned another error, the
//! compiler would report two mismatched types, and name no way out. A trait has a message.
//!
//! The message is missing if the closure returns `Ok(…)` before its own error. Then the compiler has inferred [`Error`]
//! already, since no other type has the trait, and reports mismatched types. An inferred error is what lets closures
//! without a named type compile.

use crate::model::error::{Error, Result};

/// What the closure of [`Store::transaction`](crate::Store::transaction) returns: a [`Result`](crate::Result).
/// Other crates can't implement it.
///
/// It has one implementation, so the compiler infers the error type of a closure that only uses `?`. Its message names it
/// where a closure returns an error of your own. [`Store::try_transaction`](crate::Store::try_transaction) accepts every error
/// type that can be made from [`Error`](crate::Error).
///
/// # Examples
///
/// A function that runs any closure of a transaction, and reports its time:
///
/// ```
/// use index_table::{Result, Store, WriteTxn, report::TransactionResult};
///
/// fn timed<R: TransactionResult>(store: &Store, body: impl FnMut(&mut WriteTxn<'_>) -> R) -> R {
///     let start = std::time::Instant::now();
///     let result = store.transaction(body);
///     println!("{:?}", start.elapsed());
///     result
/// }
///
/// # fn main() -> Result<()> {
/// # let dir = tempfile::tempdir().expect("a directory"); let store = Store::open(dir.path())?;
/// assert_eq!(timed(&store, |_| Ok(7))?, 7);
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "the closure of a transaction returns `{Self}` instead of `index_table::Result<…>`",
    label = "with your own errors, call `try_transaction` instead of `transaction`, and \
             `try_transaction_on` instead of `transaction_on`"
)]
pub trait TransactionResult: sealed::Sealed {
    /// The value of a committed transaction.
    type Value;

    #[doc(hidden)]
    fn into_result(self) -> Result<Self::Value>;

    #[doc(hidden)]
    fn of(result: Result<Self::Value>) -> Self;
}

impl<T> TransactionResult for Result<T, Error> {
    type Value = T;

    #[inline]
    fn into_result(self) -> Result<T> {
        self
    }

    #[inline]
    fn of(result: Result<T>) -> Self {
        result
    }
}

mod sealed {
    /// Keeps other crates from implementing [`TransactionResult`](super::TransactionResult).
    pub trait Sealed {}

    impl<T, E> Sealed for Result<T, E> {}
}
