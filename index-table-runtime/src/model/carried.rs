//! The requirements on the types of fields of an entry or a view.

use std::fmt::Debug;

/// The traits that entries and views implement, and that the types of their fields therefore need.
pub trait Carried: Clone + Debug + PartialEq {}

#[diagnostic::do_not_recommend]
impl<T: Clone + Debug + PartialEq> Carried for T {}

/// [`Carried`] by an index; `Index` is a type with the name of the index.
#[diagnostic::on_unimplemented(
    message = "the index `{Index}` carries `{Self}`, which lacks `Clone`, `Debug` or `PartialEq`",
    label = "lacks `Clone`, `Debug` or `PartialEq`",
    note = "the entries of an index have these traits: put `#[derive(Clone, Debug, PartialEq)]` \
            on `{Self}`, or include other fields in the index"
)]
pub trait CarriedBy<Index> {}

#[diagnostic::do_not_recommend]
impl<T: Carried, Index> CarriedBy<Index> for T {}

/// [`Carried`] by a view.
#[diagnostic::on_unimplemented(
    message = "the view has a field of type `{Self}`, which lacks `Clone`, `Debug` or `PartialEq`",
    label = "lacks `Clone`, `Debug` or `PartialEq`",
    note = "a view has these traits: put `#[derive(Clone, Debug, PartialEq)]` on `{Self}`"
)]
pub trait InView {}

#[diagnostic::do_not_recommend]
impl<T: Carried> InView for T {}

/// Compiles if the index can carry a field of type `T`.
pub const fn assert_carried<T: CarriedBy<Index>, Index>() {}

/// Compiles if the view can have a field of type `T`.
pub const fn assert_viewed<T: InView>() {}
