//! Rows that expire: the type of the time, and the range of expired entries.

use std::time::SystemTime;

use crate::model::{
    KeyRange,
    entity::Entity,
    key::{Key, KeyBuf},
    range::End,
};

/// A row type with `#[table(expires = …)]`. Only the derive implements it.
#[diagnostic::on_unimplemented(
    message = "rows of `{Self}` do not expire",
    note = "name the field with the time: `#[table(expires = field)]`"
)]
pub trait Expires: Entity {
    /// The type of the time.
    type Time: ExpiryTime;

    /// The position of the index that orders the rows by their time.
    const INDEX: usize;

    /// Calls `read` with the time of the row.
    fn with_time<T>(&self, read: impl FnOnce(&Self::Time) -> T) -> T;
}

/// A type of a time of expiry: an instant, or an `Option` of an instant, whose `None` never expires. An `Option` of an
/// `Option` is not such a type:
///
/// ```compile_fail
/// #[derive(serde::Serialize, serde::Deserialize, index_table::IndexTable)]
/// #[table(expires = ends)]
/// struct Session {
///     #[primary_key]
///     id: u64,
///     ends: Option<Option<std::time::SystemTime>>,
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "rows can't expire at a `{Self}`",
    label = "not an instant",
    note = "use `SystemTime`, or an instant of chrono (`DateTime<Utc>`), time (`OffsetDateTime`) or jiff \
            (`Timestamp`), or an `Option` of one of these"
)]
pub trait ExpiryTime: Key {
    /// This type, or the type in the `Option`. All instants have the same encoding.
    type Instant;

    /// Whether the encoding is the encoding of an `Option`.
    const OPTIONAL: bool = false;
}

impl ExpiryTime for SystemTime {
    type Instant = Self;
}

#[cfg(feature = "chrono")]
impl ExpiryTime for chrono::DateTime<chrono::Utc> {
    type Instant = Self;
}

#[cfg(feature = "jiff")]
impl ExpiryTime for jiff::Timestamp {
    type Instant = Self;
}

#[cfg(feature = "time")]
impl ExpiryTime for time::OffsetDateTime {
    type Instant = Self;
}

#[diagnostic::do_not_recommend]
impl<T: ExpiryTime<Instant = T>> ExpiryTime for Option<T>
where
    Self: Key,
{
    type Instant = T;

    const OPTIONAL: bool = true;
}

/// The expiry of a row type, for code that is compiled once.
#[derive(Debug, Clone, Copy)]
pub struct Expiry {
    /// The position of the index.
    pub(crate) index: usize,
    optional: bool,
}

impl Expiry {
    /// Returns the expiry of a row type.
    #[must_use]
    pub const fn of<R: Expires>() -> Self {
        Self { index: R::INDEX, optional: R::Time::OPTIONAL }
    }

    /// Returns the range of the keys in the index of rows that have expired at this time.
    pub(crate) fn expired(&self, now: SystemTime) -> KeyRange {
        let mut last = KeyBuf::new();
        if !self.optional {
            last.push(&now);
            return KeyRange { start: KeyBuf::new(), end: End::after_prefix(&last) };
        }
        let mut never = KeyBuf::new();
        never.push(&None::<SystemTime>);
        last.push(&Some(now));
        let end = End::after_prefix(&last);
        match KeyRange::ALL.after_prefix(never.as_bytes()) {
            Some(KeyRange { start, .. }) => KeyRange { start, end },
            None => KeyRange { start: last, end },
        }
    }
}

/// Whether a row has expired at this time.
pub(crate) fn is_expired<R: Expires>(row: &R, now: SystemTime) -> bool {
    let mut key = KeyBuf::new();
    row.with_time(|time| {
        key.push(time);
    });
    Expiry::of::<R>().expired(now).contains(key.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn key(time: &impl Key) -> Vec<u8> {
        let mut key = KeyBuf::new();
        key.push(time);
        key.as_bytes().to_vec()
    }

    #[test]
    fn the_range_ends_after_the_time_and_excludes_none() {
        let now = UNIX_EPOCH + Duration::from_secs(1000);
        let nanosecond = Duration::from_nanos(1);
        let earlier = [UNIX_EPOCH - Duration::from_secs(5), UNIX_EPOCH, now - nanosecond, now];
        let required = Expiry { index: 0, optional: false }.expired(now);
        let optional = Expiry { index: 0, optional: true }.expired(now);
        for time in earlier {
            assert!(required.contains(&key(&time)), "{time:?}");
            assert!(optional.contains(&key(&Some(time))), "{time:?}");
            // With a further field of the index.
            assert!(required.contains(&key(&(time, u64::MAX))), "{time:?}");
        }
        assert!(!required.contains(&key(&(now + nanosecond))));
        assert!(!optional.contains(&key(&Some(now + nanosecond))));
        assert!(!optional.contains(&key(&None::<SystemTime>)));
    }
}
