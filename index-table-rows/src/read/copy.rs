//! Copies of fields of a row: the row's number, and the bytes of their values.

use super::{Fields, fields::Row};
use crate::{
    bytes::{varint, varint_end},
    catalog::Catalog,
    error::Result,
    kind::{Field, Kind},
};

/// Appends a copy of fields of a row to `out`: see [`Catalog::copy_fields`].
#[inline]
pub(crate) fn copy(
    catalog: &Catalog,
    row: &[u8],
    names: &[&[&'static str]],
    out: &mut Vec<u8>,
) -> Result<bool> {
    let start = out.len();
    match copy_simple(catalog, row, names, out) {
        Some(()) => Ok(true),
        None => copy_other(catalog, row, names, out, start),
    }
}

/// Like [`copy`], for any row. `start` is the length of `out` before.
#[cold]
#[inline(never)]
fn copy_other(
    catalog: &Catalog,
    row: &[u8],
    names: &[&[&'static str]],
    out: &mut Vec<u8>,
    start: usize,
) -> Result<bool> {
    out.truncate(start);
    let copied = catalog.fields(row).and_then(|fields| copy_any(fields, row, names, out));
    if copied.is_err() {
        out.truncate(start);
    }
    copied
}

/// Copies fields in the order of the row. `None` if they have another order, other names or values that must be parsed.
fn copy_simple(
    catalog: &Catalog,
    row: &[u8],
    names: &[&[&'static str]],
    out: &mut Vec<u8>,
) -> Option<()> {
    let (number, mut fields) = short(catalog, row)?;
    out.push(number);
    let mut end = 1;
    for names in names {
        let name = names.first()?;
        let position = fields.iter().position(|field| field.name.is_asked(name))?;
        let (passed, rest) = fields.split_at_checked(position + 1)?;
        let mut start = end;
        for field in passed {
            start = end;
            end = end_of(field, row, start)?;
        }
        out.extend_from_slice(row.get(start..end)?);
        fields = rest;
    }
    Some(())
}

/// Returns the end of a value of a simple kind. In a damaged row, it may be after the end of the row.
#[inline(always)]
fn end_of(field: &Field, row: &[u8], start: usize) -> Option<usize> {
    match (&field.kind, row.get(start)) {
        (Kind::Text, Some(&len @ ..0x80)) => Some(start + 1 + usize::from(len)),
        (Kind::Unsigned, _) => Some(start + varint_end(row.get(start..)?)?),
        _ if field.absent => None,
        _ => Some(start + len_of_other(&field.kind, row.get(start..)?)?),
    }
}

#[inline(never)]
fn len_of_other(kind: &Kind, bytes: &[u8]) -> Option<usize> {
    Some(match kind {
        Kind::Unit => 0,
        Kind::U8 | Kind::I8 | Kind::Bool => 1,
        Kind::F32 => 4,
        Kind::F64 => 8,
        Kind::Bytes16 => 16,
        Kind::Unsigned | Kind::Signed | Kind::U128 | Kind::I128 => varint_end(bytes)?,
        Kind::Text | Kind::Bytes => match bytes.first()? {
            len @ ..0x80 => 1 + usize::from(*len),
            _ => return None,
        },
        Kind::Option(kind) => match bytes {
            [0, ..] => 1,
            [1, rest @ ..] => 1 + len_of_other(kind, rest)?,
            _ => return None,
        },
        _ => return None,
    })
}

fn copy_any<'de>(
    mut all: Fields<'de, '_>,
    row: &'de [u8],
    names: &[&[&'static str]],
    out: &mut Vec<u8>,
) -> Result<bool> {
    let number = row.get(..row.len() - all.start.len()).unwrap_or_default();
    match all.row {
        Row::Struct(fields) => {
            out.extend_from_slice(number);
            let mut has_all = true;
            for names in names {
                has_all &= copy_field(&mut all, fields, names, out)?;
            }
            Ok(has_all)
        }
        Row::Map(key, value) => {
            out.extend_from_slice(number);
            copy_pairs(&mut all, (key, value), names, out)
        }
        Row::Whole(_) | Row::Part(_) => {
            out.extend_from_slice(row);
            Ok(true)
        }
    }
}

/// Appends the values of the fields with these names, up to the first that is not absent. Returns false if the list has none of
/// them.
fn copy_field<'c>(
    all: &mut Fields<'_, 'c>,
    fields: &'c [Field],
    names: &[&'static str],
    out: &mut Vec<u8>,
) -> Result<bool> {
    let mut is_known = false;
    for name in names {
        let found = fields.iter().enumerate().find(|(_, field)| field.name.is_asked(name));
        let Some((position, field)) = found else { continue };
        is_known = true;
        all.go_to(fields, position)?;
        all.rest.next();
        let value = all.reader.rest;
        let is_absent = all.reader.passes_absent(field);
        if !is_absent {
            all.reader.skip_as(&field.kind)?;
        }
        let len = value.len() - all.reader.rest.len();
        out.extend_from_slice(value.get(..len).unwrap_or_default());
        if !is_absent {
            break;
        }
    }
    Ok(is_known)
}

/// Appends the pairs with these names, as a map. Returns false if one is missing.
fn copy_pairs<'c>(
    all: &mut Fields<'_, 'c>,
    (key, value): (&'c Kind, &'c Kind),
    names: &[&[&'static str]],
    out: &mut Vec<u8>,
) -> Result<bool> {
    let mut pairs = Vec::new();
    for _ in 0..all.reader.count()? {
        let start = all.reader.rest;
        let name = all.name_in_map(key)?;
        all.reader.skip_as(value)?;
        if names.iter().any(|names| names.contains(&name)) {
            let len = start.len() - all.reader.rest.len();
            pairs.push(start.get(..len).unwrap_or_default());
        }
    }
    varint(out, pairs.len() as u64);
    for pair in &pairs {
        out.extend_from_slice(pair);
    }
    Ok(pairs.len() >= names.len())
}

/// Returns the number and the fields of a struct whose number has one byte.
#[inline]
fn short<'c>(catalog: &'c Catalog, row: &[u8]) -> Option<(u8, &'c [Field])> {
    let &[number @ ..0x80, ..] = row else { return None };
    match catalog.unions.first()?.kinds.get(usize::from(number))? {
        Kind::Struct(list) => Some((number, &catalog.lists.get(*list as usize)?.fields)),
        _ => None,
    }
}
