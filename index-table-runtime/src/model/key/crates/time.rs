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
    // Values are equal if they are the same instant, with any offset. They are decoded in UTC if it has them.
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

/// The time in UTC of a value at the ends of the range can be beyond the range. Such a value is decoded with an offset that
/// brings its local time into the range.
fn instant((seconds, nanosecond): (i64, u32)) -> Result<OffsetDateTime, DecodeError> {
    let second = |time: PrimitiveDateTime| time.assume_utc().unix_timestamp();
    let local = seconds.clamp(second(PrimitiveDateTime::MIN), second(PrimitiveDateTime::MAX));
    let offset = i32::try_from(i128::from(local) - i128::from(seconds)).ok();
    let offset = offset.and_then(|offset| UtcOffset::from_whole_seconds(offset).ok());
    let second = OffsetDateTime::from_unix_timestamp(local).map_err(|_| OUT_OF_RANGE)?;
    let local = second.replace_nanosecond(nanosecond).map_err(|_| OUT_OF_RANGE)?;
    Ok(local.replace_offset(offset.ok_or(OUT_OF_RANGE)?))
}
