//! The methods of `filter` and `computed`, and errors about their signatures.
//!
//! The derive doesn't see the declarations of the methods. It calls a method, and declares a replacement with
//! the same name on a reference to the row. The compiler uses the replacement if the row has no method with
//! the right receiver. The return type of the replacement, [`NoMethod`], causes the error.
//!
//! The traits are implemented for the expected type and not for the returned type. Otherwise the compiler
//! would suggest to dereference a returned `&bool` inside the attribute.

use std::{convert::Infallible, marker::PhantomData};

/// The expected return type of a method of `filter`, `bool`, for a method that returns `T`.
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

/// The expected return type of a method of `computed`, for a method that returns `T`.
#[diagnostic::on_unimplemented(
    message = "a method of `computed` with the type `{Self}` is `fn(&self) -> {Self}`",
    label = "the method returns `{T}`"
)]
pub trait ComputedBy<T> {
    /// Returns the part of the key.
    fn from_computed(result: T) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T> ComputedBy<T> for T {
    #[inline]
    fn from_computed(result: T) -> Self {
        result
    }
}

/// The return type of the replacement of a method that the struct `R` does not have.
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

/// The trait of the error about the method of a `filter`. No type implements it.
#[diagnostic::on_unimplemented(
    message = "a `filter` is a method `fn(&self) -> bool`",
    label = "`{Self}` has no method of this name and signature"
)]
pub trait HasFilter {}

/// The trait of the error about the method of a `computed`. No type implements it.
#[diagnostic::on_unimplemented(
    message = "a method of `computed` with the type `{T}` is `fn(&self) -> {T}`",
    label = "`{Self}` has no method of this name and signature"
)]
pub trait HasComputed<T> {}

/// Converts the returned value of the method of a `filter`.
#[inline]
pub fn filter<T>(result: T) -> bool
where
    bool: FilterOf<T>,
{
    bool::from_filter(result)
}

/// Converts the returned value of the method of a `computed`.
#[inline]
pub fn computed<T: ComputedBy<C>, C>(result: C) -> T {
    T::from_computed(result)
}
