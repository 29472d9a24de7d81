//! Fields of one row that are carried into another, without their type.
//!
//! The values of a row have neither names nor tags, so a row with further fields is the row, and then the bytes of these fields, under
//! the number of a list with the fields of both.

use crate::{
    bytes::{take_varint, varint},
    catalog::{Catalog, ROOT},
    error::{Result, damaged, unrecorded},
    kind::{Field, Kind, List},
    read,
};

/// Returns the fields of a row that is a struct, and the bytes of their values.
fn fields<'c, 'r>(catalog: &'c Catalog, row: &'r [u8]) -> Result<(&'c [Field], &'r [u8])> {
    let (list, rest) = list(catalog, row)?;
    Ok((&list.fields, rest))
}

fn list<'c, 'r>(catalog: &'c Catalog, mut row: &'r [u8]) -> Result<(&'c List, &'r [u8])> {
    let number = take_varint(&mut row).and_then(|number| u32::try_from(number).ok());
    let root = catalog.union(ROOT)?;
    match root.kinds.get(number.ok_or_else(damaged)? as usize) {
        Some(Kind::Struct(list)) => Ok((catalog.list(*list)?, row)),
        Some(_) => Err(damaged()),
        None => Err(unrecorded()),
    }
}

/// Returns the fields of `row`, followed by those of `from` with these names.
fn both(catalog: &Catalog, row: &[u8], from: &[u8], names: &[String]) -> Result<Vec<Field>> {
    let ((own, _), (from, _)) = (fields(catalog, row)?, fields(catalog, from)?);
    let carried = from.iter().filter(|field| is_named(field, names));
    Ok(own.iter().chain(carried).cloned().collect())
}

fn is_named(field: &Field, names: &[String]) -> bool {
    names.iter().any(|name| name == field.name.text())
}

/// Returns the alternative of the rows with these fields.
fn find(catalog: &Catalog, fields: &[Field]) -> Result<u64> {
    let is_found = |kind: &Kind| match kind {
        Kind::Struct(list) => catalog.list(*list).is_ok_and(|list| list.fields == fields),
        _ => false,
    };
    let found = catalog.union(ROOT)?.kinds.iter().position(is_found);
    found.map(|at| at as u64).ok_or_else(unrecorded)
}

pub(crate) fn carried(
    catalog: &Catalog,
    row: &[u8],
    from: &[u8],
    names: &[String],
    out: &mut Vec<u8>,
) -> Result {
    let number = find(catalog, &both(catalog, row, from, names)?)?;
    let start = out.len();
    varint(out, number);
    out.extend_from_slice(fields(catalog, row)?.1);
    let is_carried = |field: &Field| is_named(field, names);
    read::copy_values(catalog, from, is_carried, out).inspect_err(|_| out.truncate(start))
}

/// Adds a list with the fields of both rows.
pub(crate) fn record(catalog: &mut Catalog, row: &[u8], from: &[u8], names: &[String]) -> Result {
    let fields = both(catalog, row, from, names)?;
    if find(catalog, &fields).is_ok() {
        return Ok(());
    }
    let name = list(catalog, row)?.0.name.text().to_owned();
    let number = catalog.lists.len() as u32;
    catalog.lists.push(List::new(&name, fields));
    // It is not among the structs that are written: a type that emits these fields has a list of its own.
    let root = catalog.unions.get_mut(ROOT as usize).ok_or_else(damaged)?;
    root.kinds.push(Kind::Struct(number));
    catalog.version += 2;
    Ok(())
}
