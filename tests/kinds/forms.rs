//! Functions for `with`.

use std::{fmt::Display, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A value as its text.
pub(crate) mod text {
    use super::{Deserialize as _, Deserializer, Display, FromStr, Serializer, parsed};

    pub(crate) fn serialize<T: Display, S: Serializer>(
        value: &T,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(crate) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        parsed::<T, D>(&String::deserialize(from)?)
    }
}

/// An option as the text of its value.
pub(crate) mod text_option {
    use super::{
        Deserialize as _, Deserializer, Display, FromStr, Serialize as _, Serializer, parsed,
    };

    pub(crate) fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_ref().map(ToString::to_string).serialize(to)
    }

    pub(crate) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<T>, D::Error> {
        Option::<String>::deserialize(from)?.map(|text| parsed::<T, D>(&text)).transpose()
    }
}

fn parsed<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(text: &str) -> Result<T, D::Error> {
    text.parse().map_err(D::Error::custom)
}

/// A shared value as its content. serde has this behind a feature.
pub(crate) mod shared {
    use std::sync::Arc;

    use super::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<T: Serialize + ?Sized, S: Serializer>(
        value: &Arc<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_ref().serialize(to)
    }

    pub(crate) fn deserialize<'de, T, D>(from: D) -> Result<Arc<T>, D::Error>
    where
        T: ToOwned<Owned: Deserialize<'de> + Into<Arc<T>>> + ?Sized,
        D: Deserializer<'de>,
    {
        T::Owned::deserialize(from).map(Into::into)
    }
}

/// A time as the text of its seconds since 1970.
pub(crate) mod seconds {
    use time::OffsetDateTime;

    use super::{Deserialize as _, Deserializer, Serializer, parsed};

    pub(crate) fn serialize<S: Serializer>(at: &OffsetDateTime, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("@{}", at.unix_timestamp()))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<OffsetDateTime, D::Error> {
        let seconds = parsed::<i64, D>(String::deserialize(from)?.trim_start_matches('@'))?;
        OffsetDateTime::from_unix_timestamp(seconds).map_err(serde::de::Error::custom)
    }

    /// The same for an option.
    pub(crate) mod option {
        use serde::Serialize;
        use time::OffsetDateTime;

        use super::super::{Deserialize, Deserializer, Serializer};

        #[derive(Serialize, Deserialize)]
        struct Inside(#[serde(with = "super")] OffsetDateTime);

        #[allow(clippy::ref_option, reason = "the signature of serde")]
        pub(crate) fn serialize<S: Serializer>(
            at: &Option<OffsetDateTime>,
            to: S,
        ) -> Result<S::Ok, S::Error> {
            at.map(Inside).serialize(to)
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Option<OffsetDateTime>, D::Error> {
            Ok(Option::<Inside>::deserialize(from)?.map(|inside| inside.0))
        }
    }
}

/// A duration as a text: `90s`, `1500ms`.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Span(#[serde(with = "span")] pub(crate) std::time::Duration);

pub(crate) mod span {
    use std::time::Duration;

    use super::{Deserialize as _, Deserializer, Serializer, parsed};

    pub(crate) fn serialize<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
        match (span.as_secs(), span.subsec_millis()) {
            (seconds, 0) => to.collect_str(&format_args!("{seconds}s")),
            _ => to.collect_str(&format_args!("{}ms", span.as_millis())),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(from)?;
        match text.strip_suffix("ms") {
            Some(millis) => parsed::<u64, D>(millis).map(Duration::from_millis),
            None => parsed::<u64, D>(text.trim_end_matches('s')).map(Duration::from_secs),
        }
    }

    /// The same for an option.
    pub(crate) mod option {
        use std::time::Duration;

        use serde::Serialize as _;

        use super::super::{Deserialize as _, Deserializer, Serializer, Span};

        #[allow(clippy::ref_option, reason = "the signature of serde")]
        pub(crate) fn serialize<S: Serializer>(
            span: &Option<Duration>,
            to: S,
        ) -> Result<S::Ok, S::Error> {
            span.map(Span).serialize(to)
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Option<Duration>, D::Error> {
            Ok(Option::<Span>::deserialize(from)?.map(|span| span.0))
        }
    }
}
