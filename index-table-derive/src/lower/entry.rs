//! The fields of the entries of each index, and the steps to read them.

use std::rc::Rc;

use proc_macro2::Span;
use syn::Ident;

use super::index::{Draft, Scope};
use crate::model::{Entry, Field, Index, KeyPart, Source, Step, Strategy};
use crate::names;

/// Completes the indexes with their entries. An index whose entry can't be named is left out.
pub(super) fn finish(scope: &mut Scope<'_>, drafts: Vec<Draft>) -> Vec<(Rc<Index>, Span)> {
    let mut indexes = Vec::new();
    for draft in drafts {
        let mut ident = names::entry(scope.row, &draft.name, draft.span);
        let described = format!("the entry of the index `{}`", draft.name);
        let advice = "give the index another name with `name = \"…\"`";
        if !scope.types.take(&ident, described, advice, scope.errors) {
            continue;
        }
        ident.set_span(draft.place);
        let steps = match &draft.strategy {
            Strategy::Normalized => with_primary_key(&draft.parts, scope.primary_key, &[]),
            Strategy::Partial(included) => {
                with_primary_key(&draft.parts, scope.primary_key, included)
            }
            Strategy::Full => whole_row(scope, &draft.parts),
        };
        let entry = Entry { ident, steps: distinct(scope, &draft, steps) };
        let position = indexes.len();
        let index = Index {
            position,
            name: draft.name,
            named: draft.named,
            parts: draft.parts,
            strategy: draft.strategy,
            unique: draft.unique,
            eventual: draft.eventual,
            global: draft.global,
            conditions: draft.conditions,
            findings: draft.findings,
            mentions: draft.mentions,
            place: draft.place,
            entry,
        };
        indexes.push((Rc::new(index), draft.span));
    }
    indexes
}

/// Returns the steps for the key, the primary key and the included fields.
fn with_primary_key(
    parts: &[KeyPart],
    primary_key: &[Rc<Field>],
    included: &[Rc<Field>],
) -> Vec<Step> {
    let needed = parts.iter().rposition(|part| !part.is_hash());
    let key = parts.iter().take(needed.map_or(0, |position| position + 1)).map(|part| {
        if part.is_hash() {
            Step::SkipKey(part.clone())
        } else {
            Step::Keep(part.ident().clone(), Source::Key(part.clone()))
        }
    });
    let mut primary: Vec<Step> = primary_key
        .iter()
        .map(|field| {
            if parts.iter().any(|part| part.holds(field)) {
                Step::SkipPrimaryKey(Rc::clone(field))
            } else {
                Step::Keep(carried_name(field, parts), Source::PrimaryKey(Rc::clone(field)))
            }
        })
        .collect();
    // A field is skipped only if another field follows.
    while matches!(primary.last(), Some(Step::SkipPrimaryKey(_))) {
        primary.pop();
    }
    let included = included
        .iter()
        .map(|field| Step::Keep(carried_name(field, parts), Source::Included(Rc::clone(field))));
    key.chain(primary).chain(included).collect()
}

/// Returns the steps for the row, and for parts of the key that are not fields of the row: the elements of a
/// collection and the values of methods.
fn whole_row(scope: &Scope<'_>, parts: &[KeyPart]) -> Vec<Step> {
    let needed = parts.iter().rposition(|part| !part.is_left_out_of_full());
    let needed = needed.map_or(0, |position| position + 1);
    let key = parts.iter().take(needed).map(|part| {
        if part.is_left_out_of_full() {
            Step::SkipKey(part.clone())
        } else {
            Step::Keep(part.ident().clone(), Source::Key(part.clone()))
        }
    });
    let row = scope.fields.iter().map(|declared| {
        let field = &declared.field;
        Step::Keep(carried_name(field, parts), Source::Row(Rc::clone(field)))
    });
    key.chain(row).collect()
}

/// Returns the name of a carried field. The name differs from the row's if the key has elements of the field.
fn carried_name(field: &Rc<Field>, parts: &[KeyPart]) -> Ident {
    let has_elements = |part: &KeyPart| {
        part.is_each() && part.field().is_some_and(|other| Rc::ptr_eq(other, field))
    };
    if parts.iter().any(has_elements) { names::collection(field) } else { field.ident.clone() }
}

/// Reports and removes a second field with the same name: a field named like an included collection (`all_…`)
/// or like a method.
fn distinct(scope: &Scope<'_>, draft: &Draft, steps: Vec<Step>) -> Vec<Step> {
    let mut taken = Vec::new();
    let mut is_first = |ident: &Ident| {
        let name = names::plain(ident);
        let first = !taken.contains(&name);
        taken.push(name);
        first
    };
    let keep = |step: &Step| match step {
        Step::Keep(ident, _) if !is_first(ident) => {
            let name = names::plain(ident);
            let computed = |part: &KeyPart| part.method().is_some() && part.name() == name;
            let other = if draft.parts.iter().any(computed) {
                "the value of the method of this name; rename the method"
            } else {
                "the collection whose element is in the key; rename the field"
            };
            scope.errors.error(
                draft.span,
                format!(
                    "an entry of this index would have two fields `{ident}`: the one of this name \
                     and {other}"
                ),
            );
            false
        }
        _ => true,
    };
    steps.into_iter().filter(keep).collect()
}
