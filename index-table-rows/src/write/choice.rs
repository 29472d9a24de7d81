//! Places with a choice: a variant's entry, a struct's list, a sequence's form.

use super::{Writer, parts::TupleElements};
use crate::{
    bytes::{replace_varint, varint},
    catalog::LOOSE,
    error::{Result, unrecorded},
    kind::{Enum, Field, Form, Kind, List, Union, Variant},
    seen::Names,
    tag,
};

/// The kind of values with tags that are structs.
static LOOSE_KIND: Kind = Kind::Union(LOOSE);

/// The list that was chosen for a struct.
#[derive(Clone, Copy)]
pub(super) struct Place<'c> {
    /// The union or enum that has the list and others. `None` if there was no choice. One word, because each struct has it.
    pub(super) among: Option<&'c Kind>,
    /// The position of the number of the alternative or the entry.
    pub(super) start: usize,
    pub(super) at: u32,
    pub(super) list: &'c List,
}

impl<'c> Place<'c> {
    /// The field with this name, the fields behind it, and their list. The name may be another literal than the last one, or
    /// that of another list. Takes and returns values, so that the fast path has them in registers.
    #[cold]
    #[inline(never)]
    pub(super) fn find(
        self,
        writer: &mut Writer<'c, '_>,
        fields: &'c [Field],
        name: &'static str,
    ) -> Result<(&'c Field, &'c [Field], Self)> {
        let (fields, place) = match fields.first() {
            Some(field) if field.name.is(name) => (fields, self),
            _ => self.switch(writer, fields.len(), Some(name))?,
        };
        let (field, fields) = fields.split_first().ok_or_else(unrecorded)?;
        Ok((field, fields, place))
    }

    /// The next name, or the end, is not that of the list: finds another one under which the fields so far have the same
    /// bytes.
    #[cold]
    #[inline(never)]
    pub(super) fn switch(
        self,
        writer: &mut Writer<'c, '_>,
        left: usize,
        name: Option<&'static str>,
    ) -> Result<(&'c [Field], Self)> {
        let Self { among, start, at, list } = self;
        let done = list.fields.len() - left;
        let fits = |other: &List| {
            let next = other.fields.get(done);
            let has_next =
                name.map_or(next.is_none(), |name| next.is_some_and(|field| field.name.is(name)));
            has_next && other.fields.get(..done) == list.fields.get(..done)
        };
        let found = match among.filter(|_| writer.guide.is_none()) {
            Some(Kind::Union(union)) => {
                let union = writer.catalog.union(*union)?;
                writer.current(union).find(|(_, list)| fits(list))
            }
            Some(Kind::Enum(number)) => {
                let entries = &writer.catalog.enumeration(*number)?.variants;
                let name = entries.get(at as usize).map(|entry| &entry.name);
                let same_name = entries.iter().enumerate().filter(|(_, entry)| {
                    entry.current && entry.form == Form::Struct && Some(&entry.name) == name
                });
                let mut lists = same_name
                    .filter_map(|(at, entry)| Some((at as u32, writer.list_of(&entry.payload)?)));
                lists.find(|(_, list)| fits(list))
            }
            _ => None,
        };
        let (new, list) = found.ok_or_else(unrecorded)?;
        replace_varint(writer.out, start, at.into(), new.into());
        let fields = list.fields.get(done..).ok_or_else(unrecorded)?;
        Ok((fields, Self { at: new, list, ..self }))
    }
}

impl<'c> Writer<'c, '_> {
    /// The length of a sequence. Returns the kind of its elements.
    #[inline(never)]
    pub(super) fn sequence(&mut self, kind: &'c Kind, len: usize) -> Result<&'c Kind> {
        let kind = self.settle(kind)?;
        let element = match kind {
            Kind::Seq(element) => element,
            Kind::Any => {
                self.out.push(tag::SEQ);
                kind
            }
            _ => return Err(unrecorded()),
        };
        varint(self.out, len as u64);
        Ok(element)
    }

    /// The kinds of a tuple's elements, and whether its length is written.
    #[inline(never)]
    pub(super) fn tuple(
        &mut self,
        kind: &'c Kind,
        len: usize,
    ) -> Result<(TupleElements<'c>, bool)> {
        let kind = self.settle(kind)?;
        if let Kind::Array(own, element) = kind
            && *own as usize == len
        {
            return Ok((TupleElements::Same(element), false));
        }
        if let Kind::Tuple(list) = kind {
            let fields = &self.catalog.list(*list)?.fields;
            return if fields.len() == len {
                Ok((TupleElements::Each(fields.iter()), false))
            } else {
                Err(unrecorded())
            };
        }
        Ok((TupleElements::Same(self.sequence(kind, len)?), true))
    }

    /// The structs of a union that are written.
    fn current(
        &self,
        union: &'c Union,
    ) -> impl DoubleEndedIterator<Item = (u32, &'c List)> + use<'c> {
        let catalog = self.catalog;
        union.current.iter().filter_map(move |at| Some((*at, catalog.list_in(union, *at)?)))
    }

    pub(super) fn list_of(&self, kind: &Kind) -> Option<&'c List> {
        match kind {
            Kind::Struct(list) => self.catalog.lists.get(*list as usize),
            _ => None,
        }
    }

    /// The entry at the position of the variant in its type. Without skipped variants it is often the right one.
    #[inline]
    pub(super) fn entry(
        &self,
        kind: &Kind,
        index: u32,
        variant: &'static str,
        form: Form,
    ) -> Option<&'c Variant> {
        let Kind::Enum(number) = *kind else { return None };
        let entry = self.catalog.enums.get(number as usize)?.variants.get(index as usize)?;
        let is_right = entry.form == form && entry.current && entry.name.is(variant);
        (is_right && self.stored.is_none()).then_some(entry)
    }

    #[inline]
    pub(super) fn variant(
        &mut self,
        kind: &'c Kind,
        name: &'static str,
        index: u32,
        variant: &'static str,
        form: Form,
        fits: impl Fn(&Variant) -> bool,
    ) -> Result<&'c Kind> {
        if let Some(entry) = self.entry(kind, index, variant, form)
            && fits(entry)
        {
            varint(self.out, index.into());
            return Ok(&entry.payload);
        }
        let (found, at) = self.any_variant(kind, name, variant, form, &fits)?;
        found.variants.get(at).map(|entry| &entry.payload).ok_or_else(unrecorded)
    }

    #[inline(never)]
    pub(super) fn any_variant(
        &mut self,
        kind: &'c Kind,
        name: &'static str,
        variant: &'static str,
        form: Form,
        fits: &dyn Fn(&Variant) -> bool,
    ) -> Result<(&'c Enum, usize)> {
        let number = match self.settle(kind)? {
            Kind::Enum(number) => *number,
            Kind::Any => {
                let number = self.catalog.enum_named(name).ok_or_else(unrecorded)?;
                self.out.push(tag::ENUM);
                varint(self.out, number.into());
                number
            }
            _ => return Err(unrecorded()),
        };
        let found = self.catalog.enumeration(number)?;
        let entries = &found.variants;
        let is_right = |it: &Variant| it.form == form && it.name.is(variant) && fits(it);
        let position = match self.stored {
            None => {
                entries.iter().position(|it| it.current && is_right(it)).ok_or_else(unrecorded)?
            }
            Some(_) => self.stored_number()? as usize,
        };
        entries.get(position).filter(|it| is_right(it)).ok_or_else(unrecorded)?;
        varint(self.out, position as u64);
        Ok((found, position))
    }

    /// Returns the names of the next struct, if there is a guide.
    pub(super) fn guided(&mut self) -> Result<Option<&'c Names>> {
        match &mut self.guide {
            None => Ok(None),
            Some(guide) => guide.next().map(Some).ok_or_else(unrecorded),
        }
    }

    /// Finds the list of a struct at a place that has several, or with a guide.
    #[inline(never)]
    pub(super) fn choose(
        &mut self,
        mut kind: &'c Kind,
        name: &'static str,
        len: usize,
    ) -> Result<Place<'c>> {
        let names = self.guided()?;
        while let Kind::Option(inner) = kind {
            self.out.push(1);
            kind = inner;
        }
        let number = match kind {
            Kind::Struct(list) => {
                let list = self.catalog.list(*list)?;
                return Ok(Place { among: None, start: 0, at: 0, list });
            }
            Kind::Union(number) => *number,
            Kind::Any => {
                self.out.push(tag::STRUCT);
                kind = &LOOSE_KIND;
                LOOSE
            }
            _ => return Err(unrecorded()),
        };
        let union = self.catalog.union(number)?;
        if self.stored.is_some() {
            let at = self.stored_number()?;
            let list = self.catalog.list_in(union, at).ok_or_else(unrecorded)?;
            varint(self.out, at.into());
            return Ok(Place { among: None, start: 0, at, list });
        }
        let lists = || self.current(union);
        let fits =
            |list: &List| names.map_or(list.fields.len() == len, |names| list.has_names(names));
        // Without a guide this is a guess: neither the struct's name nor its number of fields is unique.
        let by_name = lists().find(|(_, list)| fits(list) && list.name.is(name));
        let any = || if names.is_none() { lists().next_back() } else { None };
        let found = by_name.or_else(|| lists().find(|(_, list)| fits(list))).or_else(any);
        let (at, list) = found.ok_or_else(unrecorded)?;
        let start = self.out.len();
        varint(self.out, at.into());
        Ok(Place { among: Some(kind), start, at, list })
    }
}
