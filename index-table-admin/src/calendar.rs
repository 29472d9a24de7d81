//! Dates and times of the Gregorian calendar, in UTC.

const DAY: i64 = 86_400;
const SECOND: u32 = 1_000_000_000;

/// Returns the year, month and day of a number of days since 1970-01-01.
#[expect(clippy::cast_sign_loss, reason = "months and days are positive")]
fn civil(days: i64) -> (i64, u32, u32) {
    // Years begin in March here, so that the leap day is the last day. An era has 400 years.
    let from_march = days + 719_468;
    let era = from_march.div_euclid(146_097);
    let day_of_era = from_march.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month as u32, day as u32)
}

/// Returns the number of days since 1970-01-01; `None` if the date does not exist.
fn days(year: i64, month: u32, day: u32) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || year.abs() > 10_000_000 {
        return None;
    }
    let (year, own_month) = (year - i64::from(month <= 2), i64::from(month));
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let from_march = if own_month > 2 { own_month - 3 } else { own_month + 9 };
    let day_of_year = (153 * from_march + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    (civil(days) == (year + i64::from(month <= 2), month, day)).then_some(days)
}

pub(crate) fn show_date(days: i64) -> String {
    let (year, month, day) = civil(days);
    let year = match year {
        0..=9999 => format!("{year:04}"),
        _ => format!("{year:+05}"),
    };
    format!("{year}-{month:02}-{day:02}")
}

pub(crate) fn show_date_time(days: i128, seconds: u128, nanos: u128) -> Option<String> {
    let (days, seconds) = (i64::try_from(days).ok()?, u32::try_from(seconds).ok()?);
    let (hour, minute, mut second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let mut nanos = u32::try_from(nanos).ok()?;
    // A leap second is recorded as the second before it, with a second or more of nanoseconds.
    if nanos >= SECOND {
        (second, nanos) = (second + 1, nanos - SECOND);
    }
    let (date, fraction) = (show_date(days), fraction(nanos.into()));
    Some(format!("{date}T{hour:02}:{minute:02}:{second:02}{fraction}"))
}

pub(crate) fn show_instant(seconds: i128, nanos: u128) -> Option<String> {
    let day = i128::from(DAY);
    let own = u128::try_from(seconds.rem_euclid(day)).ok()?;
    Some(show_date_time(seconds.div_euclid(day), own, nanos)? + "Z")
}

/// Returns the decimals of a second, such as `.5`, or nothing.
pub(crate) fn fraction(nanos: u128) -> String {
    if nanos == 0 {
        return String::new();
    }
    format!(".{nanos:09}").trim_end_matches('0').to_owned()
}

pub(crate) fn date(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut parts = digits.split('-').map(unsigned);
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() {
        return None;
    }
    days(sign * i64::from(year), month, day)
}

/// Returns the days since 1970-01-01, the seconds since midnight and the nanoseconds.
pub(crate) fn date_time(text: &str) -> Option<(i64, u32, u32)> {
    let Some((day, time)) = text.split_once(['T', ' ']) else {
        return Some((date(text)?, 0, 0));
    };
    let (clock, nanos) = match time.split_once('.') {
        None => (time, 0),
        Some((clock, decimals)) => (clock, nanoseconds(decimals)?),
    };
    let mut parts = clock.split(':').map(unsigned);
    let (hour, minute) = (parts.next()??, parts.next()??);
    let second = parts.next().unwrap_or(Some(0))?;
    if hour > 23 || minute > 59 || second > 60 || parts.next().is_some() {
        return None;
    }
    let leap = u32::from(second == 60);
    let seconds = hour * 3600 + minute * 60 + second - leap;
    Some((date(day)?, seconds, nanos + leap * SECOND))
}

/// Returns the seconds since 1970 and the nanoseconds.
pub(crate) fn instant(text: &str) -> Option<(i64, u32)> {
    let (days, seconds, nanos) = date_time(text.strip_suffix('Z').unwrap_or(text))?;
    Some((days.checked_mul(DAY)?.checked_add(seconds.into())?, nanos))
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
    use super::*;

    #[test]
    fn each_shown_date_is_read_as_the_same_day() {
        for days in (-1_000_000..1_000_000).step_by(997).chain([-719_529, -719_528, 0, 19_782]) {
            assert_eq!(date(&show_date(days)), Some(days), "{}", show_date(days));
        }
        assert_eq!(show_date(19_782), "2024-02-29");
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
            let shown = show_instant(seconds.into(), nanos.into()).expect("an instant");
            assert_eq!(instant(&shown), Some((seconds, nanos)), "{shown}");
        }
    }

    #[test]
    fn durations_have_seconds_or_milliseconds() {
        assert_eq!(duration("1.5s"), Some((1, 500_000_000)));
        assert_eq!(duration("250ms"), Some((0, 250_000_000)));
        assert_eq!(duration("90"), Some((90, 0)));
        assert_eq!(duration("-1"), None);
    }
}
