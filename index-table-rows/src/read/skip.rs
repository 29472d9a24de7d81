//! Passing values that are not read.

use super::{Reader, Value, access::ListAccess};
use crate::{
    error::{Result, damaged},
    kind::Kind,
    tag,
};

impl<'c> Reader<'_, 'c> {
    /// Skips a value without noting what is in it.
    pub(super) fn skip_noted(&mut self, kind: &'c Kind) -> Result {
        self.by_names = false;
        let skipped = self.skip_as(kind);
        self.by_names = true;
        skipped
    }

    pub(super) fn skip_as(&mut self, kind: &'c Kind) -> Result {
        self.kind = kind;
        self.skip()
    }

    /// Skips a value.
    #[inline(never)]
    pub(super) fn skip(&mut self) -> Result {
        match self.kind {
            Kind::Text | Kind::Bytes => {
                let len = self.len()?;
                return self.take(len).map(drop);
            }
            Kind::Unsigned | Kind::Signed => return self.varint().map(drop),
            Kind::Bytes16 => return self.take(16).map(drop),
            Kind::Hole if self.has_no_row() => return Ok(()),
            _ => {}
        }
        let Some(value) = self.present()? else { return Ok(()) };
        match value {
            Value::Kind(Kind::Seq(kind)) => {
                let count = self.count()?;
                self.skip_elements(count, kind)
            }
            Value::Seq => {
                let count = self.count()?;
                self.skip_elements(count, &tag::ANY)
            }
            Value::Kind(Kind::Array(len, kind)) => self.skip_elements(*len as usize, kind),
            Value::Kind(Kind::Map(kinds)) => self.skip_pairs(&kinds.0, &kinds.1),
            Value::Map => self.skip_pairs(&tag::ANY, &tag::ANY),
            Value::Kind(Kind::Struct(list) | Kind::Tuple(list)) => {
                let list = self.catalog.list(*list)?;
                self.deeper(|reader| ListAccess::new(reader, list).skip_rest())
            }
            Value::Kind(Kind::Enum(number)) => {
                let entry = self.entry(*number)?;
                self.deeper(|reader| reader.skip_as(&entry.payload))
            }
            Value::Kind(kind) => self.scalar(kind).map(drop),
            Value::Unsigned(_) | Value::Text(_) | Value::Bool(_) => Ok(()),
            Value::None | Value::Some => Err(damaged()),
        }
    }

    pub(super) fn skip_elements(&mut self, count: usize, kind: &'c Kind) -> Result {
        self.deeper(|reader| (0..count).try_for_each(|_| reader.skip_as(kind)))
    }

    pub(super) fn skip_pairs(&mut self, key: &'c Kind, value: &'c Kind) -> Result {
        let count = self.count()?;
        self.deeper(|reader| {
            (0..count).try_for_each(|_| {
                reader.skip_as(key)?;
                reader.skip_as(value)
            })
        })
    }
}
