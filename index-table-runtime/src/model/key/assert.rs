//! Errors about a field's type that name the field.
//!
//! `Field` is a type with the name of the field. The blanket implementations are `do_not_recommend`, so the
//! compiler reports the assertion and not the bounds of the implementation.

use std::marker::PhantomData;

use super::{Each, Key, TextKey};

/// [`Key`] for the type of the field with the name `Field`.
#[diagnostic::on_unimplemented(
    message = "the field `{Field}` can't be part of a key: its type `{Self}` has no key encoding",
    label = "has no key encoding",
    note = "a key consists of integers, floats, `bool`, `char`, `String`, `Vec<u8>`, `[u8; N]` \
            up to 32, times, IP addresses, types with `#[derive(IndexKey)]`, and `Option`s and \
            tuples of up to 12 of these",
    note = "for a type of your own, a newtype, an enum without fields or a struct of keys, put `#[derive(IndexKey)]` on it; types of other crates may need a feature of `index-table`"
)]
pub trait KeyOf<Field> {}

#[diagnostic::do_not_recommend]
impl<T: Key, Field> KeyOf<Field> for T {}

/// [`Each`] for the type of the field with the name `Field`.
#[diagnostic::on_unimplemented(
    message = "`each({Field})` needs a collection of keys, and `{Self}` is not one",
    label = "is not a collection of keys",
    note = "supported: `Vec`, `VecDeque`, `BTreeSet`, `HashSet`, `Option`, arrays and boxed \
            slices of types that can be part of a key"
)]
pub trait EachOf<Field> {}

#[diagnostic::do_not_recommend]
impl<C: Each, Field> EachOf<Field> for C {}

/// [`Key`] for the return type of the method with the name `Method`.
#[diagnostic::on_unimplemented(
    message = "`computed({Method}: …)` can't be part of a key: `{Self}` has no key encoding",
    label = "has no key encoding",
    note = "a key consists of integers, floats, `bool`, `char`, `String`, `Vec<u8>`, `[u8; N]` \
            up to 32, times, IP addresses, types with `#[derive(IndexKey)]`, and `Option`s and \
            tuples of up to 12 of these"
)]
pub trait ComputedOf<Method> {}

#[diagnostic::do_not_recommend]
impl<T: Key, Method> ComputedOf<Method> for T {}

/// The standard library's `String`, or another type of text.
#[diagnostic::on_unimplemented(
    message = "this `{Self}` is not the standard library's",
    label = "spelled like the standard library's `String`",
    note = "give it another name, or write it with a path: `self::String`"
)]
pub trait Text {}

#[diagnostic::do_not_recommend]
impl<T: TextKey> Text for T {}

/// A type that compiles only if `T`, which is spelled `String`, is text.
#[derive(Debug)]
pub struct IsText<T: Text>(PhantomData<T>);

/// The type `T` of the field or method with the number `N` of a row or a key, if it meets a requirement, which the
/// derive asserts. Otherwise, the compiler reports nothing about a type that depends on it.
pub trait Required<T, const N: usize> {
    /// The type `T`.
    type Type;
}

/// Compiles if a field of type `T` can be part of a key.
pub const fn assert_key<T: KeyOf<Field>, Field>() {}

/// Compiles if `each(…)` of a field of type `C` can be part of a key.
pub const fn assert_each<C: EachOf<Field>, Field>() {}

/// Compiles if the return type `T` of a method can be part of a key.
pub const fn assert_computed<T: ComputedOf<Method>, Method>() {}

/// Whether `None` is a value of `T`; [`NoKey`] provides values for types that are not keys.
#[derive(Debug)]
pub struct CanBeAbsent<T>(PhantomData<T>);

impl<T: Key> CanBeAbsent<T> {
    /// Whether `None` is a value.
    pub const HOLDS: bool = T::SHAPE.is_option();
    /// Whether `None` is not a value.
    pub const FAILS: bool = !Self::HOLDS;
}

/// The values for a type that is not a key, so that it causes no further errors.
pub trait NoKey {
    /// Replaces [`CanBeAbsent::HOLDS`], which has precedence if it exists.
    const HOLDS: bool = true;
    /// Replaces [`CanBeAbsent::FAILS`].
    const FAILS: bool = true;
}

impl<T> NoKey for CanBeAbsent<T> {}
