//! The revision of a row: the number of its writes, for optimistic concurrency control.

use crate::model::{
    entity::Entity, error::Result, key::DecodeError, lists::Lists, maintain::Image, row,
};

/// A row type with a field that is marked with `#[revision]`. Only the derive implements it.
#[diagnostic::on_unimplemented(
    message = "rows of `{Self}` have no revision",
    note = "mark an unsigned field with `#[revision]`"
)]
pub trait Revised: Entity {
    /// The type of the field.
    type Number: RevisionNumber;

    /// Returns the field.
    fn revision(&self) -> &Self::Number;

    /// Returns the field, to be changed.
    fn revision_mut(&mut self) -> &mut Self::Number;
}

/// A type of a field with `#[revision]`: `u8`, `u16`, `u32` or `u64`.
#[diagnostic::on_unimplemented(
    message = "a revision can't be of type `{Self}`",
    label = "not an unsigned integer of up to 64 bits",
    note = "a revision counts the writes of a row: use `u8`, `u16`, `u32` or `u64`"
)]
pub trait RevisionNumber: Sized {
    /// Returns the number.
    fn number(&self) -> u64;

    /// Returns the field's value for a number; `None` if the number is too large.
    fn of(number: u64) -> Option<Self>;
}

macro_rules! unsigned {
    ($($t:ty)*) => {
        $(impl RevisionNumber for $t {
            #[inline]
            fn number(&self) -> u64 {
                (*self).into()
            }

            #[inline]
            fn of(number: u64) -> Option<Self> {
                number.try_into().ok()
            }
        })*
    };
}

unsigned!(u8 u16 u32 u64);

/// The functions for the revisions of rows, for code that is compiled once.
#[derive(Debug, Clone, Copy)]
pub struct Revision {
    /// Returns the revision of the row with these bytes.
    pub(crate) read: fn(&Lists, &[u8]) -> Result<u64, DecodeError>,
    /// Sets the revision of an image. Returns false if it is too large for the field.
    pub(crate) set: fn(&Lists, &mut Image, u64) -> Result<Result<bool>, DecodeError>,
}

impl Revision {
    /// Returns the functions for a row type.
    #[must_use]
    pub const fn of<R: Revised>() -> Self {
        Self { read: read::<R>, set: set::<R> }
    }
}

fn read<R: Revised>(lists: &Lists, bytes: &[u8]) -> Result<u64, DecodeError> {
    row::decode::<R>(lists, bytes).map(|row| row.revision().number())
}

fn set<R: Revised>(
    lists: &Lists,
    image: &mut Image,
    revision: u64,
) -> Result<Result<bool>, DecodeError> {
    let mut row = row::decode::<R>(lists, image.row())?;
    let Some(number) = R::Number::of(revision) else { return Ok(Ok(false)) };
    *row.revision_mut() = number;
    Ok(image.load(lists, &row).map(|()| true))
}
