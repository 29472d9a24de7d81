//! Attributes of other libraries in the place of an attribute of this one.
//!
//! Such an attribute can also belong to another derive of the struct. So it is an error only if the declaration has no attribute
//! of this library for the same purpose.

use syn::{Attribute, Data, DeriveInput, Path};

use super::{IS_PRIMARY_KEY, arguments};
use crate::{diagnostics::Diagnostics, names};

/// Reports such attributes, but for those that stand for a primary key.
pub(crate) fn check(input: &DeriveInput, errors: &Diagnostics) {
    let on_struct = &input.attrs;
    for attribute in on_struct {
        let (path, fields) = (attribute.path(), arguments(attribute));
        let word = path.get_ident().map(ToString::to_string).unwrap_or_default();
        let fields = if fields.is_empty() { "field" } else { &fields };
        match word.as_str() {
            "unique" if !has_index(on_struct, "unique") => {
                errors.error_on(path, format!("this is written `#[index({fields}, unique)]`"));
            }
            "indexed" if !has_index(on_struct, "") => {
                errors.error_on(path, format!("this is written `#[index({fields})]`"));
            }
            "foreign_key" if !has_reference(on_struct) => {
                let message = "a reference is written on its field: `#[references(Customer)]`";
                errors.error_on(path, message);
            }
            _ => {}
        }
    }
    let Data::Struct(data) = &input.data else { return };
    let is_key = |it: &Attribute| it.path().is_ident("primary_key");
    let has_key = data.fields.iter().any(|field| field.attrs.iter().any(is_key));
    for field in &data.fields {
        let name = field.ident.as_ref().map(names::plain).unwrap_or_default();
        for attribute in &field.attrs {
            let path = attribute.path();
            let word = path.get_ident().map(ToString::to_string).unwrap_or_default();
            match word.as_str() {
                // No other derive is known to have it. Without another key, it stands for the key.
                "primarykey" if has_key => errors.error_on(path, IS_PRIMARY_KEY),
                "unique" if !has_index(on_struct, &name) => {
                    let index = format!("#[index({name}, unique)]");
                    errors.error_on(path, on_the_struct(&index));
                }
                "indexed" if !has_index(on_struct, &name) => {
                    errors.error_on(path, on_the_struct(&format!("#[index({name})]")));
                }
                "foreign_key" if !has_reference(&field.attrs) => {
                    let to = arguments(attribute);
                    let is_path = syn::parse_str::<Path>(&to).is_ok();
                    let to = if is_path { &to } else { "Customer" };
                    errors.error_on(path, format!("this is written `#[references({to})]`"));
                }
                _ => {}
            }
        }
    }
}

/// Returns the message about an index on a field.
pub(super) fn on_the_struct(index: &str) -> String {
    format!("an index is declared on the struct: `{index}`")
}

/// Whether an index on the struct has this field or option; with the empty word, whether there is an index.
fn has_index(on_struct: &[Attribute], word: &str) -> bool {
    let is_index = |it: &&Attribute| it.path().is_ident("index") || it.path().is_ident("indexes");
    on_struct.iter().filter(is_index).any(|index| {
        let text = arguments(index);
        let mut words = text.split(|it: char| !it.is_alphanumeric() && it != '_');
        word.is_empty() || words.any(|own| own == word)
    })
}

fn has_reference(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|it| it.path().is_ident("references"))
}
