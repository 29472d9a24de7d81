//! The expiry of rows, and the index that orders them by their time.

use std::rc::Rc;

use proc_macro2::Span;

use super::index::{self, Draft, Scope};
use crate::attr::table::TableAttr;
use crate::model::{Expiry, Index, KeyPart};

/// The expiry, before the indexes have positions.
#[derive(Default)]
pub(super) struct Expires {
    /// The time, and the name of its index; `None` after a mistake.
    time: Option<(KeyPart, String)>,
}

/// Returns the expiry of the table's attributes. Adds an index on the time if no declared index begins with it and has
/// an entry for each row that expires.
pub(super) fn lower(
    scope: &Scope<'_>,
    attribute: &TableAttr,
    drafts: &mut Vec<Draft>,
) -> Option<Expires> {
    let expires = attribute.expires.as_ref()?;
    let draft = expires.value.as_ref().and_then(|index| index::lower_one(scope, index));
    let Some(mut own) = draft else { return Some(Expires::default()) };
    let Some(time) = own.parts.first().cloned() else { return Some(Expires::default()) };
    let declared = drafts.iter().find(|draft| {
        let is_complete = draft.conditions.sparse.is_none() || draft.parts.len() == 1;
        let begins = draft.parts.first().is_some_and(|part| part.same(&time));
        begins && is_complete && draft.conditions.filter.is_none() && !draft.eventual
    });
    if let Some(declared) = declared {
        return Some(Expires { time: Some((time, declared.name.clone())) });
    }
    if time.key_type().is_optional() == Some(true) {
        own.conditions.sparse = Some(expires.key);
    }
    if !index::is_new(&own, drafts, scope.errors) {
        return Some(Expires::default());
    }
    let name = own.name.clone();
    drafts.push(own);
    Some(Expires { time: Some((time, name)) })
}

impl Expires {
    /// Returns the expiry with the position of its index.
    pub(super) fn locate(self, indexes: &[(Rc<Index>, Span)]) -> Expiry {
        let Some((time, name)) = self.time else { return Expiry { time: None, index: 0 } };
        let found = indexes.iter().find(|(index, _)| index.name == name);
        Expiry { time: Some(time), index: found.map_or(0, |(index, _)| index.position) }
    }
}
