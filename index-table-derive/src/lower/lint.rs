//! Warnings about valid declarations: an index that probably costs more than it saves, or a primary key that
//! can be `None`.
//!
//! Each index, or the table, can allow a warning.

use std::{ptr, rc::Rc};

use super::index::Draft;
use crate::attr::keys::Lint;
use crate::diagnostics::Diagnostics;
use crate::model::{Field, Finding, KeyPart, Strategy};
use crate::names;

/// Returns warnings about fields of the primary key that are spelled as an `Option`. There are no warnings if
/// there are errors.
pub(super) fn primary_key(
    primary_key: &[Rc<Field>],
    allowed: &[Lint],
    errors: &Diagnostics,
) -> Vec<Finding> {
    if !errors.is_empty() || allowed.contains(&Lint::OptionalKey) {
        return Vec::new();
    }
    let optional = primary_key.iter().filter(|field| field.ty.is_optional() == Some(true));
    let finding = |field: &Rc<Field>| Finding {
        span: field.ty.span(),
        lint: Lint::OptionalKey,
        text: format!(
            "`{}` is in the primary key, where `None` is an ordinary value: a second row with \
             the same key is refused; write the type without `Option`, or suppress this with \
             `#[table(allow(optional_key))]`",
            field.name
        ),
    };
    optional.map(finding).collect()
}

/// Checks each index. There are no warnings if there are errors.
pub(super) fn check(drafts: &mut [Draft], primary_key: &[Rc<Field>], errors: &Diagnostics) {
    if !errors.is_empty() {
        return;
    }
    let redundant: Vec<_> =
        drafts.iter().map(|draft| redundant(draft, drafts, primary_key)).collect();
    let mut full: Option<String> = None;
    for (draft, redundant) in drafts.iter_mut().zip(redundant) {
        // A redundant index is not also reported as a second full index.
        let doubled = if redundant.is_none() { doubled_full(draft, &mut full) } else { None };
        let found = [
            (Lint::FewValues, few_values(draft)),
            (Lint::Redundant, redundant),
            (Lint::DoubledFull, doubled),
        ];
        let found = found.into_iter().filter(|(lint, _)| !draft.allowed.contains(lint));
        let finding = |(lint, text): (_, Option<String>)| {
            text.map(|text| Finding { span: draft.span, lint, text })
        };
        draft.findings = found.filter_map(finding).collect();
    }
}

/// Returns the warning about an index on a `bool` alone. There is none for a `unique` index, which is a
/// constraint, or for an index with a condition, which may select few rows.
fn few_values(draft: &Draft) -> Option<String> {
    let [part] = draft.parts.as_slice() else { return None };
    (part.key_type().is_bool() && has_all_rows(draft) && !draft.unique).then(|| {
        "an index on a `bool` alone finds a large part of the table for either value, and a scan \
         of the table costs little more, or even less; put the field after a selective one, or \
         index only the rare value with a `filter`; if queries use the rare value only, suppress \
         this with `allow(few_values)`"
            .to_owned()
    })
}

/// Returns the warning about an index if another index or the primary key serves its queries at the same
/// cost.
fn redundant(draft: &Draft, drafts: &[Draft], primary_key: &[Rc<Field>]) -> Option<String> {
    let fields = names::index(&draft.parts);
    let in_primary_key = draft.parts.len() <= primary_key.len()
        && draft.parts.iter().zip(primary_key).all(|(part, field)| is_plain(part, field));
    if draft.unique {
        let has_whole_key = in_primary_key && draft.parts.len() == primary_key.len();
        return (has_whole_key && has_all_rows(draft)).then(|| {
            "the primary key has the same fields, and is unique already: `get` reads its row; remove the index, \
             or suppress this with `allow(redundant)`"
                .to_owned()
        });
    }
    // A partial index may carry much less than the row.
    if in_primary_key && has_all_rows(draft) && !matches!(draft.strategy, Strategy::Partial(_)) {
        return Some(format!(
            "the primary key begins with the same fields, so the table itself has \
             `find_by_{fields}`, in the same order; remove the index, or suppress this with \
             `allow(redundant)`"
        ));
    }
    let before = drafts.iter().take_while(|other| !ptr::eq(*other, draft));
    if let Some(same) = before.into_iter().find(|other| is_same(draft, other)) {
        return Some(format!(
            "the index `{}` has the same fields and carries as much; remove one of them, or \
             suppress this with `allow(redundant)`",
            same.name
        ));
    }
    let longer = drafts.iter().find(|other| is_prefix(draft, other))?;
    // The query on the longer index.
    let query = if longer.named { format!("{}_{fields}", longer.name) } else { fields };
    Some(format!(
        "the index `{}` begins with the same fields, so `find_by_{query}` can use it; a separate \
         index adds only the order of the primary key, which `and` and `or` read without sorting; keep \
         it for that with `allow(redundant)`",
        longer.name
    ))
}

/// Whether the second index has the same entries as the first, in the same order.
fn is_same(draft: &Draft, other: &Draft) -> bool {
    draft.parts.len() == other.parts.len() && has_entries_of(draft, other)
}

/// Whether the second index has the same entries as the first, sorted by further fields.
fn is_prefix(draft: &Draft, longer: &Draft) -> bool {
    let rest = longer.parts.get(draft.parts.len()..).unwrap_or_default();
    !rest.is_empty()
        // A query of the leading fields of a global index reads all shards.
        && draft.global.is_none()
        // Each row has exactly one entry for the further fields.
        && !rest.iter().any(KeyPart::is_each)
        && (longer.conditions.sparse.is_none() || rest.iter().all(never_absent))
        && has_entries_of(draft, longer)
}

/// Whether the second index begins with the fields of the first, has entries for the same rows, and carries
/// at least the same fields.
fn has_entries_of(draft: &Draft, longer: &Draft) -> bool {
    draft.parts.iter().zip(&longer.parts).all(|(part, other)| part.sorts_as(other))
        && draft.conditions.sparse.is_some() == longer.conditions.sparse.is_some()
        && draft.conditions.filter == longer.conditions.filter
        && draft.eventual == longer.eventual
        && draft.global.is_some() == longer.global.is_some()
        && carries(longer, &draft.strategy)
}

/// Whether an index has the same strategy, and carries at least the same fields.
fn carries(index: &Draft, strategy: &Strategy) -> bool {
    match (&index.strategy, strategy) {
        (Strategy::Normalized, Strategy::Normalized) | (Strategy::Full, Strategy::Full) => true,
        (Strategy::Partial(has), Strategy::Partial(wanted)) => wanted.iter().all(|field| {
            let included = has.iter().any(|other| Rc::ptr_eq(other, field));
            included || index.parts.iter().any(|part| part.holds(field))
        }),
        _ => false,
    }
}

/// Returns the warning about a second full index. `full` is the name of the first full index.
fn doubled_full(draft: &Draft, full: &mut Option<String>) -> Option<String> {
    if !matches!(draft.strategy, Strategy::Full) || !has_all_rows(draft) {
        return None;
    }
    let Some(first) = full else {
        *full = Some(draft.name.clone());
        return None;
    };
    Some(format!(
        "the index `{first}` is full as well: each of them stores the table once more, and is \
         written with every change of a row; make one of them partial with `include`, or \
         suppress this with `allow(doubled_full)`"
    ))
}

fn has_all_rows(draft: &Draft) -> bool {
    draft.conditions.sparse.is_none() && draft.conditions.filter.is_none()
}

fn is_plain(part: &KeyPart, field: &Rc<Field>) -> bool {
    matches!(part, KeyPart::Plain(other) if Rc::ptr_eq(other, field))
}

fn never_absent(part: &KeyPart) -> bool {
    part.key_type().is_optional() == Some(false)
}
