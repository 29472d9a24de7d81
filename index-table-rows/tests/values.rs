//! What serde can write, a row can hold.

#![allow(clippy::option_option, clippy::items_after_statements, reason = "the values to test")]

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Debug,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::{Duration, SystemTime},
};

use index_table_rows::{Catalog, Error, MAX_DEPTH, Reason};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Records and reads each value; afterwards, `encode` has the same bytes.
fn round<T: Serialize + DeserializeOwned + PartialEq + Debug>(values: &[T]) -> Catalog {
    let mut catalog = Catalog::new();
    let mut rows = Vec::new();
    for value in values {
        let mut row = Vec::new();
        if catalog.encode(value, &mut row).is_err() {
            assert!(row.is_empty());
            catalog.record(value, &mut row).unwrap();
        }
        let mut again = Vec::new();
        catalog.encode(value, &mut again).unwrap();
        assert_eq!(again, row, "{value:?}");
        // Fast paths are left where the buffer has no room.
        for room in 0..row.len() {
            let mut tight = Vec::with_capacity(room);
            catalog.encode(value, &mut tight).unwrap();
            assert_eq!(tight, row, "{value:?} with room for {room}");
        }
        rows.push(row);
        // A later version of the catalog reads all earlier rows.
        for (value, row) in values.iter().zip(&rows) {
            let read: T = catalog.decode(row).unwrap_or_else(|error| panic!("{value:?}: {error}"));
            assert_eq!(format!("{read:?}"), format!("{value:?}"));
            let (noted, lost): (T, _) = catalog.decode_noting(row).unwrap();
            assert_eq!(format!("{noted:?}"), format!("{value:?}"));
            assert_eq!(lost, None);
            assert!(catalog.is_same(row, value));
            // Without the type, it is written with the same names and forms.
            let (mut other, mut copy) = (Catalog::new(), Vec::new());
            other.record(&catalog.row(row, |name| name.to_owned().leak()), &mut copy).unwrap();
            let copied: T =
                other.decode(&copy).unwrap_or_else(|error| panic!("{value:?}: {error}"));
            assert_eq!(format!("{copied:?}"), format!("{value:?}"));
        }
    }
    let stored = Catalog::from_bytes(&catalog.to_bytes()).unwrap();
    assert_eq!(stored, catalog);
    for (value, row) in values.iter().zip(&rows) {
        assert_eq!(format!("{:?}", stored.decode::<T>(row).unwrap()), format!("{value:?}"));
    }
    catalog
}

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
struct Numbers {
    a: u8,
    b: u16,
    c: u32,
    d: u64,
    e: i8,
    f: i16,
    g: i32,
    h: i64,
    i: u128,
    j: i128,
    k: f32,
    l: f64,
}

#[test]
fn numbers_keep_every_bit() {
    let lowest = Numbers {
        a: u8::MIN,
        b: u16::MIN,
        c: u32::MIN,
        d: u64::MIN,
        e: i8::MIN,
        f: i16::MIN,
        g: i32::MIN,
        h: i64::MIN,
        i: u128::MIN,
        j: i128::MIN,
        k: f32::MIN,
        l: f64::NEG_INFINITY,
    };
    let highest = Numbers {
        a: u8::MAX,
        b: u16::MAX,
        c: u32::MAX,
        d: u64::MAX,
        e: i8::MAX,
        f: i16::MAX,
        g: i32::MAX,
        h: i64::MAX,
        i: u128::MAX,
        j: i128::MAX,
        k: f32::from_bits(0x7fa0_0001),
        l: f64::from_bits(0xfff8_0000_0000_0001),
    };
    assert_eq!(round(&[lowest, highest]).len(), 1);
    let mut catalog = Catalog::new();
    let mut row = Vec::new();
    catalog.record(&f64::from_bits(0x7ff0_0000_dead_beef), &mut row).unwrap();
    assert_eq!(catalog.decode::<f64>(&row).unwrap().to_bits(), 0x7ff0_0000_dead_beef);
}

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone, Default)]
struct Nested {
    text: String,
    character: char,
    unit: (),
    pair: (u8, String),
    array: [u16; 3],
    long: Vec<(bool, Option<Option<u8>>)>,
    map: BTreeMap<(u8, String), Vec<f32>>,
    option: Option<Box<Nested>>,
    set: BTreeSet<Option<i64>>,
    units: Vec<()>,
}

#[test]
fn containers_of_every_kind_are_read_back() {
    let small = Nested { text: "é".into(), character: 'é', ..Nested::default() };
    let large = Nested {
        text: "x".repeat(300),
        pair: (9, "p".into()),
        array: [1, 2, 40_000],
        long: vec![(true, None), (false, Some(None)), (true, Some(Some(7)))],
        map: [((1, "a".into()), vec![0.5]), ((2, String::new()), vec![])].into(),
        option: Some(Box::new(Nested { option: Some(Box::new(small.clone())), ..small.clone() })),
        set: [None, Some(-5)].into(),
        units: vec![(); 5],
        ..small.clone()
    };
    round(&[small, large]);
}

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
enum Shape {
    Empty,
    Circle { radius: f64, colour: Option<u32> },
    Label(String),
    Move(i32, i32),
    Deep(Box<Shape>),
    Both(Box<Shape>, Vec<Shape>),
}

fn shapes() -> Vec<Shape> {
    let circle = Shape::Circle { radius: 0.1, colour: None };
    let deep = (0..40).fold(circle.clone(), |shape, _| Shape::Deep(Box::new(shape)));
    vec![
        Shape::Empty,
        Shape::Both(Box::new(Shape::Empty), vec![Shape::Move(-1, 1), deep.clone()]),
        circle,
        Shape::Circle { radius: 0.1, colour: Some(7) },
        Shape::Label("x".into()),
        deep,
    ]
}

#[test]
fn enums_of_every_form_are_read_back() {
    round(&shapes());
    round(&[shapes(), vec![], shapes()]);
    round(&[BTreeMap::from([(1_u8, shapes())])]);
}

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
#[serde(tag = "type", rename_all = "camelCase")]
enum Tagged {
    Created { by: u64, at: Option<i64> },
    Renamed { from: String, to: String },
    Inside(Inside),
    Closed,
}

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
struct Inside {
    shapes: Vec<Shape>,
}

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
#[serde(untagged)]
enum Loose {
    Number(i64),
    Text(String),
    Inside(Inside),
    Many(Vec<Loose>),
    Nothing,
}

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
#[serde(tag = "t", content = "c")]
enum Adjacent {
    A,
    B(u8),
    C { x: Vec<Tagged> },
}

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
struct Attributes {
    tagged: Tagged,
    many: Vec<Tagged>,
    loose: Loose,
    adjacent: Adjacent,
    #[serde(flatten)]
    inside: Inside,
    #[serde(skip_serializing_if = "Option::is_none")]
    absent: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    empty: Vec<u8>,
    #[serde(flatten)]
    extra: BTreeMap<String, serde_json::Value>,
}

fn attributes() -> Attributes {
    Attributes {
        tagged: Tagged::Closed,
        many: vec![],
        loose: Loose::Nothing,
        adjacent: Adjacent::A,
        inside: Inside { shapes: vec![] },
        absent: None,
        empty: vec![],
        extra: BTreeMap::new(),
    }
}

#[test]
fn attributes_that_need_names_are_read_back() {
    let created = Tagged::Created { by: 1, at: None };
    let renamed = Tagged::Renamed { from: "a".into(), to: "b".into() };
    let inside = Inside { shapes: vec![Shape::Empty, Shape::Label("x".into())] };
    let rows = [
        attributes(),
        Attributes { many: vec![created.clone(), renamed, Tagged::Closed], ..attributes() },
        Attributes { tagged: Tagged::Inside(inside.clone()), absent: Some(5), ..attributes() },
        Attributes {
            loose: Loose::Many(vec![
                Loose::Number(-1),
                Loose::Text("x".into()),
                Loose::Inside(inside.clone()),
            ]),
            empty: vec![1, 2],
            ..attributes()
        },
        Attributes {
            adjacent: Adjacent::C { x: vec![created] },
            inside,
            extra: [(
                "k".into(),
                serde_json::json!({ "a": [1, -2, 0.5, null, "x", true, { "b": {} }] }),
            )]
            .into(),
            ..attributes()
        },
        Attributes { adjacent: Adjacent::B(200), ..attributes() },
    ];
    round(&rows);
    let reversed: Vec<Attributes> = rows.into_iter().rev().collect();
    round(&reversed);
}

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
struct Foreign {
    id: uuid::Uuid,
    address: IpAddr,
    socket: SocketAddr,
    path: PathBuf,
    time: SystemTime,
    duration: Duration,
    by_id: HashMap<uuid::Uuid, u8>,
    json: serde_json::Value,
}

#[test]
fn types_of_other_crates_are_read_back() {
    let row = |id: u128, json| Foreign {
        id: uuid::Uuid::from_u128(id),
        address: IpAddr::from([127, 0, 0, 1]),
        socket: "[::1]:80".parse().unwrap(),
        path: "/a/b".into(),
        time: SystemTime::UNIX_EPOCH + Duration::new(5, 7),
        duration: Duration::from_millis(1500),
        by_id: [(uuid::Uuid::from_u128(id), 3)].into(),
        json,
    };
    round(&[
        row(1, serde_json::json!(null)),
        row(2, serde_json::json!([[], {}, "x", 1])),
        row(u128::MAX, serde_json::json!({ "a": u64::MAX, "b": i64::MIN, "c": 1e300 })),
    ]);
    let address = |v: IpAddr| (v, 5_u8);
    round(&[address([1, 2, 3, 4].into()), address([0_u16; 8].into())]);
}

#[test]
fn rows_are_no_larger_than_postcard_and_a_version() {
    let shapes = shapes();
    let mut catalog = Catalog::new();
    for (value, expected) in [(&shapes[..1], "\0\x01\0"), (&shapes[4..5], "\0\x01\x01\x01x")] {
        let mut row = Vec::new();
        catalog.record(value, &mut row).unwrap();
        assert_eq!(row, expected.as_bytes());
    }
    fn check<T: Serialize>(value: &T) {
        let mut row = Vec::new();
        Catalog::new().record(value, &mut row).unwrap();
        let postcard = postcard::to_stdvec(value).unwrap().len() + 1;
        assert!(row.len() <= postcard, "{} {postcard}", row.len());
    }
    check(&shapes);
    check(&Nested::default());
    check(&(7_u8, -7_i8, "text", [1.5_f32; 8], vec![1_u32, 2, 300], Some(5_u64)));
    check(&vec![uuid::Uuid::nil(); 3]);
    check(&(1_u128, -1_i128, u128::MAX, i128::MIN));
}

/// The forms that `docs/internals/rows.md` lists, but for those of `tests/kinds`.
#[test]
fn some_forms_have_more_bytes() {
    type Outcome<T> = Result<T, u64>;
    #[derive(Serialize)]
    struct Comment {
        text: &'static str,
        replies: Vec<Comment>,
    }
    fn more(value: &impl Serialize) -> usize {
        let mut row = Vec::new();
        Catalog::new().record(value, &mut row).unwrap();
        row.len() - postcard::to_stdvec(value).unwrap().len() - 1
    }
    let reply = || Comment { text: "yes", replies: Vec::new() };
    assert_eq!(more(&Comment { text: "why", replies: vec![reply(), reply(), reply()] }), 6);
    let (number, text): (Outcome<u32>, Outcome<&str>) = (Ok(7), Ok("seven"));
    assert_eq!(more(&(number, number)), 0);
    assert_eq!(more(&(number, text)), 0, "small values have no further tag");
    assert_eq!(more(&(Outcome::Ok(300), text)), 1);
}

#[test]
fn a_value_of_the_largest_depth_is_written_and_read() {
    #[derive(Serialize, Deserialize, PartialEq, Debug, Clone, Default)]
    struct Chain {
        next: Option<Box<Chain>>,
        value: u32,
    }
    let chain = |len: u32| {
        (0..len).fold(Chain::default(), |next, value| Chain { next: Some(Box::new(next)), value })
    };
    let largest = (MAX_DEPTH as u32 - 1) / 2;
    round(&[chain(0), chain(2), chain(50), chain(largest), chain(1)]);
    round(&[chain(largest)]);
    let mut catalog = Catalog::new();
    for len in [largest + 1, 400] {
        let error = catalog.record(&chain(len), &mut Vec::new()).unwrap_err();
        assert_eq!(*error.reason(), Reason::TooDeep);
        assert!(error.field().starts_with("next.next.next."), "{error}");
    }
    assert!(catalog.is_empty());
    // Also without recording, once the kinds are known.
    let mut row = Vec::new();
    catalog.record(&chain(largest), &mut row).unwrap();
    assert_eq!(
        *catalog.encode(&chain(400), &mut Vec::new()).unwrap_err().reason(),
        Reason::TooDeep
    );

    #[derive(Serialize, Deserialize, PartialEq, Debug, Clone, Default)]
    struct Tree(Vec<Tree>);
    let tree = |depth: u32| (0..depth).fold(Tree::default(), |tree, _| Tree(vec![tree]));
    let catalog = round(&(0..MAX_DEPTH as u32 - 1).map(tree).collect::<Vec<_>>());
    assert!(catalog.version() < 40, "{}", catalog.version());
}

fn refused<T: Serialize>(value: &T) -> Error {
    let mut catalog = Catalog::new();
    let mut out = b"before".to_vec();
    let error = catalog.record(value, &mut out).unwrap_err();
    assert!(catalog.is_empty());
    assert_eq!(out, b"before");
    error
}

#[test]
fn values_that_a_later_release_can_not_read_are_refused() {
    #[derive(Serialize)]
    #[serde(tag = "kind")]
    enum Twice {
        A(Kind),
    }
    #[derive(Serialize)]
    struct Kind {
        kind: u8,
    }
    #[derive(Serialize)]
    struct Row<T> {
        inner: T,
    }
    let error = refused(&Row { inner: Twice::A(Kind { kind: 1 }) });
    assert_eq!((error.field(), error.reason()), ("inner".into(), &Reason::SameName("kind".into())));
    assert_eq!(error.to_string(), "field `inner`: the struct has two fields with the name `kind`");

    struct Raw;
    impl Serialize for Raw {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            use serde::ser::SerializeStruct as _;
            let mut raw = serializer.serialize_struct("$serde_json::private::RawValue", 1)?;
            raw.serialize_field("$serde_json::private::RawValue", "1")?;
            raw.end()
        }
    }
    let error = refused(&Row { inner: Raw });
    assert_eq!(
        error.to_string(),
        "field `inner`: `$serde_json::private::RawValue` can't be read back from a row"
    );
}

/// serde's buffer for `tag`, `untagged` and `flatten` is an error for such a value, never another value.
#[test]
fn limits_of_serdes_buffer_are_errors() {
    fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T) -> Result<(), String> {
        #[derive(Serialize, Deserialize, PartialEq, Debug)]
        #[serde(tag = "t")]
        enum Tagged<T> {
            A { v: T },
        }
        let value = Tagged::A { v: value };
        let mut catalog = Catalog::new();
        let mut row = Vec::new();
        catalog.record(&value, &mut row).unwrap();
        let read: Tagged<T> = catalog.decode(&row).map_err(|error| error.to_string())?;
        assert_eq!(read, value);
        Ok(())
    }
    assert!(check(u128::MAX).is_err());
    assert!(check(i128::MIN).is_err());
    assert!(check(IpAddr::from([127, 0, 0, 1])).is_err());
    for value in [Some(Some(())), Some(None), None] {
        check(value).unwrap();
    }
    check(uuid::Uuid::from_u128(1 << 100)).unwrap();
    check(SystemTime::UNIX_EPOCH).unwrap();
    check(('x', 0.1_f32, shapes(), BTreeMap::from([(5_u64, Shape::Empty)]), vec![200_u8; 20]))
        .unwrap();
}
