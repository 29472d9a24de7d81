//! Whether rows of a list can be read with a declaration, as far as it is known without the struct: by the names and the kinds of
//! the fields. A function of the struct can refuse more.

use index_table_rows::{RowField, RowList};

use super::FieldSchema;
use crate::model::key::parameter_of;

/// Returns why rows of a list can't be read as a struct with these fields; `None` if they can, as far as known.
pub(crate) fn lacking(fields: &[FieldSchema], list: &RowList) -> Option<String> {
    // A row that is not a struct, because of `flatten` or `transparent`.
    let stored = list.fields.as_ref()?;
    fields.iter().find_map(|field| field.lacking_in(stored))
}

impl FieldSchema {
    fn lacking_in(&self, stored: &[RowField]) -> Option<String> {
        // The names of the fields in its place are not known.
        if self.is_flat {
            return None;
        }
        let name = self.stored;
        let is_own = |it: &&RowField| it.name == name || self.aliases.contains(&it.name.as_str());
        let option = parameter_of("Option", self.declared).filter(|_| !self.has_function);
        let may_be_absent = self.has_default || option.is_some();
        let Some(own) = stored.iter().find(is_own) else {
            return (!may_be_absent).then(|| format!("missing field `{name}`"));
        };
        let kind = match option {
            Some(_) => parameter_of("option", &own.kind).unwrap_or(&own.kind),
            None => &own.kind,
        };
        let is_refused = !self.has_function && refuses(option.unwrap_or(self.declared), kind);
        is_refused.then(|| {
            format!(
                "field `{name}` has kind {} in it, and type {} in the code",
                own.kind, self.declared
            )
        })
    }
}

/// Whether no value of a kind is a value of a type. Only scalars of the standard library are known.
fn refuses(declared: &str, kind: &str) -> bool {
    const INTEGERS: &[&str] = &["u8", "i8", "unsigned", "signed", "u128", "i128"];
    const FLOATS: &[&str] = &["f32", "f64"];
    const TEXTS: &[&str] = &["text", "char"];
    const OTHERS: &[&str] = &["bool", "unit"];
    let is_scalar = [INTEGERS, FLOATS, TEXTS, OTHERS].iter().any(|all| all.contains(&kind));
    let accepted: &[&[&str]] = match declared.rsplit("::").next().unwrap_or(declared).trim() {
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i8" | "i16" | "i32" | "i64" | "i128"
        | "isize" => &[INTEGERS],
        "f32" | "f64" => &[INTEGERS, FLOATS],
        "bool" => &[&["bool"]],
        "char" | "String" => &[TEXTS],
        _ => return false,
    };
    is_scalar && !accepted.iter().any(|all| all.contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(fields: &[(&str, &str)]) -> RowList {
        let field = |(name, kind): &(&str, &str)| RowField {
            name: (*name).to_owned(),
            kind: (*kind).to_owned(),
            absent: false,
        };
        RowList { name: "Row".to_owned(), fields: Some(fields.iter().map(field).collect()) }
    }

    #[test]
    fn a_list_is_refused_if_a_field_without_a_default_is_missing_or_of_another_kind() {
        let field = |declared| FieldSchema::new::<()>("note", declared);
        let without = list(&[("id", "unsigned")]);
        assert!(lacking(&[field("String")], &without).is_some());
        assert_eq!(lacking(&[field("String").with_default()], &without), None);
        assert_eq!(lacking(&[field("Option<String>")], &without), None);
        assert!(lacking(&[field("Option<String>").read_by_function()], &without).is_some());
        let text = list(&[("note", "text")]);
        assert!(lacking(&[field("u32")], &text).is_some());
        assert!(lacking(&[field("Option<u32>")], &list(&[("note", "option<text>")])).is_some());
        for read in [
            field("String"),
            field("Kind"),
            field("Option<String>"),
            field("u32").read_by_function(),
        ] {
            assert_eq!(lacking(&[read], &text), None);
        }
        assert_eq!(lacking(&[field("f64")], &list(&[("note", "unsigned")])), None);
        let renamed = FieldSchema::new::<()>("remark", "String").also_read_as(&["note"]);
        assert_eq!(lacking(&[renamed], &text), None);
        assert_eq!(lacking(&[field("Address").flattened()], &without), None);
        let flat = RowList { name: String::new(), fields: None };
        assert_eq!(lacking(&[field("String")], &flat), None);
    }
}
