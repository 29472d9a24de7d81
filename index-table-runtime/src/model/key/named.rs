//! Dates, times, addresses, ids and decimal numbers in their usual forms.

use std::{fmt::Write as _, net::IpAddr};

use super::PlainKey;

/// The years that are shown; times in other years are shown as their numbers.
const YEARS: std::ops::RangeInclusive<i128> = -262_143..=262_142;

const DAY: i128 = 86_400;

impl PlainKey {
    /// Returns the text of a value of a named shape, such as `2024-02-29` for 19782 as a `date`; `None` if the value has
    /// none. Times are those of the Gregorian calendar, in UTC; a leap second is the second 60.
    #[must_use]
    pub fn show_as(&self, name: &str) -> Option<String> {
        match (name, self) {
            ("date", Self::Signed(days)) => date(*days),
            (_, Self::Tuple(parts)) => match (name, parts.as_slice()) {
                (
                    "datetime",
                    [Self::Signed(days), Self::Unsigned(seconds), Self::Unsigned(nanos)],
                ) => date_time(*days, *seconds, *nanos),
                ("instant", [Self::Signed(seconds), Self::Unsigned(nanos)]) => {
                    let of_day = seconds.rem_euclid(DAY).cast_unsigned();
                    Some(date_time(seconds.div_euclid(DAY), of_day, *nanos)? + "Z")
                }
                ("duration", [Self::Unsigned(seconds), Self::Unsigned(nanos)]) => {
                    (*nanos < 1_000_000_000).then(|| format!("{seconds}{}s", fraction(*nanos)))
                }
                _ => None,
            },
            (_, Self::Bytes(bytes)) => match name {
                "ipv4" => Some(IpAddr::from(<[u8; 4]>::try_from(&**bytes).ok()?).to_string()),
                "ipv6" => Some(IpAddr::from(<[u8; 16]>::try_from(&**bytes).ok()?).to_string()),
                "uuid" => <[u8; 16]>::try_from(&**bytes).ok().map(uuid),
                "ulid" => <[u8; 16]>::try_from(&**bytes).ok().map(ulid),
                "decimal" => decimal(bytes),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Shows a day, which is counted from 1970-01-01.
fn date(days: i128) -> Option<String> {
    // Years begin in March, so the leap day is the last day. An era has 400 years.
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + i128::from(month <= 2);
    if !YEARS.contains(&year) {
        return None;
    }
    let year =
        if (0..=9999).contains(&year) { format!("{year:04}") } else { format!("{year:+05}") };
    Some(format!("{year}-{month:02}-{day:02}"))
}

fn date_time(days: i128, seconds: u128, nanos: u128) -> Option<String> {
    let is_leap = nanos >= 1_000_000_000;
    let nanos = if is_leap { nanos - 1_000_000_000 } else { nanos };
    let in_day = seconds < DAY.cast_unsigned() && nanos < 1_000_000_000;
    if !in_day || is_leap && seconds % 60 != 59 {
        return None;
    }
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let seconds = seconds % 60 + u128::from(is_leap);
    Some(format!("{}T{hours:02}:{minutes:02}:{seconds:02}{}", date(days)?, fraction(nanos)))
}

/// Returns the decimals of a second, such as `.5`, or nothing.
fn fraction(nanos: u128) -> String {
    if nanos == 0 {
        return String::new();
    }
    format!(".{nanos:09}").trim_end_matches('0').to_owned()
}

fn uuid(bytes: [u8; 16]) -> String {
    let mut shown = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            shown.push('-');
        }
        // Writing to a `String` can't fail.
        let _ = write!(shown, "{byte:02x}");
    }
    shown
}

fn ulid(bytes: [u8; 16]) -> String {
    // Crockford's digits.
    const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let number = u128::from_be_bytes(bytes);
    let digits = (0..26).rev().map(|at| (number >> (at * 5) & 31) as usize);
    digits.filter_map(|digit| DIGITS.get(digit)).map(|digit| char::from(*digit)).collect()
}

/// Shows the number of a key: 0.d₁…d₂₉ · 10ᵉ, as the format describes it.
fn decimal(bytes: &[u8]) -> Option<String> {
    let negative = *bytes.first()? < 0x80;
    let upright: Vec<u8> = bytes.iter().map(|byte| if negative { !byte } else { *byte }).collect();
    let (first, digits) = upright.split_first()?;
    let number = digits.iter().fold(0_u128, |number, byte| number << 8 | u128::from(*byte));
    if number == 0 {
        return Some("0".to_owned());
    }
    let digits = format!("{number:029}");
    let point = i32::from(*first) - 0x80 - 28;
    let (whole, decimals) = match usize::try_from(point) {
        Ok(point) => {
            let digits = format!("{digits:0<point$}");
            let (whole, decimals) = digits.split_at_checked(point)?;
            (whole.to_owned(), decimals.to_owned())
        }
        Err(_) => (String::new(), "0".repeat(point.unsigned_abs() as usize) + &digits),
    };
    let (sign, decimals) = (if negative { "-" } else { "" }, decimals.trim_end_matches('0'));
    let whole = if whole.is_empty() { "0" } else { &whole };
    let point = if decimals.is_empty() { "" } else { "." };
    Some(format!("{sign}{whole}{point}{decimals}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_the_dates_of_the_gregorian_calendar() {
        for (days, shown) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (19_782, "2024-02-29"),
            (19_783, "2024-03-01"),
            (11_016, "2000-02-29"),
            (-25_509, "1900-02-28"),
            (-25_508, "1900-03-01"),
            (-719_528, "0000-01-01"),
            (-719_529, "-0001-12-31"),
            (2_932_897, "+10000-01-01"),
        ] {
            assert_eq!(PlainKey::Signed(days).show_as("date").as_deref(), Some(shown), "{days}");
        }
        assert_eq!(PlainKey::Signed(i32::MAX.into()).show_as("date"), None);
        assert_eq!(PlainKey::Signed(19_782).show_as("other"), None);
    }

    #[test]
    fn times_have_the_decimals_that_are_not_zero() {
        let instant = |seconds, nanos| {
            PlainKey::Tuple(vec![PlainKey::Signed(seconds), PlainKey::Unsigned(nanos)])
                .show_as("instant")
        };
        assert_eq!(instant(-1, 500_000_000).as_deref(), Some("1969-12-31T23:59:59.5Z"));
        assert_eq!(instant(1_709_251_199, 0).as_deref(), Some("2024-02-29T23:59:59Z"));
        assert_eq!(
            instant(1_709_251_199, 1_000_000_001).as_deref(),
            Some("2024-02-29T23:59:60.000000001Z")
        );
        assert_eq!(instant(0, 1_000_000_000), None, "no leap second");
        assert_eq!(instant(i64::MAX.into(), 0), None);
        let of_day = |seconds| {
            let parts = [PlainKey::Signed(0), PlainKey::Unsigned(seconds), PlainKey::Unsigned(0)];
            PlainKey::Tuple(parts.to_vec()).show_as("datetime")
        };
        assert_eq!(of_day(86_399).as_deref(), Some("1970-01-01T23:59:59"));
        assert_eq!(of_day(86_400), None);
    }

    #[test]
    fn ids_have_their_usual_forms() {
        let id = PlainKey::Bytes(vec![1, 0x93, 0x5f, 10, 124, 0, 112, 0, 128, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(id.show_as("uuid").as_deref(), Some("01935f0a-7c00-7000-8000-000000000001"));
        assert_eq!(id.show_as("ulid").as_deref(), Some("01JDFGMZ00E008000000000001"));
        assert_eq!(PlainKey::Bytes(vec![1]).show_as("uuid"), None);
        assert_eq!(
            PlainKey::Bytes(vec![127, 0, 0, 1]).show_as("ipv4").as_deref(),
            Some("127.0.0.1")
        );
    }

    #[test]
    fn decimal_numbers_have_their_digits_without_trailing_zeros() {
        for (first, digits, shown) in [
            (0x9d, 10_000_000_000_000_000_000_000_000_000_u128, "1"),
            (0x9e, 12_500_000_000_000_000_000_000_000_000, "12.5"),
            (0x81, 10_000_000_000_000_000_000_000_000_000, "0.0000000000000000000000000001"),
            (0x80, 0, "0"),
        ] {
            let bytes: Vec<u8> =
                [first].into_iter().chain(digits.to_be_bytes()[3..].to_vec()).collect();
            assert_eq!(PlainKey::Bytes(bytes.clone()).show_as("decimal").as_deref(), Some(shown));
            let negative = bytes.into_iter().map(|byte| !byte).collect();
            let negative = PlainKey::Bytes(negative).show_as("decimal");
            let expected = if shown == "0" { None } else { Some(format!("-{shown}")) };
            assert!(expected.is_none() || negative == expected, "{negative:?}");
        }
    }
}
