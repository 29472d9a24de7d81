//! Encoding: one pass that is led by the kinds of the catalog.
//!
//! At each place one kind is expected. A value that does not fit ends the pass with `Unrecorded`; `learn` then makes the
//! kind more general, and the next pass fits. Therefore a value has one form of bytes for a given catalog.
//!
//! Only at a union does the writer choose, among structs with different names, and it meets the names one after the other.
//! It begins with a guess, and corrects it when a name differs (`switch`); after `learn`, a guide has the names of all structs.
//!
//! What isn't inlined takes values instead of slices, and stands apart, so the fast paths need no stack.

mod choice;
mod parts;
mod scalars;
mod serializer;
mod sorted;

use serde::Serialize;

pub(crate) use self::sorted::{is_same_sorted, write_sorted};
use crate::{
    MAX_DEPTH,
    bytes::{take_varint, varint},
    catalog::{Catalog, ROOT},
    error::{Error, Reason, Result, unrecorded},
    kind::Kind,
    seen::Names,
    tag,
};

static ROOT_KIND: Kind = Kind::Union(ROOT);

/// Appends the row of `value`.
#[inline]
pub(crate) fn write<T: Serialize + ?Sized>(
    catalog: &Catalog,
    guide: Option<&[Names]>,
    value: &T,
    out: &mut Vec<u8>,
) -> Result {
    let kind = begin(catalog, guide, out)?;
    let guide = guide.map(<[_]>::iter);
    value.serialize(&mut Writer { out, catalog, kind, guide, stored: None, depth: 0 })
}

/// Writes the number of the list if there is no choice. Returns the kind of what follows.
#[inline(always)]
fn begin<'c>(catalog: &'c Catalog, guide: Option<&[Names]>, out: &mut Vec<u8>) -> Result<&'c Kind> {
    let root = catalog.union(ROOT)?;
    let mut kind = &ROOT_KIND;
    if let (None, None, [only]) = (guide, root.other, &*root.current) {
        // Nearly every row has a number of one byte.
        if let (0..0x80, Some(found)) = (*only, root.kinds.get(*only as usize)) {
            kind = found;
            out.push(*only as u8);
        }
    }
    Ok(kind)
}

/// Whether a row of `value` with the lists and entries of `row` has the same bytes. They may be older than those of a
/// new row.
pub(crate) fn is_same<T: Serialize + ?Sized>(catalog: &Catalog, row: &[u8], value: &T) -> bool {
    let out = &mut Vec::with_capacity(row.len());
    let mut writer =
        Writer { out, catalog, kind: &ROOT_KIND, guide: None, stored: Some(row), depth: 0 };
    value.serialize(&mut writer).is_ok() && *out == row
}

struct Writer<'c, 'o> {
    out: &'o mut Vec<u8>,
    catalog: &'c Catalog,
    /// The kind of the next value.
    kind: &'c Kind,
    guide: Option<std::slice::Iter<'c, Names>>,
    /// The row to compare with, which decides where there is a choice.
    stored: Option<&'c [u8]>,
    /// The number of containers around the next value.
    depth: usize,
}

#[cold]
fn too_deep() -> Error {
    Reason::TooDeep.into()
}

impl Writer<'_, '_> {
    #[inline]
    fn enter(&mut self) -> Result {
        if self.depth == MAX_DEPTH {
            return Err(too_deep());
        }
        self.depth += 1;
        Ok(())
    }

    #[inline]
    fn some(&mut self, write: impl Fn(&mut Self) -> Result) -> Result {
        if let Kind::Option(kind) = self.kind {
            self.enter()?;
            self.out.push(1);
            self.kind = kind;
            write(self)?;
            self.depth -= 1;
            return Ok(());
        }
        self.other_some(&write)
    }

    /// `None` at a place that does not expect an option only.
    #[inline(never)]
    fn other_none(&mut self) -> Result {
        loop {
            match self.kind {
                Kind::Option(_) => self.out.push(0),
                Kind::Any => self.out.push(tag::NONE),
                Kind::Union(union) => {
                    self.choose_other(*union)?;
                    continue;
                }
                _ => return Err(unrecorded()),
            }
            return Ok(());
        }
    }

    /// A value of an option at a place that does not expect an option only.
    #[inline(never)]
    fn other_some(&mut self, write: &dyn Fn(&mut Self) -> Result) -> Result {
        self.enter()?;
        loop {
            match self.kind {
                Kind::Option(kind) => {
                    self.out.push(1);
                    self.kind = kind;
                    write(self)?;
                }
                Kind::Any => {
                    let start = self.out.len();
                    write(self)?;
                    if let Some(tag::NONE | tag::SOME | tag::UNIT) = self.out.get(start).copied() {
                        self.out.insert(start, tag::SOME);
                    }
                }
                Kind::Union(union) => {
                    self.choose_other(*union)?;
                    continue;
                }
                _ => return Err(unrecorded()),
            }
            self.depth -= 1;
            return Ok(());
        }
    }

    /// Passes options and unions, for a value that is neither an option nor a struct.
    #[inline(never)]
    fn settle(&mut self) -> Result {
        loop {
            match self.kind {
                Kind::Option(kind) => {
                    self.out.push(1);
                    self.kind = kind;
                }
                Kind::Union(union) => self.choose_other(*union)?,
                _ => return Ok(()),
            }
        }
    }

    fn choose_other(&mut self, union: u32) -> Result {
        let union = self.catalog.union(union)?;
        let other = match self.stored {
            None => union.other.ok_or_else(unrecorded)?,
            Some(_) => self.stored_number()?,
        };
        varint(self.out, other.into());
        self.kind = union.kinds.get(other as usize).ok_or_else(unrecorded)?;
        Ok(())
    }

    /// The number at this position of the row to compare with.
    #[cold]
    fn stored_number(&self) -> Result<u32> {
        let mut rest =
            self.stored.and_then(|row| row.get(self.out.len()..)).ok_or_else(unrecorded)?;
        let number = take_varint(&mut rest).and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(unrecorded)
    }
}
