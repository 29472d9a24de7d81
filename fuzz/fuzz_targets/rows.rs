//! The bytes of a row are refused, or all readers decode the same row, before and after it is written again.
#![no_main]

use index_table::IndexTable;
use index_table_runtime::fuzzing;
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

fuzz_target!(|data: &[u8]| {
    let row = fuzzing::row::<Row>(data);
    let view =
        fuzzing::with_view::<Row, _>(data, |view| (view.id, view.name.to_owned(), view.code));
    assert_eq!(row.is_some(), view.is_some());
    let Some(row) = row else { return };
    assert_eq!(view, Some((row.id, row.name.clone(), row.code)));
    let bytes = fuzzing::row_bytes(&row).expect("a row that was read can be written");
    assert_eq!(fuzzing::row::<Row>(&bytes), Some(row));
});
