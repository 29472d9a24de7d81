//! The replacement of references in the types of fields. A row outlives the bytes from which it is read, so
//! it owns its values.

use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, Data, DeriveInput, Type, TypePath, TypeReference, parse_quote};

use crate::attr::serde;
use crate::diagnostics::Diagnostics;
use crate::types::{self, text};

/// Reports references in the types of fields, and returns the struct with owned types; `None` without
/// references. A field that serde skips, or reads by a function, may contain a reference.
pub(super) fn without_references(input: &DeriveInput, errors: &Diagnostics) -> Option<DeriveInput> {
    // A struct with generic parameters is rejected.
    let generic = input.generics.params.first().is_some();
    if generic || converts(&input.attrs, &["from", "try_from", "remote"]) {
        return None;
    }
    let Data::Struct(data) = &input.data else { return None };
    let has_reference = |ty: &Type| {
        let mut owning = Owning { errors, found: false };
        owning.visit_type_mut(&mut ty.clone());
        owning.found
    };
    let is_read = |field: &syn::Field| {
        !converts(&field.attrs, &["skip", "skip_deserializing", "with", "deserialize_with"])
    };
    let borrowed: Vec<bool> =
        data.fields.iter().map(|field| is_read(field) && has_reference(&field.ty)).collect();
    if !borrowed.contains(&true) {
        return None;
    }
    let mut owned = input.clone();
    if let Data::Struct(data) = &mut owned.data {
        let fields = data.fields.iter_mut().zip(borrowed).filter(|(_, borrowed)| *borrowed);
        // The errors have been reported.
        let silent = Diagnostics::new();
        for (field, _) in fields {
            Owning { errors: &silent, found: false }.visit_type_mut(&mut field.ty);
        }
        drop(silent.finish());
    }
    Some(owned)
}

fn converts(attributes: &[Attribute], names: &[&str]) -> bool {
    serde::read(attributes).iter().any(|key| names.contains(&key.name.as_str()))
}

/// Replaces references by owned types.
struct Owning<'a> {
    errors: &'a Diagnostics,
    found: bool,
}

impl VisitMut for Owning<'_> {
    fn visit_type_mut(&mut self, ty: &mut Type) {
        match ty {
            Type::Reference(reference) => {
                let owned = owned(reference);
                let written = types::shown(&text(&owned));
                let message = format!("a row must own its values; write `{written}`");
                self.errors.error_on(&*reference, message);
                self.found = true;
                *ty = owned;
            }
            Type::Array(_) | Type::Group(_) | Type::Paren(_) | Type::Slice(_) | Type::Tuple(_) => {
                visit_mut::visit_type_mut(self, ty);
            }
            Type::Path(path) => self.visit_type_path_mut(path),
            _ => {}
        }
    }

    /// Visits only types of the standard library, because the meaning of other types' parameters is unknown.
    fn visit_type_path_mut(&mut self, path: &mut TypePath) {
        if types::is_standard(&Type::Path(path.clone())) {
            visit_mut::visit_type_path_mut(self, path);
        }
    }
}

/// Returns the owned type with the same values: `String` for `&str`.
fn owned(reference: &TypeReference) -> Type {
    match &*reference.elem {
        Type::Slice(slice) => {
            let element = &slice.elem;
            parse_quote!(Vec<#element>)
        }
        elem if types::is_str(elem) => parse_quote!(String),
        elem => elem.clone(),
    }
}
