//! Rows of one release, read by the types of another.

use index_table_rows::{Catalog, Error, Reason};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Records `old`, and reads its row as another type, several times, because the first time decides how.
fn read<New: DeserializeOwned + std::fmt::Debug>(old: &impl Serialize) -> Result<New, Error> {
    let mut catalog = Catalog::new();
    let mut row = Vec::new();
    catalog.record(old, &mut row)?;
    let first = format!("{:?}", catalog.decode::<New>(&row));
    for _ in 0..3 {
        assert_eq!(format!("{:?}", catalog.decode::<New>(&row)), first);
    }
    let stored = Catalog::from_bytes(&catalog.to_bytes())?;
    assert_eq!(format!("{:?}", stored.decode::<New>(&row)), first);
    catalog.decode(&row)
}

/// The first part of a row that the type does not read.
fn lost<New: DeserializeOwned>(old: &impl Serialize) -> Option<String> {
    let mut catalog = Catalog::new();
    let mut row = Vec::new();
    catalog.record(old, &mut row).unwrap();
    catalog.decode_noting::<New>(&row).unwrap().1
}

macro_rules! release {
    ($module:ident { $($item:item)+ }) => {
        mod $module {
            #![allow(dead_code, unused_imports, unreachable_pub, reason = "releases of a program, of which some are only read")]
            use super::*;
            $(#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)] $item)+
        }
    };
}

release!(one {
    pub struct Row { pub id: u64, pub line: Line, pub lines: Vec<Line>, pub state: State, pub gone: String }
    pub struct Line { pub x: u64, pub y: String, pub gone: Vec<u8>, pub state: State }
    pub enum State { Open, Paid { at: u64, by: String }, Lost(u64, u64), Moved(Place) }
    pub struct Place { pub town: String, pub street: String }
});

release!(two {
    pub struct Row {
        #[serde(default)] pub new: u64,
        pub state: State,
        #[serde(alias = "line", rename = "first")] pub head: Line,
        pub lines: Vec<Line>,
        pub id: u64,
        pub maybe: Option<u8>,
    }
    pub struct Line {
        #[serde(rename = "text", alias = "y")] pub y: String,
        pub state: State,
        #[serde(default = "seven")] pub z: u64,
        pub x: Option<u64>,
    }
    pub enum State {
        Draft,
        Moved { street: String, town: String },
        Lost(u64, u64),
        #[serde(alias = "Paid")] Settled { by: String, at: u64, #[serde(default)] tip: u8 },
        Open,
    }
});

fn seven() -> u64 {
    7
}

fn rows() -> (one::Row, two::Row) {
    use one::State::{Lost, Moved, Open, Paid};
    let line = |x: u64, state| one::Line { x, y: format!("l{x}"), gone: vec![200; 9], state };
    let place = one::Place { town: "T".into(), street: "S".into() };
    let old = one::Row {
        id: 9,
        line: line(1, Paid { at: 5, by: "b".into() }),
        lines: vec![line(2, Open), line(3, Lost(1, 2)), line(4, Moved(place))],
        state: Open,
        gone: "g".into(),
    };
    let line = |x: u64, state| two::Line { x: Some(x), y: format!("l{x}"), z: 7, state };
    let moved = two::State::Moved { street: "S".into(), town: "T".into() };
    let new = two::Row {
        new: 0,
        id: 9,
        head: line(1, two::State::Settled { at: 5, by: "b".into(), tip: 0 }),
        lines: vec![line(2, two::State::Open), line(3, two::State::Lost(1, 2)), line(4, moved)],
        state: two::State::Open,
        maybe: None,
    };
    (old, new)
}

#[test]
fn fields_and_variants_change_at_two_depths() {
    let (old, new) = rows();
    assert_eq!(read::<two::Row>(&old).unwrap(), new);
    assert_eq!(lost::<two::Row>(&old).as_deref(), Some("gone"));
}

#[test]
fn two_releases_write_into_one_catalog() {
    let (old, new) = rows();
    let mut catalog = Catalog::new();
    let (mut first, mut second) = (Vec::new(), Vec::new());
    catalog.record(&old, &mut first).unwrap();
    catalog.record(&new, &mut second).unwrap();
    let (len, version) = (catalog.len(), catalog.version());
    for _ in 0..5 {
        let mut again = Vec::new();
        catalog.encode(&old, &mut again).unwrap();
        assert!(catalog.decode::<two::Row>(&again).unwrap() == new);
        again.clear();
        catalog.encode(&new, &mut again).unwrap();
    }
    assert_eq!((catalog.len(), catalog.version()), (len, version));
    assert!(catalog.is_same(&first, &old) && catalog.is_same(&second, &new));
    assert_eq!(catalog.decode::<one::Row>(&first).unwrap(), old);
    assert_eq!(catalog.decode::<two::Row>(&second).unwrap(), new);
    let error = catalog.decode::<one::Row>(&second).unwrap_err();
    assert!(error.to_string().contains("missing field"), "{error}");
}

#[test]
fn an_error_names_the_field_and_those_around_it() {
    release!(before { pub struct Row { pub lines: Vec<Line> } pub struct Line { pub price: String } });
    release!(after { pub struct Row { pub lines: Vec<Line> } pub struct Line { pub price: u64 } });
    let error =
        read::<after::Row>(&before::Row { lines: vec![before::Line { price: "x".into() }] })
            .unwrap_err();
    assert_eq!(error.field(), "lines.price");
    assert_eq!(
        error.to_string(),
        "field `lines.price`: invalid type: string \"x\", expected an integer"
    );
}

#[test]
fn an_alias_is_not_taken_for_a_position() {
    release!(first { pub struct Row { pub id: u64, pub note: String } });
    release!(second {
        pub struct Row { pub id: u64, #[serde(alias = "note")] pub remark: String, #[serde(default)] pub extra: String }
    });
    let old = first::Row { id: 1, note: "n".into() };
    let new = second::Row { id: 1, remark: "n".into(), extra: String::new() };
    assert_eq!(read::<second::Row>(&old).unwrap(), new);
    assert_eq!(
        read::<second::Row>(&second::Row { extra: "e".into(), ..new.clone() }).unwrap().extra,
        "e"
    );
}

/// The alias is the name of a field beside it, so the names equal those of the list.
#[test]
fn a_field_that_was_merged_with_its_neighbour_is_an_error() {
    release!(first { pub struct Row { pub name: String, pub title: String, pub x: u64 } });
    release!(second { pub struct Row { #[serde(alias = "title")] pub name: String, pub x: u64 } });
    release!(third { pub struct Row { pub name: String, pub title: String } });
    release!(fourth { pub struct Row { #[serde(alias = "title")] pub name: String } });
    release!(fifth { pub struct Row { #[serde(alias = "title")] pub name: String, #[serde(default)] pub y: String } });
    let old = first::Row { name: "n".into(), title: "t".into(), x: 1 };
    assert!(read::<second::Row>(&old).unwrap_err().to_string().contains("duplicate field"));
    let old = third::Row { name: "n".into(), title: "t".into() };
    assert!(read::<fourth::Row>(&old).unwrap_err().to_string().contains("duplicate field"));
    assert!(read::<fifth::Row>(&old).unwrap_err().to_string().contains("duplicate field"));
}

/// Types with the same names may share one literal, so what one type found must not hold for the other.
#[test]
fn types_with_the_same_names_are_told_apart() {
    release!(first { pub struct Row { pub name: String, pub title: String, pub x: u64 } });
    release!(second { pub struct Row { #[serde(alias = "title")] pub name: String, pub x: u64 } });
    let mut catalog = Catalog::new();
    let mut row = Vec::new();
    let old = first::Row { name: "n".into(), title: "t".into(), x: 1 };
    catalog.record(&old, &mut row).unwrap();
    for _ in 0..3 {
        assert_eq!(catalog.decode::<first::Row>(&row).unwrap(), old);
        catalog.decode::<second::Row>(&row).unwrap_err();
    }
}

#[test]
fn fields_at_the_end_have_a_default() {
    release!(before { pub struct Row { pub a: u64, pub inner: Vec<Inner> } pub struct Inner { pub b: u8 } });
    release!(after {
        pub struct Row { pub a: u64, pub inner: Vec<Inner>, pub more: Option<String> }
        pub struct Inner { pub b: u8, #[serde(default = "seven")] pub c: u64 }
    });
    let old = before::Row { a: 5, inner: vec![before::Inner { b: 1 }, before::Inner { b: 2 }] };
    let inner = vec![after::Inner { b: 1, c: 7 }, after::Inner { b: 2, c: 7 }];
    assert_eq!(read::<after::Row>(&old).unwrap(), after::Row { a: 5, inner, more: None });
    assert_eq!(lost::<after::Row>(&old), None);
}

#[test]
fn a_row_has_what_serialize_emits() {
    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Odd {
        #[serde(rename(serialize = "a", deserialize = "b"), alias = "a")]
        first: u64,
        #[serde(skip_serializing, default)]
        second: u64,
        #[serde(skip_deserializing)]
        third: u64,
        fourth: String,
    }
    let odd = Odd { first: 1, second: 2, third: 3, fourth: "4".into() };
    assert_eq!(read::<Odd>(&odd).unwrap(), Odd { second: 0, third: 0, ..odd });
}

#[test]
fn variants_are_skipped_inserted_and_change_their_form() {
    release!(before { pub enum E { A, B(u64), C { x: u64 }, D } });
    release!(after {
        pub enum E { New, D, #[serde(skip)] Hidden, C(Inner), B { #[serde(default)] y: u8 }, A(Option<u64>) }
        pub struct Inner { pub x: u64 }
    });
    let inner = after::Inner { x: 5 };
    assert_eq!(read::<after::E>(&before::E::D).unwrap(), after::E::D);
    assert_eq!(read::<after::E>(&before::E::C { x: 5 }).unwrap(), after::E::C(inner.clone()));
    assert_eq!(read::<after::E>(&before::E::A).unwrap(), after::E::A(None));
    assert_eq!(read::<before::E>(&after::E::C(inner)).unwrap(), before::E::C { x: 5 });
    assert_eq!(read::<before::E>(&after::E::A(Some(5))).unwrap(), before::E::A);
    assert_eq!(lost::<before::E>(&after::E::A(Some(5))).as_deref(), Some("A"));
    assert!(read::<before::E>(&after::E::New).is_err());
}

#[test]
fn a_variant_that_is_read_as_another_is_lost() {
    release!(before { pub enum E { A, B(u8) } pub struct Row { pub e: Vec<E> } });
    release!(after { pub enum E { B(u8), #[serde(other)] Other } pub struct Row { pub e: Vec<E> } });
    let row = before::Row { e: vec![before::E::B(1), before::E::A] };
    assert_eq!(read::<after::Row>(&row).unwrap().e, [after::E::B(1), after::E::Other]);
    assert_eq!(lost::<after::Row>(&row).as_deref(), Some("A"));
    assert_eq!(lost::<after::Row>(&before::Row { e: vec![before::E::B(1)] }), None);
}

#[test]
fn a_payload_that_grows_and_an_enum_that_is_renamed_keep_their_kinds() {
    release!(first { pub enum State { Paid(Paid), Open } pub struct Paid { pub at: u64 } });
    release!(second { pub enum Phase { Paid(Paid), Open, New } pub struct Paid { pub at: u64, pub by: Option<String> } });
    let mut catalog = Catalog::new();
    let (mut a, mut b) = (Vec::new(), Vec::new());
    let old = vec![first::State::Open, first::State::Paid(first::Paid { at: 1 })];
    catalog.record(&old, &mut a).unwrap();
    let new =
        vec![second::Phase::New, second::Phase::Paid(second::Paid { at: 2, by: Some("b".into()) })];
    catalog.record(&new, &mut b).unwrap();
    let version = catalog.version();
    for _ in 0..3 {
        let mut row = Vec::new();
        catalog.encode(&old, &mut row).unwrap();
        assert_eq!(catalog.decode::<Vec<first::State>>(&row).unwrap(), old);
        row.clear();
        catalog.encode(&new, &mut row).unwrap();
        assert_eq!(catalog.decode::<Vec<second::Phase>>(&row).unwrap(), new);
    }
    assert_eq!(catalog.version(), version);
    // No tags: a list number, an alternative, a length, two entries, an alternative, and the values.
    assert_eq!(b.len(), b"\0\x02\x02\x01\x01\x02\x01\x01b".len());
    let paid = second::Phase::Paid(second::Paid { at: 1, by: None });
    assert_eq!(catalog.decode::<Vec<second::Phase>>(&a).unwrap(), [second::Phase::Open, paid]);
}

#[test]
fn numbers_become_wider_in_one_more_list() {
    release!(first { pub struct Row { pub a: f32, pub b: u8, pub c: u64, pub d: i8, pub e: [f32; 2] } });
    release!(second { pub struct Row { pub a: f64, pub b: i64, pub c: u128, pub d: i32, pub e: [f64; 2] } });
    let mut catalog = Catalog::new();
    let old = first::Row { a: 0.1, b: 200, c: u64::MAX, d: -100, e: [0.5, f32::NAN] };
    let new = second::Row { a: 0.1, b: -1, c: u128::MAX, d: i32::MIN, e: [0.1, f64::INFINITY] };
    let (mut a, mut b, mut c) = (Vec::new(), Vec::new(), Vec::new());
    catalog.record(&old, &mut a).unwrap();
    catalog.record(&new, &mut b).unwrap();
    let lists = catalog.len();
    assert!(lists <= 2);
    // The old release writes the new kinds, without further lists.
    catalog.encode(&old, &mut c).unwrap();
    for row in [&a, &c] {
        assert_eq!(format!("{:?}", catalog.decode::<first::Row>(row).unwrap()), format!("{old:?}"));
        let wide = catalog.decode::<second::Row>(row).unwrap();
        assert_eq!((wide.a, wide.b, wide.c), (f64::from(0.1_f32), 200, u64::MAX.into()));
        assert_eq!((wide.d, wide.e[0], wide.e[1].is_nan()), (-100, 0.5, true));
    }
    assert_eq!(catalog.decode::<second::Row>(&b).unwrap(), new);
    let error = catalog.decode::<first::Row>(&b).unwrap_err();
    assert_eq!(error.field(), "a", "0.1 is no `f32`: {error}");
}

#[test]
fn a_value_is_read_only_if_it_is_exact_and_of_the_sort() {
    assert_eq!(read::<f64>(&5_u64).unwrap().to_bits(), 5_f64.to_bits());
    assert!(read::<f64>(&u64::MAX).is_err());
    assert!(read::<f32>(&0.1_f64).is_err());
    assert!(read::<u8>(&300_u16).is_err());
    assert!(read::<String>(&serde_bytes_like(b"text")).is_err(), "bytes are no text");
    assert!(read::<Vec<u8>>(&"text").is_err(), "a text is no sequence");
    assert_eq!(read::<Vec<u8>>(&serde_bytes_like(b"text")).unwrap(), b"text");
    assert_eq!(read::<Option<String>>(&"text").unwrap().as_deref(), Some("text"));
    assert_eq!(read::<String>(&Some("text")).unwrap(), "text");
    assert!(read::<String>(&None::<String>).is_err());
    assert_eq!(read::<String>(&'x').unwrap(), "x");
    assert_eq!(read::<char>(&"x").unwrap(), 'x');
    release!(name { pub enum Name { A, B } });
    assert_eq!(read::<name::Name>(&"B").unwrap(), name::Name::B);
    assert_eq!(read::<String>(&name::Name::A).unwrap(), "A");
}

fn serde_bytes_like(bytes: &'static [u8]) -> impl Serialize {
    struct Bytes(&'static [u8]);
    impl Serialize for Bytes {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(self.0)
        }
    }
    Bytes(bytes)
}

#[test]
fn elements_are_not_dropped_in_silence() {
    assert!(read::<(u8, u8)>(&(1_u8, 2_u8, 3_u8)).is_err());
    assert!(read::<(u8, String)>(&(1_u8, "x", 3_u8)).is_err());
    assert!(read::<[u8; 2]>(&vec![1_u8, 2, 3]).is_err());
    assert_eq!(read::<Vec<u8>>(&(1_u8, 2_u8, 3_u8)).unwrap(), [1, 2, 3]);
    release!(xyz { pub struct Xyz { pub x: u8, pub y: u8, pub z: u8 } });
    assert!(read::<xyz::Xyz>(&vec![1_u8, 2, 3]).is_err(), "elements have no names");
}

#[test]
fn attributes_of_containers_read_older_forms() {
    release!(before { pub struct Row { pub a: u32, pub b: Vec<Inner> } pub struct Inner { pub c: u8, pub d: f32 } });
    release!(after {
        #[serde(deny_unknown_fields)] pub struct Strict { pub a: u64 }
        pub struct Flat { #[serde(flatten)] pub a: A, pub b: Vec<Inner> }
        pub struct A { pub a: i64 }
        #[serde(default)] pub struct Inner { pub e: String, pub d: f64 }
        #[serde(transparent)] pub struct Id { pub id: u64 }
        #[serde(from = "u64", into = "u64")] pub struct Seconds(pub u32);
    });
    impl Default for after::Inner {
        fn default() -> Self {
            Self { e: "e".into(), d: 1.0 }
        }
    }
    impl From<u64> for after::Seconds {
        fn from(seconds: u64) -> Self {
            Self(u32::try_from(seconds).unwrap())
        }
    }
    impl From<after::Seconds> for u64 {
        fn from(seconds: after::Seconds) -> Self {
            seconds.0.into()
        }
    }
    let old = before::Row {
        a: 70_000,
        b: vec![before::Inner { c: 1, d: 0.5 }, before::Inner { c: 2, d: 0.25 }],
    };
    assert!(read::<after::Strict>(&old).unwrap_err().to_string().contains("unknown field `b`"));
    let flat: after::Flat = read(&old).unwrap();
    assert_eq!((flat.a.a, flat.b.len(), flat.b[1].d, flat.b[1].e.as_str()), (70_000, 2, 0.25, "e"));
    // And a map, which `flatten` wrote, as a struct.
    assert_eq!(read::<after::A>(&flat).unwrap().a, 70_000);
    assert_eq!(read::<after::Id>(&5_u8).unwrap().id, 5);
    assert_eq!(read::<after::Seconds>(&5_u8).unwrap(), after::Seconds(5));
}

#[test]
fn an_older_catalog_says_that_it_lacks_something() {
    let mut catalog = Catalog::new();
    catalog.record(&None::<u8>, &mut Vec::new()).unwrap();
    let older = catalog.clone();
    let mut row = Vec::new();
    catalog.record(&Some(5_u8), &mut row).unwrap();
    assert_eq!(
        *older.decode::<Option<u8>>(&row).unwrap_err().reason(),
        Reason::Unrecorded,
        "a hole"
    );
    row.clear();
    catalog.record(&"text", &mut row).unwrap();
    assert_eq!(
        *older.decode::<String>(&row).unwrap_err().reason(),
        Reason::Unrecorded,
        "an alternative"
    );
    assert_eq!(*older.encode(&"text", &mut row).unwrap_err().reason(), Reason::Unrecorded);
}

/// Afterwards, both releases encode without recording.
#[test]
fn a_renamed_field_of_a_variant_is_recorded_once() {
    release!(before { pub enum Shape { Empty, Named { name: String, at: u64, size: u8 } } });
    release!(after { pub enum Shape { Empty, Named { name: String, place: u64, size: u8 } } });
    let old = before::Shape::Named { name: "n".into(), at: 300, size: 1 };
    let new = after::Shape::Named { name: "n".into(), place: 300, size: 1 };
    for with_empty in [true, false] {
        let mut catalog = Catalog::new();
        if with_empty {
            catalog.record(&before::Shape::Empty, &mut Vec::new()).unwrap();
        }
        let (mut first, mut second) = (Vec::new(), Vec::new());
        catalog.record(&old, &mut first).unwrap();
        catalog.record(&new, &mut second).unwrap();
        let (mut third, mut fourth) = (Vec::new(), Vec::new());
        catalog.encode(&old, &mut third).unwrap();
        catalog.encode(&new, &mut fourth).unwrap();
        assert_eq!((&third, &fourth), (&first, &second));
        assert!(catalog.is_same(&first, &old) && catalog.is_same(&second, &new));
        assert!(!catalog.is_same(&first, &new));
        assert_eq!(catalog.decode::<before::Shape>(&first).unwrap(), old);
        assert_eq!(catalog.decode::<after::Shape>(&second).unwrap(), new);
    }
}
