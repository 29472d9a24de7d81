//! The rules of `#[references(…)]`.

use std::rc::Rc;

use proc_macro2::Span;
use syn::spanned::Spanned as _;
use syn::{GenericArgument, Ident, Path, PathArguments, Type};

use super::{Declared, LONGEST_NAME, index::Scope};
use crate::attr::StructAttrs;
use crate::attr::reference::ReferenceAttr;
use crate::diagnostics::suggestion;
use crate::model::{Field, Index, KeyPart, Reference};
use crate::names;

/// The name of the reference of `#[table(part_of = …)]`.
const PART_OF: &str = "part_of";

/// Checks each reference, those on the fields first. An invalid reference is left out.
pub(super) fn lower_all(
    scope: &Scope<'_>,
    attributes: &StructAttrs,
    indexes: &[(Rc<Index>, Span)],
) -> Vec<Reference> {
    let mut references: Vec<Reference> = Vec::new();
    let on_fields = scope.fields.iter().flat_map(|declared| {
        declared.references.iter().map(move |attribute| (attribute, Some(declared)))
    });
    let on_struct = attributes.references.iter().map(|attribute| (attribute, None));
    for (attribute, field) in on_fields.chain(on_struct) {
        let Some(reference) = lower_one(scope, attribute, field, indexes) else { continue };
        if references.iter().any(|other| other.name == reference.name) {
            let message = format!("there is a reference by `{}` already", reference.name);
            scope.errors.error(attribute.span, message);
        } else {
            references.push(reference);
        }
    }
    if let Some(part_of) = &attributes.table.part_of {
        references.extend(part(scope, &part_of.value, &references));
    }
    references
}

/// Returns the reference of `part_of`: a part and its main row have the same primary key.
fn part(scope: &Scope<'_>, to: &Path, others: &[Reference]) -> Option<Reference> {
    if to.is_ident(scope.row) || to.is_ident("Self") {
        let message = "a row can't be a part of a row of the same table; name another struct";
        scope.errors.error(to.span(), message);
        return None;
    }
    if others.iter().any(|other| other.name == PART_OF) {
        let message = "a reference by the field `part_of` has the same name; rename the field";
        scope.errors.error(to.span(), message);
        return None;
    }
    let fields: Vec<Rc<Field>> = scope.primary_key.iter().map(Rc::clone).collect();
    let name = PART_OF.to_owned();
    Some(Reference { name, to: to.clone(), fields, inner: None, index: None, cascade: true })
}

fn lower_one(
    scope: &Scope<'_>,
    attribute: &ReferenceAttr,
    field: Option<&Declared<'_>>,
    indexes: &[(Rc<Index>, Span)],
) -> Option<Reference> {
    let errors = scope.errors;
    let declared = match (field, &attribute.fields) {
        (Some(field), None) => vec![field],
        (Some(_), Some(fields)) => {
            let message = "a reference with several fields is declared on the struct";
            errors.error(fields.key, message);
            return None;
        }
        (None, Some(fields)) => resolve(scope, &fields.value)?,
        (None, None) => {
            if !attribute.incomplete {
                let message = "a reference is declared on its field, or on the struct with \
                               `fields = [tenant, customer]`";
                errors.error(attribute.span, message);
            }
            return None;
        }
    };
    let mut to = attribute.to.clone().filter(|_| !attribute.incomplete)?;
    if to.is_ident("Self") {
        to = scope.row.clone().into();
    }
    let inner = match declared.as_slice() {
        [] => {
            errors.error(attribute.span, "a reference has at least one field");
            return None;
        }
        [only] => inner(only),
        several => {
            let optional = several.iter().find(|it| it.field.ty.is_optional() == Some(true));
            if let Some(optional) = optional {
                let message = format!(
                    "`{}` is an `Option`, but all fields of a reference with several fields must be present",
                    optional.field.name
                );
                errors.error(attribute.span, message);
                return None;
            }
            None
        }
    };
    let fields: Vec<Rc<Field>> = declared.iter().map(|it| Rc::clone(&it.field)).collect();
    let named: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
    let name = named.join("_");
    if name.len() > LONGEST_NAME {
        let message = format!("the names of its fields have more than {LONGEST_NAME} bytes");
        errors.error(attribute.span, message);
        return None;
    }
    let index = indexes.iter().find(|(index, _)| begins(index, &fields));
    let index = index.map(|(index, _)| index.position);
    let is_key = fields.iter().zip(scope.primary_key).all(|(field, own)| Rc::ptr_eq(field, own));
    if index.is_none() && !(is_key && fields.len() <= scope.primary_key.len()) {
        let message = format!(
            "a reference needs a strongly consistent and local index that begins with its fields and \
             has no condition; declare `#[index({})]`",
            named.join(", ")
        );
        errors.error(attribute.span, message);
        return None;
    }
    Some(Reference { name, to, fields, inner, index, cascade: attribute.cascade })
}

/// Whether an index has each row, and begins with these fields.
fn begins(index: &Index, fields: &[Rc<Field>]) -> bool {
    let mut parts = index.parts.iter();
    index.conditions.sparse.is_none()
        && index.conditions.filter.is_none()
        && !index.eventual
        && index.global.is_none()
        && fields.iter().all(
            |field| matches!(parts.next(), Some(KeyPart::Plain(part)) if Rc::ptr_eq(part, field)),
        )
        // A row without elements has no entry.
        && !index.parts.iter().any(KeyPart::is_each)
}

/// Returns the fields with these names; `None` after a mistake.
fn resolve<'a>(scope: &Scope<'a>, words: &[Ident]) -> Option<Vec<&'a Declared<'a>>> {
    let found = words.iter().map(|word| {
        let name = names::plain(word);
        let found = scope.field(&name);
        if found.is_none() {
            let meant = suggestion(&name, scope.field_names());
            scope.errors.error(word.span(), scope.unknown_field(&name, meant));
        }
        found
    });
    found.collect::<Vec<_>>().into_iter().collect()
}

/// Returns the type in an `Option`.
fn inner(declared: &Declared<'_>) -> Option<Type> {
    if declared.field.ty.is_optional() != Some(true) {
        return None;
    }
    let Type::Path(path) = declared.ty else { return None };
    let PathArguments::AngleBracketed(arguments) = &path.path.segments.last()?.arguments else {
        return None;
    };
    match arguments.args.first()? {
        GenericArgument::Type(ty) => Some(ty.clone()),
        _ => None,
    }
}
