//! Single fields of a row, as borrowed views read them.

use std::borrow::Cow;

use index_table_rows::{Catalog, Error, Fields, Reason};
use proptest::{collection, prelude::*};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
struct Line {
    price: u32,
    name: String,
}

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
struct Row {
    id: u64,
    name: String,
    bytes: Vec<u8>,
    hash: [u8; 20],
    #[serde(skip_serializing_if = "Option::is_none", default)]
    note: Option<String>,
    lines: Vec<Line>,
    rate: Option<f64>,
}

fn line(price: u32, name: &str) -> Line {
    Line { price, name: name.into() }
}

fn row() -> Row {
    Row {
        id: 300,
        name: "Oslo".into(),
        bytes: vec![1, 200, 3],
        hash: [9; 20],
        note: None,
        lines: vec![line(5, "a"), line(6, "b")],
        rate: Some(0.5),
    }
}

fn recorded<T: Serialize>(catalog: &mut Catalog, value: &T) -> Vec<u8> {
    let mut row = Vec::new();
    catalog.record(value, &mut row).unwrap();
    row
}

/// Asserts that a borrowed value is a part of the row.
fn assert_inside(part: &[u8], row: &[u8]) {
    assert!(row.as_ptr_range().contains(&part.as_ptr()));
}

#[test]
fn fields_in_the_order_of_the_row_borrow_from_it() {
    let mut catalog = Catalog::new();
    let bytes = recorded(&mut catalog, &row());
    for _ in 0..2 {
        let mut fields = catalog.fields(&bytes).unwrap();
        assert_eq!(fields.field(&["id"]).unwrap(), Some(300));
        let name: &str = fields.field(&["name"]).unwrap().unwrap();
        assert_eq!(name, "Oslo");
        assert_inside(name.as_bytes(), &bytes);
        let raw: &[u8] = fields.field(&["bytes"]).unwrap().unwrap();
        assert_eq!(raw, [1, 200, 3]);
        assert_inside(raw, &bytes);
        let hash: &[u8] = fields.field(&["hash"]).unwrap().unwrap();
        assert_eq!(hash, [9; 20]);
        assert_inside(hash, &bytes);
        assert_eq!(fields.field::<Option<String>>(&["note"]).unwrap(), None, "it is absent");
        assert_eq!(fields.field(&["lines"]).unwrap(), Some(row().lines));
        assert_eq!(fields.field(&["rate"]).unwrap(), Some(Some(0.5)));
        fields.end().unwrap();
    }
}

#[test]
fn an_empty_sequence_of_bytes_is_borrowed() {
    let mut catalog = Catalog::new();
    let bytes = recorded(&mut catalog, &Row { bytes: Vec::new(), ..row() });
    let mut fields = catalog.fields(&bytes).unwrap();
    assert_eq!(fields.field::<&[u8]>(&["bytes"]).unwrap(), Some(&[][..]));
}

#[test]
fn fields_are_found_in_any_order() {
    let mut catalog = Catalog::new();
    let bytes = recorded(&mut catalog, &row());
    let mut fields = catalog.fields(&bytes).unwrap();
    assert_eq!(fields.field(&["rate"]).unwrap(), Some(0.5));
    assert_eq!(fields.field(&["new"]).unwrap(), None::<u8>);
    assert_eq!(fields.field(&["name"]).unwrap(), Some("Oslo"));
    assert_eq!(fields.field(&["name"]).unwrap(), Some("Oslo"));
    assert_eq!(fields.field(&["hash"]).unwrap(), Some([9_u8; 20]));
    assert_eq!(fields.field(&["label", "id"]).unwrap(), Some(300));
    assert_eq!(fields.field(&["hash"]).unwrap(), Some([9_u8; 20]));
    fields.end().unwrap();
    catalog.fields(&bytes).unwrap().end().unwrap();
}

#[test]
fn an_absent_field_has_no_value_but_its_alias_may() {
    #[derive(Serialize)]
    struct Two {
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<u8>,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<u8>,
        last: u8,
    }
    let mut catalog = Catalog::new();
    let all: Vec<_> =
        [(Some(1), Some(2)), (Some(1), None), (None, Some(2)), (None, None), (Some(3), Some(4))]
            .map(|(title, name)| {
                let row = recorded(&mut catalog, &Two { title, name, last: 9 });
                (title, name, row)
            })
            .into();
    for (title, name, row) in &all {
        let mut fields = catalog.fields(row).unwrap();
        assert_eq!(fields.field::<u8>(&["title", "name"]).unwrap(), title.or(*name));
        assert_eq!(fields.field(&["last"]).unwrap(), Some(9));
        assert_eq!(fields.field::<u8>(&["name"]).unwrap(), *name);
        assert_eq!(fields.field::<u8>(&["title"]).unwrap(), *title);
        fields.end().unwrap();
    }
}

#[test]
fn rows_of_two_releases_and_of_a_flattened_struct_are_read() {
    #[derive(Serialize)]
    struct Later {
        rate: f32,
        title: Cow<'static, str>,
        id: u32,
    }
    #[derive(Serialize)]
    struct Flat {
        id: u16,
        #[serde(flatten)]
        line: Line,
    }
    let mut catalog = Catalog::new();
    let first = recorded(&mut catalog, &row());
    let second = recorded(&mut catalog, &Later { rate: 0.5, title: "Oslo".into(), id: 300 });
    let flat = Flat { id: 300, line: Line { price: 5, name: "Oslo".into() } };
    let third = recorded(&mut catalog, &flat);
    for _ in 0..2 {
        for row in [&first, &second, &third] {
            let mut fields = catalog.fields(row).unwrap();
            assert_eq!(fields.field(&["id"]).unwrap(), Some(300_u64));
            assert_eq!(fields.field(&["name", "title"]).unwrap(), Some("Oslo"));
            let rate = fields.field::<f32>(&["rate"]).unwrap();
            assert_eq!(rate, (row != &third).then_some(0.5));
            fields.end().unwrap();
        }
    }
}

#[test]
fn a_nested_struct_of_another_release_is_read_by_names() {
    #[derive(Deserialize, PartialEq, Debug)]
    struct Line {
        #[serde(alias = "price")]
        name: String,
        x: u64,
    }
    #[derive(Serialize)]
    struct Before {
        name: String,
        x: u64,
    }
    #[derive(Serialize)]
    struct Outer {
        line: Before,
        last: u8,
    }
    let mut catalog = Catalog::new();
    let row = recorded(&mut catalog, &Outer { line: Before { name: "n".into(), x: 7 }, last: 9 });
    for _ in 0..3 {
        let mut fields = catalog.fields(&row).unwrap();
        let line = Line { name: "n".into(), x: 7 };
        assert_eq!(fields.field::<Line>(&["line"]).unwrap(), Some(line));
        assert_eq!(fields.field(&["last"]).unwrap(), Some(9));
        fields.end().unwrap();
    }
}

#[test]
fn a_function_reads_a_field() {
    fn doubled<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        Ok(2 * u64::deserialize(from)?)
    }
    let mut catalog = Catalog::new();
    let bytes = recorded(&mut catalog, &row());
    let mut fields = catalog.fields(&bytes).unwrap();
    assert_eq!(fields.field_with(&["id"], |from| doubled(from)).unwrap(), Some(600));
}

#[test]
fn an_error_names_the_field_and_leaves_the_others() {
    let mut catalog = Catalog::new();
    let mut bytes = recorded(&mut catalog, &row());
    let mut fields = catalog.fields(&bytes).unwrap();
    let error = fields.field::<u64>(&["title", "name"]).unwrap_err();
    assert_eq!(error.field(), "title");
    let error = fields.field::<Vec<(u8, u8)>>(&["lines"]).unwrap_err();
    assert_eq!(error.field(), "lines");
    assert_eq!(fields.field(&["id"]).unwrap(), Some(300));
    assert_eq!(fields.field(&["rate"]).unwrap(), Some(0.5));
    fields.end().unwrap();

    bytes.push(0);
    let mut fields = catalog.fields(&bytes).unwrap();
    assert_eq!(fields.field(&["rate"]).unwrap(), Some(0.5));
    assert_eq!(*fields.end().unwrap_err().reason(), Reason::Damaged);
    assert!(catalog.fields(&[]).is_err());
    assert!(catalog.fields(&[9]).is_err_and(|error| error.is_unrecorded()));
}

/// A row of a `transparent` struct is the value of its only field, in whose place any name is found.
#[test]
fn a_row_that_is_no_struct_is_its_only_field() {
    let mut catalog = Catalog::new();
    let number = recorded(&mut catalog, &7_u8);
    let list = recorded(&mut catalog, &vec![line(5, "a")]);
    for _ in 0..2 {
        let mut fields = catalog.fields(&number).unwrap();
        assert_eq!(fields.field(&["id"]).unwrap(), Some(7_u8));
        fields.end().unwrap();
        let mut fields = catalog.fields(&list).unwrap();
        assert!(fields.field::<u8>(&["id"]).is_err());
        assert_eq!(fields.field(&["lines"]).unwrap(), Some(vec![line(5, "a")]));
        fields.end().unwrap();
    }
    // Without reading the field.
    catalog.fields(&list).unwrap().end().unwrap();
    // Only the end of a row can tell a longer one.
    let mut longer = number;
    longer.push(0);
    let mut fields = catalog.fields(&longer).unwrap();
    assert_eq!(fields.field(&["id"]).unwrap(), Some(7_u8));
    assert_eq!(*fields.end().unwrap_err().reason(), Reason::Damaged);
}

/// Reads the fields in their order.
fn in_order(mut fields: Fields<'_, '_>) -> Result<Row, Error> {
    let missing = || <Error as serde::de::Error>::custom("missing");
    let row = Row {
        id: fields.field(&["id"])?.ok_or_else(missing)?,
        name: fields.field(&["name"])?.ok_or_else(missing)?,
        bytes: fields.field(&["bytes"])?.ok_or_else(missing)?,
        hash: fields.field(&["hash"])?.ok_or_else(missing)?,
        note: fields.field(&["note"])?.unwrap_or_default(),
        lines: fields.field(&["lines"])?.ok_or_else(missing)?,
        rate: fields.field(&["rate"])?.ok_or_else(missing)?,
    };
    fields.end()?;
    Ok(row)
}

fn any_row() -> impl Strategy<Value = Row> {
    let line = (any::<u32>(), "[a-z]{0,5}").prop_map(|(price, name)| Line { price, name });
    (
        (any::<u64>(), "[a-zé]{0,9}", collection::vec(any::<u8>(), 0..5), any::<[u8; 20]>()),
        proptest::option::of("[a-z]{0,5}"),
        collection::vec(line, 0..3),
        proptest::option::of((-9_i16..9).prop_map(f64::from)),
    )
        .prop_map(|((id, name, bytes, hash), note, lines, rate)| Row {
            id,
            name,
            bytes,
            hash,
            note,
            lines,
            rate,
        })
}

proptest! {
    #[test]
    fn all_fields_of_random_rows_are_those_of_decode(rows in collection::vec(any_row(), 1..20)) {
        let mut catalog = Catalog::new();
        let stored: Vec<_> = rows.iter().map(|row| recorded(&mut catalog, row)).collect();
        for (row, bytes) in rows.iter().zip(&stored) {
            prop_assert_eq!(&in_order(catalog.fields(bytes).unwrap()).unwrap(), row);
            let mut fields = catalog.fields(bytes).unwrap();
            prop_assert_eq!(fields.field(&["rate"]).unwrap(), Some(row.rate));
            prop_assert_eq!(fields.field(&["note"]).unwrap(), row.note.as_deref());
            prop_assert_eq!(fields.field(&["lines"]).unwrap(), Some(row.lines.clone()));
            prop_assert_eq!(fields.field(&["bytes"]).unwrap(), Some(&row.bytes[..]));
            prop_assert_eq!(fields.field(&["id"]).unwrap(), Some(row.id));
            fields.end().unwrap();
        }
    }

    #[test]
    fn damaged_rows_are_an_error_or_another_value(
        rows in collection::vec(any_row(), 1..4),
        damage in collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut catalog = Catalog::new();
        let stored: Vec<_> = rows.iter().map(|row| recorded(&mut catalog, row)).collect();
        for bytes in &stored {
            for (at, byte) in &damage {
                let mut bytes = bytes.clone();
                let at = at.index(bytes.len());
                bytes[at] = *byte;
                let decoded = catalog.decode::<Row>(&bytes);
                let fields = catalog.fields(&bytes).and_then(in_order);
                prop_assert_eq!(format!("{:?}", fields.ok()), format!("{:?}", decoded.ok()));
                if let Ok(mut fields) = catalog.fields(&bytes) {
                    let _ = fields.field::<f64>(&["rate"]);
                    let _ = fields.field::<&str>(&["note"]);
                    let _ = fields.field::<&str>(&["name"]);
                    let _ = fields.end();
                }
            }
            let short = &bytes[..cut.index(bytes.len())];
            prop_assert!(catalog.fields(short).and_then(in_order).is_err());
            let long = [bytes, &[0][..]].concat();
            prop_assert!(catalog.fields(&long).and_then(in_order).is_err());
        }
    }
}
