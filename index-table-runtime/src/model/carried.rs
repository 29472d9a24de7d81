//! The requirements on the types of fields of an entry or a view.
//!
//! Each missing trait has its own error, which names the trait, the type and the index.

use std::fmt::Debug;

/// The traits that entries and views implement, and that the types of their fields therefore need.
pub trait Carried: Clone + Debug + PartialEq {}

#[diagnostic::do_not_recommend]
impl<T: Clone + Debug + PartialEq> Carried for T {}

/// `Clone` of a type in an index; `Index` is a type with the name of the index.
#[diagnostic::on_unimplemented(
    message = "the index `{Index}` carries `{Self}`, which lacks `Clone`",
    label = "lacks `Clone`",
    note = "put `#[derive(Clone)]` on `{Self}`, or include other fields in the index"
)]
pub trait CloneIn<Index> {}

#[diagnostic::do_not_recommend]
impl<T: Clone, Index> CloneIn<Index> for T {}

/// `Debug` of a type in an index.
#[diagnostic::on_unimplemented(
    message = "the index `{Index}` carries `{Self}`, which lacks `Debug`",
    label = "lacks `Debug`",
    note = "put `#[derive(Debug)]` on `{Self}`, or include other fields in the index"
)]
pub trait DebugIn<Index> {}

#[diagnostic::do_not_recommend]
impl<T: Debug, Index> DebugIn<Index> for T {}

/// `PartialEq` of a type in an index.
#[diagnostic::on_unimplemented(
    message = "the index `{Index}` carries `{Self}`, which lacks `PartialEq`",
    label = "lacks `PartialEq`",
    note = "put `#[derive(PartialEq)]` on `{Self}`, or include other fields in the index"
)]
pub trait PartialEqIn<Index> {}

#[diagnostic::do_not_recommend]
impl<T: PartialEq, Index> PartialEqIn<Index> for T {}

/// `Clone` of a type in a view.
#[diagnostic::on_unimplemented(
    message = "the view has a field of type `{Self}`, which lacks `Clone`",
    label = "lacks `Clone`",
    note = "put `#[derive(Clone)]` on `{Self}`"
)]
pub trait CloneInView {}

#[diagnostic::do_not_recommend]
impl<T: Clone> CloneInView for T {}

/// `Debug` of a type in a view.
#[diagnostic::on_unimplemented(
    message = "the view has a field of type `{Self}`, which lacks `Debug`",
    label = "lacks `Debug`",
    note = "put `#[derive(Debug)]` on `{Self}`"
)]
pub trait DebugInView {}

#[diagnostic::do_not_recommend]
impl<T: Debug> DebugInView for T {}

/// `PartialEq` of a type in a view.
#[diagnostic::on_unimplemented(
    message = "the view has a field of type `{Self}`, which lacks `PartialEq`",
    label = "lacks `PartialEq`",
    note = "put `#[derive(PartialEq)]` on `{Self}`"
)]
pub trait PartialEqInView {}

#[diagnostic::do_not_recommend]
impl<T: PartialEq> PartialEqInView for T {}

/// Compiles if the index can carry a field of type `T`.
pub const fn assert_carried<T: CloneIn<Index> + DebugIn<Index> + PartialEqIn<Index>, Index>() {}

/// Compiles if the view can have a field of type `T`.
pub const fn assert_viewed<T: CloneInView + DebugInView + PartialEqInView>() {}
