//! The fields of a row, read one by one.

use std::{mem, slice};

use serde::Deserialize;

use super::{Reader, Value, scalars::unexpected};
use crate::{
    catalog::Catalog,
    error::{Result, damaged},
    kind::{Field, Kind},
    tag,
};

/// The fields of a row: see [`Catalog::fields`](crate::Catalog::fields) and [`Catalog::part`](crate::Catalog::part).
///
/// A field that follows the last one is read in place. Any other is found by its name, with the values between passed by
/// their kinds; so it costs time in proportion to the row.
pub struct Fields<'de, 'c> {
    pub(super) reader: Reader<'de, 'c>,
    pub(super) row: Row<'c>,
    /// The fields that are not read yet. Empty for a map and for a part.
    pub(super) rest: slice::Iter<'c, Field>,
    /// The bytes of all fields.
    pub(super) start: &'de [u8],
}

/// What has the fields.
#[derive(Clone, Copy)]
pub(super) enum Row<'c> {
    Struct(&'c [Field]),
    /// A struct with `flatten`.
    Map(&'c Kind, &'c Kind),
    /// The only field of a `transparent` struct, under any name.
    Whole(&'c Kind),
    /// Fields of a struct that were copied, in the order in which they are read.
    Part(&'c [Field]),
}

impl<'de, 'c> Fields<'de, 'c> {
    #[inline]
    pub(crate) fn new(mut reader: Reader<'de, 'c>) -> Result<Self> {
        let row = match *reader.kind {
            Kind::Struct(list) => Row::Struct(&reader.catalog.list(list)?.fields),
            _ => Self::row(&mut reader)?,
        };
        let fields: &[Field] = match row {
            Row::Struct(fields) => fields,
            Row::Map(..) | Row::Whole(_) | Row::Part(_) => &[],
        };
        // Inside of the struct.
        reader.depth = 1;
        Ok(Self { start: reader.rest, reader, row, rest: fields.iter() })
    }

    /// The fields of a copy.
    #[inline]
    pub(crate) fn of_part(reader: Reader<'de, 'c>) -> Result<Self> {
        if let Kind::Struct(list) = *reader.kind {
            let fields = &reader.catalog.list(list)?.fields;
            let reader = Reader { depth: 1, ..reader };
            return Ok(Self {
                start: reader.rest,
                reader,
                row: Row::Part(fields),
                rest: [].iter(),
            });
        }
        let mut part = Self::new(reader)?;
        if let Row::Struct(fields) = part.row {
            (part.row, part.rest) = (Row::Part(fields), [].iter());
        }
        Ok(part)
    }

    /// The row after its number, or after a tag.
    #[cold]
    #[inline(never)]
    fn row(reader: &mut Reader<'de, 'c>) -> Result<Row<'c>> {
        let (rest, kind) = (reader.rest, reader.kind);
        match reader.present()? {
            Some(Value::Kind(Kind::Struct(list))) => {
                Ok(Row::Struct(&reader.catalog.list(*list)?.fields))
            }
            Some(Value::Kind(Kind::Map(kinds))) => Ok(Row::Map(&kinds.0, &kinds.1)),
            Some(Value::Map) => Ok(Row::Map(&tag::ANY, &tag::ANY)),
            _ => {
                reader.rest = rest;
                Ok(Row::Whole(kind))
            }
        }
    }

    /// Returns the names in the list of the row, in its order. Empty for a row that is not written as a struct, because of
    /// `flatten` or `transparent`.
    pub fn names(&self) -> impl Iterator<Item = &'c str> + use<'c> {
        let fields: &'c [Field] = match self.row {
            Row::Struct(fields) | Row::Part(fields) => fields,
            Row::Map(..) | Row::Whole(_) => &[],
        };
        fields.iter().map(|field| field.name.text())
    }

    /// Reads a field. The first of `names` is its name, the others are its aliases; the first of them that the row has
    /// counts. `None` if the row has none of them.
    ///
    /// # Errors
    ///
    /// [`Reason::Damaged`](crate::Reason::Damaged) and the errors of the type. The other fields can still be read.
    #[inline(always)]
    pub fn field<T: Deserialize<'de>>(&mut self, names: &[&'static str]) -> Result<Option<T>> {
        self.field_with(names, |reader| T::deserialize(reader))
    }

    /// Reads a field like [`field`](Self::field), by a function such as that of `deserialize_with`. It may be called twice.
    ///
    /// # Errors
    ///
    /// As for [`field`](Self::field).
    #[inline(always)]
    pub fn field_with<T>(
        &mut self,
        names: &[&'static str],
        mut read: impl FnMut(&mut Reader<'de, 'c>) -> Result<T>,
    ) -> Result<Option<T>> {
        let kind = match (self.rest.as_slice().first(), names.first()) {
            (Some(field), Some(name)) if !field.absent && field.name.is_asked_literal(name) => {
                self.rest.next();
                &field.kind
            }
            _ => match self.find(names)? {
                Some(kind) => kind,
                None => return Ok(None),
            },
        };
        let before = self.reader.rest;
        self.reader.kind = kind;
        match read(&mut self.reader) {
            Ok(value) if !self.reader.misplaced => Ok(Some(value)),
            result => self.read_again(before, kind, names, result, &mut read),
        }
    }

    /// Reads a field like [`field`](Self::field), as a text. It takes less time if the text is short and ASCII.
    ///
    /// # Errors
    ///
    /// As for [`field`](Self::field).
    #[inline]
    pub fn text(&mut self, names: &[&'static str]) -> Result<Option<&'de str>> {
        let fields = match self.row {
            Row::Part(fields) => fields,
            _ => self.rest.as_slice().get(..1).unwrap_or_default(),
        };
        let is_named = |field: &&Field| {
            !field.absent && names.first().is_some_and(|name| field.name.is_asked_literal(name))
        };
        if let Some(Field { kind: Kind::Text, .. }) = fields.iter().find(is_named)
            && let &[len @ ..0x80, ref bytes @ ..] = self.reader.rest
            && let Some((text, rest)) = bytes.split_at_checked(len.into())
            && let Ok(text) = super::text(text)
        {
            self.rest.next();
            self.reader.rest = rest;
            return Ok(Some(text));
        }
        self.field(names)
    }

    /// The end of [`field_with`](Self::field_with) after an error, or if a struct inside must be read by names.
    #[cold]
    #[inline(never)]
    fn read_again<T>(
        &mut self,
        before: &'de [u8],
        kind: &'c Kind,
        names: &[&'static str],
        mut result: Result<T>,
        read: &mut impl FnMut(&mut Reader<'de, 'c>) -> Result<T>,
    ) -> Result<Option<T>> {
        let reader = &mut self.reader;
        if mem::take(&mut reader.misplaced) {
            let suspect = reader.noted.take().and_then(|noted| noted.suspect);
            (reader.rest, reader.kind, reader.by_names) = (before, kind, true);
            result = read(reader);
            (reader.by_names, reader.noted) = (false, None);
            if let (Ok(_), Some((list, names))) = (&result, suspect) {
                list.set_by_names(names);
            }
        }
        result.map(Some).map_err(|error| {
            self.rewind();
            error.within(names.first().unwrap_or(&""))
        })
    }

    /// Finds a field anywhere in the row. Returns its kind if the row has it; the reader is then at its value.
    #[cold]
    #[inline(never)]
    fn find(&mut self, names: &[&'static str]) -> Result<Option<&'c Kind>> {
        for name in names {
            let found = match self.row {
                Row::Struct(fields) => self.find_in_struct(fields, name),
                Row::Part(fields) => Ok(self.next_in_part(fields, name)),
                Row::Map(key, value) => self.find_in_map(key, value, name),
                Row::Whole(kind) => {
                    self.rewind();
                    Ok(Some(kind))
                }
            };
            match found.inspect_err(|_| self.rewind())? {
                None => {}
                found => return Ok(found),
            }
        }
        Ok(None)
    }

    fn find_in_struct(
        &mut self,
        fields: &'c [Field],
        name: &'static str,
    ) -> Result<Option<&'c Kind>> {
        let Some(position) = fields.iter().position(|field| field.name.is_asked(name)) else {
            return Ok(None);
        };
        self.go_to(fields, position)?;
        let field = self.rest.next();
        Ok(field.filter(|field| !self.reader.passes_absent(field)).map(|field| &field.kind))
    }

    /// Goes to the field at this position of a struct.
    pub(super) fn go_to(&mut self, fields: &'c [Field], position: usize) -> Result {
        if position < fields.len() - self.rest.len() {
            self.rewind();
        }
        while fields.len() - self.rest.len() < position
            && let Some(field) = self.rest.next()
        {
            self.skip(field)?;
        }
        Ok(())
    }

    /// Returns the kind of the next copied field, if it has this name.
    fn next_in_part(&mut self, fields: &'c [Field], name: &'static str) -> Option<&'c Kind> {
        let field = fields.iter().find(|field| field.name.is_asked(name))?;
        (!self.reader.passes_absent(field)).then_some(&field.kind)
    }

    fn find_in_map(
        &mut self,
        key: &'c Kind,
        value: &'c Kind,
        name: &'static str,
    ) -> Result<Option<&'c Kind>> {
        self.rewind();
        for _ in 0..self.reader.count()? {
            if self.name_in_map(key)? == name {
                return Ok(Some(value));
            }
            self.reader.skip_as(value)?;
        }
        Ok(None)
    }

    /// Reads the next key of a map.
    pub(super) fn name_in_map(&mut self, key: &'c Kind) -> Result<&'de str> {
        let reader = &mut self.reader;
        reader.kind = key;
        match reader.present()? {
            Some(Value::Text(text)) => Ok(text),
            Some(Value::Kind(Kind::Text)) => {
                let len = reader.len()?;
                reader.text(len)
            }
            _ => Err(unexpected(None, "a text")),
        }
    }

    fn skip(&mut self, field: &'c Field) -> Result {
        if self.reader.passes_absent(field) { Ok(()) } else { self.reader.skip_as(&field.kind) }
    }

    /// Goes back to the first field.
    fn rewind(&mut self) {
        self.reader.rest = self.start;
        if let Row::Struct(fields) = self.row {
            self.rest = fields.iter();
        }
    }

    /// Passes the fields that follow the last one.
    ///
    /// # Errors
    ///
    /// [`Reason::Damaged`](crate::Reason::Damaged) if the row does not end with its last field.
    #[inline]
    pub fn end(self) -> Result {
        let is_struct = matches!(self.row, Row::Struct(_));
        if is_struct && self.rest.len() == 0 && self.reader.rest.is_empty() {
            return Ok(());
        }
        self.pass_rest()
    }

    #[cold]
    #[inline(never)]
    fn pass_rest(mut self) -> Result {
        match self.row {
            Row::Struct(_) => {
                while let Some(field) = self.rest.next() {
                    self.skip(field)?;
                }
            }
            Row::Map(key, value) => {
                self.rewind();
                self.reader.skip_pairs(key, value)?;
            }
            Row::Whole(kind) => {
                self.rewind();
                self.reader.skip_as(kind)?;
            }
            // It ends with the field that was read last.
            Row::Part(_) => {}
        }
        if self.reader.rest.is_empty() { Ok(()) } else { Err(damaged()) }
    }
}

/// Appends the bytes of the values of the fields for which `is_copied` is true, of a row that is a struct.
pub(crate) fn copy_values(
    catalog: &Catalog,
    row: &[u8],
    is_copied: impl Fn(&Field) -> bool,
    out: &mut Vec<u8>,
) -> Result {
    let mut fields = Fields::new(Reader::new(catalog, row))?;
    while let Some(field) = fields.rest.next() {
        let before = fields.reader.rest;
        fields.skip(field)?;
        let len = before.len() - fields.reader.rest.len();
        if is_copied(field) {
            out.extend_from_slice(before.get(..len).ok_or_else(damaged)?);
        }
    }
    Ok(())
}
