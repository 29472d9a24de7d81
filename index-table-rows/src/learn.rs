//! Adds to a catalog what a value needs.
//!
//! `seen` collects what the value emits, and this module merges it into the kinds of the catalog. A kind becomes more
//! general only where it must:
//!
//! - a hole is filled in place, because no row has a byte of it;
//! - `U8` → `Unsigned` → `Signed` → `I128`, `I8` → `Signed`, `Unsigned` → `U128`, `F32` → `F64`, `Bytes16` → `Bytes`;
//! - a kind → an option of it;
//! - a struct, and a struct with other names → a union of both;
//! - everything else → `Any`.
//!
//! Each step but the first makes a new list, and the rows of the old list keep it. The result depends on the catalog and
//! the value alone.

use crate::{
    MAX_KIND_DEPTH,
    catalog::{Catalog, LOOSE, ROOT},
    error::Result,
    kind::{Enum, Field, Form, Kind, List, Name, Union, Variant},
    seen::{self, Names, Part, Seen, SeenVariant, Struct, Variants},
};

/// Adds what `value` emits. Returns the names of its structs, in the order in which they begin.
pub(crate) fn learn<T: serde::Serialize + ?Sized>(
    catalog: &mut Catalog,
    value: &T,
) -> Result<Vec<Names>> {
    let (part, guide) = seen::see(value)?;
    Learner { catalog, depth: 0 }.add(ROOT, &part);
    Ok(guide)
}

struct Learner<'c> {
    catalog: &'c mut Catalog,
    /// The number of kinds around the place.
    depth: usize,
}

/// Whether `new` differs from `old` only where there was a hole.
fn fills(old: &Kind, new: &Kind) -> bool {
    match (old, new) {
        (Kind::Hole, _) => true,
        (Kind::Option(a), Kind::Option(b)) | (Kind::Seq(a), Kind::Seq(b)) => fills(a, b),
        (Kind::Array(n, a), Kind::Array(m, b)) => n == m && fills(a, b),
        (Kind::Map(a), Kind::Map(b)) => fills(&a.0, &b.0) && fills(&a.1, &b.1),
        _ => old == new,
    }
}

fn has_hole(kind: &Kind) -> bool {
    match kind {
        Kind::Hole => true,
        Kind::Option(kind) | Kind::Seq(kind) | Kind::Array(_, kind) => has_hole(kind),
        Kind::Map(kinds) => has_hole(&kinds.0) || has_hole(&kinds.1),
        _ => false,
    }
}

/// The kind of numbers of two kinds.
fn number(old: &Kind, part: &Part) -> Option<Kind> {
    use Kind::{F32, F64, I8, I128, Signed, U8, U128, Unsigned};
    Some(match (old, part) {
        (U8 | Unsigned, Part::LargeU64) | (U8, Part::Of(Unsigned)) | (Unsigned, Part::Of(U8)) => {
            Unsigned
        }
        (U8 | Unsigned, Part::Of(I8 | Signed))
        | (I8 | Signed, Part::Of(U8 | Unsigned))
        | (I8, Part::Of(Signed))
        | (Signed, Part::Of(I8)) => Signed,
        (U8 | Unsigned | U128, Part::Of(U128) | Part::LargeU128)
        | (U128, Part::Of(U8 | Unsigned | I8 | Signed) | Part::LargeU64) => U128,
        (I8 | Signed | I128, Part::Of(U128) | Part::LargeU64)
        | (I128, Part::Of(U8 | Unsigned | I8 | Signed))
        | (U8 | Unsigned | I8 | Signed | U128, Part::Of(I128)) => I128,
        (F32, Part::Of(F64)) | (F64, Part::Of(F32)) => F64,
        _ => return None,
    })
}

impl Learner<'_> {
    fn merge(&mut self, kind: Kind, seen: &Seen) -> Kind {
        self.depth += 1;
        let mut kind = kind;
        for (position, part) in seen.iter().enumerate() {
            let had_kind = kind != Kind::Any;
            kind = self.merge_part(kind, part);
            if had_kind && kind == Kind::Any {
                // The parts before the one that did not fit get tags too.
                self.loosen(seen.get(..position).unwrap_or_default());
            }
        }
        self.depth -= 1;
        kind
    }

    fn merge_part(&mut self, kind: Kind, part: &Part) -> Kind {
        match (kind, part) {
            // The kinds of a recursive type would grow with each value.
            (Kind::Hole, part) if self.depth > MAX_KIND_DEPTH => self.loosen_part(part),
            (Kind::Any, part) => self.loosen_part(part),
            (Kind::Union(union), part) if !matches!(part, Part::Absent | Part::Option(_)) => {
                self.add(union, part);
                Kind::Union(union)
            }
            (Kind::Option(kind), Part::Option(seen)) => self.option(*kind, seen),
            (Kind::Option(kind), Part::Absent) => Kind::Option(kind),
            (kind, Part::Absent) => Kind::Option(kind.into()),
            (Kind::Option(kind), part) => {
                self.depth += 1;
                let kind = self.merge_part(*kind, part);
                self.depth -= 1;
                option_of(kind)
            }
            (kind, Part::Option(seen)) => self.option(kind, seen),
            (Kind::Hole, part) => self.first(part),
            (kind, Part::Of(other)) if kind == *other => kind,
            (Kind::Bytes, Part::Of(Kind::Bytes16)) | (Kind::Bytes16, Part::Of(Kind::Bytes)) => {
                Kind::Bytes
            }
            (Kind::Unsigned, Part::LargeU64) => Kind::Unsigned,
            (Kind::Seq(kind) | Kind::Array(_, kind), Part::Seq(seen)) => self.seq(*kind, [seen]),
            (Kind::Array(len, kind), Part::Array(other, seen)) if len == *other => {
                self.array(len, *kind, [seen])
            }
            (Kind::Array(len, kind), Part::Tuple(all)) if len as usize == all.len() => {
                self.array(len, *kind, all)
            }
            (Kind::Seq(kind) | Kind::Array(_, kind), Part::Array(_, seen)) => {
                self.seq(*kind, [seen])
            }
            (Kind::Seq(kind) | Kind::Array(_, kind), Part::Tuple(all)) => self.seq(*kind, all),
            (Kind::Tuple(list), Part::Tuple(all)) if self.fields(list).len() == all.len() => {
                Kind::Tuple(self.merge_list(list, all))
            }
            (Kind::Map(kinds), Part::Map(keys, values)) => self.map(kinds.0, kinds.1, keys, values),
            (Kind::Struct(list), Part::Struct(it)) if !it.recursive => self.structs(list, it, part),
            (Kind::Enum(number), Part::Enum(it)) => {
                self.variants(number, it);
                Kind::Enum(number)
            }
            (kind, part) => number(&kind, part).unwrap_or_else(|| self.loosen_part(part)),
        }
    }

    /// The kind of a place at which nothing was seen.
    fn first(&mut self, part: &Part) -> Kind {
        match part {
            Part::Of(kind) => kind.clone(),
            Part::LargeU64 => Kind::Unsigned,
            Part::LargeU128 => Kind::U128,
            Part::Seq(seen) => self.seq(Kind::Hole, [seen]),
            Part::Array(len, seen) => self.array(*len, Kind::Hole, [seen]),
            Part::Tuple(all) => {
                let kinds: Vec<Kind> =
                    all.iter().map(|seen| self.merge(Kind::Hole, seen)).collect();
                match kinds.first() {
                    Some(first) if !has_hole(first) && kinds.iter().all(|kind| kind == first) => {
                        let first = first.clone();
                        self.array_of(kinds.len() as u32, first, all)
                    }
                    _ => Kind::Tuple(self.tuple_of(kinds)),
                }
            }
            Part::Map(keys, values) => self.map(Kind::Hole, Kind::Hole, keys, values),
            Part::Struct(it) if !it.recursive => {
                let fields = self.first_fields(it);
                Kind::Struct(self.intern(it.name, fields))
            }
            Part::Enum(it) => {
                let number =
                    self.catalog.enum_named(it.name).unwrap_or_else(|| self.new_enum(it.name));
                self.variants(number, it);
                Kind::Enum(number)
            }
            Part::Struct(_) => self.loosen_part(part),
            Part::Option(seen) => self.option(Kind::Hole, seen),
            Part::Absent => Kind::Option(Kind::Hole.into()),
        }
    }

    fn option(&mut self, kind: Kind, seen: &Seen) -> Kind {
        option_of(self.merge(kind, seen))
    }

    fn seq<'s>(&mut self, kind: Kind, all: impl IntoIterator<Item = &'s Seen> + Clone) -> Kind {
        Kind::Seq(self.element(kind, all).into())
    }

    fn array<'s>(
        &mut self,
        len: u32,
        kind: Kind,
        all: impl IntoIterator<Item = &'s Seen> + Clone,
    ) -> Kind {
        Kind::Array(len, self.element(kind, all).into())
    }

    fn array_of<'s>(
        &mut self,
        len: u32,
        kind: Kind,
        all: impl IntoIterator<Item = &'s Seen>,
    ) -> Kind {
        let kind = if self.takes_no_byte(&kind) { self.loosen_all(all) } else { kind };
        Kind::Array(len, kind.into())
    }

    /// Elements without bytes get a tag, because the row could not bound their number.
    fn element<'s>(&mut self, kind: Kind, all: impl IntoIterator<Item = &'s Seen> + Clone) -> Kind {
        let mut kind = kind;
        for (position, seen) in all.clone().into_iter().enumerate() {
            let had_kind = kind != Kind::Any;
            kind = self.merge(kind, seen);
            if had_kind && kind == Kind::Any {
                self.loosen_all(all.clone().into_iter().take(position));
            }
        }
        if self.takes_no_byte(&kind) { self.loosen_all(all) } else { kind }
    }

    fn map(&mut self, key: Kind, value: Kind, keys: &Seen, values: &Seen) -> Kind {
        let key = self.merge(key, keys);
        let mut value = self.merge(value, values);
        if self.takes_no_byte(&key) && self.takes_no_byte(&value) {
            value = self.loosen(values);
        }
        Kind::Map((key, value).into())
    }

    fn structs(&mut self, list: u32, it: &Struct, part: &Part) -> Kind {
        if self.has_names(list, it) {
            return Kind::Struct(self.merge_list(list, &it.fields));
        }
        // A struct of another release, or an internally tagged enum.
        let number = self.catalog.unions.len() as u32;
        self.catalog.unions.push(Union {
            kinds: vec![Kind::Struct(list)],
            current: vec![0],
            other: None,
        });
        self.catalog.version += 1;
        self.add(number, part);
        Kind::Union(number)
    }

    /// Whether a value of this kind takes no byte.
    fn takes_no_byte(&self, kind: &Kind) -> bool {
        match kind {
            Kind::Unit => true,
            Kind::Struct(list) | Kind::Tuple(list) => {
                self.fields(*list).iter().all(|field| self.takes_no_byte(&field.kind))
            }
            Kind::Array(len, kind) => *len == 0 || self.takes_no_byte(kind),
            _ => false,
        }
    }

    fn loosen_all<'s>(&mut self, all: impl IntoIterator<Item = &'s Seen>) -> Kind {
        for seen in all {
            self.loosen(seen);
        }
        Kind::Any
    }

    fn loosen(&mut self, seen: &[Part]) -> Kind {
        for part in seen {
            self.loosen_part(part);
        }
        Kind::Any
    }

    /// Records the structs and enums in a value that gets a tag.
    fn loosen_part(&mut self, part: &Part) -> Kind {
        match part {
            Part::Option(seen) | Part::Seq(seen) | Part::Array(_, seen) => {
                self.loosen(seen);
            }
            Part::Map(keys, values) => {
                self.loosen(keys);
                self.loosen(values);
            }
            Part::Tuple(all) => {
                self.loosen_all(all);
            }
            Part::Struct(_) => {
                let depth = std::mem::take(&mut self.depth);
                self.add(LOOSE, part);
                self.depth = depth;
            }
            Part::Enum(it) => {
                let depth = std::mem::take(&mut self.depth);
                let number =
                    self.catalog.enum_named(it.name).unwrap_or_else(|| self.new_enum(it.name));
                self.variants(number, it);
                self.depth = depth;
            }
            Part::Of(_) | Part::LargeU64 | Part::LargeU128 | Part::Absent => {}
        }
        Kind::Any
    }
}

/// `Any` has a tag for `None`, which takes a byte less than an option of it.
fn option_of(kind: Kind) -> Kind {
    if kind == Kind::Any { Kind::Any } else { Kind::Option(kind.into()) }
}

/// Whether a field was skipped.
fn is_absent(seen: &Seen) -> bool {
    seen.iter().any(|part| matches!(part, Part::Absent))
}

/// Lists.
impl Learner<'_> {
    fn fields(&self, list: u32) -> &[Field] {
        self.catalog.lists.get(list as usize).map_or(&[], |list| &list.fields)
    }

    fn has_names(&self, list: u32, it: &Struct) -> bool {
        self.catalog.lists.get(list as usize).is_some_and(|list| list.has_names(&it.names))
    }

    fn first_fields(&mut self, it: &Struct) -> Vec<Field> {
        let fields = it.names.iter().zip(&it.fields).map(|(name, seen)| Field {
            name: Name::new(name),
            kind: self.merge(Kind::Hole, seen),
            absent: is_absent(seen),
        });
        fields.collect()
    }

    fn tuple_of(&mut self, kinds: Vec<Kind>) -> u32 {
        let fields =
            kinds.into_iter().map(|kind| Field { name: Name::new(""), kind, absent: false });
        let fields = fields.collect();
        self.intern("", fields)
    }

    /// Returns the list with these fields. A list with holes belongs to one place, because the place fills them.
    fn intern(&mut self, name: &str, fields: Vec<Field>) -> u32 {
        let found = if fields.iter().any(|field| has_hole(&field.kind)) {
            None
        } else {
            self.catalog.lists.iter().position(|list| list.fields == fields)
        };
        let list = found.unwrap_or_else(|| {
            self.catalog.lists.push(List::new(name, fields));
            self.catalog.version += 1;
            self.catalog.lists.len() - 1
        });
        list as u32
    }

    /// Returns the list for what was seen in the fields of `list`: itself, with its holes filled, or another one.
    fn merge_list(&mut self, list: u32, seen: &[Seen]) -> u32 {
        loop {
            let old = self.fields(list).to_vec();
            let merged = old.iter().zip(seen).map(|(field, seen)| Field {
                name: field.name.clone(),
                kind: self.merge(field.kind.clone(), seen),
                absent: field.absent || is_absent(seen),
            });
            let new: Vec<Field> = merged.collect();
            if self.fields(list) != old {
                // The value has a struct of this list inside, which has filled a hole.
                continue;
            }
            if new == old {
                return list;
            }
            let stays = old
                .iter()
                .zip(&new)
                .all(|(old, new)| old.absent == new.absent && fills(&old.kind, &new.kind));
            if !stays {
                let name = self
                    .catalog
                    .lists
                    .get(list as usize)
                    .map_or_else(String::new, |it| it.name.text().to_owned());
                return self.intern(&name, new);
            }
            if let Some(list) = self.catalog.lists.get_mut(list as usize) {
                list.fields = new;
                self.catalog.version += 1;
            }
            return list;
        }
    }
}

/// Unions and enums.
impl Learner<'_> {
    /// Adds a value to a union: a struct by its names, anything else to the other kind.
    fn add(&mut self, union: u32, part: &Part) {
        match part {
            Part::Struct(it) if !(it.recursive && union != LOOSE) => self.add_struct(union, it),
            _ => self.add_other(union, part),
        }
    }

    fn union(&self, union: u32) -> Option<&Union> {
        self.catalog.unions.get(union as usize)
    }

    /// Appends an alternative, and returns its number.
    fn push(&mut self, union: u32, kind: Kind) -> Option<u32> {
        let union = self.catalog.unions.get_mut(union as usize)?;
        union.kinds.push(kind);
        self.catalog.version += 1;
        Some(union.kinds.len() as u32 - 1)
    }

    fn add_other(&mut self, number: u32, part: &Part) {
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

    fn replace(&mut self, union: u32, at: u32, kind: Kind) {
        let union = self.catalog.unions.get_mut(union as usize);
        if let Some(place) = union.and_then(|union| union.kinds.get_mut(at as usize)) {
            *place = kind;
            self.catalog.version += 1;
        }
    }

    /// Returns the position in `current` of the list with these names, and the list.
    fn current(&self, union: u32, it: &Struct) -> Option<(usize, u32)> {
        let union = self.union(union)?;
        union.current.iter().enumerate().find_map(|(position, at)| {
            match union.kinds.get(*at as usize) {
                Some(Kind::Struct(list)) if self.has_names(*list, it) => Some((position, *list)),
                _ => None,
            }
        })
    }

    fn add_struct(&mut self, number: u32, it: &Struct) {
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

    fn new_enum(&mut self, name: &str) -> u32 {
        let number = self.catalog.enums.len() as u32;
        self.catalog.enums.push(Enum {
            name: Name::new(name),
            kind: Kind::Enum(number),
            variants: Vec::new(),
        });
        self.catalog.version += 1;
        number
    }

    fn variants(&mut self, number: u32, it: &Variants) {
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
    fn entry(&self, number: u32, it: &SeenVariant, payload: &Seen) -> Option<(usize, Kind)> {
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

    fn variant(&mut self, number: u32, it: &SeenVariant, payload: &Seen) {
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
    fn payload(&mut self, old: Kind, form: Form, payload: &Seen) -> Kind {
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
