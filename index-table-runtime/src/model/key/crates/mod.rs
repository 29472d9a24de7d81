//! Types of other crates, each behind a feature with the name of its crate.

#[cfg(feature = "bytes")]
mod bytes;
#[cfg(feature = "chrono")]
mod chrono;
#[cfg(feature = "compact_str")]
mod compact_str;
#[cfg(feature = "jiff")]
mod jiff;
#[cfg(feature = "ordered-float")]
mod ordered_float;
#[cfg(feature = "rust_decimal")]
mod rust_decimal;
#[cfg(feature = "smol_str")]
mod smol_str;
#[cfg(feature = "time")]
mod time;
#[cfg(feature = "ulid")]
mod ulid;
#[cfg(feature = "url")]
mod url;
#[cfg(feature = "uuid")]
mod uuid;

#[cfg(any(feature = "chrono", feature = "jiff", feature = "time"))]
mod calendar {
    //! The shapes of types that several crates have.

    use crate::model::key::{DecodeError, Key, KeyShape};

    /// Days since 1970-01-01 in the Gregorian calendar.
    pub(super) const DATE: KeyShape = KeyShape::Named("date", &i32::SHAPE);

    /// A date, the seconds since midnight, and the remaining nanoseconds.
    #[cfg(any(feature = "chrono", feature = "time"))]
    pub(super) const DATE_TIME: KeyShape = KeyShape::Named("datetime", &<(i32, u32, u32)>::SHAPE);

    pub(super) const OUT_OF_RANGE: DecodeError = DecodeError::Value("a time that is out of range");
}
