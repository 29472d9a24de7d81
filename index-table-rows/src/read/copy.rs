//! Copies of fields of a row: the row's number, and the bytes of their values.

use super::{Fields, fields::Row};
use crate::{
    bytes::varint,
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
    if copy_simple(catalog, row, names, out).is_some() {
        return Ok(true);
    }
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
    let (fields, mut rest) = short(catalog, row)?;
    out.push(*row.first()?);
    let mut fields = fields.iter();
    for names in names {
        let name = names.first()?;
        loop {
            let field = fields.next().filter(|field| !field.absent)?;
            let after = after(&field.kind, rest)?;
            if field.name.is_asked(name) {
                out.extend_from_slice(rest.get(..rest.len() - after.len())?);
                rest = after;
                break;
            }
            rest = after;
        }
    }
    Some(())
}

/// Returns the bytes after a value of a simple kind.
#[inline(always)]
fn after<'r>(kind: &Kind, bytes: &'r [u8]) -> Option<&'r [u8]> {
    match (kind, bytes) {
        (Kind::Text, &[len @ ..0x80, ref rest @ ..]) => rest.get(usize::from(len)..),
        (Kind::Unsigned, &[..0x80, ref rest @ ..]) => Some(rest),
        _ => after_other(kind, bytes),
    }
}

#[inline(never)]
fn after_other<'r>(kind: &Kind, bytes: &'r [u8]) -> Option<&'r [u8]> {
    let len = match kind {
        Kind::Unit => 0,
        Kind::U8 | Kind::I8 | Kind::Bool => 1,
        Kind::F32 => 4,
        Kind::F64 => 8,
        Kind::U128 | Kind::I128 | Kind::Bytes16 => 16,
        Kind::Unsigned | Kind::Signed => bytes.iter().position(|byte| *byte < 0x80)? + 1,
        Kind::Text | Kind::Bytes => match bytes.first()? {
            len @ ..0x80 => 1 + usize::from(*len),
            _ => return None,
        },
        Kind::Option(kind) => match bytes {
            [0, rest @ ..] => return Some(rest),
            [1, rest @ ..] => return after(kind, rest),
            _ => return None,
        },
        _ => return None,
    };
    bytes.get(len..)
}

#[cold]
#[inline(never)]
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

/// Returns the fields and the values of a struct whose number has one byte.
#[inline]
fn short<'r, 'c>(catalog: &'c Catalog, row: &'r [u8]) -> Option<(&'c [Field], &'r [u8])> {
    let [number @ ..0x80, rest @ ..] = row else { return None };
    match catalog.unions.first()?.kinds.get(usize::from(*number))? {
        Kind::Struct(list) => Some((&catalog.lists.get(*list as usize)?.fields, rest)),
        _ => None,
    }
}
