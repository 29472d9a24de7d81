//! The expiry of rows, and the index that orders them by their time.

use std::rc::Rc;

use proc_macro2::Span;

use super::index::{self, Draft, Scope};
use crate::attr::keys::Lint;
use crate::attr::table::TableAttr;
use crate::model::{Expiry, Index, KeyPart};

/// The expiry, before the indexes have positions.
#[derive(Default)]
pub(super) struct Expires {
    /// The time, and the name of its index; `None` after a mistake.
    time: Option<(KeyPart, String)>,
}

/// Returns the expiry of the table's attributes. Adds an index on the time if no declared index begins with it in
/// ascending order and has an entry for each row that expires.
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
        let is_complete = (draft.conditions.sparse.is_none() || draft.parts.len() == 1)
            // A row without elements has no entry.
            && !draft.parts.iter().any(KeyPart::is_each);
        let begins = draft.parts.first().is_some_and(|part| part.sorts_as(&time));
        begins && is_complete && draft.conditions.filter.is_none() && !draft.eventual
    });
    if let Some(declared) = declared {
        return Some(Expires { time: Some((time, declared.name.clone())) });
    }
    if time.key_type().is_optional() == Some(true) {
        own.conditions.sparse = Some(expires.key);
    }
    let name = own.name.clone();
    if let Some(other) = drafts.iter().find(|other| other.name == name) {
        // The guess may be wrong.
        if !own.guessed && !other.guessed {
            let message = format!(
                "`expires` adds an index `{name}`, because it needs an index that begins with the \
                 time in ascending order, has each row, and is strongly consistent; give the \
                 declared index `{name}` another name with `name = \"…\"`"
            );
            scope.errors.error(own.span, message);
        }
        return Some(Expires::default());
    }
    // The user did not declare it, and can't remove it.
    own.allowed.push(Lint::Redundant);
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
