//! Unions and enums: alternatives and entries.

use super::{Learner, fills};
use crate::{
    catalog::LOOSE,
    kind::{Enum, Form, Kind, Name, Union, Variant},
    seen::{Part, Seen, SeenVariant, Struct, Variants},
};

impl Learner<'_> {
    /// Adds a value to a union: a struct by its names, anything else to the other kind.
    pub(super) fn add(&mut self, union: u32, part: &Part) {
        match part {
            Part::Struct(it) if !(it.recursive && union != LOOSE) => self.add_struct(union, it),
            _ => self.add_other(union, part),
        }
    }

    pub(super) fn union(&self, union: u32) -> Option<&Union> {
        self.catalog.unions.get(union as usize)
    }

    /// Appends an alternative, and returns its number.
    pub(super) fn push(&mut self, union: u32, kind: Kind) -> Option<u32> {
        let union = self.catalog.unions.get_mut(union as usize)?;
        union.kinds.push(kind);
        self.catalog.version += 1;
        Some(union.kinds.len() as u32 - 1)
    }

    pub(super) fn add_other(&mut self, number: u32, part: &Part) {
        loop {
            let other = |it: &Self| {
                let union = it.union(number)?;
                let at = union.other?;
                Some((at, union.kinds.get(at as usize)?.clone()))
            };
            let before = other(self);
            let old = before.clone().map_or(Kind::Hole, |(_, kind)| kind);
            let new = self.merge_part(old.clone(), part);
            if other(self) != before {
                continue;
            }
            match before {
                Some(_) if old == new => {}
                Some((at, _)) if fills(&old, &new) => self.replace(number, at, new),
                _ => {
                    let at = self.push(number, new);
                    if let Some(union) = self.catalog.unions.get_mut(number as usize) {
                        union.other = at;
                    }
                }
            }
            return;
        }
    }

    pub(super) fn replace(&mut self, union: u32, at: u32, kind: Kind) {
        let union = self.catalog.unions.get_mut(union as usize);
        if let Some(place) = union.and_then(|union| union.kinds.get_mut(at as usize)) {
            *place = kind;
            self.catalog.version += 1;
        }
    }

    /// Returns the position in `current` of the list with these names, and the list.
    pub(super) fn current(&self, union: u32, it: &Struct) -> Option<(usize, u32)> {
        let union = self.union(union)?;
        union.current.iter().enumerate().find_map(|(position, at)| {
            match union.kinds.get(*at as usize) {
                Some(Kind::Struct(list)) if self.has_names(*list, it) => Some((position, *list)),
                _ => None,
            }
        })
    }

    pub(super) fn add_struct(&mut self, number: u32, it: &Struct) {
        loop {
            let before = self.current(number, it);
            let list = if let Some((_, list)) = before {
                self.merge_list(list, &it.fields)
            } else {
                let fields = self.first_fields(it);
                if self.current(number, it).is_some() {
                    continue;
                }
                self.intern(it.name, fields)
            };
            if self.current(number, it) != before {
                // A struct inside of this one has changed the union.
                continue;
            }
            if before.is_some_and(|(_, old)| old == list) {
                return;
            }
            let at = self.push(number, Kind::Struct(list));
            if let (Some(at), Some(union)) = (at, self.catalog.unions.get_mut(number as usize)) {
                match before.and_then(|(position, _)| union.current.get_mut(position)) {
                    Some(current) => *current = at,
                    None => union.current.push(at),
                }
            }
            return;
        }
    }

    pub(super) fn new_enum(&mut self, name: &str) -> u32 {
        let number = self.catalog.enums.len() as u32;
        self.catalog.enums.push(Enum {
            name: Name::new(name),
            kind: Kind::Enum(number),
            variants: Vec::new(),
        });
        self.catalog.version += 1;
        number
    }

    pub(super) fn variants(&mut self, number: u32, it: &Variants) {
        for variant in &it.variants {
            match variant.form {
                Form::Unit | Form::Newtype => self.variant(number, variant, &variant.payload),
                // Other names, or another number of elements, are another entry.
                Form::Tuple | Form::Struct => {
                    for part in &variant.payload {
                        self.variant(number, variant, &vec![part.clone()]);
                    }
                }
            }
        }
    }

    /// Returns the position and the payload of the entry for this variant.
    pub(super) fn entry(
        &self,
        number: u32,
        it: &SeenVariant,
        payload: &Seen,
    ) -> Option<(usize, Kind)> {
        let found = self.catalog.enums.get(number as usize)?;
        let fits = |entry: &Variant| match (payload.first(), &entry.payload) {
            (Some(Part::Struct(it)), Kind::Struct(list)) if entry.form == Form::Struct => {
                self.has_names(*list, it)
            }
            (Some(Part::Tuple(all)), Kind::Tuple(list)) if entry.form == Form::Tuple => {
                self.fields(*list).len() == all.len()
            }
            _ => true,
        };
        let mut entries = found.variants.iter().enumerate();
        let (position, entry) = entries.find(|(_, entry)| {
            entry.current && entry.form == it.form && entry.name.text() == it.name && fits(entry)
        })?;
        Some((position, entry.payload.clone()))
    }

    pub(super) fn variant(&mut self, number: u32, it: &SeenVariant, payload: &Seen) {
        loop {
            let before = self.entry(number, it, payload);
            let old = before.clone().map_or(Kind::Hole, |(_, kind)| kind);
            let new = self.payload(old.clone(), it.form, payload);
            if self.entry(number, it, payload) != before {
                // The payload has this variant inside.
                continue;
            }
            let Some(found) = self.catalog.enums.get_mut(number as usize) else { return };
            match before.and_then(|(position, _)| found.variants.get_mut(position)) {
                Some(_) if old == new => {}
                Some(entry) if fills(&old, &new) => {
                    entry.payload = new;
                    self.catalog.version += 1;
                }
                entry => {
                    if let Some(entry) = entry {
                        entry.current = false;
                    }
                    let name = Name::new(it.name);
                    found.variants.push(Variant {
                        name,
                        form: it.form,
                        payload: new,
                        current: true,
                    });
                    self.catalog.version += 1;
                }
            }
            return;
        }
    }

    /// Merges what was seen in a variant's payload: nothing, one value, the elements of a tuple, or the fields of a
    /// struct.
    pub(super) fn payload(&mut self, old: Kind, form: Form, payload: &Seen) -> Kind {
        match (old, form, payload.first()) {
            (_, Form::Unit, _) | (_, _, None) => Kind::Unit,
            (Kind::Hole, Form::Tuple, Some(Part::Tuple(all))) => {
                let kinds = all.iter().map(|seen| self.merge(Kind::Hole, seen)).collect();
                Kind::Tuple(self.tuple_of(kinds))
            }
            (Kind::Hole, Form::Struct, Some(Part::Struct(it))) => {
                let fields = self.first_fields(it);
                Kind::Struct(self.intern(it.name, fields))
            }
            (old, ..) => self.merge(old, payload),
        }
    }
}
