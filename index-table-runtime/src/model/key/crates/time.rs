use ::time::{Date, OffsetDateTime, PrimitiveDateTime, Time, UtcOffset};

use super::calendar::{DATE, DATE_TIME, OUT_OF_RANGE};
use crate::model::key::{
    DecodeError,
    through::{INSTANT, through},
};

/// The Julian day of 1970-01-01.
const EPOCH: i32 = 2_440_588;

through! {
    Date: i32, DATE,
        |value| value.to_julian_day() - EPOCH,
        |raw| date(raw);
    PrimitiveDateTime: (i32, u32, u32), DATE_TIME,
        |value| {
            let (hour, minute, second, nanosecond) = value.as_hms_nano();
            let minutes = u32::from(hour) * 60 + u32::from(minute);
            (value.date().to_julian_day() - EPOCH, minutes * 60 + u32::from(second), nanosecond)
        },
        |raw| date_time(raw);
    // Values are equal if they are the same instant, with any offset. They are decoded in UTC.
    OffsetDateTime: (i64, u32), INSTANT,
        |value| (value.unix_timestamp(), value.nanosecond()),
        |raw| instant(raw);
}

fn date(days: i32) -> Result<Date, DecodeError> {
    let day = days.checked_add(EPOCH).ok_or(OUT_OF_RANGE)?;
    Date::from_julian_day(day).map_err(|_| OUT_OF_RANGE)
}

fn date_time(
    (days, seconds, nanosecond): (i32, u32, u32),
) -> Result<PrimitiveDateTime, DecodeError> {
    let hour = u8::try_from(seconds / 3600).map_err(|_| OUT_OF_RANGE)?;
    let (minute, second) = ((seconds / 60 % 60) as u8, (seconds % 60) as u8);
    let time = Time::from_hms_nano(hour, minute, second, nanosecond).map_err(|_| OUT_OF_RANGE)?;
    Ok(PrimitiveDateTime::new(date(days)?, time))
}

fn instant((seconds, nanosecond): (i64, u32)) -> Result<OffsetDateTime, DecodeError> {
    let second = OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| OUT_OF_RANGE)?;
    let instant = second.replace_nanosecond(nanosecond).map_err(|_| OUT_OF_RANGE)?;
    Ok(instant.to_offset(UtcOffset::UTC))
}
