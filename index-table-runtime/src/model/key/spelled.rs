//! Shapes from types as they are spelled in a struct, for code that has no types.

use super::{KeyShape, shape_of};

/// Returns the shape of `Uuid` or a type in the standard library, as it is spelled; `None` if it is not known.
pub(crate) fn shape_of_type(declared: &str) -> Option<KeyShape> {
    if let Some(inner) = parameter_of("Option", declared) {
        return shape_of(&format!("option<{}>", shape_of_type(inner)?));
    }
    match declared.rsplit("::").next().unwrap_or(declared).trim() {
        "String" => shape_of("text"),
        "SystemTime" => shape_of("instant"),
        "Duration" => shape_of("duration"),
        "Uuid" => shape_of("uuid"),
        name @ ("u8" | "u16" | "u32" | "u64" | "u128" | "i8" | "i16" | "i32" | "i64" | "i128"
        | "bool" | "char" | "f32" | "f64") => shape_of(name),
        _ => None,
    }
}

/// Returns the only parameter of a type.
pub(crate) fn parameter(declared: &str) -> Option<&str> {
    let (_, rest) = declared.split_once('<')?;
    rest.strip_suffix('>').map(str::trim)
}

/// Returns the only parameter of a type with this name.
pub(crate) fn parameter_of<'t>(name: &str, declared: &'t str) -> Option<&'t str> {
    let (before, _) = declared.split_once('<')?;
    if before.rsplit("::").next()?.trim() == name { parameter(declared) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_known_by_types_as_they_are_spelled() {
        let shown = |declared| shape_of_type(declared).map(|shape| shape.to_string());
        assert_eq!(shown("u64").as_deref(), Some("u64"));
        assert_eq!(shown("std::string::String").as_deref(), Some("text"));
        assert_eq!(shown("Option<i32>").as_deref(), Some("option<i32>"));
        assert_eq!(shown("Option<Option<uuid::Uuid>>").as_deref(), Some("option<option<uuid>>"));
        assert_eq!(shown("SystemTime").as_deref(), Some("instant"));
        assert_eq!(shown("Vec<u8>"), None);
        assert_eq!(
            parameter("Vec<u8>").and_then(shape_of_type).map(|shape| shape.to_string()).as_deref(),
            Some("u8")
        );
    }
}
