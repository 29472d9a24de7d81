//! Serde attributes that a stored row cannot have.
//!
//! A row is stored without the names of its fields and without separators, so reading must mirror writing,
//! field by field. Views, and entries that carry fields, read each field separately.

use std::fmt::Display;
use std::rc::Rc;

use super::Declared;
use super::index::Draft;
use crate::attr::serde::SerdeKey;
use crate::diagnostics::{Diagnostics, listed};
use crate::model::{Field, KeyPart, Strategy};

/// Reports the attributes that break the format. An index that can't carry its included fields keeps only its
/// key.
pub(super) fn check(
    on_struct: &[SerdeKey],
    fields: &[Declared<'_>],
    drafts: &mut [Draft],
    viewed: bool,
    errors: &Diagnostics,
) {
    let full = drafts
        .iter()
        .find(|draft| matches!(draft.strategy, Strategy::Full))
        .map(|draft| draft.name.clone());
    let calling_index =
        drafts.iter().find(|draft| calls_a_method(draft)).map(|draft| draft.name.clone());
    let reader = match &full {
        Some(index) => Some(format!(
            "the entries of the full index `{index}` read the fields of the struct itself"
        )),
        None => viewed.then(|| {
            "its view reads the fields of the struct itself; make a table of the stored struct, \
             or remove `view`"
                .to_owned()
        }),
    };
    for key in on_struct {
        check_struct(key, reader.as_deref(), errors);
    }
    for declared in fields {
        let field = &declared.field;
        let needed = Need {
            in_key: declared.primary_key.is_some()
                || drafts.iter().any(|draft| has_in_key(draft, field)),
            carried: full.is_some() || drafts.iter().any(|draft| includes(draft, field)),
            calling_index: calling_index.as_deref(),
        };
        if !check_field(declared, &needed, errors) {
            for draft in drafts.iter_mut() {
                leave_out(draft, field);
            }
        }
    }
}

/// The uses of a field in indexes.
struct Need<'a> {
    in_key: bool,
    /// Whether entries carry the field.
    carried: bool,
    /// An index that calls a method, which may read any field.
    calling_index: Option<&'a str>,
}

/// Checks an attribute of the struct. `reader` describes the code that reads the fields separately, if there
/// is any, with advice.
fn check_struct(key: &SerdeKey, reader: Option<&str>, errors: &Diagnostics) {
    match (key.name.as_str(), reader) {
        ("tag" | "untagged" | "content", _) => {
            report(key, "a row is stored without names, which this adds", errors);
        }
        ("from" | "try_from" | "into" | "remote", Some(reader)) => {
            report(key, reader, errors);
        }
        _ => {}
    }
}

/// Reports the invalid attributes of a field. Returns true if entries can carry the field.
fn check_field(declared: &Declared<'_>, need: &Need<'_>, errors: &Diagnostics) -> bool {
    let has = |name: &str| declared.serde.iter().any(|key| key.name == name);
    let mut carriable = true;
    for key in &declared.serde {
        match key.name.as_str() {
            "skip_serializing_if" => {
                let reason = "a row is stored without the names of its fields, so none can be \
                              skipped";
                report(key, reason, errors);
            }
            "flatten" => {
                let reason = "a row is stored without names, which this needs";
                report(key, reason, errors);
                carriable = false;
            }
            "skip" | "skip_serializing" | "skip_deserializing" if need.in_key || need.carried => {
                let place = if need.in_key { "a key" } else { "an index" };
                report(key, format!("a field of {place} must be stored with its row"), errors);
                carriable = false;
            }
            "skip" | "skip_serializing" | "skip_deserializing" if need.calling_index.is_some() => {
                let index = need.calling_index.unwrap_or_default();
                let reason = format!(
                    "the index `{index}` calls a method, which must see equal values in a row \
                     that is read back"
                );
                report(key, reason, errors);
            }
            "skip_serializing" if !has("skip_deserializing") => {
                report(key, "a field that is not written can't be read; use `skip`", errors);
            }
            "skip_deserializing" if !has("skip_serializing") => {
                report(key, "a field that is written must be read; use `skip`", errors);
            }
            "with" | "serialize_with" | "deserialize_with" if need.in_key => {
                let reason = "serde could store another value in the row than the index has in \
                              its key";
                report(key, reason, errors);
                carriable = false;
            }
            "with" | "serialize_with" | "deserialize_with" if need.carried => {
                let reason = "an entry reads its fields one by one, by their types; it can't \
                              carry a field with a form of its own";
                report(key, reason, errors);
                carriable = false;
            }
            _ => {}
        }
    }
    carriable
}

pub(super) fn report(key: &SerdeKey, reason: impl Display, errors: &Diagnostics) {
    let attribute = listed([key.name.as_str()]);
    errors.error(key.span, format!("serde's {attribute} cannot be used in a table: {reason}"));
}

fn has_in_key(draft: &Draft, field: &Rc<Field>) -> bool {
    draft.parts.iter().filter_map(KeyPart::field).any(|other| Rc::ptr_eq(other, field))
}

fn calls_a_method(draft: &Draft) -> bool {
    let computed = |part: &KeyPart| part.method().is_some();
    draft.conditions.filter.is_some() || draft.parts.iter().any(computed)
}

fn includes(draft: &Draft, field: &Rc<Field>) -> bool {
    match &draft.strategy {
        Strategy::Partial(included) => included.iter().any(|other| Rc::ptr_eq(other, field)),
        Strategy::Normalized | Strategy::Full => false,
    }
}

fn leave_out(draft: &mut Draft, field: &Rc<Field>) {
    match &mut draft.strategy {
        Strategy::Normalized => {}
        Strategy::Partial(included) => {
            included.retain(|other| !Rc::ptr_eq(other, field));
            if included.is_empty() {
                draft.strategy = Strategy::Normalized;
            }
        }
        Strategy::Full => draft.strategy = Strategy::Normalized,
    }
}
