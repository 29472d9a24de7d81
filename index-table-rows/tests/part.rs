//! Fields that are copied from a row.

use std::collections::BTreeMap;

use index_table_rows::{Catalog, Error, Reason};
use proptest::{collection, prelude::*};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
enum State {
    New,
    Paid { by: String },
}

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
struct Row {
    id: u64,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    note: Option<String>,
    rate: Option<f64>,
    state: State,
    lines: Vec<(u8, String)>,
    wide: u128,
}

fn row() -> Row {
    Row {
        id: 300,
        name: "Oslo".into(),
        note: Some("n".into()),
        rate: Some(0.5),
        state: State::Paid { by: "card".into() },
        lines: vec![(1, "a".into())],
        wide: 7,
    }
}

fn recorded<T: Serialize>(catalog: &mut Catalog, value: &T) -> Vec<u8> {
    let mut row = Vec::new();
    catalog.record(value, &mut row).unwrap();
    row
}

fn copied(catalog: &Catalog, row: &[u8], names: &[&[&'static str]]) -> (bool, Vec<u8>) {
    let mut copy = vec![1, 2, 3];
    let has_all = catalog.copy_fields(row, names, &mut copy).unwrap();
    assert_eq!(copy[..3], [1, 2, 3], "it is appended");
    (has_all, copy.split_off(3))
}

#[test]
fn a_copy_has_the_number_and_the_values_of_the_row() {
    let mut catalog = Catalog::new();
    let bytes = recorded(&mut catalog, &row());
    let names: &[&[&str]] = &[&["name"], &["rate"]];
    let expected = [&bytes[..1], b"\x04Oslo\x01", &0.5_f64.to_le_bytes()].concat();
    assert_eq!(copied(&catalog, &bytes, names), (true, expected));
    assert_eq!(copied(&catalog, &bytes, &[]), (true, bytes[..1].to_vec()));
}

#[test]
fn fields_are_copied_in_any_order() -> Result<(), Error> {
    let mut catalog = Catalog::new();
    let bytes = recorded(&mut catalog, &row());
    let names: &[&[&str]] = &[&["wide"], &["lines"], &["title", "name"], &["state"], &["id"]];
    let (has_all, copy) = copied(&catalog, &bytes, names);
    assert!(has_all);
    for _ in 0..2 {
        let mut part = catalog.part(&copy)?;
        assert_eq!(part.field(&["wide"])?, Some(7_u128));
        assert_eq!(part.field(&["lines"])?, Some(row().lines));
        assert_eq!(part.text(&["title", "name"])?, Some("Oslo"));
        assert_eq!(part.field(&["state"])?, Some(row().state));
        assert_eq!(part.field(&["id"])?, Some(300_u64));
        part.end()?;
    }
    let mut part = catalog.part(&copy)?;
    assert_eq!(part.field(&["wide"])?, Some(7_u128));
    assert_eq!(part.end().unwrap_err().reason(), &Reason::Damaged, "fields are left");
    Ok(())
}

#[test]
fn a_missing_field_is_left_out() -> Result<(), Error> {
    #[derive(Serialize)]
    struct Earlier {
        id: u64,
        name: String,
    }
    let mut catalog = Catalog::new();
    let bytes = recorded(&mut catalog, &Earlier { id: 1, name: "Oslo".into() });
    let names: &[&[&str]] = &[&["note"], &["name"]];
    let (has_all, copy) = copied(&catalog, &bytes, names);
    assert!(!has_all, "the list lacks the field");
    // Another list has a place for it, also in rows without it.
    let with = recorded(&mut catalog, &row());
    let without = recorded(&mut catalog, &(Row { note: None, ..row() }));
    let copies = [with, without].map(|row| copied(&catalog, &row, names));
    assert!(copies.iter().all(|(has_all, _)| *has_all));
    let [with, without] = copies.map(|(_, copy)| copy);
    for (copy, note) in [(copy, None), (with, Some("n")), (without, None)] {
        let mut part = catalog.part(&copy)?;
        assert_eq!(part.text(&["note"])?, note);
        assert_eq!(part.text(&["name"])?, Some("Oslo"));
        part.end()?;
    }
    Ok(())
}

/// A later release names a field inside of a copied value otherwise, and has another field in front of it.
#[test]
fn a_copy_is_read_by_names() -> Result<(), Error> {
    #[derive(Serialize)]
    struct Old {
        id: u8,
        place: OldPlace,
    }
    #[derive(Serialize)]
    struct OldPlace {
        town: String,
        zip: u32,
    }
    #[derive(Deserialize, PartialEq, Debug)]
    struct Place {
        #[serde(default)]
        floor: u8,
        zip: u64,
        #[serde(alias = "town")]
        city: String,
    }
    let mut catalog = Catalog::new();
    let old = Old { id: 1, place: OldPlace { town: "Rome".into(), zip: 5 } };
    let bytes = recorded(&mut catalog, &old);
    let (_, copy) = copied(&catalog, &bytes, &[&["place"], &["id"]]);
    for _ in 0..2 {
        let mut part = catalog.part(&copy)?;
        let expected = Place { floor: 0, zip: 5, city: "Rome".into() };
        assert_eq!(part.field(&["place"])?, Some(expected));
        assert_eq!(part.field(&["id"])?, Some(1_u8));
        part.end()?;
    }
    Ok(())
}

#[test]
fn rows_that_are_no_structs_are_copied() -> Result<(), Error> {
    #[derive(Serialize)]
    struct Flat {
        id: u8,
        name: String,
        #[serde(flatten)]
        more: BTreeMap<String, u32>,
    }
    #[derive(Serialize)]
    #[serde(transparent)]
    struct Whole {
        name: String,
    }
    let mut catalog = Catalog::new();
    let more = [("a".to_owned(), 1), ("b".to_owned(), 2)].into();
    let bytes = recorded(&mut catalog, &Flat { id: 3, name: "n".into(), more });
    let (has_all, copy) = copied(&catalog, &bytes, &[&["name"], &["b"]]);
    assert!(has_all && copy.len() < bytes.len());
    let mut part = catalog.part(&copy)?;
    assert_eq!(part.field(&["b"])?, Some(2_u32));
    assert_eq!(part.text(&["name"])?, Some("n"));
    assert_eq!(part.field::<u32>(&["a"])?, None);
    part.end()?;
    assert!(!copied(&catalog, &bytes, &[&["name"], &["other"]]).0);
    let bytes = recorded(&mut catalog, &Whole { name: "w".into() });
    let (has_all, copy) = copied(&catalog, &bytes, &[&["name"]]);
    assert_eq!((has_all, &copy), (true, &bytes));
    let mut part = catalog.part(&copy)?;
    assert_eq!(part.text(&["name"])?, Some("w"));
    part.end()
}

#[test]
fn a_long_number_is_copied() -> Result<(), Error> {
    #[derive(Serialize)]
    struct Named {
        id: u8,
        name: String,
    }
    let mut catalog = Catalog::new();
    for at in 0..300_u16 {
        let name: &'static str = Box::leak(format!("field{at}").into_boxed_str());
        recorded(&mut catalog, &Pairs(vec![name, "name"]));
    }
    let bytes = recorded(&mut catalog, &Named { id: 1, name: "n".into() });
    assert!(bytes[0] >= 0x80, "the number of the row has more than one byte");
    let (has_all, copy) = copied(&catalog, &bytes, &[&["name"]]);
    assert!(has_all && copy.len() == bytes.len() - 1);
    let mut part = catalog.part(&copy)?;
    assert_eq!(part.text(&["name"])?, Some("n"));
    part.end()
}

/// A struct with fields of these names.
struct Pairs(Vec<&'static str>);

impl Serialize for Pairs {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut fields = to.serialize_struct("Pairs", self.0.len())?;
        for name in &self.0 {
            fields.serialize_field(name, &1_u8)?;
        }
        fields.end()
    }
}

fn any_row() -> impl Strategy<Value = Row> {
    let state = prop_oneof![Just(State::New), "[a-zé]{0,9}".prop_map(|by| State::Paid { by }),];
    let lines = collection::vec((any::<u8>(), "[a-z]{0,3}"), 0..3);
    let fields = (any::<u64>(), ".{0,140}", any::<Option<String>>(), any::<Option<i32>>());
    (fields, state, lines, any::<u128>()).prop_map(
        |((id, name, note, rate), state, lines, wide)| Row {
            id,
            name,
            note,
            rate: rate.map(f64::from),
            state,
            lines,
            wide,
        },
    )
}

/// The fields of a copy, in the order of these positions.
fn read(catalog: &Catalog, copy: &[u8], order: &[usize]) -> Result<Row, Error> {
    let mut part = catalog.part(copy)?;
    let mut read = row();
    for at in order {
        match at {
            0 => read.id = part.field(&["id"])?.unwrap_or(0),
            1 => part.text(&["name"])?.unwrap_or("?").clone_into(&mut read.name),
            2 => read.note = part.field(&["note"])?.unwrap_or(None),
            3 => read.rate = part.field(&["rate"])?.unwrap_or(None),
            4 => read.state = part.field(&["state"])?.unwrap_or(State::New),
            5 => read.lines = part.field(&["lines"])?.unwrap_or_default(),
            _ => read.wide = part.field(&["wide"])?.unwrap_or(0),
        }
    }
    part.end()?;
    Ok(read)
}

const NAMES: [&[&str]; 7] =
    [&["id"], &["name"], &["note"], &["rate"], &["state"], &["lines"], &["wide"]];

proptest! {
    #[test]
    fn copies_of_random_rows_have_their_fields(
        rows in collection::vec(any_row(), 1..6),
        order in Just((0..7).collect::<Vec<_>>()).prop_shuffle(),
        damage in collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
    ) {
        let names: Vec<_> = order.iter().map(|at| NAMES[*at]).collect();
        let mut catalog = Catalog::new();
        let stored: Vec<_> = rows.iter().map(|row| recorded(&mut catalog, row)).collect();
        for (row, bytes) in rows.iter().zip(&stored) {
            let (_, copy) = copied(&catalog, bytes, &names);
            prop_assert_eq!(&read(&catalog, &copy, &order).unwrap(), row);
            prop_assert!(copy.len() <= bytes.len());
            for cut in 0..copy.len() {
                let _ = read(&catalog, &copy[..cut], &order);
            }
            for (at, byte) in &damage {
                let mut damaged = copy.clone();
                let place = at.index(damaged.len());
                damaged[place] = *byte;
                let _ = read(&catalog, &damaged, &order);
                let mut damaged = bytes.clone();
                let place = at.index(damaged.len());
                damaged[place] = *byte;
                let mut out = vec![9];
                if catalog.copy_fields(&damaged, &names, &mut out).is_err() {
                    prop_assert_eq!(out, [9]);
                }
            }
        }
    }
}
