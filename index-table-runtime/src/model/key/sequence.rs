use super::Key;

/// A primary key that `insert_with` can assign: an integer, or a newtype of an integer.
#[diagnostic::on_unimplemented(
    message = "`insert_with` can't number rows whose primary key is a `{Self}`",
    label = "the primary key is not a number",
    note = "it numbers rows whose primary key is one integer, or a newtype of one with `#[derive(IndexKey)]`",
    note = "for another key, make the row with its key and `insert` it"
)]
pub trait Sequence: Key {
    /// Returns the key with this number, if there is one.
    fn from_number(number: u128) -> Option<Self>;

    /// Returns the number of the key; 0 for a negative key.
    fn number(&self) -> u128;
}

/// The rows of a table with a shard key that are not numbered; no type implements this trait.
#[diagnostic::on_unimplemented(
    message = "`insert_with` can't number the rows of this table",
    label = "the fields of `shard_by` are not followed by one number",
    note = "it numbers the last field of the primary key within the shard key: the primary key has to be the fields of \
            `shard_by`, and then one integer, or a newtype of one with `#[derive(IndexKey)]`",
    note = "for another key, make the row with its key and `insert` it"
)]
pub trait Unnumbered {
    /// The type of the numbers.
    type Number;
}

macro_rules! integers {
    ($($integer:ident)+) => {$(
        impl Sequence for $integer {
            fn from_number(number: u128) -> Option<Self> {
                number.try_into().ok()
            }

            fn number(&self) -> u128 {
                (*self).try_into().unwrap_or_default()
            }
        }

        impl Sequence for std::num::NonZero<$integer> {
            fn from_number(number: u128) -> Option<Self> {
                Self::new($integer::from_number(number)?)
            }

            fn number(&self) -> u128 {
                self.get().number()
            }
        }
    )+};
}

integers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);
