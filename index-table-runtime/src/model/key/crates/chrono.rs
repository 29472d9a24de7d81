use ::chrono::{DateTime, Datelike as _, NaiveDate, NaiveDateTime, NaiveTime, Timelike as _, Utc};

use super::calendar::{DATE, DATE_TIME, OUT_OF_RANGE};
use crate::model::key::through::{INSTANT, through};

/// The number of 1970-01-01: chrono counts days from 0000-12-31.
const EPOCH: i32 = 719_163;

through! {
    NaiveDate: i32, DATE,
        |value| value.num_days_from_ce() - EPOCH,
        |raw| date(raw).ok_or(OUT_OF_RANGE);
    NaiveDateTime: (i32, u32, u32), DATE_TIME,
        |value| (
            value.date().num_days_from_ce() - EPOCH,
            value.num_seconds_from_midnight(),
            value.nanosecond(),
        ),
        |raw| date_time(raw).ok_or(OUT_OF_RANGE);
    DateTime<Utc>: (i64, u32), INSTANT,
        |value| (value.timestamp(), value.nanosecond()),
        |raw| instant(raw).ok_or(OUT_OF_RANGE);
}

fn date(days: i32) -> Option<NaiveDate> {
    NaiveDate::from_num_days_from_ce_opt(days.checked_add(EPOCH)?)
}

// chrono represents a leap second by a second or more of nanoseconds. `with_nanosecond` accepts such a
// number in every second. The constructors accept it only in the last second of a minute.

fn date_time((days, seconds, nanoseconds): (i32, u32, u32)) -> Option<NaiveDateTime> {
    let time = NaiveTime::from_num_seconds_from_midnight_opt(seconds, 0)?;
    Some(date(days)?.and_time(time.with_nanosecond(nanoseconds)?))
}

// `DateTime::with_nanosecond` refuses the leap second of the last second, which a `NaiveDateTime` has.
fn instant((seconds, nanoseconds): (i64, u32)) -> Option<DateTime<Utc>> {
    let second = DateTime::from_timestamp(seconds, 0)?.naive_utc();
    Some(second.with_nanosecond(nanoseconds)?.and_utc())
}
