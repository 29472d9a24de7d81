//! Serde attributes that a stored row cannot have, and those with which it may be read back as another row.
//!
//! Views, and entries of full and partial indexes, read each field separately, by its names. So they need its type in the row.

use std::fmt::Display;
use std::rc::Rc;

use super::Declared;
use super::index::Draft;
use crate::attr::serde::SerdeKey;
use crate::diagnostics::{Diagnostics, listed};
use crate::model::{Field, KeyPart, Strategy};

/// Reports the attributes that break the format. An index that can't carry its included fields keeps only its
/// key. Returns true if a row can have other entries when it is read back, so that each row is read back before it is written.
pub(super) fn check(
    on_struct: &[SerdeKey],
    fields: &[Declared<'_>],
    drafts: &mut [Draft],
    viewed: bool,
    errors: &Diagnostics,
) -> bool {
    let full = drafts
        .iter()
        .find(|draft| matches!(draft.strategy, Strategy::Full))
        .map(|draft| draft.name.clone());
    let partial = drafts
        .iter()
        .find(|draft| matches!(draft.strategy, Strategy::Partial(_)))
        .map(|draft| draft.name.clone());
    let calls_methods = drafts.iter().any(calls_a_method);
    let read_alone = viewed || full.is_some();
    let default_row = on_struct.iter().any(|key| key.name == "default");
    let mut reads_back = on_struct.iter().any(converts);
    let reader = match (&full, &partial) {
        (Some(index), _) => Some(format!(
            "the entries of the full index `{index}` read the fields of the struct itself"
        )),
        (None, Some(index)) => Some(format!(
            "the entries of the partial index `{index}` have fields of the struct itself; make a \
             table of the stored struct, or remove `include`"
        )),
        (None, None) => viewed.then(|| {
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
        let carried = full.is_some() || drafts.iter().any(|draft| includes(draft, field));
        let needed = Need {
            in_key: declared.primary_key.is_some()
                || drafts.iter().any(|draft| has_in_key(draft, field)),
            carried,
            read_alone,
            unreadable_if_left_out: left_out(&declared.serde, default_row)
                .filter(|_| read_alone || carried),
        };
        reads_back |= (needed.in_key || needed.carried || calls_methods)
            && declared.serde.iter().any(changes_the_value);
        if !check_field(declared, &needed, errors) {
            for draft in drafts.iter_mut() {
                leave_out(draft, field);
            }
        }
    }
    reads_back
}

/// Whether serde stores another type than the struct.
fn converts(key: &SerdeKey) -> bool {
    matches!(key.name.as_str(), "from" | "try_from" | "into" | "remote")
}

/// Whether serde may store another value of the field than it has, or none.
fn changes_the_value(key: &SerdeKey) -> bool {
    let name = key.name.as_str();
    name.starts_with("skip") || name.ends_with("with") || name == "flatten"
}

/// Whether serde may write a row without the field.
pub(super) fn leaves_out(key: &SerdeKey) -> bool {
    matches!(key.name.as_str(), "skip_serializing_if" | "skip_serializing")
}

/// The uses of a field in indexes.
struct Need {
    in_key: bool,
    /// Whether entries carry the field.
    carried: bool,
    /// Whether a view or a full index reads the field by itself.
    read_alone: bool,
    /// The reason why a view or an entry can't have the field if the row lacks it.
    unreadable_if_left_out: Option<&'static str>,
}

/// Checks an attribute of the struct. `reader` describes the code that reads the fields separately, if there
/// is any, with advice.
fn check_struct(key: &SerdeKey, reader: Option<&str>, errors: &Diagnostics) {
    if let Some(reader) = reader
        && converts(key)
    {
        report(key, reader, errors);
    }
}

/// Reports the invalid attributes of a field. Returns true if entries can carry the field.
fn check_field(declared: &Declared<'_>, need: &Need, errors: &Diagnostics) -> bool {
    let has = |name: &str| declared.serde.iter().any(|key| key.name == name);
    let mut carriable = true;
    for key in &declared.serde {
        if let Some(reason) = need.unreadable_if_left_out
            && leaves_out(key)
        {
            report(key, reason, errors);
            carriable = false;
            continue;
        }
        match key.name.as_str() {
            "flatten" if need.in_key || need.carried || need.read_alone => {
                let reason = "the row has the fields inside of this one, and not the field itself";
                report(key, reason, errors);
                carriable = false;
            }
            "skip" | "skip_serializing" | "skip_deserializing" if need.in_key || need.carried => {
                let place = if need.in_key { "a key" } else { "an index" };
                report(key, format!("a field of {place} must be stored with its row"), errors);
                carriable = false;
            }
            "skip_serializing" if !has("skip_deserializing") && !has("default") => {
                let reason =
                    "a field that is not written can't be read without a value; add `default`";
                report(key, reason, errors);
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

/// Returns the reason why the field can't be read by itself in a row that lacks it. `default_row` is true if serde takes
/// missing fields from a default row.
fn left_out(field: &[SerdeKey], default_row: bool) -> Option<&'static str> {
    let find = |name: &str| field.iter().find(|key| key.name == name);
    if find("skip_deserializing").is_some() {
        return None;
    }
    if find("with").or_else(|| find("deserialize_with")).is_some() {
        return Some("a field with a form of its own can't be read separately in a row without it");
    }
    let another = find("default").map_or(default_row, |default| default.path.is_some());
    another.then_some(
        "in a row without this field, a view and an entry that carries it read the default of its \
         type; write `default` beside it, without a function",
    )
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
