//! Writing a row without its type: its list says what `Serialize` emitted.

use std::cell::{Cell, RefCell};

use serde::ser::{
    self, Serialize, SerializeMap as _, SerializeSeq as _, SerializeStruct as _,
    SerializeStructVariant as _, SerializeTuple as _, SerializeTupleVariant as _, Serializer,
};

use super::{Reader, Value, scalars::Scalar};
use crate::{
    catalog::Catalog,
    error::{Error, Result as ReadResult, damaged, unrecorded},
    kind::{Field, Form, Kind, List},
    tag,
};

/// A row as a value of any serde format. From [`Catalog::row`].
///
/// It is written as its type was written for rows, so a type with another form in text formats, such as `IpAddr`, has the form
/// of binary formats. Numbers of up to 64 bits are `u64` and `i64`. A field that the row lacks is skipped.
///
/// Cost: the row is read once. A struct with a field that rows can lack is passed once more before, to count the fields that it has;
/// so is such a struct inside of it.
pub struct Row<'r> {
    catalog: &'r Catalog,
    bytes: &'r [u8],
    keep: fn(&str) -> &'static str,
    failure: Cell<Option<Error>>,
}

impl<'r> Row<'r> {
    pub(crate) const fn new(
        catalog: &'r Catalog,
        bytes: &'r [u8],
        keep: fn(&str) -> &'static str,
    ) -> Self {
        Self { catalog, bytes, keep, failure: Cell::new(None) }
    }

    /// Returns the reason why the row could not be read, if that made `serialize` fail.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.failure.take()
    }
}

impl std::fmt::Debug for Row<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Row").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let walk = Walk {
            reader: RefCell::new(Reader::new(self.catalog, self.bytes)),
            keep: self.keep,
            failure: &self.failure,
        };
        let written = walk.value(to)?;
        if walk.reader.borrow().is_done() { Ok(written) } else { Err(walk.failed(damaged())) }
    }
}

/// A pass over the bytes of a row.
struct Walk<'w, 'r> {
    /// Borrowed only while it reads, and not while a part is written.
    reader: RefCell<Reader<'r, 'r>>,
    keep: fn(&str) -> &'static str,
    failure: &'w Cell<Option<Error>>,
}

/// The next value, which has this kind.
struct Part<'w, 'r> {
    walk: &'w Walk<'w, 'r>,
    kind: &'r Kind,
}

impl Serialize for Part<'_, '_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.walk.reader.borrow_mut().kind = self.kind;
        self.walk.value(to)
    }
}

impl<'w, 'r> Walk<'w, 'r> {
    #[cold]
    fn failed<E: ser::Error>(&self, error: Error) -> E {
        let failure = E::custom(&error);
        self.failure.set(Some(error));
        failure
    }

    /// Adds the name of a field to the failure in its value.
    #[cold]
    fn within<E>(&self, field: &Field, error: E) -> E {
        self.failure.set(self.failure.take().map(|own| own.within(field.name.text())));
        error
    }

    fn read<T, E: ser::Error>(
        &self,
        read: impl FnOnce(&mut Reader<'r, 'r>) -> ReadResult<T>,
    ) -> Result<T, E> {
        read(&mut self.reader.borrow_mut()).map_err(|error| self.failed(error))
    }

    const fn part(&'w self, kind: &'r Kind) -> Part<'w, 'r> {
        Part { walk: self, kind }
    }

    fn list<E: ser::Error>(&self, number: u32) -> Result<&'r List, E> {
        self.read(|reader| reader.catalog.list(number))
    }

    /// Writes a value with parts, by `inner`.
    fn deeper<T, E: ser::Error>(&self, inner: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.read(Reader::enter)?;
        let written = inner()?;
        self.reader.borrow_mut().leave();
        Ok(written)
    }

    /// Writes the value of the reader's kind.
    fn value<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.read(Reader::next)? {
            Value::Unsigned(value) => to.serialize_u64(value),
            Value::Text(text) => to.serialize_str(text),
            Value::Bool(value) => to.serialize_bool(value),
            Value::None => to.serialize_none(),
            Value::Some => self.deeper(|| to.serialize_some(&self.part(&tag::ANY))),
            Value::Seq => self.seq(&tag::ANY, to),
            Value::Map => self.map(&tag::ANY, &tag::ANY, to),
            Value::Kind(kind) => match kind {
                Kind::Option(inner) => match self.read(Reader::byte)? {
                    0 => to.serialize_none(),
                    1 => self.deeper(|| to.serialize_some(&self.part(inner))),
                    _ => Err(self.failed(damaged())),
                },
                Kind::Seq(element) => self.seq(element, to),
                Kind::Array(len, element) => self.array(*len, element, to),
                Kind::Map(kinds) => self.map(&kinds.0, &kinds.1, to),
                Kind::Tuple(list) => {
                    let list = self.list(*list)?;
                    self.deeper(|| {
                        let mut tuple = to.serialize_tuple(list.fields.len())?;
                        self.fields(list, |_, part| match part {
                            Some(part) => tuple.serialize_element(part),
                            None => Err(self.failed(damaged())),
                        })?;
                        tuple.end()
                    })
                }
                Kind::Struct(list) => {
                    let list = self.list(*list)?;
                    self.deeper(|| {
                        let name = list.name.kept(self.keep);
                        let mut fields = to.serialize_struct(name, self.present(list))?;
                        self.fields(list, |field, part| match part {
                            Some(part) => fields.serialize_field(field.name.kept(self.keep), part),
                            None => fields.skip_field(field.name.kept(self.keep)),
                        })?;
                        fields.end()
                    })
                }
                Kind::Enum(number) => self.deeper(|| self.variant(*number, to)),
                kind => self.scalar(kind, to),
            },
        }
    }

    fn scalar<S: Serializer>(&self, kind: &Kind, to: S) -> Result<S::Ok, S::Error> {
        match self.read(|reader| reader.scalar(kind))? {
            Scalar::Unsigned(value) => to.serialize_u64(value),
            Scalar::Signed(value) => to.serialize_i64(value),
            Scalar::U128(value) => to.serialize_u128(value),
            Scalar::I128(value) => to.serialize_i128(value),
            Scalar::F32(value) => to.serialize_f32(value),
            Scalar::F64(value) => to.serialize_f64(value),
            Scalar::Bool(value) => to.serialize_bool(value),
            Scalar::Char(value) => to.serialize_char(value),
            Scalar::Text(value) => to.serialize_str(value),
            Scalar::Bytes(value) => to.serialize_bytes(value),
            Scalar::Unit => to.serialize_unit(),
        }
    }

    fn seq<S: Serializer>(&self, element: &'r Kind, to: S) -> Result<S::Ok, S::Error> {
        let count = self.read(Reader::count)?;
        self.deeper(|| {
            let mut seq = to.serialize_seq(Some(count))?;
            (0..count).try_for_each(|_| seq.serialize_element(&self.part(element)))?;
            seq.end()
        })
    }

    fn array<S: Serializer>(&self, len: u32, element: &'r Kind, to: S) -> Result<S::Ok, S::Error> {
        let len = len as usize;
        // Each element takes at least one byte.
        if len > self.reader.borrow().rest.len() {
            return Err(self.failed(damaged()));
        }
        self.deeper(|| {
            let mut tuple = to.serialize_tuple(len)?;
            (0..len).try_for_each(|_| tuple.serialize_element(&self.part(element)))?;
            tuple.end()
        })
    }

    fn map<S: Serializer>(&self, key: &'r Kind, value: &'r Kind, to: S) -> Result<S::Ok, S::Error> {
        let count = self.read(Reader::count)?;
        self.deeper(|| {
            let mut map = to.serialize_map(Some(count))?;
            for _ in 0..count {
                map.serialize_key(&self.part(key))?;
                map.serialize_value(&self.part(value))?;
            }
            map.end()
        })
    }

    /// Returns the number of fields that the row has. Formats that write the number need it before the fields.
    fn present(&self, list: &'r List) -> usize {
        if list.fields.iter().all(|field| !field.absent) {
            return list.fields.len();
        }
        let mut ahead = {
            let reader = self.reader.borrow();
            let start = Reader::new(reader.catalog, &[]);
            Reader { rest: reader.rest, depth: reader.depth, ..start }
        };
        let mut count = 0;
        for field in &list.fields {
            if ahead.passes_absent(field) {
                continue;
            }
            // Writing fails there too, with the names of all fields around the damage.
            if ahead.skip_as(&field.kind).is_err() {
                break;
            }
            count += 1;
        }
        count
    }

    /// Passes each field to `write`, with its value if the row has it.
    fn fields<E: ser::Error>(
        &self,
        list: &'r List,
        mut write: impl FnMut(&'r Field, Option<&Part<'_, 'r>>) -> Result<(), E>,
    ) -> Result<(), E> {
        for field in &list.fields {
            let is_absent = self.reader.borrow_mut().passes_absent(field);
            let part = self.part(&field.kind);
            write(field, (!is_absent).then_some(&part))
                .map_err(|error| self.within(field, error))?;
        }
        Ok(())
    }

    fn variant<S: Serializer>(&self, number: u32, to: S) -> Result<S::Ok, S::Error> {
        let (of, at, entry) = self.read(|reader| {
            let at = reader.number()?;
            let of = reader.catalog.enumeration(number)?;
            let entry = of.variants.get(at as usize).ok_or_else(unrecorded)?;
            Ok((of, at, entry))
        })?;
        let (of, name) = (of.name.kept(self.keep), entry.name.kept(self.keep));
        match (entry.form, &entry.payload) {
            (Form::Unit, _) => to.serialize_unit_variant(of, at, name),
            (Form::Tuple, Kind::Tuple(list)) => {
                let list = self.list(*list)?;
                let mut fields = to.serialize_tuple_variant(of, at, name, list.fields.len())?;
                self.fields(list, |_, part| match part {
                    Some(part) => fields.serialize_field(part),
                    None => Err(self.failed(damaged())),
                })?;
                fields.end()
            }
            (Form::Struct, Kind::Struct(list)) => {
                let list = self.list(*list)?;
                let mut fields = to.serialize_struct_variant(of, at, name, self.present(list))?;
                self.fields(list, |field, part| match part {
                    Some(part) => fields.serialize_field(field.name.kept(self.keep), part),
                    None => fields.skip_field(field.name.kept(self.keep)),
                })?;
                fields.end()
            }
            (_, payload) => to.serialize_newtype_variant(of, at, name, &self.part(payload)),
        }
    }
}
