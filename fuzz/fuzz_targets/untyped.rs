//! The bytes of a row are refused, or written as JSON without the type of the row. What the type reads is its JSON, too.
#![no_main]

use std::sync::LazyLock;

use index_table::IndexTable;
use index_table_runtime::{fuzzing::Rows, json};
use libfuzzer_sys::fuzz_target;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(version = 3)]
#[index(town, name, include = [note])]
#[index(each(tags))]
#[index(hash(name), desc(code), name = "named", include = [name])]
struct Row {
    #[primary_key]
    id: u32,
    name: String,
    town: Option<String>,
    code: i64,
    tags: Vec<String>,
    note: Option<Vec<u8>>,
    kind: Kind,
    weight: Option<u16>,
    any: Any,
}

/// A type that has a tag in the row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Any {
    Number(u64),
    Text(String),
    List(Vec<Any>),
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Kind {
    Plain,
    Other(u8),
}

/// The catalog of a table with rows of all forms.
static CATALOG: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let row = |kind, any| Row {
        id: 1,
        name: "a".to_owned(),
        town: Some("b".to_owned()),
        code: -1,
        tags: vec!["c".to_owned()],
        note: Some(vec![2]),
        kind,
        weight: Some(300),
        any,
    };
    let rows = Rows::default();
    let list = Any::List(vec![Any::Number(1), Any::Text("a".to_owned())]);
    for (kind, any) in [(Kind::Plain, Any::Number(1)), (Kind::Other(3), list)] {
        rows.bytes(&row(kind, any)).expect("a row");
    }
    rows.catalog()
});

fuzz_target!(|data: &[u8]| {
    // The first byte is the length of the catalog, up to 255 bytes, or 0 for the table's own. The rest is the row.
    let Some((&len, rest)) = data.split_first() else { return };
    let Some((catalog, data)) = rest.split_at_checked(len.into()) else { return };
    let catalog = if catalog.is_empty() { &CATALOG } else { catalog };
    let Some(rows) = Rows::with_catalog(catalog) else { return };
    let text = rows.json(data);
    // A key of a map that is text, but no name, makes no difference.
    assert!(text.is_none() || rows.is_readable(data));
    let typed = rows.row::<Row>(data);
    assert!(text.is_some() || typed.is_none());
    let Some(text) = text else { return };
    // Deeply nested rows are beyond the limit of `serde_json`.
    let Ok(value) = serde_json::from_str(&text) else { return assert!(text.len() > 127) };
    if let Some(typed) = typed.filter(|_| len == 0) {
        assert_eq!(json::from_value::<Row>(&value).expect("the row"), typed);
    }
});
