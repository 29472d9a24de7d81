//! The change stream of a table.

use crate::attr::table::{ChangesAttr, TableAttr};
use crate::diagnostics::Diagnostics;
use crate::model::ChangeStream;

/// The number of seconds in a day.
const DAY: u64 = 24 * 60 * 60;

/// The units of a duration, with their seconds.
const UNITS: [(&str, u64); 5] = [("s", 1), ("m", 60), ("h", 60 * 60), ("d", DAY), ("w", 7 * DAY)];

/// Returns the change stream of the table's attributes.
pub(super) fn lower(table: &TableAttr, errors: &Diagnostics) -> Option<ChangeStream> {
    let changes = table.changes.as_ref()?;
    if let Some(reference) = &table.reference {
        errors.error(
            reference.key,
            "a reference table has no change stream, because every shard has a copy of it",
        );
    }
    let ChangesAttr { keep, bytes, until_consumed } = &changes.value;
    let limits = [keep.as_ref().map(|keep| keep.key), bytes.as_ref().map(|bytes| bytes.key)];
    for key in limits.into_iter().flatten().filter(|_| until_consumed.is_some()) {
        errors.error(
            key,
            "changes are kept until all consumers have committed them, so this limit has no effect; remove it, or \
             `until_consumed`",
        );
    }
    let seconds = keep.as_ref().map(|keep| {
        seconds(&keep.value.value()).unwrap_or_else(|| {
            errors.error(
                keep.value.span(),
                "expected a number and a unit, of seconds, minutes, hours, days or weeks: `\"30s\"`, `\"30m\"`, \
                 `\"12h\"`, `\"7d\"`, `\"2w\"`",
            );
            0
        })
    });
    let limit = bytes.as_ref().map(|bytes| {
        let limit = bytes.value.base10_parse().ok().filter(|limit: &u64| *limit > 0);
        limit.unwrap_or_else(|| {
            errors.error(bytes.value.span(), "expected a number of bytes from 1 on");
            1
        })
    });
    let default = if limit.is_some() { u64::MAX } else { 7 * DAY };
    Some(ChangeStream {
        keep: seconds.unwrap_or(default),
        bytes: limit.unwrap_or(u64::MAX),
        until_consumed: until_consumed.is_some(),
    })
}

/// Returns the seconds of a duration such as `7d`.
fn seconds(text: &str) -> Option<u64> {
    let (unit, seconds) = UNITS.iter().find(|(unit, _)| text.ends_with(unit))?;
    let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
    number.checked_mul(*seconds).filter(|seconds| *seconds > 0)
}
