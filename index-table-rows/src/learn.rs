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

mod lists;
mod unions;

use crate::{
    MAX_KIND_DEPTH,
    catalog::{Catalog, LOOSE, ROOT},
    error::Result,
    kind::{Kind, Union},
    seen::{self, Names, Part, Seen, Struct},
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
