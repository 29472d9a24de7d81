//! The check that a conversion keeps the values of fields, and the comparison of included fields.
//!
//! An index stays readable when the version changes, unless a version changes its fields. Therefore each
//! unchanged field must have the same value in a row of an older version and in the converted row.

mod value;

use index_table_rows::Fields;

use self::value::Value;
use super::{decode_unchecked, encoded_to_read, header};
use crate::model::{
    entity::Entity,
    key::DecodeError,
    lists::Lists,
    schema::{FieldSchema, TableSchema},
};

/// Checks that the conversion of a row of an older version keeps the values of unchanged fields.
///
/// # Errors
///
/// [`DecodeError::Altered`], and the errors of reading the row.
pub(crate) fn check_conversion<R: Entity>(lists: &Lists, bytes: &[u8]) -> Result<(), DecodeError> {
    if const { R::TABLE.previous.is_none() } {
        return Ok(());
    }
    let (version, older) = header(bytes)?;
    if version == R::TABLE.version {
        return Ok(());
    }
    let row: R = decode_unchecked(lists, bytes)?;
    check_converted(lists, &row, version, older)
}

/// Like [`check_conversion`], for a row that has been converted from `older`.
pub(super) fn check_converted<R: Entity>(
    lists: &Lists,
    row: &R,
    version: u32,
    older: &[u8],
) -> Result<(), DecodeError> {
    let new = encoded_to_read(lists, row)?;
    let new = lists.private_catalog().fields(&new);
    let (Ok(mut old), Ok(mut new)) = (lists.fields(older), new) else {
        // The rows are no structs, so their fields can't be compared.
        return Ok(());
    };
    for (older, field) in kept_fields(R::TABLE, version) {
        if let (Some(old), Some(new)) =
            (value(&mut old, older.stored), value(&mut new, field.stored))
            && old != new
        {
            return Err(DecodeError::Altered { version, field: field.name });
        }
    }
    Ok(())
}

/// Whether both copies of fields of a row have these fields with the same values. Their bytes differ if one was copied from
/// the row with earlier lists. The first can be of the private catalog.
pub(crate) fn has_same_fields(
    lists: &Lists,
    (one, is_private): (&[u8], bool),
    other: &[u8],
    included: &[&[&'static str]],
) -> bool {
    let one = if is_private {
        lists.private_catalog().part(one).map_err(DecodeError::Fields)
    } else {
        lists.part(one)
    };
    let (Ok(mut one), Ok(mut other)) = (one, lists.part(other)) else { return false };
    let is_same = |names: &&[&'static str]| {
        let values = (one.field::<Value>(names), other.field::<Value>(names));
        matches!(values, (Ok(one), Ok(other)) if one == other)
    };
    !included.is_empty() && included.iter().all(is_same) && one.end().is_ok() && other.end().is_ok()
}

/// Returns the value of a field; `None` if the row has no field with this name, or it can't be compared.
fn value(fields: &mut Fields<'_, '_>, name: &'static str) -> Option<Value> {
    fields.field(&[name]).ok().flatten()
}

/// Returns the fields in entries of indexes that no version after this one changes, as they are in this version and now.
fn kept_fields(
    schema: &TableSchema,
    version: u32,
) -> impl Iterator<Item = (&'static FieldSchema, &'static FieldSchema)> {
    let is_indexed = |name: &str| schema.indexes.iter().any(|index| index.has_field(name));
    let fields = schema.fields.iter().filter(move |field| is_indexed(field.name));
    fields.filter_map(move |field| Some((schema.kept(version, field)?, field)))
}
