//! The fields of a row, read one by one.

use std::slice;

use serde::Deserialize;

use super::{Reader, Value, scalars::unexpected};
use crate::{
    catalog::Catalog,
    error::{Result, damaged},
    kind::{Field, Kind},
    tag,
};

/// The fields of a row: see [`Catalog::fields`] and [`Catalog::part`].
///
/// A field that follows the last one is read in place. Any other is found by its name, with the values between passed by
/// their kinds; so it costs time in proportion to the row.
pub struct Fields<'de, 'c> {
    pub(super) catalog: &'c Catalog,
    pub(super) row: Row<'c>,
    /// The fields that are not read yet. Empty for a map and for a part.
    pub(super) rest: slice::Iter<'c, Field>,
    /// The bytes that are not read yet.
    pub(super) bytes: &'de [u8],
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
    pub(crate) fn new(catalog: &'c Catalog, row: &'de [u8]) -> Result<Self> {
        match short(catalog, row) {
            Some((fields, bytes)) => {
                let (row, rest) = (Row::Struct(fields), fields.iter());
                Ok(Self { catalog, row, rest, bytes, start: bytes })
            }
            None => Self::of_any(catalog, row),
        }
    }

    /// The fields of a copy.
    #[inline]
    pub(crate) fn of_part(catalog: &'c Catalog, copy: &'de [u8]) -> Result<Self> {
        match short(catalog, copy) {
            Some((fields, bytes)) => {
                let (row, rest) = (Row::Part(fields), [].iter());
                Ok(Self { catalog, row, rest, bytes, start: bytes })
            }
            None => Self::of_any(catalog, copy).map(Self::into_part),
        }
    }

    #[cold]
    fn into_part(mut self) -> Self {
        if let Row::Struct(fields) = self.row {
            (self.row, self.rest) = (Row::Part(fields), [].iter());
        }
        self
    }

    /// The row with a long number, or with a tag after its number.
    #[cold]
    #[inline(never)]
    fn of_any(catalog: &'c Catalog, row: &'de [u8]) -> Result<Self> {
        let mut reader = Reader::new(catalog, row);
        let (before, kind) = (reader.rest, reader.kind);
        let row = match reader.present()? {
            Some(Value::Kind(Kind::Struct(list))) => Row::Struct(&catalog.list(*list)?.fields),
            Some(Value::Kind(Kind::Map(kinds))) => Row::Map(&kinds.0, &kinds.1),
            Some(Value::Map) => Row::Map(&tag::ANY, &tag::ANY),
            _ => {
                reader.rest = before;
                Row::Whole(kind)
            }
        };
        let fields: &[Field] = match row {
            Row::Struct(fields) => fields,
            Row::Map(..) | Row::Whole(_) | Row::Part(_) => &[],
        };
        Ok(Self { catalog, row, rest: fields.iter(), bytes: reader.rest, start: reader.rest })
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
        let kind = match self.next(names) {
            Some(kind) => kind,
            None => match self.find(names)? {
                Some(kind) => kind,
                None => return Ok(None),
            },
        };
        let mut reader = Reader::at(self.catalog, self.bytes, kind);
        match read(&mut reader) {
            Ok(value) if !reader.misplaced => {
                self.bytes = reader.rest;
                Ok(Some(value))
            }
            result => self.read_again(reader, kind, names, result, &mut read),
        }
    }

    /// Reads a field like [`field`](Self::field), as a text. It takes less time if the text is short and ASCII.
    ///
    /// # Errors
    ///
    /// As for [`field`](Self::field).
    #[inline]
    pub fn text(&mut self, names: &[&'static str]) -> Result<Option<&'de str>> {
        let rest = self.rest.clone();
        if let Some(Kind::Text) = self.next(names)
            && let &[len @ ..0x80, ref bytes @ ..] = self.bytes
            && let Some((text, bytes)) = bytes.split_at_checked(len.into())
            && let Ok(text) = super::text(text)
        {
            self.bytes = bytes;
            return Ok(Some(text));
        }
        self.rest = rest;
        self.field(names)
    }

    /// Returns the next field's kind if it has the first name. Only addresses of names are compared.
    #[inline]
    fn next(&mut self, names: &[&'static str]) -> Option<&'c Kind> {
        let is_named = |field: &&Field| {
            !field.absent && names.first().is_some_and(|name| field.name.is_asked_literal(name))
        };
        if let Row::Part(fields) = self.row {
            return fields.iter().find(is_named).map(|field| &field.kind);
        }
        let field = self.rest.as_slice().first().filter(is_named)?;
        self.rest.next();
        Some(&field.kind)
    }

    /// The end of [`field_with`](Self::field_with) after an error, or if a struct inside must be read by names.
    #[cold]
    #[inline(never)]
    fn read_again<T>(
        &mut self,
        mut reader: Reader<'de, 'c>,
        kind: &'c Kind,
        names: &[&'static str],
        mut result: Result<T>,
        read: &mut impl FnMut(&mut Reader<'de, 'c>) -> Result<T>,
    ) -> Result<Option<T>> {
        if reader.misplaced {
            let suspect = reader.noted.take().and_then(|noted| noted.suspect);
            reader = Reader { by_names: true, ..Reader::at(self.catalog, self.bytes, kind) };
            result = read(&mut reader);
            if let (Ok(_), Some((list, names))) = (&result, suspect) {
                list.set_by_names(names);
            }
        }
        self.bytes = reader.rest;
        result.map(Some).map_err(|error| {
            self.rewind();
            error.within(names.first().unwrap_or(&""))
        })
    }

    /// Finds a field anywhere in the row. Returns its kind if the row has it; its value is then the next.
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
        Ok(field.filter(|field| !self.passes_absent(field)).map(|field| &field.kind))
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
        (!self.passes_absent(field)).then_some(&field.kind)
    }

    fn find_in_map(
        &mut self,
        key: &'c Kind,
        value: &'c Kind,
        name: &'static str,
    ) -> Result<Option<&'c Kind>> {
        self.rewind();
        let count = self.with_reader(Reader::count)?;
        for _ in 0..count {
            if self.name_in_map(key)? == name {
                return Ok(Some(value));
            }
            self.with_reader(|reader| reader.skip_as(value))?;
        }
        Ok(None)
    }

    /// Reads the next key of a map.
    pub(super) fn name_in_map(&mut self, key: &'c Kind) -> Result<&'de str> {
        self.with_reader(|reader| {
            reader.kind = key;
            match reader.present()? {
                Some(Value::Text(text)) => Ok(text),
                Some(Value::Kind(Kind::Text)) => {
                    let len = reader.len()?;
                    reader.text(len)
                }
                _ => Err(unexpected(None, "a text")),
            }
        })
    }

    /// Whether the row lacks the next field. Then it is passed.
    pub(super) fn passes_absent(&mut self, field: &Field) -> bool {
        self.with_reader(|reader| reader.passes_absent(field))
    }

    fn skip(&mut self, field: &'c Field) -> Result {
        if self.passes_absent(field) {
            return Ok(());
        }
        self.with_reader(|reader| reader.skip_as(&field.kind))
    }

    /// Calls `read` with a reader of the next value.
    pub(super) fn with_reader<T>(&mut self, read: impl FnOnce(&mut Reader<'de, 'c>) -> T) -> T {
        let mut reader = Reader::at(self.catalog, self.bytes, &tag::ANY);
        let result = read(&mut reader);
        self.bytes = reader.rest;
        result
    }

    /// Goes back to the first field.
    pub(super) fn rewind(&mut self) {
        self.bytes = self.start;
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
        if is_struct && self.rest.len() == 0 && self.bytes.is_empty() {
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
                self.with_reader(|reader| reader.skip_pairs(key, value))?;
            }
            Row::Whole(kind) => {
                self.rewind();
                self.with_reader(|reader| reader.skip_as(kind))?;
            }
            // It ends with the field that was read last.
            Row::Part(_) => {}
        }
        if self.bytes.is_empty() { Ok(()) } else { Err(damaged()) }
    }
}

/// Returns a row's fields, and its bytes after the number, if it is a struct whose number has one byte.
#[inline]
pub(super) fn short<'r, 'c>(
    catalog: &'c Catalog,
    row: &'r [u8],
) -> Option<(&'c [Field], &'r [u8])> {
    let [number @ ..0x80, rest @ ..] = row else { return None };
    match catalog.unions.first()?.kinds.get(usize::from(*number))? {
        Kind::Struct(list) => Some((&catalog.lists.get(*list as usize)?.fields, rest)),
        _ => None,
    }
}
