//! Whether the keys and entries of rows can be computed from their values, without the struct.
//!
//! A field's key follows from its value if the recorded type of the field is one whose form in rows and in keys is known, and its key
//! has the recorded shape of this type. A type of the program can have any form in rows, because of serde's attributes: the name of a
//! variant, or the form of a newtype, says nothing certain about its key.

use super::{Condition, KeyField, KeyForm, TableSchema};
use crate::model::key::{KeyShape, parameter, parameter_of, shape_of_type};

impl TableSchema {
    /// Returns what prevents the computation of keys and entries; `None` if nothing does.
    pub(crate) fn uncomputable(&self) -> Option<String> {
        let primary_key = self.primary_key.iter().find_map(|field| {
            Some(format!("field `{}` of its primary key {}", field.name, self.unknown_key(field)?))
        });
        let indexes = self.indexes.iter().find_map(|index| {
            let filter = index.conditions.iter().find_map(|condition| match condition {
                Condition::Filter(method) => Some(method),
                Condition::Sparse => None,
            });
            if let Some(method) = filter {
                let name = index.name;
                return Some(format!(
                    "index `{name}` has the filter `{method}`, a method of the struct"
                ));
            }
            index.key.iter().find_map(|field| {
                let reason = self.unknown_key(field)?;
                Some(format!("field `{}` of index `{}` {reason}", field.name, index.name))
            })
        });
        // Sums can't be compared with rows, as entries are.
        let totals = self.aggregates.first().map(|aggregate| {
            format!("aggregate `{}` has totals that can't be compared with rows", aggregate.name)
        });
        primary_key.or(indexes).or(totals)
    }

    /// Returns the recorded type of a field, by its name in keys.
    pub(crate) fn declared(&self, name: &str) -> Option<&'static str> {
        let field = self.fields.iter().find(|field| field.stored == name)?;
        (!field.is_flat && !field.has_function).then_some(field.declared)
    }

    /// Returns why the key of a field is not known from its value.
    fn unknown_key(&self, field: &KeyField) -> Option<String> {
        if field.is_computed() {
            return Some("is computed by a method of the struct".to_owned());
        }
        let name = self.name_in_key(field);
        let Some(declared) = self.declared(name) else {
            return Some("has no recorded type, or is read by a function of serde".to_owned());
        };
        let own = if field.form == KeyForm::Each { element(declared) } else { Some(declared) };
        let shape = match field.shape {
            KeyShape::Desc(inner) | KeyShape::Hash(inner) => *inner,
            shape => shape,
        };
        let is_known = own.and_then(shape_of_type).is_some_and(|known| known == shape);
        (!is_known).then(|| {
            format!("has the type `{declared}`, whose form in keys (`{shape}`) only the struct has")
        })
    }
}

/// Returns the type of the elements of a collection of the standard library.
fn element(declared: &str) -> Option<&str> {
    let known = ["Vec", "VecDeque", "BTreeSet", "HashSet", "Option"];
    known.iter().any(|name| parameter_of(name, declared).is_some()).then(|| parameter(declared))?
}
