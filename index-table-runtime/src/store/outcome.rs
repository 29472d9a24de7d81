//! The error of the closure of a transaction.
//!
//! A method with the parameter `impl FnMut(…) -> Result<T>` would work as well. But if a closure returned another
//! error, the compiler would report two mismatched types, without a remedy. A trait can have a message of its own.
//!
//! The type of the closure implements the trait, not the type of the error. Only the first is known after the compiler
//! has checked the closure, so until then, the error's type can be inferred from the closure. After that, [`Error`] is
//! the only candidate that is left, so closures don't have to name their error type.
//!
//! The parameter says that the closure returns a `Result`. A closure that does not end with `Ok(())` is one error
//! then, and the operator `?` inside and after it adds none.

use crate::model::error::Error;

/// The closure of [`Store::transaction`](crate::Store::transaction) returns the errors of this crate: `E` is
/// [`Error`]. Every closure implements `TransactionBody<Error>`, and other crates can't implement it.
///
/// The compiler infers the error type of a closure that only uses `?`. For a closure that returns an error of your own,
/// use [`Store::try_transaction`](crate::Store::try_transaction), which accepts every error type that can be made from
/// [`Error`]. The compile error recommends it.
///
/// # Examples
///
/// A function that runs any closure of a transaction, and reports its time:
///
/// ```
/// use index_table::{Result, Store, WriteTxn};
///
/// fn timed<T>(store: &Store, body: impl FnMut(&mut WriteTxn<'_>) -> Result<T>) -> Result<T> {
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
    message = "the closure of a transaction returns the error `{E}` instead of `index_table::Error`",
    label = "returns `{E}`",
    note = "with your own errors, call `try_transaction` instead of `transaction`, and `try_transaction_on` instead \
            of `transaction_on`"
)]
pub trait TransactionBody<E>: sealed::Sealed<E> {
    #[doc(hidden)]
    fn into_error(error: E) -> Error;

    #[doc(hidden)]
    fn of(error: Error) -> E;
}

impl<F> TransactionBody<Error> for F {
    #[inline]
    fn into_error(error: Error) -> Error {
        error
    }

    #[inline]
    fn of(error: Error) -> Error {
        error
    }
}

mod sealed {
    /// Keeps other crates from implementing [`TransactionBody`](super::TransactionBody).
    pub trait Sealed<E> {}

    #[diagnostic::do_not_recommend]
    impl<F> Sealed<super::Error> for F {}
}
