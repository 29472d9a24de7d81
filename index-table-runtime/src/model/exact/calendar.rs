//! Reads dates and times of the Gregorian calendar, in UTC, and durations.
//!
//! They have the range and the leap seconds of chrono, which cover all supported types of keys.

/// The years of chrono.
const YEARS: std::ops::RangeInclusive<i64> = -262_143..=262_142;

/// Returns the days since 1970-01-01.
pub(super) fn date(text: &str) -> Option<i64> {
    let (sign, digits) = match text.split_at_checked(1)? {
        ("-", digits) => (-1, digits),
        ("+", digits) => (1, digits),
        _ => (1, text),
    };
    let mut parts = digits.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || year.len() < 4 || month.len() != 2 || day.len() != 2 {
        return None;
    }
    let [year, month, day] = [unsigned(year)?, unsigned(month)?, unsigned(day)?].map(i64::from);
    let year = sign * year;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !YEARS.contains(&year) || !(1..=days).contains(&day) {
        return None;
    }
    // Years begin in March, so the leap day is the last day. An era has 400 years.
    let (year, from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_era = year.rem_euclid(400);
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    let days = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    Some(year.div_euclid(400) * 146_097 + days - 719_468)
}

/// Reads a date, or a date and a time. Returns the days since 1970-01-01, the seconds since midnight and the nanoseconds.
pub(super) fn date_time(text: &str) -> Option<(i64, u32, u32)> {
    let Some((day, time)) = text.split_once(['T', ' ']) else { return Some((date(text)?, 0, 0)) };
    let (time, nanos) = match time.split_once('.') {
        // Further decimals would be lost.
        Some((time, decimals)) => (time, nanoseconds(decimals)?),
        None => (time, 0),
    };
    let mut parts = time.split(':');
    let mut part = |least| {
        let part = parts.next().filter(|part| part.len() == 2).and_then(unsigned);
        part.filter(|part| *part < least)
    };
    let (hour, minute) = (part(24)?, part(60)?);
    let has_seconds = time.len() > 5;
    let second = if has_seconds { part(61)? } else { 0 };
    if parts.next().is_some() || (!has_seconds && nanos > 0) {
        return None;
    }
    let leap = second / 60;
    Some((date(day)?, hour * 3600 + minute * 60 + second - leap, nanos + leap * 1_000_000_000))
}

/// Returns the seconds since 1970 and the nanoseconds.
#[must_use]
pub fn instant(text: &str) -> Option<(i64, u32)> {
    let (days, seconds, nanos) = date_time(text.strip_suffix('Z').unwrap_or(text))?;
    Some((days * 86_400 + i64::from(seconds), nanos))
}

/// Reads `90`, `1.5s` and `250ms`.
pub(super) fn duration(text: &str) -> Option<(u64, u32)> {
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
    use super::*;
    use crate::model::key::PlainKey;

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
