//! `include = […]`: the fields that the entries of an index carry.

use std::rc::Rc;

use syn::Ident;

use super::Scope;
use crate::diagnostics::suggestion;
use crate::lower::Declared;
use crate::model::{Field, KeyPart};
use crate::names;

/// Returns the fields of an include list that can be included.
pub(super) fn included(scope: &Scope<'_>, words: &[Ident], parts: &[KeyPart]) -> Vec<Rc<Field>> {
    let errors = scope.errors;
    let mut included: Vec<Rc<Field>> = Vec::new();
    for word in words {
        let name = names::plain(word);
        let exact = scope.field(&name);
        let meant = exact.or_else(|| {
            let meant = suggestion(&name, scope.field_names());
            errors.error(word.span(), unknown_included(scope, &name, meant, parts));
            scope.field(meant?)
        });
        let Some(Declared { field, .. }) = meant else { continue };

        let mistake = if parts.iter().any(|part| part.holds(field)) {
            format!("`{name}` is in the key of this index, so every entry has it already")
        } else if scope.primary_key.iter().any(|key| Rc::ptr_eq(key, field)) {
            format!("`{name}` is in the primary key, which every entry carries already")
        } else if included.iter().any(|other| Rc::ptr_eq(other, field)) {
            format!("`{name}` is included already")
        } else {
            included.push(Rc::clone(field));
            continue;
        };
        // A guessed field has been reported.
        if exact.is_some() {
            errors.error(word.span(), mistake);
        }
    }
    included
}

fn unknown_included(
    scope: &Scope<'_>,
    name: &str,
    meant: Option<&str>,
    parts: &[KeyPart],
) -> String {
    if parts.iter().any(|part| part.name() == name) {
        format!("`{name}` is computed for the key of this index, so every entry has it already")
    } else {
        scope.unknown_field(name, meant)
    }
}
