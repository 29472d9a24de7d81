//! A damaged catalog of names and kinds, and damaged rows: an error or a value, in time and memory bounded by the input.

#![no_main]

use std::collections::BTreeMap;

use index_table_rows::Catalog;
use libfuzzer_sys::fuzz_target;
use serde::{Deserialize, Serialize, de::IgnoredAny};

#[derive(Serialize, Deserialize, PartialEq, Debug)]
#[serde(rename = "Deep")]
struct Row {
    x: Option<f64>,
    y: Option<bool>,
    z: Vec<Option<u8>>,
    #[serde(default)]
    more: BTreeMap<String, Tree>,
    #[serde(default)]
    inner: Option<Box<Row>>,
}

#[derive(Serialize, Deserialize, PartialEq, Debug)]
enum Tree {
    Empty,
    Leaf(i64),
    Pair(Box<Tree>, Box<Tree>),
    Many { trees: Vec<Tree>, name: String },
}

fuzz_target!(|input: &[u8]| {
    // The first byte is the length of the catalog, up to 255 bytes; the rest is the row.
    let Some((&len, rest)) = input.split_first() else { return };
    let Some((stored, row)) = rest.split_at_checked(len.into()) else { return };
    let Ok(mut catalog) = Catalog::from_bytes(stored) else { return };
    let again = Catalog::from_bytes(&catalog.to_bytes()).expect("a catalog that was read");
    assert_eq!(again, catalog);
    let _ = catalog.decode::<IgnoredAny>(row);
    let _ = catalog.decode::<Tree>(row);
    let _ = catalog.decode_noting::<Row>(row);
    let mut copy = Vec::new();
    if catalog.copy_fields(row, &[&["z"], &["x", "y"]], &mut copy).is_ok() {
        // The copied values may be of other types.
        let mut part = catalog.part(&copy).expect("a copy of a row that was read");
        let _ = part.field::<Vec<Option<u8>>>(&["z"]);
        let _ = part.field::<IgnoredAny>(&["x", "y"]);
    }
    let unknown = catalog.unknown::<Row>(row, 0).map(|(_, unknown)| unknown);
    let Ok(value) = catalog.decode::<Row>(row) else { return };
    let shown = format!("{value:?}");
    // What was read can be written and read, perhaps with more lists.
    let mut out = Vec::new();
    if catalog.record(&value, &mut out).is_ok() {
        let read: Row = catalog.decode(&out).expect("a row that was written");
        assert_eq!(format!("{read:?}"), shown);
        assert!(catalog.is_same(&out, &value));
        // With the fields that the type does not know, it is the same value.
        let (mut both, unknown) = (Vec::new(), unknown.expect("a row that was read"));
        if catalog.record_carried(&out, row, &unknown.fields, &mut both).is_ok() {
            let read: Row = catalog.decode(&both).expect("a row with carried fields");
            assert_eq!(format!("{read:?}"), shown);
            let again = catalog.unknown::<Row>(&both, 0).expect("a row with carried fields").1;
            assert_eq!(again.fields, unknown.fields);
        }
    }
});
