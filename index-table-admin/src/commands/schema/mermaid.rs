//! A picture of the tables and their references, for Mermaid.

use std::fmt::Write as _;

use index_table::report::StoreSchema;

use crate::diagram::{Entity, entities};

/// Returns an entity-relationship diagram.
pub(super) fn picture(schema: &StoreSchema) -> String {
    let (mut text, all) = ("erDiagram\n".to_owned(), entities(schema));
    for own in &all {
        entity(&mut text, own);
    }
    for own in &all {
        for reference in &own.references {
            // Writing to a text can't fail.
            let _ = writeln!(
                text,
                "    \"{}\" }}o--|| \"{}\" : \"{}\"",
                quoted(&own.table.table),
                quoted(reference.to),
                quoted(reference.name)
            );
        }
    }
    text
}

fn entity(text: &mut String, own: &Entity<'_>) {
    let _ = writeln!(text, "    \"{}\" {{", quoted(&own.table.table));
    for field in &own.fields {
        let keys = [(field.is_primary, "PK"), (field.is_foreign, "FK")];
        let keys: Vec<_> = keys.iter().filter(|(is, _)| *is).map(|(_, key)| *key).collect();
        let indexes: Vec<_> = field.indexes.iter().map(|index| quoted(index)).collect();
        let _ = write!(text, "        {} {}", word(field.declared), word(field.name));
        if !keys.is_empty() {
            let _ = write!(text, " {}", keys.join(","));
        }
        if !indexes.is_empty() {
            let _ = write!(text, " \"{}\"", indexes.join(", "));
        }
        text.push('\n');
    }
    text.push_str("    }\n");
}

/// Returns a type or a name with the letters that Mermaid allows.
fn word(name: &str) -> String {
    let letters =
        name.chars().filter(|letter| !letter.is_whitespace()).map(|letter| match letter {
            '<' => '[',
            '>' => ']',
            letter if letter.is_ascii_alphanumeric() || "[]()-_".contains(letter) => letter,
            _ => '_',
        });
    let word: String = letters.collect();
    if word.starts_with(|first: char| first.is_ascii_alphabetic()) {
        word
    } else {
        format!("t{word}")
    }
}

fn quoted(name: &str) -> String {
    name.replace('"', "'")
}
