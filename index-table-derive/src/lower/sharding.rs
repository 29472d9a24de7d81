//! The shard key, and its requirements on indexes.

use std::rc::Rc;

use proc_macro2::Span;

use super::index::Scope;
use super::{LONGEST_NAME, is_name, too_long, unknown_field};
use crate::attr::table::TableAttr;
use crate::diagnostics::{Diagnostics, listed, suggestion};
use crate::model::{Field, Index, KeyPart, Sharding};
use crate::names;

/// Returns the shard key of the table's attributes.
pub(super) fn lower(attribute: &TableAttr, table: &str, scope: &Scope<'_>) -> Option<Sharding> {
    let errors = scope.errors;
    if let (Some(reference), Some(_)) = (&attribute.reference, &attribute.shard_by) {
        errors.error(
            reference.key,
            "a reference table has a copy in every shard, and so no shard key; remove `reference` or `shard_by`",
        );
    }
    let Some(shard_by) = &attribute.shard_by else {
        if let Some(map) = &attribute.shard_map {
            errors.error(
                map.key,
                "a shard map says where a shard key is, and this table has none; add `shard_by = field`",
            );
        }
        return None;
    };
    if shard_by.value.fields.is_empty() {
        errors.error(shard_by.key, "this list is empty; name the first fields of the primary key");
        return None;
    }
    let mut sound = true;
    let primary_key = scope.primary_key;
    for (at, field) in shard_by.value.fields.iter().enumerate() {
        let name = names::plain(field);
        if primary_key.get(at).is_some_and(|key| key.name == name) {
            continue;
        }
        sound = false;
        if scope.fields.iter().all(|declared| declared.field.name != name) {
            let names = scope.fields.iter().map(|declared| declared.field.name.as_str());
            let meant = suggestion(&name, names);
            errors.error(field.span(), unknown_field(scope.row, &name, meant));
        } else {
            errors.error(field.span(), not_leading(primary_key, &name));
        }
        // The following fields would be at wrong positions too.
        break;
    }
    let map = match &attribute.shard_map {
        Some(given) => map_name(&given.value.value(), given.value.span(), errors),
        None => Some(table.to_owned()),
    };
    let (fields, hashed) = (shard_by.value.fields.len(), shard_by.value.hashed);
    map.filter(|_| sound).map(|map| Sharding { fields, hashed, map })
}

fn not_leading(primary_key: &[Rc<Field>], name: &str) -> String {
    let key = listed(primary_key.iter().map(|field| field.name.as_str()));
    format!(
        "a shard key is the first field of the primary key, or the first fields in their order: the \
         primary key is {key}, and `{name}` is not at this place in it"
    )
}

fn map_name(name: &str, span: Span, errors: &Diagnostics) -> Option<String> {
    if !is_name(name) {
        errors.error(
            span,
            format!(
                "`{name}` is no name for a shard map: it is a letter or `_`, then letters, digits, \
                 `_` and `-`, all of them ASCII"
            ),
        );
        return None;
    }
    if name.len() > LONGEST_NAME {
        errors.error(span, too_long("shard map", name));
        return None;
    }
    Some(name.to_owned())
}

/// Rejects a global index of a table that is in one shard.
pub(super) fn check_global(indexes: &[(Rc<Index>, Span)], errors: &Diagnostics) {
    for span in indexes.iter().filter_map(|(index, _)| index.global) {
        errors.error(
            span,
            "a global index is sharded by its own key, and all rows of this table are in one shard; \
             remove the scope, or add `#[table(shard_by = field)]`",
        );
    }
}

/// Rejects a local unique index without the whole shard key, because rows in two shards could have the same key.
pub(super) fn check_unique(
    sharding: &Sharding,
    primary_key: &[Rc<Field>],
    indexes: &[(Rc<Index>, Span)],
    errors: &Diagnostics,
) {
    let shard_key = || primary_key.iter().take(sharding.fields);
    for (index, span) in indexes.iter().filter(|(index, _)| index.unique && index.global.is_none())
    {
        let has = |name: &str| {
            index
                .parts
                .iter()
                .any(|part| matches!(part, KeyPart::Plain(field) if field.name == name))
        };
        if shard_key().all(|field| has(&field.name)) {
            continue;
        }
        let key = listed(shard_key().map(|field| field.name.as_str()));
        errors.error(
            *span,
            format!(
                "each shard has its own part of this index, so that it can be unique only within a \
                 shard: a unique index has to contain the shard key, {key}, or to be global: `scope = \
                 \"global\"`"
            ),
        );
    }
}
