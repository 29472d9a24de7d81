//! The rules of `#[derive(IndexKey)]`.

use std::collections::HashMap;

use quote::format_ident;
use syn::punctuated::Punctuated;
use syn::{
    Data, DeriveInput, Expr, ExprLit, Fields, Ident, Lit, LitInt, Member, Path, Token, parse_quote,
};

use crate::attr::Setting;
use crate::attr::key::KeyAttr;
use crate::attr::serde;
use crate::diagnostics::Diagnostics;
use crate::model::{KeyMember, KeyType, KeyValues, KeyVariant};
use crate::names;
use crate::types::{self, DataType};

/// The number of the first field of a key, among the [numbers](DataType::place) of a type. The struct can also be a table, whose
/// fields have smaller numbers.
const FIRST_OF_KEY: usize = 1 << 16;

/// The items that can be generated for a key.
pub(crate) enum LoweredKey {
    Key(KeyType),
    /// Nothing but a replacement. An error has been reported.
    Inert(Path),
}

/// Checks the type, and assigns a number to each variant.
pub(crate) fn lower(input: &DeriveInput, errors: &Diagnostics) -> LoweredKey {
    let attributes = KeyAttr::read(&input.attrs, errors);
    if let Some(order) = &attributes.order {
        errors.error(order.key, "`order` belongs on a variant: write `#[key(order = 1)]` there");
    }
    let krate = match attributes.krate {
        Some(path) => path.value,
        None => parse_quote!(::index_table),
    };
    let generic = input.generics.params.first().is_some();
    if generic {
        errors.error_on(
            &input.generics,
            "a key has one encoding, so `IndexKey` cannot be derived for a type with type, const \
             or lifetime parameters",
        );
    }
    match values(input, errors) {
        Some(values) if !generic => {
            LoweredKey::Key(KeyType { krate, ident: input.ident.clone(), values })
        }
        _ => LoweredKey::Inert(krate),
    }
}

fn values(input: &DeriveInput, errors: &Diagnostics) -> Option<KeyValues> {
    let at = input.ident.span();
    match &input.data {
        Data::Struct(data) => {
            let members = members(&input.ident, &data.fields, errors);
            if members.is_empty() {
                errors.error(
                    at,
                    "a key has at least one byte, and a struct without fields has none: `IndexKey` \
                     is derived for newtypes, structs of keys and enums without fields",
                );
                return None;
            }
            // An error has been reported for the missing fields.
            members.into_iter().collect::<Option<_>>().map(KeyValues::Members)
        }
        Data::Enum(data) if data.variants.is_empty() => {
            errors.error(at, "an enum without variants has no values that could be a key");
            None
        }
        Data::Enum(data) => {
            for key in serde::read(&input.attrs) {
                if key.name == "untagged" {
                    let message = "serde's `untagged` writes each variant without its name, so that it \
                                   can't be read again; remove it";
                    errors.error(key.span, message);
                }
            }
            variants(&data.variants, errors).map(KeyValues::Variants)
        }
        Data::Union(_) => {
            errors.error(
                at,
                "the contents of a union are not known, so it can't be a key: `IndexKey` is \
                 derived for newtypes, structs of keys and enums without fields",
            );
            None
        }
    }
}

/// Returns the fields, with `None` for a field that can't be part of a key.
fn members(key: &Ident, fields: &Fields, errors: &Diagnostics) -> Vec<Option<KeyMember>> {
    let member = |(position, field): (usize, &syn::Field)| {
        reject_on_field(field, errors);
        reject_changed_values(field, errors);
        let (member, marker) = match &field.ident {
            Some(ident) => (Member::Named(ident.clone()), ident.clone()),
            None => (Member::from(position), format_ident!("_{position}")),
        };
        if types::has_no_encoding(&field.ty) {
            let name = field.ident.as_ref().map_or(position.to_string(), names::plain);
            errors
                .error_on(&field.ty, super::no_encoding(&name, &types::text(&field.ty), &field.ty));
            return None;
        }
        Some(KeyMember {
            member,
            marker,
            ty: DataType::of(&field.ty).at(key, FIRST_OF_KEY + position),
        })
    };
    fields.iter().enumerate().map(member).collect()
}

fn reject_on_field(field: &syn::Field, errors: &Diagnostics) {
    let attributes = KeyAttr::read(&field.attrs, errors);
    if let Some(order) = attributes.order {
        errors.error(order.key, "fields are sorted in the order of their declaration");
    }
    reject_crate(attributes.krate.as_ref(), errors);
}

/// Rejects serde attributes that can change the value in the row. The key has the value of the field, so a
/// change of the row would not find its entry.
fn reject_changed_values(field: &syn::Field, errors: &Diagnostics) {
    for key in serde::read(&field.attrs) {
        let reason = match key.name.as_str() {
            "skip" | "skip_serializing" | "skip_deserializing" => {
                "a field of a key has to be stored with its row"
            }
            "with" | "serialize_with" | "deserialize_with" => {
                "serde could store another value in the row than the index has in its key"
            }
            _ => continue,
        };
        errors.error(key.span, format!("serde's `{}` cannot be used in a key: {reason}", key.name));
    }
}

fn reject_crate(krate: Option<&Setting<Path>>, errors: &Diagnostics) {
    if let Some(krate) = krate {
        errors.error(krate.key, "`#[key(crate = path)]` is written on the type");
    }
}

/// Returns the number of `#[key(order = N)]`, or an error message.
fn given(order: &LitInt, taken: &HashMap<u16, String>) -> Result<u16, String> {
    let number: u16 = order
        .base10_parse()
        .map_err(|_| format!("an order is a whole number from 0 to {}", u16::MAX))?;
    match taken.get(&number) {
        Some(other) => Err(format!("`{other}` has the order {number} already")),
        None => Ok(number),
    }
}

/// Reports the first variant whose discriminant is less than that of the variant before it. The index has the variants
/// in the order of their declaration.
fn check_discriminants(declared: &Punctuated<syn::Variant, Token![,]>, errors: &Diagnostics) {
    let mut last: Option<i128> = None;
    for variant in declared {
        let number = match &variant.discriminant {
            Some((_, Expr::Lit(ExprLit { lit: Lit::Int(number), .. }))) => {
                number.base10_parse().ok()
            }
            // The compiler calculates the value of another expression.
            Some(_) => return,
            None => last.map_or(Some(0), |last| last.checked_add(1)),
        };
        let Some(number) = number else { return };
        if let (true, Some((_, place))) =
            (last.is_some_and(|last| number < last), &variant.discriminant)
        {
            let order = u16::try_from(number).map_or_else(|_| "…".to_owned(), |it| it.to_string());
            let message = format!(
                "an index has the variants in the order of their declaration, not of these numbers; declare \
                 `{}` earlier, or put `#[key(order = {order})]` on it, and an order on each other variant; \
                 `order = 0`, `1` and so on, as declared, keeps the keys of stored rows",
                variant.ident
            );
            errors.error_on(place, message);
            return;
        }
        last = Some(number);
    }
}

fn has_attribute(variant: &syn::Variant) -> bool {
    variant.attrs.iter().any(|attribute| attribute.path().is_ident("key"))
}

/// Returns the variants with their numbers: the numbers of `order`, which all variants have or none, or else
/// the positions.
fn variants(
    declared: &Punctuated<syn::Variant, Token![,]>,
    errors: &Diagnostics,
) -> Option<Vec<KeyVariant>> {
    let mut sound = true;
    let orders: Vec<Option<Setting<LitInt>>> = declared
        .iter()
        .map(|variant| {
            if !matches!(variant.fields, Fields::Unit) {
                errors.error_on(
                    &variant.fields,
                    format!(
                        "each variant of a key is a number, and `{}` has fields; store them as \
                         fields of the row, and index these",
                        variant.ident
                    ),
                );
                sound = false;
            }
            variant.fields.iter().for_each(|field| reject_on_field(field, errors));
            let attributes = KeyAttr::read(&variant.attrs, errors);
            reject_crate(attributes.krate.as_ref(), errors);
            attributes.order
        })
        .collect();
    let explicit = orders.iter().any(Option::is_some);
    if !explicit {
        check_discriminants(declared, errors);
    }
    let mut taken: HashMap<u16, String> = HashMap::new();
    let mut variants = Vec::new();
    for (position, (variant, order)) in declared.iter().zip(&orders).enumerate() {
        let name = names::plain(&variant.ident);
        let given = order.as_ref().and_then(|order| {
            given(&order.value, &taken)
                .map_err(|message| errors.error(order.value.span(), message))
                .ok()
        });
        // An invalid attribute has been reported.
        if order.is_none() && explicit && !has_attribute(variant) {
            errors.error(
                variant.ident.span(),
                format!(
                    "`{name}` has no order and other variants have one; put `#[key(order = 1)]` \
                     on all of them, or on none"
                ),
            );
        }
        let number = given.map_or_else(|| u16::try_from(position), Ok);
        let Ok(number) = number else {
            errors.error(variant.ident.span(), "a key has at most 65536 variants");
            return None;
        };
        taken.entry(number).or_insert_with(|| name.clone());
        variants.push(KeyVariant { ident: variant.ident.clone(), name, number });
    }
    sound.then_some(variants)
}
