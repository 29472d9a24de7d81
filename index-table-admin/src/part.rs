//! A part of an index, from values as people write them.

use index_table::__private::admin::{KeyBuf, KeyShape, UntypedField, UntypedRange};

use crate::{failure::Failure, value};

/// The part of the field after the leading values.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Next<'n> {
    All,
    /// The values that begin with this text.
    StartingWith(&'n str),
    /// The values from the first up to the second one, without it; an empty one is no bound.
    Range(&'n str, &'n str),
}

/// Returns the range of an index with these values of its leading fields; `None` is the fact table. `fields` are those of the index, and
/// of the primary key. `after` is a cursor of [`cursor`].
///
/// # Errors
///
/// A value that the field does not have, and a cursor of another range, as arguments.
pub(crate) fn range(
    index: Option<&str>,
    (fields, primary): (&[UntypedField], &[UntypedField]),
    (values, next): (&[String], Next<'_>),
    after: Option<&str>,
    reverse: bool,
) -> Result<UntypedRange, Failure> {
    let leading = encoded(fields, values)?;
    let mut range = UntypedRange {
        index: index.map(str::to_owned),
        start: leading.clone(),
        is_prefix: true,
        reverse,
        ..UntypedRange::default()
    };
    let field = || match fields.get(values.len()) {
        None => {
            Err(Failure::arguments("values are given for all fields, so there is no next field"))
        }
        Some(field) if field.is_hash => Err(Failure::arguments(format!(
            "the key has a hash of field `{}`, so there are no ranges of its values",
            field.name
        ))),
        Some(field) => Ok(field),
    };
    match next {
        Next::All => {}
        Next::StartingWith(text) => {
            let (field, mut prefix) = (field()?, KeyBuf::new());
            field.shape.write_prefix(text, &mut prefix).map_err(|error| {
                Failure::arguments(format!("field `{}` is not text: {error}", field.name))
            })?;
            range.start.extend_from_slice(prefix.as_bytes());
        }
        Next::Range(from, to) => {
            let field = std::slice::from_ref(field()?);
            let bound = |text: &str| {
                Ok::<_, Failure>(
                    [leading.as_slice(), &encoded(field, &[text.to_owned()])?].concat(),
                )
            };
            if !from.is_empty() {
                range.start = bound(from)?;
                range.is_prefix = false;
            }
            range.end = if to.is_empty() { value::after(&leading) } else { Some(bound(to)?) };
        }
    }
    if let Some(cursor) = after {
        continue_after(&mut range, cursor, (fields, primary))?;
    }
    Ok(range)
}

/// Makes a range begin after a cursor of [`cursor`].
///
/// # Errors
///
/// The cursor is malformed, or of another range, as arguments.
pub(crate) fn continue_after(
    range: &mut UntypedRange,
    cursor: &str,
    (fields, primary): (&[UntypedField], &[UntypedField]),
) -> Result<(), Failure> {
    let keys = cursor
        .split_once('.')
        .and_then(|(key, primary_key)| Some((value::bytes(key)?, value::bytes(primary_key)?)));
    let is_own = |(key, primary_key): &(Vec<u8>, Vec<u8>)| {
        let is_entry = match range.index {
            Some(_) => is_key(fields, key) && range.contains(key),
            None => key.is_empty() && range.contains(primary_key),
        };
        is_entry && is_key(primary, primary_key)
    };
    let keys = keys
        .filter(is_own)
        .ok_or_else(|| Failure::arguments(format!("`{cursor}` is not a cursor of this query")))?;
    range.after = Some(keys);
    Ok(())
}

/// Whether these bytes are a whole key with these fields.
pub(crate) fn is_key(fields: &[UntypedField], key: &[u8]) -> bool {
    KeyShape::read_key(fields.iter().map(|field| &field.shape), key).is_ok()
}

/// Returns the cursor of an entry.
pub(crate) fn cursor(key: &[u8], primary_key: &[u8]) -> String {
    format!("{}.{}", value::hex(key), value::hex(primary_key))
}

fn encoded(fields: &[UntypedField], values: &[String]) -> Result<Vec<u8>, Failure> {
    let mut key = KeyBuf::new();
    value::encode(fields, values, &mut key).map_err(Failure::arguments)?;
    Ok(key.as_bytes().to_vec())
}
