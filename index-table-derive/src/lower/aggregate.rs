//! The rules of `#[aggregate(…)]`.

use std::collections::HashMap;
use std::rc::Rc;

use proc_macro2::Span;
use quote::format_ident;
use syn::Ident;

use super::{
    Declared, LONGEST_NAME,
    index::{Scope, options},
    no_encoding, serde,
};
use crate::attr::Setting;
use crate::attr::aggregate::AggregateAttr;
use crate::diagnostics::{Diagnostics, listed, suggestion};
use crate::model::{Aggregate, Extreme, Field, Index, KeyPart};
use crate::{names, types};

/// Checks each aggregate. An invalid aggregate is left out.
pub(super) fn lower_all(
    scope: &mut Scope<'_>,
    attributes: &[AggregateAttr],
    indexes: &[(Rc<Index>, Span)],
) -> Vec<Aggregate> {
    let mut aggregates: Vec<Aggregate> = Vec::new();
    for attribute in attributes {
        let Some(aggregate) = lower_one(scope, attribute, indexes) else { continue };
        let errors = scope.errors;
        if aggregates.iter().any(|other| other.name == aggregate.name) {
            let message = format!(
                "there is an aggregate `{}` already; write all sums in one attribute",
                aggregate.name
            );
            errors.error(aggregate.span, message);
            continue;
        }
        if let Some((index, _)) = indexes.iter().find(|(index, _)| index.name == aggregate.name) {
            let message = format!(
                "the aggregate and an index would both be called `{}`; give the index another name with \
                 `name = \"…\"`",
                index.name
            );
            errors.error(aggregate.span, message);
            continue;
        }
        if aggregate.name.len() > LONGEST_NAME {
            let message = format!(
                "the name of this aggregate has {} bytes, more than {LONGEST_NAME}; group by fewer \
                 fields, or shorten their names",
                aggregate.name.len()
            );
            errors.error(aggregate.span, message);
            continue;
        }
        let described = format!("the totals of the aggregate `{}`", aggregate.name);
        let advice = "rename a field, or the other type";
        if scope.types.take(&aggregate.ident, described, advice, errors) {
            aggregates.push(aggregate);
        }
    }
    name_leading(&mut aggregates, scope.errors);
    aggregates
}

/// Names the methods for leading fields: `aggregates_by_region` of an aggregate by region and customer. If another method
/// has this name, the method is `aggregates_by_region_customer_of_region`.
fn name_leading(aggregates: &mut [Aggregate], errors: &Diagnostics) {
    let mut taken: HashMap<String, String> = aggregates
        .iter()
        .map(|it| (it.name_of_all(), format!("the groups of `{}`", it.name)))
        .collect();
    for aggregate in aggregates {
        for len in 1..aggregate.group.len() {
            let fields = aggregate.group.iter().take(len).map(|field| field.name.as_str());
            let fields: Vec<&str> = fields.collect();
            let joined = fields.join("_");
            let short = format!("aggregates_by_{joined}");
            let name = if taken.contains_key(&short) {
                format!("{}_of_{joined}", aggregate.name_of_all())
            } else {
                short
            };
            let described = format!("the groups of `{}` by {}", aggregate.name, listed(fields));
            if let Some(other) = taken.get(&name) {
                let message = format!(
                    "two methods would be called `{name}`: {other} and {described}; rename a field of \
                     the row"
                );
                errors.error(aggregate.span, message);
            }
            taken.insert(name.clone(), described);
            aggregate.leading.push(name);
        }
    }
}

fn lower_one(
    scope: &Scope<'_>,
    attribute: &AggregateAttr,
    indexes: &[(Rc<Index>, Span)],
) -> Option<Aggregate> {
    let errors = scope.errors;
    let group = group(scope, &attribute.group);
    let [sums, mins, maxs] = [&attribute.sum, &attribute.min, &attribute.max]
        .map(|option| values(scope, option.as_ref()));
    let group = group.filter(|_| !attribute.incomplete)?;
    let fields: Vec<&str> = group.iter().map(|field| field.name.as_str()).collect();
    let name = match fields.as_slice() {
        [] => "aggregate".to_owned(),
        fields => format!("aggregate_by_{}", fields.join("_")),
    };
    let span = attribute.group.first().map_or(attribute.span, Ident::span);
    let least = mins.iter().map(|found| (found, false));
    let extremes = least.chain(maxs.iter().map(|found| (found, true)));
    let extremes = extremes
        .map(|((field, word), greatest)| extreme(scope, &group, (field, *word), greatest, indexes));
    let extremes: Vec<Extreme> = extremes.collect();
    let sums: Vec<_> = sums.into_iter().map(|(field, _)| field).collect();
    let taken = || {
        let sums = sums.iter().map(|field| format!("sum_{}", field.name));
        sums.chain(extremes.iter().map(Extreme::name)).chain(["count".to_owned()])
    };
    if let Some(field) = group.iter().find(|field| taken().any(|name| name == field.name)) {
        let message = format!(
            "the totals of this aggregate would have two fields `{}`; rename the field of the row",
            field.name
        );
        errors.error(span, message);
        return None;
    }
    let ident = match fields.as_slice() {
        [] => format_ident!("{}Aggregate", names::plain(scope.row), span = attribute.span),
        _ => names::aggregate(scope.row, &fields.join("_"), attribute.span),
    };
    let mentions = mentions(scope, attribute);
    let eventual = attribute
        .consistency
        .as_ref()
        .is_some_and(|given| options::is_eventual_word(&given.value, errors));
    let place = attribute.span;
    let leading = Vec::new();
    Some(Aggregate { name, ident, group, leading, sums, extremes, eventual, mentions, span, place })
}

/// Returns the fields that the attribute names, each with the span of its word.
fn mentions(scope: &Scope<'_>, attribute: &AggregateAttr) -> Vec<Ident> {
    let options = [&attribute.sum, &attribute.min, &attribute.max];
    let options = options.into_iter().flatten().flat_map(|option| &option.value);
    let mention = |word: &Ident| {
        let mut field = scope.field(&names::plain(word))?.field.ident.clone();
        field.set_span(word.span());
        Some(field)
    };
    attribute.group.iter().chain(options).filter_map(mention).collect()
}

/// Returns the fields of the group; `None` after a mistake.
fn group(scope: &Scope<'_>, words: &[Ident]) -> Option<Vec<Rc<Field>>> {
    let errors = scope.errors;
    let mut group: Vec<Rc<Field>> = Vec::new();
    let mut sound = true;
    for word in words {
        let Some(declared) = resolve(scope, word) else {
            sound = false;
            continue;
        };
        let field = &declared.field;
        if types::has_no_encoding(declared.ty) {
            sound = false;
            // A field of the primary key has been reported where it is declared.
            if declared.primary_key.is_none() {
                errors.error(word.span(), no_encoding(&field.name, &field.declared, declared.ty));
            }
        } else if group.iter().any(|other| Rc::ptr_eq(other, field)) {
            errors.error(word.span(), format!("`{}` is in this group already", field.name));
        } else {
            check_stored(declared, scope);
            group.push(Rc::clone(field));
        }
    }
    sound.then_some(group)
}

/// Returns the fields of an option, with the spans of their words. Unknown fields are left out.
fn values(scope: &Scope<'_>, option: Option<&Setting<Vec<Ident>>>) -> Vec<(Rc<Field>, Span)> {
    let mut values: Vec<(Rc<Field>, Span)> = Vec::new();
    if let Some(option) = option.filter(|option| option.value.is_empty()) {
        scope.errors.error(option.key, "this list is empty; name the fields, or remove it");
    }
    for word in option.iter().flat_map(|option| &option.value) {
        let Some(declared) = resolve(scope, word) else { continue };
        if values.iter().any(|(other, _)| Rc::ptr_eq(other, &declared.field)) {
            let message = format!("`{}` is in this list already", declared.field.name);
            scope.errors.error(word.span(), message);
        } else {
            check_stored(declared, scope);
            values.push((Rc::clone(&declared.field), word.span()));
        }
    }
    values
}

fn resolve<'a>(scope: &Scope<'a>, word: &Ident) -> Option<&'a Declared<'a>> {
    let name = names::plain(word);
    let found = scope.field(&name);
    if found.is_none() {
        let meant = suggestion(&name, scope.field_names());
        let message = match meant {
            None if name == "count" => {
                "every aggregate counts its rows, in its field `count`; remove this word".to_owned()
            }
            _ => scope.unknown_field(&name, meant),
        };
        scope.errors.error(word.span(), message);
    }
    found
}

/// The end of the name of the second part of a sum of decimals in the catalog.
const FRACTION: &str = ".fraction";

/// Reports serde attributes with which the row could have another value when it is read back, and names in rows that a part of
/// a sum can have.
fn check_stored(declared: &Declared<'_>, scope: &Scope<'_>) {
    const CHANGING: [&str; 7] = [
        "skip",
        "skip_serializing",
        "skip_serializing_if",
        "skip_deserializing",
        "with",
        "serialize_with",
        "deserialize_with",
    ];
    let key = declared.serde.iter().find(|key| CHANGING.contains(&key.name.as_str()));
    if let Some(key) = key {
        let reason = "an aggregate needs the value as it is stored with the row";
        serde::report(key, reason, scope.errors);
    }
    if declared.field.written.ends_with(FRACTION) {
        let message = format!(
            "the name of a field of an aggregate can't end with `{FRACTION}` in rows, which is the \
             name of a part of a sum"
        );
        scope.errors.error(declared.field.ident.span(), message);
    }
}

/// Returns the first or last value of a field in a group, and the index on the group and the field that supplies it. After
/// a mistake, the position of the index is wrong.
fn extreme(
    scope: &Scope<'_>,
    group: &[Rc<Field>],
    (field, word): (&Rc<Field>, Span),
    greatest: bool,
    indexes: &[(Rc<Index>, Span)],
) -> Extreme {
    let errors = scope.errors;
    let found = |index| Extreme { field: Rc::clone(field), index, greatest };
    let option = if greatest { "max" } else { "min" };
    if field.ty.is_optional() == Some(true) {
        let message = format!(
            "`{option}` needs a field with a value in each row, and `{}` is an `Option`",
            field.name
        );
        errors.error(word, message);
        return found(0);
    }
    let key = || group.iter().chain([field]);
    let begins = |index: &Index| {
        let mut parts = index.parts.iter();
        key().all(
            |field| matches!(parts.next(), Some(KeyPart::Plain(part)) if Rc::ptr_eq(part, field)),
        )
    };
    let index = indexes.iter().find(|(index, _)| {
        begins(index)
            && index.conditions.sparse.is_none()
            && index.conditions.filter.is_none()
            && !index.eventual
            // A row without elements has no entry.
            && !index.parts.iter().any(KeyPart::is_each)
    });
    let Some((index, _)) = index else {
        let end = if greatest { "last" } else { "first" };
        let fields: Vec<&str> = key().map(|field| field.name.as_str()).collect();
        let message = format!(
            "`{option}` reads the {end} entry of a group in an index that begins with {}; declare \
             `#[index({})]`",
            listed(fields.iter().copied()),
            fields.join(", ")
        );
        errors.error(word, message);
        return found(0);
    };
    found(index.position)
}
