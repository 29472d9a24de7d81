//! Reads dates and times of the Gregorian calendar, in UTC, and durations.
//!
//! They have the range and the leap seconds of chrono, which cover all supported types of keys.

use chrono::{NaiveDate, NaiveDateTime, NaiveTime, Timelike as _};

pub(crate) fn date(text: &str) -> Option<i64> {
    let date: NaiveDate = text.parse().ok()?;
    Some(date.to_epoch_days().into())
}

/// Reads a date, or a date and a time.
fn parse(text: &str) -> Option<NaiveDateTime> {
    let Some((date, time)) = text.split_once(['T', ' ']) else {
        return Some(text.parse::<NaiveDate>().ok()?.and_time(NaiveTime::MIN));
    };
    // Further decimals would be lost.
    if time.split_once('.').is_some_and(|(_, decimals)| !(1..=9).contains(&decimals.len())) {
        return None;
    }
    Some(date.parse::<NaiveDate>().ok()?.and_time(time.parse().ok()?))
}

/// Returns the days since 1970-01-01, the seconds since midnight and the nanoseconds.
pub(crate) fn date_time(text: &str) -> Option<(i64, u32, u32)> {
    let (date, time) = parse(text).map(|it| (it.date(), it.time()))?;
    Some((date.to_epoch_days().into(), time.num_seconds_from_midnight(), time.nanosecond()))
}

/// Returns the seconds since 1970 and the nanoseconds.
pub(crate) fn instant(text: &str) -> Option<(i64, u32)> {
    let time = parse(text.strip_suffix('Z').unwrap_or(text))?.and_utc();
    Some((time.timestamp(), time.timestamp_subsec_nanos()))
}

/// Reads `90`, `1.5s` and `250ms`.
pub(crate) fn duration(text: &str) -> Option<(u64, u32)> {
    if let Some(millis) = text.strip_suffix("ms") {
        let millis: u64 = millis.parse().ok()?;
        return Some((millis / 1000, (millis % 1000) as u32 * 1_000_000));
    }
    let text = text.strip_suffix('s').unwrap_or(text);
    let (seconds, nanos) = match text.split_once('.') {
        None => (text, 0),
        Some((seconds, decimals)) => (seconds, nanoseconds(decimals)?),
    };
    Some((seconds.parse().ok()?, nanos))
}

fn nanoseconds(decimals: &str) -> Option<u32> {
    if decimals.is_empty() || decimals.len() > 9 {
        return None;
    }
    unsigned(&format!("{decimals:0<9}"))
}

fn unsigned(digits: &str) -> Option<u32> {
    if digits.bytes().all(|digit| digit.is_ascii_digit()) { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use index_table::__private::admin::PlainKey;

    use super::*;

    fn show_date(days: i64) -> Option<String> {
        PlainKey::Signed(days.into()).show_as("date")
    }

    fn show_instant(seconds: i64, nanos: u32) -> Option<String> {
        let parts = [PlainKey::Signed(seconds.into()), PlainKey::Unsigned(nanos.into())];
        PlainKey::Tuple(parts.to_vec()).show_as("instant")
    }

    fn show_date_time(days: i64, seconds: u32, nanos: u32) -> Option<String> {
        let of_day = [seconds, nanos].map(|it| PlainKey::Unsigned(it.into()));
        let parts = std::iter::once(PlainKey::Signed(days.into())).chain(of_day);
        PlainKey::Tuple(parts.collect()).show_as("datetime")
    }

    #[test]
    fn each_shown_date_is_read_as_the_same_day() {
        for days in (-95_000_000..95_000_000).step_by(9_973).chain([-719_529, -719_528, 0, 19_782])
        {
            let shown = show_date(days).expect("a date");
            assert_eq!(date(&shown), Some(days), "{shown}");
        }
        assert_eq!(show_date(19_782).as_deref(), Some("2024-02-29"));
        assert_eq!(show_date(i64::MAX), None);
    }

    #[test]
    fn dates_and_times_that_do_not_exist_are_refused() {
        for text in ["2023-02-29", "2024-13-01", "2024-00-01", "2024-01-32", "2024-01", "x", ""] {
            assert_eq!(date(text), None, "{text}");
        }
        for text in
            ["2024-02-29T24:00:00", "2024-02-29T12:60", "2024-02-29T12:00:00.", "2024-02-29T1"]
        {
            assert_eq!(date_time(text), None, "{text}");
        }
    }

    #[test]
    fn each_shown_instant_is_read_as_the_same_instant() {
        for (seconds, nanos) in
            [(0, 0), (-1, 5), (1_709_208_000, 500_000_000), (-62_167_219_200, 0)]
        {
            let shown = show_instant(seconds, nanos).expect("an instant");
            assert_eq!(instant(&shown), Some((seconds, nanos)), "{shown}");
        }
    }

    #[test]
    fn a_leap_second_is_a_second_of_its_own() {
        let shown = show_date_time(19_782, 86_399, 1_500_000_000).expect("a time");
        assert_eq!(shown, "2024-02-29T23:59:60.5");
        assert_eq!(date_time(&shown), Some((19_782, 86_399, 1_500_000_000)));
        assert_eq!(instant("2024-02-29 12:30"), Some((1_709_209_800, 0)));
    }

    #[test]
    fn durations_have_seconds_or_milliseconds() {
        assert_eq!(duration("1.5s"), Some((1, 500_000_000)));
        assert_eq!(duration("250ms"), Some((0, 250_000_000)));
        assert_eq!(duration("90"), Some((90, 0)));
        assert_eq!(duration("-1"), None);
    }
}
