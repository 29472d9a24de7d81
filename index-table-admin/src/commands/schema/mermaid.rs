//! A picture of the tables and their references, for Mermaid.

use std::fmt::Write as _;

use index_table::report::{SchemaIndex, SchemaTable, StoreSchema};

/// Returns an entity-relationship diagram.
pub(super) fn picture(schema: &StoreSchema) -> String {
    let mut text = "erDiagram\n".to_owned();
    for table in &schema.tables {
        entity(&mut text, table);
    }
    for table in &schema.tables {
        for reference in references(table) {
            let to = reference.options.iter().find_map(|option| option.strip_prefix("to="));
            let name = reference.name.trim_start_matches('@');
            // Writing to a text can't fail.
            let _ = writeln!(
                text,
                "    \"{}\" }}o--|| \"{}\" : \"{}\"",
                quoted(&table.table),
                quoted(to.unwrap_or_default()),
                quoted(name)
            );
        }
    }
    text
}

fn references(table: &SchemaTable) -> impl Iterator<Item = &SchemaIndex> {
    table.indexes.iter().filter(|index| index.strategy == "reference")
}

fn entity(text: &mut String, table: &SchemaTable) {
    let _ = writeln!(text, "    \"{}\" {{", quoted(&table.table));
    for field in &table.rows.fields {
        let is_primary = table.primary_key.iter().any(|key| key.name == field.name);
        let is_in = |index: &&SchemaIndex| index.key.iter().any(|key| key.name == field.name);
        let refers = references(table).any(|index| is_in(&index));
        let keys: Vec<_> = [(is_primary, "PK"), (refers, "FK")]
            .iter()
            .filter(|(is, _)| *is)
            .map(|(_, key)| *key)
            .collect();
        let indexes = table.indexes.iter().filter(is_in);
        let indexes =
            indexes.filter(|index| !["reference", "aggregate"].contains(&index.strategy.as_str()));
        let indexes: Vec<_> = indexes.map(|index| quoted(&index.name)).collect();
        let _ = write!(text, "        {} {}", word(&field.declared), word(&field.name));
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
