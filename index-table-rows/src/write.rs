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
    bytes::{has_room, take_varint, varint},
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
    let mut writer = Writer { out, catalog, guide, stored: None, depth: 0 };
    value.serialize(writer.expecting(kind))
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
    let mut writer = Writer { out, catalog, guide: None, stored: Some(row), depth: 0 };
    value.serialize(writer.expecting(&ROOT_KIND)).is_ok() && *out == row
}

struct Writer<'c, 'o> {
    out: &'o mut Vec<u8>,
    catalog: &'c Catalog,
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

/// The place of one value, and the kind that is expected there. It is passed in registers.
struct Blank<'a, 'c, 'o> {
    writer: &'a mut Writer<'c, 'o>,
    kind: &'c Kind,
}

impl<'c, 'o> Writer<'c, 'o> {
    #[inline(always)]
    fn expecting<'a>(&'a mut self, kind: &'c Kind) -> Blank<'a, 'c, 'o> {
        Blank { writer: self, kind }
    }

    #[inline]
    fn enter(&mut self) -> Result {
        if self.depth == MAX_DEPTH {
            return Err(too_deep());
        }
        self.depth += 1;
        Ok(())
    }

    #[inline]
    fn some(&mut self, kind: &'c Kind, write: impl Fn(Blank<'_, 'c, 'o>) -> Result) -> Result {
        if let Kind::Option(kind) = kind
            && has_room(self.out, 1)
        {
            self.enter()?;
            self.out.extend_from_slice(&[1]);
            write(self.expecting(kind))?;
            self.depth -= 1;
            return Ok(());
        }
        self.other_some(kind, &write)
    }

    /// `None` at a place that does not expect an option only.
    #[inline(never)]
    fn other_none(&mut self, mut kind: &'c Kind) -> Result {
        loop {
            match kind {
                Kind::Option(_) => self.out.push(0),
                Kind::Any => self.out.push(tag::NONE),
                Kind::Union(union) => {
                    kind = self.choose_other(*union)?;
                    continue;
                }
                _ => return Err(unrecorded()),
            }
            return Ok(());
        }
    }

    /// A value of an option at a place that does not expect an option only.
    #[inline(never)]
    fn other_some(
        &mut self,
        mut kind: &'c Kind,
        write: &dyn Fn(Blank<'_, 'c, 'o>) -> Result,
    ) -> Result {
        self.enter()?;
        loop {
            match kind {
                Kind::Option(kind) => {
                    self.out.push(1);
                    write(self.expecting(kind))?;
                }
                Kind::Any => {
                    let start = self.out.len();
                    write(self.expecting(kind))?;
                    if let Some(tag::NONE | tag::SOME | tag::UNIT) = self.out.get(start).copied() {
                        self.out.insert(start, tag::SOME);
                    }
                }
                Kind::Union(union) => {
                    kind = self.choose_other(*union)?;
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
    fn settle(&mut self, mut kind: &'c Kind) -> Result<&'c Kind> {
        loop {
            match kind {
                Kind::Option(inner) => {
                    self.out.push(1);
                    kind = inner;
                }
                Kind::Union(union) => kind = self.choose_other(*union)?,
                _ => return Ok(kind),
            }
        }
    }

    fn choose_other(&mut self, union: u32) -> Result<&'c Kind> {
        let union = self.catalog.union(union)?;
        let other = match self.stored {
            None => union.other.ok_or_else(unrecorded)?,
            Some(_) => self.stored_number()?,
        };
        varint(self.out, other.into());
        union.kinds.get(other as usize).ok_or_else(unrecorded)
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
