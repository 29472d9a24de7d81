//! The methods of `filter` and `computed`, and errors about their signatures.
//!
//! The derive doesn't see the declarations of the methods. It calls a method, and declares a replacement with
//! the same name on a reference to the row. The compiler uses the replacement if the row has no method with
//! the right receiver. The return type of the replacement, [`NoMethod`], causes the error.
//!
//! Before that, a constant ([`is_filter`], [`is_computed`]) checks the number of arguments of the method as a value.
//! In a call, only the compiler's own error would be possible, which does not have the expected signature.
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

/// The trait of the error about the receiver of the method of a `filter`. No type implements it.
#[diagnostic::on_unimplemented(
    message = "a `filter` is a method `fn(&self) -> bool`",
    label = "`{Self}` has no method of this name and signature"
)]
pub trait HasFilter {}

/// The trait of the error about the receiver of the method of a `computed`. No type implements it.
#[diagnostic::on_unimplemented(
    message = "a method of `computed` with the type `{T}` is `fn(&self) -> {T}`",
    label = "`{Self}` has no method of this name and signature"
)]
pub trait HasComputed<T> {}

/// The return type of a `filter` with a replacement for `R`, which a reference to a row has, but not a row itself. As
/// `bool` is not the row, the compiler reports this trait, and not that of the replacement.
#[diagnostic::on_unimplemented(
    message = "a `filter` is a method `fn(&self) -> {Self}`",
    label = "`{R}` has no method of this name"
)]
pub trait FilterIn<R> {}

// For any type, because the compiler would show an implementation for `bool` alone.
#[diagnostic::do_not_recommend]
impl<R, T> FilterIn<&R> for T {}

/// The return type of a `computed` with a replacement for `R`, which a reference to a row has, but not a row itself.
#[diagnostic::on_unimplemented(
    message = "a method of `computed` with the type `{Self}` is `fn(&self) -> {Self}`",
    label = "`{R}` has no method of this name"
)]
pub trait ComputedIn<R> {}

#[diagnostic::do_not_recommend]
impl<R, T> ComputedIn<&R> for T {}

/// A type, with a constant that fails if the type does not meet a requirement: if the signature of a method of a row is
/// wrong, or if a field has no key encoding.
pub trait Checked<const CHECKED: bool> {
    /// The same type.
    type Checked;
}

impl<R> Checked<true> for R {
    type Checked = R;
}

/// A function with arguments of the types `A`.
#[diagnostic::on_unimplemented(
    message = "the method of a `filter` or `computed` is a safe `fn(&self)` without further arguments",
    label = "the method has another signature"
)]
pub trait Function<A> {}

/// Implements `Function` for functions with these numbers of arguments.
macro_rules! functions {
    ($([$($argument:ident)*])*) => { $(
        #[diagnostic::do_not_recommend]
        impl<F: Fn($($argument),*) -> O, O, $($argument),*> Function<($($argument,)*)> for F {}
    )* };
}

functions!([] [A] [A B] [A B C] [A B C D] [A B C D E] [A B C D E G] [A B C D E G H]);

/// The arguments of the method of a `filter`.
#[diagnostic::on_unimplemented(
    message = "a `filter` is a method `fn(&self) -> bool`",
    label = "the method has the arguments `{Self}`"
)]
pub trait FilterArguments {}

#[diagnostic::do_not_recommend]
impl<A> FilterArguments for (A,) {}

/// The arguments of the method of a `computed` with the type `T`.
#[diagnostic::on_unimplemented(
    message = "a method of `computed` with the type `{T}` is `fn(&self) -> {T}`",
    label = "the method has the arguments `{Self}`"
)]
pub trait ComputedArguments<T> {}

#[diagnostic::do_not_recommend]
impl<A, T> ComputedArguments<T> for (A,) {}

/// Compiles only if the method of a `filter` has one argument.
#[must_use]
pub const fn is_filter<F: Function<A> + Copy, A: FilterArguments>(_: F) -> bool {
    true
}

/// Compiles only if the method of a `computed` with the type `T` has one argument.
#[must_use]
pub const fn is_computed<T, F: Function<A> + Copy, A: ComputedArguments<T>>(_: F) -> bool {
    true
}

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
