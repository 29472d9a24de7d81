//! The result of the closure of a transaction.
//!
//! A method with the parameter `impl FnMut(…) -> Result<T>` would work as well. But if a closure returned another
//! error, the compiler would report two mismatched types, without a remedy. A trait can have a message of its own.
//!
//! The message is missing if the closure returns `Ok(…)` before its own error. Then the compiler has already inferred
//! [`Error`], because no other type implements the trait, and reports mismatched types. Without this inference,
//! closures would have to name their error type.

use crate::model::error::{Error, Result};

/// The return type of the closure of [`Store::transaction`](crate::Store::transaction): a [`Result`](crate::Result).
/// Other crates can't implement it.
///
/// The trait has one implementation, so the compiler infers the error type of a closure that only uses `?`. For a closure
/// that returns an error of your own, use [`Store::try_transaction`](crate::Store::try_transaction), which accepts every
/// error type that can be made from [`Error`](crate::Error). The compile error recommends it.
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
             `try_transaction_on` instead of `transaction_on`",
    note = "a closure without a value ends with `Ok(())`"
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
