//! Lists: found, made, and merged with what was seen in their fields.

use super::{Learner, fills, has_hole};
use crate::{
    kind::{Field, Kind, List, Name},
    seen::{Part, Seen, Struct},
};

/// Whether a field was skipped.
fn is_absent(seen: &Seen) -> bool {
    seen.iter().any(|part| matches!(part, Part::Absent))
}

impl Learner<'_> {
    pub(super) fn fields(&self, list: u32) -> &[Field] {
        self.catalog.lists.get(list as usize).map_or(&[], |list| &list.fields)
    }

    pub(super) fn has_names(&self, list: u32, it: &Struct) -> bool {
        self.catalog.lists.get(list as usize).is_some_and(|list| list.has_names(&it.names))
    }

    pub(super) fn first_fields(&mut self, it: &Struct) -> Vec<Field> {
        let fields = it.names.iter().zip(&it.fields).map(|(name, seen)| Field {
            name: Name::new(name),
            kind: self.merge(Kind::Hole, seen),
            absent: is_absent(seen),
        });
        fields.collect()
    }

    pub(super) fn tuple_of(&mut self, kinds: Vec<Kind>) -> u32 {
        let fields =
            kinds.into_iter().map(|kind| Field { name: Name::new(""), kind, absent: false });
        let fields = fields.collect();
        self.intern("", fields)
    }

    /// Returns the list with this name and these fields. A list with holes belongs to one place, because the place fills them. A struct
    /// with another name has a list of its own, so that a list has the fields of one struct: which of them are unknown to a type is
    /// decided by the time at which the list was recorded.
    pub(super) fn intern(&mut self, name: &str, fields: Vec<Field>) -> u32 {
        let found = if fields.iter().any(|field| has_hole(&field.kind)) {
            None
        } else {
            self.catalog
                .lists
                .iter()
                .position(|list| list.name.text() == name && list.fields == fields)
        };
        let list = found.unwrap_or_else(|| {
            self.catalog.lists.push(List::new(name, fields));
            self.catalog.version += 1;
            self.catalog.lists.len() - 1
        });
        list as u32
    }

    /// Returns the list for what was seen in the fields of `list`: itself, with its holes filled, or another one.
    pub(super) fn merge_list(&mut self, list: u32, seen: &[Seen]) -> u32 {
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
