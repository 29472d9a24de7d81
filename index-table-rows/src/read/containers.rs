//! Sequences, maps and structs.

use serde::de::{self, Visitor};

use super::{
    Reader,
    access::{Elements, ListAccess, Pairs},
};
use crate::{
    error::{Error, Result, damaged},
    kind::{Kind, List},
};

impl<'de, 'c> Reader<'de, 'c> {
    #[inline]
    pub(super) fn seq<V: Visitor<'de>>(
        &mut self,
        count: usize,
        kind: &'c Kind,
        visitor: V,
    ) -> Result<V::Value> {
        self.deeper(|reader| {
            let mut elements = Elements { reader, kind, left: count };
            let value = visitor.visit_seq(&mut elements)?;
            // What a shorter tuple leaves would be lost when the row is written again.
            if elements.left == 0 { Ok(value) } else { Err(left_over(elements.left)) }
        })
    }

    /// The elements of an array. Each takes at least one byte.
    #[inline]
    pub(super) fn elements<V: Visitor<'de>>(
        &mut self,
        len: u32,
        kind: &'c Kind,
        visitor: V,
    ) -> Result<V::Value> {
        let len = len as usize;
        if len <= self.rest.len() { self.seq(len, kind, visitor) } else { Err(damaged()) }
    }

    pub(super) fn tuple<V: Visitor<'de>>(
        &mut self,
        list: &'c List,
        visitor: V,
    ) -> Result<V::Value> {
        self.deeper(|reader| {
            let mut fields = ListAccess::new(reader, list);
            let value = visitor.visit_seq(&mut fields)?;
            match fields.left() {
                0 => Ok(value),
                left => Err(left_over(left)),
            }
        })
    }

    pub(super) fn map<V: Visitor<'de>>(
        &mut self,
        key: &'c Kind,
        value: &'c Kind,
        visitor: V,
    ) -> Result<V::Value> {
        let count = self.count()?;
        self.deeper(|reader| {
            let mut pairs = Pairs { reader, key, value, left: count };
            let value = visitor.visit_map(&mut pairs)?;
            if pairs.left == 0 { Ok(value) } else { Err(left_over(pairs.left)) }
        })
    }

    #[inline]
    pub(super) fn structure<V: Visitor<'de>>(
        &mut self,
        list: u32,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let list = self.catalog.list(list)?;
        if self.by_names || !list.has_positions(names) {
            return self.fields(list, visitor);
        }
        self.deeper(|reader| {
            let mut fields = ListAccess::new(reader, list);
            let result = visitor.visit_seq(&mut fields);
            match result {
                Ok(value) if fields.is_asked_for(names.len()) => Ok(value),
                result => {
                    fields.misplace(names, result.is_ok());
                    result.and(Err(damaged()))
                }
            }
        })
    }

    /// Reads a struct by names.
    #[inline(never)]
    pub(super) fn fields<V: Visitor<'de>>(
        &mut self,
        list: &'c List,
        visitor: V,
    ) -> Result<V::Value> {
        self.deeper(|reader| {
            let mut fields = ListAccess::new(reader, list);
            let value = visitor.visit_map(&mut fields)?;
            fields.skip_rest()?;
            Ok(value)
        })
    }
}

#[cold]
fn left_over(left: usize) -> Error {
    <Error as de::Error>::custom(format_args!("the type leaves {left} of the stored values unread"))
}
