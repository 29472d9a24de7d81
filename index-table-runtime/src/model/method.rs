//! The methods of `filter` and `computed`, and errors about their signatures.
//!
//! The derive doesn't see the methods. It calls them, and declares a method of the same name on a
//! reference to the row, which the compiler takes where there is no other with the right receiver. What
//! it returns, [`NoMethod`], has the error.
//!
//! The traits are those of the type that is needed, and not of the one that is returned: for a `&bool` the
//! compiler would suggest to dereference it, in the attribute.

use std::{convert::Infallible, marker::PhantomData};

/// What a method of `filter` should return, which returns a `T`: `bool`.
#[diagnostic::on_unimplemented(
    message = "a `filter` is a method `fn(&self) -> {Self}`",
    label = "the method returns `{T}`"
)]
pub trait FilterOf<T> {
    /// Whether the row has an entry.
    fn from_filter(result: T) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T> FilterOf<T> for T {
    #[inline]
    fn from_filter(result: T) -> Self {
        result
    }
}

/// What a method of `computed` should return, which returns a `T`.
#[diagnostic::on_unimplemented(
    message = "a method of `computed` with the type `{Self}` is `fn(&self) -> {Self}`",
    label = "the method returns `{T}`"
)]
pub trait ComputedBy<T> {
    /// The part of the key.
    fn from_computed(result: T) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T> ComputedBy<T> for T {
    #[inline]
    fn from_computed(result: T) -> Self {
        result
    }
}

/// Returned in the place of a method that the struct `R` does not have.
#[derive(Debug)]
pub struct NoMethod<R, T>(PhantomData<(R, T)>, Infallible);

impl<R: HasFilter, T> FilterOf<NoMethod<R, T>> for T {
    fn from_filter(NoMethod(_, never): NoMethod<R, T>) -> Self {
        match never {}
    }
}

impl<R: HasComputed<T>, T> ComputedBy<NoMethod<R, T>> for T {
    fn from_computed(NoMethod(_, never): NoMethod<R, T>) -> Self {
        match never {}
    }
}

/// Holds for no type: the error about the method of a `filter`.
#[diagnostic::on_unimplemented(
    message = "a `filter` is a method `fn(&self) -> bool`",
    label = "`{Self}` has no method of this name and signature"
)]
pub trait HasFilter {}

/// Holds for no type: the error about the method of a `computed`.
#[diagnostic::on_unimplemented(
    message = "a method of `computed` with the type `{T}` is `fn(&self) -> {T}`",
    label = "`{Self}` has no method of this name and signature"
)]
pub trait HasComputed<T> {}

/// What the method of a `filter` has returned.
#[inline]
pub fn filter<T>(result: T) -> bool
where
    bool: FilterOf<T>,
{
    bool::from_filter(result)
}

/// What the method of a `computed` has returned.
#[inline]
pub fn computed<T: ComputedBy<C>, C>(result: C) -> T {
    T::from_computed(result)
}
