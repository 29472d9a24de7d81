//! The bytes of a row are refused, or all readers decode the same row, before and after it is written again.
#![no_main]

use std::sync::LazyLock;

use index_table::IndexTable;
use index_table_runtime::fuzzing::Rows;
use libfuzzer_sys::fuzz_target;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(view, version = 3)]
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
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Kind {
    Plain,
    Other(u8),
}

/// The catalog of a table with rows of all forms.
static CATALOG: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let row = |kind| Row {
        id: 1,
        name: "a".to_owned(),
        town: Some("b".to_owned()),
        code: -1,
        tags: vec!["c".to_owned()],
        note: Some(vec![2]),
        kind,
        weight: Some(300),
    };
    let rows = Rows::default();
    for kind in [Kind::Plain, Kind::Other(3)] {
        rows.bytes(&row(kind)).expect("a row");
    }
    rows.catalog()
});

fuzz_target!(|data: &[u8]| {
    // The first byte is the length of the catalog, up to 255 bytes, or 0 for the table's own. The rest is the row.
    let Some((&len, rest)) = data.split_first() else { return };
    let Some((catalog, data)) = rest.split_at_checked(len.into()) else { return };
    let catalog = if catalog.is_empty() { &CATALOG } else { catalog };
    let Some(rows) = Rows::with_catalog(catalog) else { return };
    let row = rows.row::<Row>(data);
    let view = rows.with_view::<Row, _>(data, |view| (view.id, view.name.to_owned(), view.code));
    // A view can't borrow from a row with other kinds, which an arbitrary catalog may have.
    assert!(row.is_some() || view.is_none());
    let Some(row) = row else { return };
    if len == 0 || view.is_some() {
        assert_eq!(view, Some((row.id, row.name.clone(), row.code)));
    }
    // Of an arbitrary catalog, the row may need more lists than a catalog can have.
    let Some(bytes) = rows.bytes(&row) else { return assert!(len > 0) };
    assert_eq!(rows.row::<Row>(&bytes), Some(row));
});
