//! The names that a type reads, found out without a row: the type is asked to read, and what it asks for is noted.
//!
//! A [pass](Pass) leads to one struct or enum: each struct on the way gets the field that leads there, and no other, and each
//! enum that variant. At the end of the way, the names are noted and the pass fails. Where a scalar is asked for, the pass fails
//! too, so conversions of user code get no invented values. In front of other parts, in keys of maps and elements of tuples, a
//! scalar has a default, because those parts could not be reached otherwise.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
};

use serde::de::{DeserializeOwned, Error as _, Visitor};

use super::{
    Reader,
    access::{Elements, Pairs, Payload},
};
use crate::{
    MAX_LISTS,
    catalog::Catalog,
    error::{Error, Result, unrecorded},
    kind::{Enum, Field, Form, Kind, List, Name, Variant},
};

/// The kind of all values.
const HOLE: &Kind = &Kind::Hole;

/// The longest way.
const MOST_STEPS: usize = 32;

/// A way through a type.
#[derive(Default)]
pub(super) struct Pass {
    /// The number of structs and enums on the way so far.
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
}

/// Returns the names of the fields of each struct, and of the variants of each enum, in a type. Each set is one text, in which
/// names are separated by commas and an enum begins with a bar. What a type reads by a `Deserialize` of its own may be missing, and
/// also what serde buffers: the content of `tag`, `untagged` and `flatten`.
///
/// Cost: the type reads once for each name, until a value is missing.
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
    let (mut all, mut ways) = (BTreeSet::new(), vec![Vec::new()]);
    while let Some(way) = ways.pop() {
        let catalog = catalog_of(&way);
        // A conversion may panic about a default.
        let found = catch_unwind(AssertUnwindSafe(|| {
            let mut reader = Reader::asking(&catalog);
            let _ = T::deserialize(&mut reader);
            reader.into_found()
        }));
        let Ok(Some(found)) = found else { continue };
        if all.len() < MAX_LISTS && all.insert(found.text()) && way.len() < MOST_STEPS {
            let steps = (0..found.names.len()).map(|at| [way.as_slice(), &[(found, at)]].concat());
            ways.extend(steps);
        }
    }
    all
}

/// Returns a catalog with a list of one field, or an enum of one variant, at the position of each step.
fn catalog_of(way: &[(Found, usize)]) -> Catalog {
    let mut catalog = Catalog::new();
    for (found, at) in way {
        let name = || Name::new(found.names.get(*at).unwrap_or(&""));
        let field = || Field { name: name(), kind: Kind::Hole, absent: false };
        let fields = if found.is_enum { Vec::new() } else { vec![field()] };
        catalog.lists.push(List::new("", fields));
        let payload = Kind::Hole;
        let variant = || Variant { name: name(), form: Form::Newtype, payload, current: true };
        let variants = if found.is_enum { vec![variant()] } else { Vec::new() };
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
    /// A reader of a type that reads no row.
    fn asking(catalog: &'c Catalog) -> Self {
        let mut reader = Self::by_names(catalog, &[]);
        reader.kind = HOLE;
        reader.noted.get_or_insert_default().pass = Some(Pass::default());
        reader
    }

    fn into_found(self) -> Option<Found> {
        self.noted?.pass?.found
    }

    fn way(&mut self) -> Option<&mut Pass> {
        self.noted.as_mut()?.pass.as_mut()
    }

    /// Whether a scalar has a default instead of a value.
    pub(super) fn has_defaults(&self) -> bool {
        let pass = self.noted.as_ref().and_then(|noted| noted.pass.as_ref());
        matches!(self.kind, Kind::Hole) && pass.is_some_and(|pass| pass.has_defaults)
    }

    /// Returns the number of the next step. At the end of the way, notes what was found, and fails.
    fn step(&mut self, names: &'static [&'static str], is_enum: bool) -> Result<usize> {
        let len = self.catalog.lists.len();
        // A row with a hole has been written with a later version.
        let pass = self.way().ok_or_else(unrecorded)?;
        pass.has_defaults = false;
        let step = pass.steps;
        if step < len {
            pass.steps += 1;
            return Ok(step);
        }
        pass.found.get_or_insert(Found { names, is_enum });
        Err(Error::custom("the type reads no row"))
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
        let pass = self.way().ok_or_else(unrecorded)?;
        pass.has_defaults |= len.is_some_and(|len| len > 1);
        self.deeper(|reader| {
            visitor.visit_seq(&mut Elements { reader, kind: HOLE, left: len.unwrap_or(1) })
        })
    }

    #[cold]
    #[inline(never)]
    pub(super) fn ask_for_pair<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        let pass = self.way().ok_or_else(unrecorded)?;
        pass.has_defaults = true;
        self.deeper(|reader| {
            visitor.visit_map(&mut Pairs { reader, key: HOLE, value: HOLE, left: 1 })
        })
    }
}
