//! The shard keys of a range of keys.

use crate::model::{
    KeyRange,
    schema::{KeyField, KeyForm},
    shard::key::len_of,
};

/// The keys of a query, from `start` up to but not including `end`. All of them begin with the first `common`
/// bytes of `start`.
pub(crate) struct Span<'q> {
    pub(crate) start: &'q [u8],
    pub(crate) end: Option<Vec<u8>>,
    pub(crate) common: usize,
}

impl<'q> Span<'q> {
    pub(crate) fn of(bounds: &'q KeyRange) -> Self {
        let start = bounds.start();
        if let Some(prefix) = bounds.as_prefix() {
            return Self { start, end: bounds.end(), common: prefix.len() };
        }
        let end = bounds.end();
        let common = end.as_deref().map_or(0, |end| common_prefix(start, end));
        Self { start, end, common }
    }
}

/// Returns the length of the common prefix of all keys from `start` up to but not including `end`.
fn common_prefix(start: &[u8], end: &[u8]) -> usize {
    let common = start.iter().zip(end).take_while(|(a, b)| a == b).count();
    // The keys from `… 07 …` up to but not including `… 08` begin with `… 07`.
    match (start.get(common), end.get(common..)) {
        (Some(first), Some([last])) if first.checked_add(1) == Some(*last) => common + 1,
        _ => common,
    }
}

/// Returns the shard key if all keys of the span begin with it. Unlike [`common_shard_key`], doesn't copy the key.
pub(super) fn leading<'q>(
    fields: &[KeyField],
    shard_fields: &[KeyField],
    span: &Span<'q>,
) -> Option<&'q [u8]> {
    let own = fields.get(..shard_fields.len())?;
    let is_same =
        |(own, field): (&KeyField, &KeyField)| own.form == KeyForm::Field && own.name == field.name;
    if !own.iter().zip(shard_fields).all(is_same) {
        return None;
    }
    let common = span.start.get(..span.common)?;
    common.get(..len_of(own.iter().map(|field| &field.shape), common)?)
}

/// Returns the shard key, if all keys of the span have the same shard key.
pub(super) fn common_shard_key(
    fields: &[KeyField],
    shard_fields: &[KeyField],
    span: &Span<'_>,
) -> Option<Vec<u8>> {
    let mut rest = span.start.get(..span.common)?;
    let mut values: Vec<(&str, &[u8])> = Vec::new();
    for field in fields {
        let Some(len) = len_of([&field.shape], rest) else { break };
        let (value, after) = rest.split_at_checked(len)?;
        if field.form == KeyForm::Field {
            values.push((field.name, value));
        }
        rest = after;
    }
    let mut shard_key = Vec::new();
    for field in shard_fields {
        let (_, value) = values.iter().find(|(name, _)| *name == field.name)?;
        shard_key.extend_from_slice(value);
    }
    Some(shard_key)
}

/// Returns the range of the shard keys in the span, if only fields with equal values precede the shard key.
pub(super) fn range<'q>(
    fields: &[KeyField],
    shard_fields: &[KeyField],
    span: &Span<'q>,
) -> Option<(&'q [u8], Option<Vec<u8>>)> {
    let common = span.start.get(..span.common)?;
    let mut leading_len = 0;
    for at in 0..fields.len() {
        let candidates = fields.get(at..at + shard_fields.len())?;
        let is_shard_key = candidates.iter().zip(shard_fields).all(|(candidate, field)| {
            candidate.form == KeyForm::Field && candidate.name == field.name
        });
        if is_shard_key {
            let start = span.start.get(leading_len..)?;
            let leading = span.start.get(..leading_len)?;
            // An end after all keys with the same leading fields does not limit the shard key.
            let end = span.end.as_deref().and_then(|end| end.strip_prefix(leading));
            return Some((start, end.map(<[u8]>::to_vec)));
        }
        leading_len += len_of([&fields.get(at)?.shape], common.get(leading_len..)?)?;
    }
    None
}
