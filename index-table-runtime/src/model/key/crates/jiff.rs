use ::jiff::{
    SignedDuration, Timestamp,
    civil::{Date, date},
};

use super::calendar::{DATE, OUT_OF_RANGE};
use crate::model::key::{
    DecodeError,
    through::{INSTANT, through},
};

const EPOCH: Date = date(1970, 1, 1);
const DAY: i64 = 24 * 60 * 60;
const SECOND: i128 = 1_000_000_000;

through! {
    Date: i32, DATE,
        // A year has at most four digits, so the number of days is an `i32`.
        |value| (value.duration_since(EPOCH).as_secs() / DAY) as i32,
        |raw| EPOCH
            .checked_add(SignedDuration::from_secs(i64::from(raw) * DAY))
            .map_err(|_| OUT_OF_RANGE);
    Timestamp: (i64, u32), INSTANT,
        // jiff rounds towards 1970; a key rounds down.
        |value| {
            let nanoseconds = value.as_nanosecond();
            (nanoseconds.div_euclid(SECOND) as i64, nanoseconds.rem_euclid(SECOND) as u32)
        },
        |raw| instant(raw);
}

fn instant((seconds, nanoseconds): (i64, u32)) -> Result<Timestamp, DecodeError> {
    if i128::from(nanoseconds) >= SECOND {
        return Err(OUT_OF_RANGE);
    }
    let nanoseconds = i128::from(seconds) * SECOND + i128::from(nanoseconds);
    Timestamp::from_nanosecond(nanoseconds).map_err(|_| OUT_OF_RANGE)
}
