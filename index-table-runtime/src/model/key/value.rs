//! The requirements of `#[derive(IndexKey)]` on its type.
//!
//! As in [`assert`](super::assert), the blanket implementations are `do_not_recommend`, so the compiler
//! reports the assertion.

use std::fmt::Debug;

use serde::Serialize;

/// A type that entries contain.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is a key, and lacks a trait that the fields of entries need",
    label = "lacks one of `Debug`, `Clone`, `PartialEq` and `Serialize`",
    note = "entries are `Debug`, `Clone`, `PartialEq` and `Serialize`: derive all of these, with serde's `Serialize`"
)]
pub trait KeyValue: Debug + Clone + PartialEq + Serialize {}

#[diagnostic::do_not_recommend]
impl<T: Debug + Clone + PartialEq + Serialize> KeyValue for T {}

/// A type that entries contain and queries take by value.
#[diagnostic::on_unimplemented(
    message = "the enum `{Self}` is a key, and lacks a trait that keys need to be passed by value",
    label = "lacks one of `Copy`, `Debug`, `Clone`, `PartialEq` and `Serialize`",
    note = "queries take an enum by value, and entries contain it: derive `Copy`, `Debug`, \
            `Clone`, `PartialEq` and serde's `Serialize`"
)]
pub trait EnumValue: KeyValue + Copy {}

#[diagnostic::do_not_recommend]
impl<T: KeyValue + Copy> EnumValue for T {}

/// Compiles if a struct of this type can be a key.
pub const fn assert_key_value<T: KeyValue>() {}

/// Compiles if an enum of this type can be a key.
pub const fn assert_enum_value<T: EnumValue>() {}
