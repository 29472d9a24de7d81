//! Checks a catalog: one from a file may be damaged, or made to do harm.
//!
//! Reading a row takes time and memory in proportion to its bytes, if
//!
//! - each element of a sequence, an array and a map takes at least one byte,
//! - a list contains itself only through an enum or a union, which take a byte, and
//! - a list has at most [`MAX_FREE_STEPS`] values that take no byte, with those of the lists inside.
//!
//! Kinds have at most [`MAX_DEPTH`] others inside of each other, so they are followed by recursion.

use crate::{
    MAX_DEPTH, MAX_LISTS,
    catalog::{Catalog, LOOSE},
    error::{Reason, Result, damaged},
    kind::{Enum, Kind, Union},
};

/// The largest number of values without bytes in a list.
const MAX_FREE_STEPS: u64 = 4096;

/// What reading a list costs at least.
#[derive(Clone, Copy)]
struct Cost {
    /// The number of bytes, up to 1.
    bytes: u64,
    /// The number of values that take no byte.
    steps: u64,
    /// The number of kinds inside of each other.
    depth: usize,
}

const ONE_BYTE: Cost = Cost { bytes: 1, steps: 0, depth: 0 };
const FREE: Cost = Cost { bytes: 0, steps: 1, depth: 0 };

struct Checked<'c> {
    catalog: &'c Catalog,
    costs: Vec<State>,
    /// The number of kinds around the kind.
    depth: usize,
}

/// The state of a list.
#[derive(Clone, Copy)]
enum State {
    New,
    /// Its fields are being checked.
    Open,
    Done(Cost),
}

impl Catalog {
    /// Checks that the kinds refer to what exists, and that reading is bounded.
    pub(crate) fn check(&self) -> Result {
        if [self.lists.len(), self.enums.len(), self.unions.len()]
            .into_iter()
            .any(|count| count > MAX_LISTS)
        {
            return Err(Reason::TooLarge.into());
        }
        let mut checked =
            Checked { catalog: self, costs: vec![State::New; self.lists.len()], depth: 0 };
        for list in 0..self.lists.len() {
            if checked.list(list as u32)?.steps > MAX_FREE_STEPS {
                return Err(Reason::TooLarge.into());
            }
        }
        for (number, it) in self.enums.iter().enumerate() {
            checked.enumeration(number as u32, it)?;
        }
        for union in &self.unions {
            checked.union(union)?;
        }
        let loose = self.unions.get(LOOSE as usize).ok_or_else(damaged)?;
        if loose.kinds.iter().all(|kind| matches!(kind, Kind::Struct(_))) {
            Ok(())
        } else {
            Err(damaged())
        }
    }
}

fn exists(number: u32, count: usize) -> Result<Cost> {
    if (number as usize) < count { Ok(ONE_BYTE) } else { Err(damaged()) }
}

impl Checked<'_> {
    fn list(&mut self, number: u32) -> Result<Cost> {
        let place = self.costs.get_mut(number as usize).ok_or_else(damaged)?;
        match place {
            State::Done(cost) => return Ok(*cost),
            State::Open => return Err(damaged()),
            State::New => *place = State::Open,
        }
        let list = self.catalog.list(number)?;
        let mut cost = FREE;
        for (position, field) in list.fields.iter().enumerate() {
            let name = field.name.text();
            let is_known =
                |other: &crate::kind::Field| !name.is_empty() && other.name.text() == name;
            if list.fields.iter().take(position).any(is_known)
                || field.absent && !matches!(field.kind, Kind::Option(_) | Kind::Any)
            {
                return Err(damaged());
            }
            let own = self.kind(&field.kind)?;
            cost.bytes = cost.bytes.max(own.bytes);
            cost.steps = cost.steps.saturating_add(own.steps);
            cost.depth = cost.depth.max(own.depth);
        }
        if let Some(place) = self.costs.get_mut(number as usize) {
            *place = State::Done(cost);
        }
        Ok(cost)
    }

    fn kind(&mut self, kind: &Kind) -> Result<Cost> {
        if self.depth == MAX_DEPTH {
            return Err(damaged());
        }
        self.depth += 1;
        let cost = self.inside(kind);
        self.depth -= 1;
        // The lists inside may have been checked before, at a smaller depth.
        let cost = cost.map(|cost| Cost { depth: cost.depth + 1, ..cost })?;
        if cost.depth > MAX_DEPTH { Err(damaged()) } else { Ok(cost) }
    }

    fn inside(&mut self, kind: &Kind) -> Result<Cost> {
        match kind {
            Kind::Unit => Ok(FREE),
            Kind::Struct(list) | Kind::Tuple(list) => self.list(*list),
            Kind::Array(0, kind) => Ok(Cost { depth: self.kind(kind)?.depth, ..FREE }),
            Kind::Array(len, kind) => {
                let element = self.kind(kind)?;
                if element.bytes == 0 {
                    return Err(damaged());
                }
                Ok(Cost { steps: element.steps.saturating_mul((*len).into()), ..element })
            }
            Kind::Option(kind) => Ok(Cost { depth: self.kind(kind)?.depth, ..ONE_BYTE }),
            Kind::Seq(kind) => {
                let Cost { bytes, depth, .. } = self.kind(kind)?;
                if bytes == 0 { Err(damaged()) } else { Ok(Cost { depth, ..ONE_BYTE }) }
            }
            Kind::Map(kinds) => {
                let (key, value) = (self.kind(&kinds.0)?, self.kind(&kinds.1)?);
                if key.bytes + value.bytes == 0 {
                    return Err(damaged());
                }
                Ok(Cost { depth: key.depth.max(value.depth), ..ONE_BYTE })
            }
            Kind::Enum(number) => exists(*number, self.catalog.enums.len()),
            Kind::Union(number) => exists(*number, self.catalog.unions.len()),
            // No row has a value of a hole.
            _ => Ok(ONE_BYTE),
        }
    }

    fn enumeration(&mut self, number: u32, it: &Enum) -> Result {
        if it.kind != Kind::Enum(number) {
            return Err(damaged());
        }
        it.variants.iter().try_for_each(|variant| self.kind(&variant.payload).map(drop))
    }

    fn union(&mut self, union: &Union) -> Result {
        for kind in &union.kinds {
            // A union of unions could contain itself.
            if matches!(kind, Kind::Union(_)) {
                return Err(damaged());
            }
            self.kind(kind)?;
        }
        let is_struct = |at: &u32| matches!(union.kinds.get(*at as usize), Some(Kind::Struct(_)));
        let has_other = union.other.is_none_or(|at| (at as usize) < union.kinds.len());
        if union.current.iter().all(is_struct) && has_other { Ok(()) } else { Err(damaged()) }
    }
}
