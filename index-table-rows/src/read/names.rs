//! The names of the fields and variants that a type reads.
//!
//! serde tells them only to a deserializer. So the type deserializes from a [`Reader`] without a row, in several passes. A
//! [pass](Pass) follows one path to a struct or an enum: each struct on the path gets only the field that leads on, and each enum
//! that variant. The struct or enum at the end is recorded, and the pass ends with an error.
//!
//! A scalar also ends the pass, so conversions in user code get no invented values. There is one exception. A key of a map and an
//! element of a tuple come before other parts, which can only be reached if they are read. There, a scalar has a default value, and
//! a path can give a struct all of its fields.
//!
//! A struct is visited at each place where it occurs, because it can have type parameters. A path visits it at most twice, because
//! it can contain itself.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    slice,
};

use serde::de::{DeserializeOwned, Error as _, Visitor};

use super::{
    Reader,
    access::{Elements, Pairs, Payload},
};
use crate::{
    catalog::Catalog,
    error::{Error, Result, unrecorded},
    kind::{Enum, Field, Form, Kind, List, Name, Variant},
};

/// The kind of all values.
const HOLE: &Kind = &Kind::Hole;

/// The maximum length of a path.
const MOST_STEPS: usize = 32;

/// The maximum number of passes.
const MOST_PASSES: usize = 4096;

/// A step of a path: a struct or an enum, and the position of a name, or the number of names for all of them.
type Step = (Found, usize);

/// One pass, along a path.
#[derive(Default)]
pub(super) struct Pass {
    /// Whether each step has all fields.
    whole: Vec<bool>,
    /// The number of structs and enums so far.
    steps: usize,
    /// What was found at its end.
    found: Option<Found>,
    /// Whether a scalar has a default.
    has_defaults: bool,
}

/// The names of a struct or an enum.
#[derive(Clone, Copy)]
struct Found {
    names: &'static [&'static str],
    is_enum: bool,
    /// Whether other parts follow it.
    is_in_front: bool,
}

/// Returns the names of the fields of each struct, and of the variants of each enum, in a type. Each set is one text, in which
/// names, with aliases, are separated by commas and an enum begins with a bar. What a type reads by a `Deserialize` of its own may be
/// missing, and also what serde buffers, the content of `tag`, `untagged` and `flatten`, and what follows a key of a map, or an
/// element of a tuple, that is neither a number nor an enum and does not read the text `a`.
///
/// Cost: the type reads once for each name at each place, until a value is missing, at most 4,096 times.
///
/// # Examples
///
/// ```
/// use std::collections::BTreeMap;
///
/// #[derive(serde::Deserialize)]
/// struct Order {
///     id: u64,
///     lines: BTreeMap<String, Option<Line>>,
/// }
///
/// #[derive(serde::Deserialize)]
/// enum Line {
///     Empty,
///     Item { article: u64, count: u32 },
/// }
///
/// let names = index_table_rows::names::<Order>();
/// assert!(names.iter().eq(["article,count", "id,lines", "|Empty,Item"]));
/// ```
#[must_use]
pub fn names<T: DeserializeOwned>() -> BTreeSet<String> {
    let (mut all, mut paths) = (BTreeSet::new(), vec![Vec::new()]);
    for _ in 0..MOST_PASSES {
        let Some(path) = paths.pop() else { break };
        let catalog = catalog_of(&path);
        // A conversion may panic about a default.
        let found = catch_unwind(AssertUnwindSafe(|| {
            let mut reader = Reader::without_row(&catalog, &path);
            let _ = T::deserialize(&mut reader);
            reader.into_found()
        }));
        let Ok(Some(found)) = found else { continue };
        all.insert(found.text());
        let again = path.iter().filter(|(own, _)| own.names == found.names).count();
        if path.len() < MOST_STEPS && again < 2 {
            let last = found.names.len() + usize::from(found.is_in_front && !found.is_enum);
            paths.extend((0..last).map(|at| [path.as_slice(), &[(found, at)]].concat()));
        }
    }
    all
}

/// Returns a catalog with the fields or the variant of each step at its position.
fn catalog_of(path: &[Step]) -> Catalog {
    let mut catalog = Catalog::new();
    for (found, at) in path {
        let names = found.names.get(*at).map_or(found.names, slice::from_ref);
        let field = |name: &&str| Field { name: Name::new(name), kind: Kind::Hole, absent: false };
        let variant = |name: &&str| Variant {
            name: Name::new(name),
            form: Form::Newtype,
            payload: Kind::Hole,
            current: true,
        };
        catalog.lists.push(List::new("", names.iter().map(field).collect()));
        let variants = names.iter().map(variant).collect();
        catalog.enums.push(Enum { name: Name::new(""), kind: Kind::Hole, variants });
    }
    catalog
}

impl Found {
    fn text(self) -> String {
        let mark = if self.is_enum { "|" } else { "" };
        format!("{mark}{}", self.names.join(","))
    }
}

impl<'de, 'c> Reader<'de, 'c> {
    /// Creates a reader without a row.
    fn without_row(catalog: &'c Catalog, path: &[Step]) -> Self {
        let mut reader = Self::by_names(catalog, &[]);
        reader.kind = HOLE;
        let whole = path.iter().map(|(found, at)| *at == found.names.len()).collect();
        reader.noted.get_or_insert_default().pass = Some(Pass { whole, ..Pass::default() });
        reader
    }

    pub(super) fn has_no_row(&self) -> bool {
        self.noted.as_ref().is_some_and(|noted| noted.pass.is_some())
    }

    fn into_found(self) -> Option<Found> {
        self.noted?.pass?.found
    }

    fn pass(&mut self) -> Option<&mut Pass> {
        self.noted.as_mut()?.pass.as_mut()
    }

    /// Whether a scalar has a default instead of a value.
    pub(super) fn has_defaults(&self) -> bool {
        let pass = self.noted.as_ref().and_then(|noted| noted.pass.as_ref());
        matches!(self.kind, Kind::Hole) && pass.is_some_and(|pass| pass.has_defaults)
    }

    /// Returns the number of the next step. At the end of the path, records what was found, and fails.
    fn step(&mut self, names: &'static [&'static str], is_enum: bool) -> Result<usize> {
        // A row with a hole has been written with a later version.
        let pass = self.pass().ok_or_else(unrecorded)?;
        let (step, is_in_front) = (pass.steps, pass.has_defaults);
        if let Some(whole) = pass.whole.get(step) {
            // An enum in front of other parts is behind it after its variant.
            pass.has_defaults &= is_enum || *whole;
            pass.steps += 1;
            return Ok(step);
        }
        pass.found.get_or_insert(Found { names, is_enum, is_in_front });
        Err(Error::custom("there is no row"))
    }

    #[cold]
    #[inline(never)]
    pub(super) fn ask_for_struct<V: Visitor<'de>>(
        &mut self,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let step = self.step(names, false)?;
        let list = self.catalog.list(step as u32)?;
        self.fields(list, visitor)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn ask_for_enum<V: Visitor<'de>>(
        &mut self,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let step = self.step(variants, true)?;
        let variants = &self.catalog.enumeration(step as u32)?.variants;
        let entry = variants.first().ok_or_else(unrecorded)?;
        self.deeper(|reader| visitor.visit_enum(Payload { reader, entry }))
    }

    #[cold]
    #[inline(never)]
    pub(super) fn ask_for_elements<V: Visitor<'de>>(
        &mut self,
        len: Option<usize>,
        visitor: V,
    ) -> Result<V::Value> {
        let pass = self.pass().ok_or_else(unrecorded)?;
        pass.has_defaults |= len.is_some_and(|len| len > 1);
        self.deeper(|reader| {
            visitor.visit_seq(&mut Elements { reader, kind: HOLE, left: len.unwrap_or(1) })
        })
    }

    #[cold]
    #[inline(never)]
    pub(super) fn ask_for_pair<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        let pass = self.pass().ok_or_else(unrecorded)?;
        pass.has_defaults = true;
        self.deeper(|reader| {
            visitor.visit_map(&mut Pairs { reader, key: HOLE, value: HOLE, left: 1 })
        })
    }
}
