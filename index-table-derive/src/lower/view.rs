//! The fields of a view, the way to read them, and the serde attributes that a view shares with its row.
//!
//! A view is read field by field, so this module implements the effect of serde's attributes on reading.
//! serde's derive serializes the view like the row, with the same attributes.

use std::rc::Rc;

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::spanned::Spanned as _;
use syn::{ExprPath, Ident};

use super::index::Scope;
use super::{Declared, serde};
use crate::attr::StructAttrs;
use crate::attr::serde::SerdeKey;
use crate::attr::table::TableAttr;
use crate::diagnostics::Diagnostics;
use crate::model::{Reading, View, ViewField};
use crate::names;

/// The attributes that change how a struct is serialized.
const STRUCT_ATTRIBUTES: &[&str] = &["rename", "rename_all", "tag", "transparent"];

/// The attributes that change how a field is serialized.
const FIELD_ATTRIBUTES: &[&str] =
    &["rename", "with", "serialize_with", "skip", "skip_serializing", "skip_serializing_if"];

/// Returns the name of the view, if there is one.
pub(super) fn name(table: &TableAttr, row: &Ident) -> Option<Ident> {
    let view = table.view.as_ref()?;
    Some(view.value.clone().unwrap_or_else(|| names::view(row, view.key)))
}

/// Returns the view, if there is one.
pub(super) fn lower(scope: &mut Scope<'_>, attributes: &StructAttrs) -> Option<View> {
    let mut ident = name(&attributes.table, scope.row)?;
    let advice = "choose another name with `#[table(view = …)]`";
    if !scope.types.take(&ident, "the view".to_owned(), advice, scope.errors) {
        ident = names::view(scope.row, ident.span());
        while !scope.types.is_free(&ident) {
            ident = format_ident!("{ident}_");
        }
    }
    let default = attributes.serde.iter().any(|key| key.name == "default");
    let fields = scope.fields.iter().map(|declared| ViewField {
        field: Rc::clone(&declared.field),
        reading: reading(declared, default, scope.errors),
        serde: shared(&declared.serde, FIELD_ATTRIBUTES),
    });
    let mut serde = shared(&attributes.serde, STRUCT_ATTRIBUTES);
    let has = |name: &str| attributes.serde.iter().any(|key| key.name == name);
    if has("tag") && !has("rename") {
        // The value of the tag is the name of the row's struct.
        let name = names::plain(scope.row);
        serde.push(quote!(rename = #name));
    }
    Some(View { ident, serde, fields: fields.collect() })
}

/// Returns the way to read a field. `default` is true if serde takes missing fields from a default row.
fn reading(declared: &Declared<'_>, default: bool, errors: &Diagnostics) -> Reading {
    let find = |names: &[&str]| declared.serde.iter().find(|key| names.contains(&&*key.name));
    if let Some(skip) = find(&["skip", "skip_deserializing"]) {
        let field_default = find(&["default"]);
        if default && field_default.is_none() {
            let reason = "a view would need a whole default row for this field; write `default` \
                          beside it";
            serde::report(skip, reason, errors);
        }
        return Reading::Made(field_default.and_then(|key| key.path.clone()));
    }
    if let Some(path) = find(&["deserialize_with"]).and_then(|key| key.path.clone()) {
        return Reading::With(path);
    }
    if let Some(path) = find(&["with"]).and_then(|key| key.path.clone()) {
        return Reading::With(deserialize_in(path));
    }
    // A function that serializes or tests a `String` doesn't take a `&str`.
    let tests = find(&["skip_serializing_if"]).is_some_and(|key| !tests_an_option(key));
    if tests || find(&["serialize_with"]).is_some() { Reading::Owned } else { Reading::Carried }
}

/// Whether the function is `Option::is_none` or `Option::is_some`, which take an `Option` of any type.
fn tests_an_option(key: &SerdeKey) -> bool {
    let Some(path) = &key.path else { return false };
    let mut segments = path.path.segments.iter().rev();
    let option = |word: &Ident| word == "is_none" || word == "is_some";
    path.qself.is_none()
        && segments.next().is_some_and(|last| option(&last.ident))
        && segments.next().is_some_and(|ty| ty.ident == "Option" && ty.arguments.is_none())
}

/// Returns `module::deserialize`.
fn deserialize_in(mut module: ExprPath) -> ExprPath {
    let function = Ident::new("deserialize", module.span());
    module.path.segments.push(function.into());
    module
}

/// Returns the attributes with these names.
fn shared(keys: &[SerdeKey], names: &[&str]) -> Vec<TokenStream> {
    let shared = keys.iter().filter(|key| names.contains(&&*key.name));
    shared.map(|key| key.item.clone()).collect()
}
