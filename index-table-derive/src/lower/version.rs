//! The versions of rows, for a table and for a struct with `#[derive(RowVersion)]`.

use syn::spanned::Spanned as _;
use syn::{DeriveInput, Ident, Path, parse_quote};

use super::{Declared, declared_fields, owned, serde, unknown_field};
use crate::attr;
use crate::attr::keys::{TABLE_KEYS, TableKey};
use crate::attr::table::TableAttr;
use crate::diagnostics::{Diagnostics, suggestion};
use crate::model::RowVersion;
use crate::names;

/// The default version.
const FIRST: u32 = 1;

/// Checks a struct that is an older version. The result has no fields if the struct can't be a version.
pub(crate) fn lower(input: &DeriveInput, errors: &Diagnostics) -> RowVersion {
    let owned = owned::without_references(input, errors);
    let readable = owned.is_none();
    let input = owned.as_ref().unwrap_or(input);
    let attributes = attr::on_struct(&input.attrs, errors);
    let table = &attributes.table;
    for attribute in input
        .attrs
        .iter()
        .filter(|it| ["index", "indexes"].iter().any(|name| it.path().is_ident(name)))
    {
        errors.error_on(
            attribute.path(),
            "an older version has no indexes: declare them on the struct with \
             `#[derive(IndexTable)]`",
        );
    }
    let given = [
        (TableKey::Name, table.name.as_ref().map(|setting| setting.key)),
        (TableKey::Repository, table.repository.as_ref().map(|setting| setting.key)),
        (TableKey::View, table.view.as_ref().map(|setting| setting.key)),
        (TableKey::Allow, table.allow.as_ref().map(|setting| setting.key)),
    ];
    for (id, span) in given {
        if let Some(span) = span
            && let Some(key) = TABLE_KEYS.iter().find(|key| key.id == id)
        {
            let message = format!(
                "an older version has no `{}`: declare it on the struct with \
                 `#[derive(IndexTable)]`",
                key.name
            );
            errors.error(span, message);
        }
    }
    let version = number(table, errors);
    let previous = previous(table, &input.ident, version, errors);
    let fields = declared_fields(input, "RowVersion", errors).unwrap_or_default();
    let changed = changed(table, &input.ident, &fields, errors);
    serde::check(&attributes.serde, &fields, &mut [], false, errors);
    RowVersion {
        krate: table.krate.as_ref().map_or(parse_quote!(::index_table), |path| path.value.clone()),
        row: input.ident.clone(),
        readable,
        version,
        previous,
        changed,
        fields: fields.into_iter().map(|declared| declared.field).collect(),
    }
}

/// Returns the number in `#[table(version = N)]`.
pub(super) fn number(table: &TableAttr, errors: &Diagnostics) -> u32 {
    let Some(version) = &table.version else { return FIRST };
    match version.value.base10_parse() {
        Ok(version) if version >= FIRST => version,
        _ => {
            let message = format!("a version is a whole number from {FIRST} to {}", u32::MAX);
            errors.error(version.value.span(), message);
            FIRST
        }
    }
}

/// Returns the struct in `#[table(previous = …)]`, if it is valid.
pub(super) fn previous(
    table: &TableAttr,
    row: &Ident,
    version: u32,
    errors: &Diagnostics,
) -> Option<Path> {
    let previous = table.previous.as_ref()?;
    if is_itself(&previous.value, row) {
        errors.error(
            previous.value.span(),
            "a struct can't be its own previous version: keep the old struct under another name",
        );
        return None;
    }
    if version <= FIRST {
        errors.error(
            previous.key,
            format!(
                "version {FIRST} is the first version; a struct with a `previous` needs a \
                 greater one: `version = {}`",
                FIRST + 1
            ),
        );
        return None;
    }
    Some(previous.value.clone())
}

/// Whether a path is `Customer`, `self::Customer` or `Self`. Other paths to the struct are not recognized.
fn is_itself(path: &Path, row: &Ident) -> bool {
    let mut segments = path.segments.iter().map(|segment| &segment.ident);
    match (segments.next(), segments.next(), segments.next()) {
        (Some(name), None, _) => name == row || name == "Self",
        (Some(module), Some(name), None) => module == "self" && name == row,
        _ => false,
    }
}

/// Returns the fields in `#[table(changed = […])]`.
pub(super) fn changed(
    table: &TableAttr,
    row: &Ident,
    fields: &[Declared<'_>],
    errors: &Diagnostics,
) -> Vec<String> {
    let Some(given) = &table.changed else { return Vec::new() };
    if table.previous.is_none() {
        errors.error(
            given.key,
            "`changed` names fields that are converted from a `previous` struct, and this struct \
             has none: `previous = CustomerV1`",
        );
    }
    if given.value.is_empty() && !fields.is_empty() {
        errors.error(
            given.key,
            "this list is empty; name the fields that `From` changes, or remove it",
        );
    }
    let mut changed: Vec<String> = Vec::new();
    for word in &given.value {
        let name = names::plain(word);
        let known = fields.iter().find(|declared| declared.field.name == name);
        match known {
            // The mistakes in the struct have been reported.
            None if fields.is_empty() => {}
            None => {
                let names = fields.iter().map(|declared| declared.field.name.as_str());
                let meant = suggestion(&name, names);
                errors.error(word.span(), unknown_field(row, &name, meant));
            }
            Some(declared) if declared.primary_key.is_some() => errors.error(
                word.span(),
                format!("`{name}` is in the primary key, which `From` must not change"),
            ),
            Some(_) if changed.contains(&name) => {
                errors.error(word.span(), format!("`{name}` is in the list already"));
            }
            Some(_) => changed.push(name),
        }
    }
    changed
}
